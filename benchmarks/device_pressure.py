"""A rollout on a device that another program has nearly filled: real out-of-memory errors, the same tokens.

Everything is float64, so that passes of other sizes differ by rounding of about 1e-14, and the temperature is low, so
that few tokens carry the probability: a draw would have to fall that close to one of a few boundaries to differ.
"""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from figures import Figures
from random_rollouts import tiny_engine
from tiny_models import rope_parameters, tiny_llama, tiny_qwen35

from octopus.rollout.engine import Engine

LEFT_BYTES = 6 << 30
TEMPERATURE = 0.25


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a rollout is: prompts, each with as many branches, and each of those with new tokens."""

    prompts: int
    prompt_tokens: int
    branches: int
    new_tokens: int
    vocabulary: int
    hidden: int
    intermediate: int
    head_dim: int


BIG = Size(
    prompts=32,
    prompt_tokens=1024,
    branches=32,
    new_tokens=6,
    vocabulary=248_320,
    hidden=512,
    intermediate=6144,
    head_dim=256,
)
SMALL = Size(
    prompts=4,
    prompt_tokens=40,
    branches=3,
    new_tokens=4,
    vocabulary=300,
    hidden=64,
    intermediate=96,
    head_dim=32,
)


def llama(size: Size) -> Any:
    """Two layers of attention."""
    return tiny_llama(head_dim=size.head_dim, **_common(size))


def hybrid(size: Size) -> Any:
    """Three recurrent layers and one of attention, heads as in Qwen3.5."""
    return tiny_qwen35(
        head_dim=size.head_dim,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        linear_key_head_dim=size.head_dim // 2,
        linear_value_head_dim=size.head_dim // 2,
        rope_parameters=rope_parameters(
            partial_rotary_factor=0.25, mrope_section=[size.head_dim // 8 - 2, 1, 1]
        ),
        **_common(size),
    )


def _common(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocabulary,
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "initializer_range": size.hidden**-0.5,  # So that no layer makes rounding larger.
    }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run gave: tokens and log-probabilities of every branch, the store's figures and the log."""

    tokens: list[tuple[int, ...]]
    log_probabilities: list[tuple[float, ...]]
    stats: dict[str, int]
    events: list[str]


