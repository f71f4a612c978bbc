"""Checks of what is read: planted contamination is found in time, and what they cost beside a decode step."""

from __future__ import annotations

import copy
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from figures import Figures
from random_rollouts import NoTokenizer, tiny_engine
from tiny_models import rope_parameters, tiny_qwen35
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from octopus.core.errors import Contamination
from octopus.core.pool import unit_of
from octopus.rollout.engine import Engine
from octopus.rollout.thread import Thread

RATE = 1 / 64
MOST_READS = 1000
MOST_COST = 0.03
PLANTS = 20
WARM_STEPS, STEPS = 6, 60


def measure(figures: Figures, device: str, small: bool, log: list[str]) -> None:
    """Finding first, then the price."""
    for rate in (1.0, RATE):
        find(figures, device, rate)
    model = decoder(device, small)
    twin = copy.deepcopy(model)  # An engine takes its model over.
    for threads in (8, 64):
        cost(figures, model_pair=(model, twin), threads=threads, small=small)


# ---- finding ----


def find(figures: Figures, device: str, rate: float) -> None:
    """Bits flipped in random computed slots: after how many steps that read them is each found?"""
    case = f"planted/{'every read' if rate == 1 else '1 in 64'}"
    engine = tiny_engine(tiny_qwen35(dtype=torch.float32).to(device), page_size=4, seal_rate=rate)
    rng, reads, samples = random.Random(3), [], 0
    root = engine.thread([rng.randrange(64) for _ in range(400)])
    engine.compute([root])
    for _ in range(PLANTS):
        (reader,) = root.fork(1)
        reader.append([rng.randrange(64)])
        engine.compute([reader])
        undo = flip(engine, rng, root)
        needed = next((read for read in range(1, MOST_READS + 1) if refused(engine, reader)), MOST_READS + 1)
        reads.append(needed)
        samples += reader.record.own_tokens - 1  # Tokens whose log-probability has left.
        undo()
        reader.drop()
    figures.say(case, "planted", PLANTS, "1")
    figures.say(case, "reads_until_found_worst", max(reads), "1")
    figures.say(case, "reads_until_found_median", statistics.median(reads), "1")
    if rate == 1:
        figures.gate(case, "found before a log-probability", max(reads) == 1 and samples == 0, reads)
    figures.gate(case, f"found within {MOST_READS} reads", max(reads) <= MOST_READS, reads)
    engine.graph.audit()


def flip(engine: Engine, rng: random.Random, thread: Thread) -> Any:
    """Flips one bit of a random key or value that `thread` has computed; returns what flips it back."""
    segment = thread.record.cursor.segment
    index = rng.randrange(segment.computed)
    size = 4
    slot = unit_of(segment.pages[index // size]) * size + index % size
    tensor = rng.choice((engine.storage.keys, engine.storage.values)).view(torch.int32)
    place = (
        rng.randrange(tensor.shape[0]),
        slot,
        rng.randrange(tensor.shape[2]),
        rng.randrange(tensor.shape[3]),
    )
    bit = 1 << rng.randrange(23)  # Of the mantissa, so that the number stays a number.

    def undo() -> None:
        tensor[place] ^= bit

    undo()
    return undo


def refused(engine: Engine, reader: Thread) -> bool:
    """Whether the reader's next token is refused for contamination; else it has been sampled."""
    try:
        reader.generate(max_tokens=1, stop_tokens=())
    except Contamination:
        return True
    return False


# ---- the price ----


def decoder(device: str, small: bool) -> Any:
    """The layers of Qwen3.5-4B with random weights in bfloat16; a tiny one for a trial."""
    if small:
        return tiny_qwen35(dtype=torch.bfloat16, layers=8, hidden_size=256, intermediate_size=512).to(device)
    config = Qwen3_5TextConfig(
        vocab_size=32_768,
        hidden_size=2560,
        intermediate_size=9216,
        num_hidden_layers=32,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=256,
        layer_types=[("full_attention" if i % 4 == 3 else "linear_attention") for i in range(32)],
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        tie_word_embeddings=True,
        rope_parameters=rope_parameters(partial_rotary_factor=0.25, mrope_section=[11, 11, 10]),
    )
    with torch.device(device):
        return Qwen3_5ForCausalLM(config).eval().to(torch.bfloat16)


@dataclass(kw_only=True)
class Decoding:
    """An engine in the middle of a decode of many threads of one prompt."""

    engine: Engine
    threads: list[Thread]

    @classmethod
    def begin(cls, model: Any, *, threads: int, rate: float | None, small: bool) -> Decoding:
        """A prompt of 1,024 tokens, 256 tokens of each thread's own; a tenth of that for a trial."""
        rng = random.Random(5)
        prompt, own = (96, 32) if small else (1024, 256)
        pages = prompt // 16 + threads * ((own + WARM_STEPS + STEPS) // 16 + 2) + 8
        engine = Engine(
            model, NoTokenizer(), pages=pages, state_slots=threads + 8, batch_tokens=4096, seal_rate=rate
        )
        root = engine.thread([rng.randrange(64) for _ in range(prompt)])
        engine.compute([root])
        branches = root.fork(threads)
        for branch in branches:
            branch.append([rng.randrange(64) for _ in range(own)])
        engine.compute(branches)
        return cls(engine=engine, threads=branches)

    def step(self) -> float:
        """Seconds of one token of every thread."""
        started = time.perf_counter()
        self.engine.generate(self.threads, max_tokens=1, stop_tokens=())  # Ends with the tokens on the host.
        return time.perf_counter() - started


def cost(figures: Figures, *, model_pair: tuple[Any, Any], threads: int, small: bool) -> None:
    """Steps with and without fingerprints in turn, so that whatever disturbs one disturbs the other."""
    plain, checked = (
        Decoding.begin(model, threads=threads, rate=rate, small=small)
        for model, rate in zip(model_pair, (None, RATE), strict=True)
    )
    pairs = [(plain.step(), checked.step()) for _ in range(WARM_STEPS + STEPS)][WARM_STEPS:]
    counters = checked.engine.graph.stats().counters
    case = f"decode/{threads} threads"
    without = statistics.median(a for a, _ in pairs)
    more = statistics.median(b - a for a, b in pairs)
    figures.say(case, "step", without, "s", variant="no fingerprints")
    figures.say(case, "step", statistics.median(b for _, b in pairs), "s", variant="rate 1/64")
    figures.say(case, "cost", more, "s", variant="rate 1/64")
    figures.say(case, "cost_share", more / without, "1", variant="rate 1/64")
    figures.say(case, "pages_checked_a_step", counters.seals_checked / (WARM_STEPS + STEPS + 2), "1")
    figures.gate(case, "at most 3 %", more <= MOST_COST * without, f"{more / without:.4f}")
