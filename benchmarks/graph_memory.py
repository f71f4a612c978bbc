"""How much memory the rollout of `paper-143k` holds at most, beside what it would be without a shared graph.

The episode is really played on a graph with pools, token by token and step by step, as a rollout does: fork, decode,
end a turn, read, close with a forced token, decode, commit. Only the model is missing: a step publishes what it would
have computed. What is taken is the high-water mark of both pools, inside steps too, cache included. Branches are held
until the episode ends. In front of it stands the closed form: every token once, and the states that must be kept.

The rivals are closed forms, with no page that is not full and one recurrent state for each line:
- copies: each of the 13 lines by itself, what it reads as text of its own;
- text with a prefix cache: the root once, what is read as text of its reader's own; the root's state besides.

Sizes are those of Qwen3.5-4B in bfloat16: 8 attention layers, 4 KV heads of 256; 24 recurrent layers, 32 heads of 128 x
128 in float32 and 3 convolution columns of 8,192 in bfloat16.

    PYTHONPATH=. python benchmarks/graph_memory.py --json benchmarks/results/graph_memory.jsonl

Exit code 1 if the high-water mark is not the closed form or, unless lengths are divided, a bound does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from figures import Figures, command_line

from octopus.core.graph import Graph
from octopus.core.pool import PagePool, Pool, StatePool
from octopus.core.storage.kv import KVShape
from octopus.core.thread import Thread

BRANCHES, READ_BY_A_BRANCH = 12, 2
PAGE_TOKENS = 64
PREFILL_TOKENS = 8_192
SHAPE = KVShape(
    attention_layers=8, kv_heads=4, head_dim=256,
    recurrent_layers=24, conv_columns=3, conv_channels=8_192, value_heads=32, key_dim=128, value_dim=128,
)  # fmt: skip

BOUNDS = {"copies": (4.2, 3.3), "text with a prefix cache": (1.5, 1.25)}
"""How many times less we must hold than each rival, of KV alone and with states."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Of `paper-143k`, in tokens: the root, a branch's halves, the join, and what is read of one branch at a time."""

    root: int = 32_768
    half: int = 4_096
    join: int = 12_288
    read: int = 2_048

    def divided(self, scale: int) -> Lengths:
        """Each by `scale`."""
        return Lengths(
            root=self.root // scale, half=self.half // scale, join=self.join // scale, read=self.read // scale
        )


@dataclass(frozen=True, kw_only=True)
class Held:
    """Tokens with KV, and recurrent states."""

    tokens: int
    states: int

    @property
    def kv_bytes(self) -> int:
        """Of the tokens."""
        return self.tokens * SHAPE.bytes_per_token(torch.bfloat16)

    @property
    def bytes(self) -> int:
        """Of both."""
        return self.kv_bytes + self.states * SHAPE.bytes_per_state(torch.bfloat16)

    def below(self, other: Held) -> tuple[float, float]:
        """How many times less it takes than `other`, of KV alone and in all."""
        return other.kv_bytes / self.kv_bytes, other.bytes / self.bytes


def shared(lengths: Lengths) -> Held:
    """Every token once. States: the root's, each branch's turn and end, the join's."""
    tokens = lengths.root + BRANCHES * 2 * lengths.half + lengths.join
    return Held(tokens=tokens, states=1 + 2 * BRANCHES + 1)


def copies(lengths: Lengths) -> Held:
    """Each line by itself."""
    text = text_with_a_prefix_cache(lengths)
    return Held(tokens=text.tokens + BRANCHES * lengths.root, states=BRANCHES + 1)


def text_with_a_prefix_cache(lengths: Lengths) -> Held:
    """The root once, what is read again as text."""
    branch = 2 * lengths.half + READ_BY_A_BRANCH * lengths.read
    join = BRANCHES * lengths.read + lengths.join
    return Held(tokens=lengths.root + BRANCHES * branch + join, states=1 + BRANCHES + 1)