class Events(logging.Handler):
    """Keeps what the engine says of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        self.messages.append(record.getMessage())


def run(model: Any, size: Size, device: str, pinch: Callable[[Engine], None]) -> Outcome:
    """Prompts are computed, then all branches of all prompts decode in one batch. `pinch` is called with the engine."""
    pages = -(-size.prompt_tokens // 16) * (size.prompts + 1) + 2 * size.prompts * size.branches
    states = size.prompts * (size.branches + 2) + 16
    engine = tiny_engine(
        model.to(device),
        pages=pages,
        page_size=16,
        state_slots=states,
        batch_tokens=size.prompts * size.prompt_tokens,
        seal_rate=1 / 64,
        seed=7,
    )
    pinch(engine)
    events, log, rng = Events(), logging.getLogger("octopus.rollout.passes"), random.Random(1)
    log.addHandler(events)
    try:
        forgotten = engine.thread(_ids(rng, size, 16))
        engine.compute([forgotten])
        forgotten.drop()  # A cached line, for the first rung of the ladder.
        roots = [engine.thread(_ids(rng, size, size.prompt_tokens)) for _ in range(size.prompts)]
        engine.compute(roots)
        branches = [branch for root in roots for branch in root.fork(size.branches)]
        for branch in branches:
            branch.append(_ids(rng, size, 1))
        made = engine.generate(branches, max_tokens=size.new_tokens, temperature=TEMPERATURE, stop_tokens=())
    finally:
        log.removeHandler(events)
    engine.graph.audit()
    return Outcome(
        tokens=[generation.tokens for generation in made],
        log_probabilities=[generation.log_probabilities for generation in made],
        stats=engine.graph.stats().flat(),
        events=events.messages,
    )


def _ids(rng: random.Random, size: Size, count: int) -> list[int]:
    return [rng.randrange(size.vocabulary) for _ in range(count)]


def no_pinch(engine: Engine) -> None:
    """The device has room for everything."""


def fake_pinch(engine: Engine) -> None:
    """For a trial without a GPU: passes of more than 30 tokens or 5 threads and logits of more than 3 rows fail."""
    advance, logits = engine.backbone.advance, engine.backbone.logits

    def small_advance(moves: Sequence[Any], *arguments: Any, **settings: Any) -> torch.Tensor:
        tokens = sum(stretch.stop - stretch.start for stretch, _ in moves)
        if tokens > 30 or len(moves) > 5:
            raise torch.OutOfMemoryError(f"pretended: no room for {tokens} tokens")
        return advance(moves, *arguments, **settings)

    def small_logits(hidden_NC: torch.Tensor) -> torch.Tensor:
        if len(hidden_NC) > 3:
            raise torch.OutOfMemoryError(f"pretended: no room for {len(hidden_NC)} rows")
        return logits(hidden_NC)

    engine.backbone.advance, engine.backbone.logits = small_advance, small_logits  # type: ignore[method-assign]


def fill(device: str) -> torch.Tensor | None:
    """A tensor that leaves 6 GiB of the device to everybody else."""
    gc.collect()
    if device != "cuda":
        return None
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return torch.empty(free - LEFT_BYTES, dtype=torch.uint8, device=device)


def measure(figures: Figures, device: str, small: bool, log: list[str]) -> None:
    """Both families: without limit, then beside the filler."""
    size = SMALL if small else BIG
    for name, build in (("hybrid", hybrid), ("llama", llama)):
        whole = run(build(size), size, device, no_pinch)
        model = build(size)  # On the CPU until the filler stands.
        filler = fill(device)
        free = torch.cuda.mem_get_info()[0] if device == "cuda" else 0
        pinched = run(model, size, device, no_pinch if device == "cuda" else fake_pinch)
        del model, filler
        case = f"out_of_memory/{name}"
        figures.say(case, "bytes_left_by_filler", free, "B")
        log += [f"## {case}", "", f"{free} bytes left by the filler.", "", *pinched.events, ""]
        log += [f"{key} = {value}" for key, value in pinched.stats.items() if value] + [""]
        judge(figures, case, whole, pinched)


def judge(figures: Figures, case: str, whole: Outcome, pinched: Outcome) -> None:
    """The gates of one family."""
    by_phase = {
        phase: sum(mark in event for event in pinched.events)
        for phase, mark in (
            ("prefill", "a prefill pass"),
            ("decode_pass", "a decode pass"),
            ("decode_logits", "the logits"),
        )
    }
    for phase, count in by_phase.items():
        figures.say(case, f"oom_{phase}", count, "1")
    for name in (
        "oom_retries",
        "oom_refused",
        "evicted_segments",
        "evicted_pages",
        "tokens_computed",
        "tokens_recomputed",
        "seals_checked",
        "seals_broken",
        "refused",
    ):
        figures.say(case, name, pinched.stats[name], "1")
    figures.say(case, "threads", len(whole.tokens), "1")
    pairs = zip(whole.log_probabilities, pinched.log_probabilities, strict=True)
    worst = max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=False))
    figures.say(case, "worst_log_probability_difference", worst, "nat")
    figures.gate(case, "no error without the filler", not whole.events, whole.events[:1])
    figures.gate(case, "an error in prefill", by_phase["prefill"] > 0, pinched.events)
    decode = by_phase["decode_pass"] + by_phase["decode_logits"]
    figures.gate(case, "an error in decode", decode > 0, pinched.events)
    differ = [
        i for i, pair in enumerate(zip(whole.tokens, pinched.tokens, strict=True)) if pair[0] != pair[1]
    ]
    figures.gate(case, "the same tokens", not differ, f"threads {differ[:9]} of {len(whole.tokens)}")
