"""Does training stay as good with bfloat16 weights, moments in 8 bits and rounding at random?

    python benchmarks/eight_bit.py --json benchmarks/results/eight_bit.jsonl

The small hybrid of this package, from random weights, learns the text of the Python library's documentation for 300
steps, with three seeds (weights and order of the text) for each of

- `float32`: float32 weights, AdamW with float32 moments;
- `8bit`: bfloat16 weights, `optimizer.moments = "8bit"`, activation checkpointing.

The figure is the mean negative log-probability of held-out text after the last step. The mean of `8bit` must lie no
farther from that of `float32` than the seeds of `float32` lie apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from figures import Figures, command_line
from transformers import AutoModelForCausalLM

from octopus.core.graph import Graph
from octopus.models.backbone import Backbone
from octopus.models.loading import read_config
from octopus.rollout.codec import Codec
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.config import LossConfig, OptimizerConfig, StepConfig
from octopus.train.optimizer import new_optimizer, set_learning_rate
from octopus.train.packing import Pack, evenly, pack_rated
from octopus.train.passes import pack_log_probabilities
from octopus.train.policy import TOKENIZER, policy_folder
from octopus.train.preparing import prepare
from octopus.train.step import train_step

ROWS, TOKENS = 4, 256
HELD_OUT_PACKS = 8


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", help="file that the result lines are appended to")
    options = parser.parse_args()
    figures = Figures("eight-bit", options.device, command_line(), options.json)
    codec = Codec.load(policy_folder("shipped") / TOKENIZER)
    lines = files("octopus.retrieval").joinpath("stdlib.jsonl").read_text().splitlines()
    text = [codec.encode_text(json.loads(line)["text"]) for line in lines]
    losses: dict[str, list[float]] = {"float32": [], "8bit": []}
    for seed in range(options.seeds):
        for variant in losses:
            losses[variant].append(trained(text, variant, seed, options))
            figures.say(f"seed {seed}", "held_out_loss", round(losses[variant][-1], 4), "nats", variant=variant)
    case = f"{options.steps} steps"
    spread = max(losses["float32"]) - min(losses["float32"])
    apart = statistics.mean(losses["8bit"]) - statistics.mean(losses["float32"])
    for variant, found in losses.items():
        figures.say(case, "held_out_loss", round(statistics.mean(found), 4), "nats", variant=variant, note="mean")
    figures.say(case, "spread", round(spread, 4), "nats", variant="float32", note="largest less smallest")
    figures.gate(case, "8 bits within the spread of the seeds", abs(apart) <= spread, f"{apart:+.4f} nats")
    if figures.red:
        sys.exit("\n".join(figures.red))


def trained(text: list[list[int]], variant: str, seed: int, options: argparse.Namespace) -> float:
    """Trains from nothing; the loss on text that was held out."""
    small = variant == "8bit"
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_config(
        read_config(policy_folder("shipped")), dtype=torch.bfloat16 if small else torch.float32
    ).to(options.device)
    step = StepConfig(recompute=small)
    prepare(model, adapter=None, step=step)
    backbone = Backbone(model)
    config = OptimizerConfig(
        learning_rate=2e-3, schedule="cosine", warmup_steps=30, moments="8bit" if small else "full"
    )
    optimizer = new_optimizer(model, config)
    held_out = list(packs(text[:200], np.random.default_rng(0), HELD_OUT_PACKS))
    for number, pack in enumerate(packs(text[200:], np.random.default_rng(seed + 1), options.steps), start=1):
        set_learning_rate(optimizer, config, step=number, steps=options.steps)
        optimizer.zero_grad(set_to_none=True)
        result = train_step(backbone, [pack], optimizer, loss=LossConfig(name="likelihood"), step=step)
        if number % 50 == 0:
            print(f"{variant}, seed {seed}, step {number}: loss {result.loss:.3f} nats", file=sys.stderr, flush=True)
    with torch.no_grad():
        scored = [pack_log_probabilities(backbone, pack, step=step).double().mean().item() for pack in held_out]
    return -statistics.mean(scored)


def packs(text: list[list[int]], rng: np.random.Generator, count: int) -> Iterator[Pack]:
    """Rows of text that begin at random places of documents drawn at random."""
    line = np.concatenate([np.asarray(document) for document in text])
    for _ in range(count):
        graph = Graph()
        for start in rng.integers(0, len(line) - TOKENS, ROWS).tolist():
            graph.append(graph.thread(), line[start : start + TOKENS].tolist())
        sampled = tuple(
            SampledToken(segment=segment, offset=offset, log_probability=None, live=True)
            for segment in graph.segments
            for offset in range(1, TOKENS)
        )
        episode = Episode(name="text", segments=tuple(graph.segments), waits=(), sampled=sampled, reward=1.0)
        yield pack_rated([evenly(episode, 1.0)])


if __name__ == "__main__":
    main()
