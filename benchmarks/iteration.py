"""One whole GRPO iteration on one card: roll out, score, pack, step, hand the weights over, decode with the new ones.

    PYTHONPATH=. python benchmarks/iteration.py --json benchmarks/results/iteration.jsonl
    PYTHONPATH=. python benchmarks/iteration.py --device cpu --scale 512 --layers 4 --width 64 --vocabulary 512

A group of two episodes of the shape `paper-143k`, lengths divided by `--scale`, shares its prompt; all branches of both
decode in one batch, then both joins. Lengths are forced and rewards random; everything else is as in a job: tokens and
log-probabilities are the engine's, what is read lies where it was written, each reader is given a closing token. The
model has the shape of Qwen3.5-4B and random weights.

For each phase: seconds, and the most memory that was allocated on the device meanwhile (on a CPU that the process had
so far). Exit code 1 if a gate is red: the step must change weights, rollout and trainer must agree about every token as
far as their dtype lets them, the trainer must have the pool's memory, and nothing may be read that was written before.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import qwen_4b
import torch
from figures import Figures, command_line
from graph_memory import BRANCHES, READ_BY_A_BRANCH, Lengths
from transformers import PreTrainedModel

from octopus.rollout.engine import Engine
from octopus.rollout.episode import Episode, SampledToken
from octopus.rollout.thread import Thread
from octopus.train.config import LossConfig, OptimizerConfig, StepConfig
from octopus.train.optimizer import new_optimizer
from octopus.train.packing import pack
from octopus.train.preparing import prepare
from octopus.train.step import train_step

EPISODES = 2
PAGE_TOKENS = 64
NEW_TOKENS = 16
AGREEMENT = {torch.float32: 1e-3, torch.bfloat16: 0.5}
"""How far the log-probabilities of rollout and trainer may be apart, by dtype, in nats, for the worst token."""


class NoTokenizer:
    """Tokens are numbers here."""

    def decode(self, tokens: Any, **_: Any) -> str:
        """Nothing to read."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How the iteration is run.

    Attributes:
        case: Its name.
        lengths: Of an episode.
        backend: Of attention over stored keys.
        step: Of the training step.
        optimizer: Its settings.
    """

    case: str
    lengths: Lengths
    backend: str
    step: StepConfig
    optimizer: OptimizerConfig


class Phases:
    """Says what each phase took."""

    def __init__(self, figures: Figures, case: str, device: torch.device) -> None:
        self._figures = figures
        self._case = case
        self._cuda = device.type == "cuda"

    @contextmanager
    def phase(self, name: str, tokens: int) -> Iterator[None]:
        """One phase, which goes through so many tokens."""
        if self._cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        yield
        if self._cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        self._figures.say(self._case, "seconds", round(seconds, 3), "s", variant=name, note=f"{tokens} tokens")
        self._figures.say(self._case, "peak_memory", round(self._peak_gib(), 3), "GiB", variant=name)

    def _peak_gib(self) -> float:
        if self._cuda:
            return torch.cuda.max_memory_allocated() / 2**30
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def new_engine(model: PreTrainedModel, setting: Setting) -> Engine:
    """An engine with room for all episodes at once."""
    lengths = setting.lengths
    pieces = [lengths.root, *EPISODES * [*2 * BRANCHES * [lengths.half], lengths.join]]
    return Engine(
        model,
        NoTokenizer(),
        pages=sum(-(-tokens // PAGE_TOKENS) for tokens in pieces) + len(pieces),
        page_size=PAGE_TOKENS,
        state_slots=EPISODES * (2 * BRANCHES + 3) + 2,
        batch_tokens=8_192,
        backend=setting.backend,
    )


def roll_out(engine: Engine, phases: Phases, lengths: Lengths, prompt: list[int]) -> list[Episode]:
    """Plays all episodes in one batch; returns them without reward. Leaves no thread."""
    asked = engine.thread(prompt)
    with phases.phase("prefill", len(prompt)):
        engine.compute([asked])
    roots = asked.fork(EPISODES)
    branches = [root.fork(BRANCHES) for root in roots]
    together = [branch for siblings in branches for branch in siblings]
    with phases.phase("decode branches", 2 * lengths.half * len(together)):
        sample(engine, together, lengths.half)
        for siblings in branches:
            for index, branch in enumerate(siblings):
                for step in range(1, READ_BY_A_BRANCH + 1):
                    branch.read_thread(siblings[(index + step) % BRANCHES], last=lengths.read)
        close(together)
        sample(engine, together, lengths.half - 1)
        engine.compute(together)
        for branch in together:
            branch.commit()
    with phases.phase("decode joins", lengths.join * len(roots)):
        for root, siblings in zip(roots, branches, strict=True):
            for branch in siblings:
                root.read_thread(branch, last=lengths.read)
        close(roots)
        sample(engine, roots, lengths.join - 1)
    episodes = [episode_of(engine, asked, [root, *siblings]) for root, siblings in zip(roots, branches, strict=True)]
    for thread in [*together, *roots, asked]:
        thread.drop()
    return episodes


def sample(engine: Engine, threads: list[Thread], tokens: int) -> None:
    """So many tokens for each, whatever they are."""
    engine.generate(threads, max_tokens=tokens, temperature=1.0, stop_tokens=())


def close(threads: list[Thread]) -> None:
    """The forced token that closes what was read."""
    for thread in threads:
        thread.append([0])


def episode_of(engine: Engine, prompt: Thread, threads: list[Thread]) -> Episode:
    """What the threads sampled, the root's first."""
    writers = {prompt.id, *(thread.id for thread in threads)}
    sampled = [
        SampledToken(segment=cursor.segment, offset=cursor.length - 1, log_probability=log_probability, live=True)
        for thread in threads
        for cursor, log_probability in thread.sampled
    ]
    segments = tuple(segment for segment in engine.graph.segments if segment.writer in writers)
    return Episode(name=str(threads[0].id), segments=segments, waits=(), sampled=tuple(sampled), reward=0.0)