class Watched(Pool):
    """Remembers the most units that were ever taken at once, those that a step still fences included."""

    peak = 0

    def allocate(self, count: int) -> list[int]:
        """See `Pool.allocate`."""
        handles = super().allocate(count)
        self.peak = max(self.peak, self.used + self.fenced)
        return handles


class Pages(Watched, PagePool):
    """Of KV."""


class States(Watched, StatePool):
    """Of recurrent layers."""


def play(lengths: Lengths) -> Held:
    """Plays the episode; returns the high-water marks, pages counted as if they were full."""
    roomy = copies(lengths)
    pages, states = Pages(roomy.tokens // PAGE_TOKENS, page_size=PAGE_TOKENS), States(8 * roomy.states)
    graph = Graph(pages=pages, states=states)
    root = graph.thread()
    write(graph, [root], lengths.root)
    branches = graph.fork(root, BRANCHES)
    decode(graph, branches, lengths.half)
    for branch in branches:
        graph.end_turn(branch)
    for index, branch in enumerate(branches):
        for step in range(1, READ_BY_A_BRANCH + 1):
            graph.read_thread(branch, branches[(index + step) % BRANCHES], last=lengths.read)
    decode(graph, branches, lengths.half)
    for branch in branches:
        graph.end_turn(branch)
        graph.commit(branch)
    for branch in branches:
        graph.read_thread(root, branch, last=lengths.read)
    decode(graph, [root], lengths.join)
    graph.commit(root)
    graph.check()
    return Held(tokens=pages.peak * PAGE_TOKENS, states=states.peak)


def decode(graph: Graph, threads: Sequence[Thread], tokens: int) -> None:
    """So many tokens for each, one a step; the first of them stands for the forced one that closes what was read."""
    for _ in range(tokens):
        write(graph, threads, 1)


def write(graph: Graph, threads: Sequence[Thread], tokens: int) -> None:
    """So many tokens for each, and a step that computes them."""
    for thread in threads:
        graph.append(thread, [0] * tokens)
    with graph.begin_step(threads, chunk_tokens=PREFILL_TOKENS) as step:
        for wave in step.waves:
            for stretch in wave:
                step.state_move(stretch)
                step.publish(stretch)


def measure(figures: Figures, case: str, lengths: Lengths) -> None:
    """One episode beside the closed forms."""
    held, least = play(lengths), shared(lengths)
    rivals = {"copies": copies(lengths), "text with a prefix cache": text_with_a_prefix_cache(lengths)}
    for variant, one in {"octopus": held, "octopus, closed form": least, **rivals}.items():
        figures.say(case, "kv_tokens", one.tokens, "tokens", variant=variant)
        figures.say(case, "kv_memory", round(one.kv_bytes / 2**30, 4), "GiB", variant=variant)
        figures.say(case, "recurrent_states", one.states, "states", variant=variant)
        figures.say(case, "kv_and_states_memory", round(one.bytes / 2**30, 4), "GiB", variant=variant)
    figures.gate(case, "the high-water mark is the closed form", held == least, f"{held}, closed form {least}")
    for variant, (kv_only, with_states) in BOUNDS.items():
        bounds = (kv_only, with_states) if lengths == Lengths() else (0.0, 0.0)
        for what, times, bound in zip(("KV", "KV and states"), held.below(rivals[variant]), bounds, strict=True):
            figures.bound(case, f"{what} below {variant}", times, "times", at_least=bound)


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=1, help="divides every length")
    parser.add_argument("--json", help="file that the lines are appended to")
    options = parser.parse_args()
    figures = Figures("graph_memory", "cpu", command_line(), options.json)
    case = "paper-143k" if options.scale == 1 else f"paper-143k/{options.scale}"
    measure(figures, case, Lengths().divided(options.scale))
    for line in figures.red:
        print(f"RED {line}", file=sys.stderr)
    return bool(figures.red)


if __name__ == "__main__":
    sys.exit(main())