def iterate(figures: Figures, model: PreTrainedModel, setting: Setting) -> None:
    """One iteration."""
    case, lengths, random = setting.case, setting.lengths, Random(0)
    prepare(model, adapter=None, step=setting.step)
    engine = new_engine(model, setting)
    optimizer = new_optimizer(model, setting.optimizer)
    phases = Phases(figures, case, engine.backbone.device)
    prompt = [random.randrange(model.config.vocab_size) for _ in range(lengths.root)]
    played = roll_out(engine, phases, lengths, prompt)
    with phases.phase("score and pack", sum(len(episode.sampled) for episode in played)):
        packed = pack([[replace(episode, reward=random.random()) for episode in played]])
    rows = packed.plan.length
    with phases.phase("release", 0):
        engine.release_memory()
    figures.say(case, "released_memory", round(engine.storage.bytes / 2**30, 3), "GiB")
    figures.gate(case, "the trainer has the pool's memory", engine.storage.keys.nbytes == 0)
    with phases.phase("step", rows):
        done = train_step(engine.backbone, [packed], optimizer, loss=LossConfig(), step=setting.step)
    agreement, least = done.log_ratio_max, AGREEMENT[engine.backbone.dtype]
    changed = done.updated and done.grad_norm > 0
    figures.gate(case, "the step changes weights", changed, f"length of the gradient {done.grad_norm:.3e}")
    figures.gate(case, "rollout and trainer agree", agreement <= least, f"{agreement:.2e} nats, at most {least}")
    with phases.phase("hand over", 0):
        optimizer.zero_grad(set_to_none=True)
        engine.advance_weights()
        engine.take_back_memory()
    for tensor in (engine.storage.keys, engine.storage.values, engine.storage.conv, engine.storage.recurrent):
        tensor.fill_(torch.nan)
    with phases.phase("decode with new weights", lengths.root + NEW_TOKENS):
        (made,) = engine.generate([engine.thread(prompt)], max_tokens=NEW_TOKENS, stop_tokens=())
    finite = all(value == value for value in made.log_probabilities)  # Not so of NaN.
    figures.gate(case, "nothing of before is read", finite and len(made.tokens) == NEW_TOKENS, made.tokens)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--scale", type=int, default=4, help="what every length is divided by")
    parser.add_argument("--layers", type=int, default=32, help="of which every fourth attends")
    parser.add_argument("--width", type=int, default=2_560, help="hidden channels")
    parser.add_argument("--vocabulary", type=int, default=qwen_4b.VOCABULARY)
    parser.add_argument("--json", help="file that the result lines are appended to")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    figures = Figures("iteration", options.device, command_line(), options.json)
    settings = qwen_4b.config(options.layers, width=options.width, vocabulary=options.vocabulary)
    dtype = torch.bfloat16 if cuda else torch.float32
    setting = Setting(
        case=f"paper-143k/{options.scale}, {EPISODES} episodes, {options.layers} layers",
        lengths=Lengths().divided(options.scale),
        backend="triton" if cuda else "torch",
        step=StepConfig(backend="triton" if cuda else "sliced", logit_rows=2_048, recompute=True),
        optimizer=OptimizerConfig(learning_rate=1e-6, moments="8bit" if cuda else "full"),
    )
    iterate(figures, qwen_4b.new_model(settings, dtype=dtype, device=options.device), setting)
    for line in figures.red:
        print(f"RED {line}", file=sys.stderr)
    return bool(figures.red)


if __name__ == "__main__":
    sys.exit(main())
