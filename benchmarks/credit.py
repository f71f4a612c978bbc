"""What the counterfactuals of one large episode cost beside the pass that learns from it.

    python benchmarks/credit.py --device cpu --json benchmarks/results/credit.jsonl

The episode is `paper-143k`, its lengths divided by `--scale`: twelve branches, each left out once, so thirteen answers
(the whole join) are scored in one pass without gradients. Beside it stands the loss pass: forward, loss and backward of
the same episode, every token of branches and join a loss term. The model is the policy that comes with the package.
Times are medians of `--repeats`, after one of each that is not counted, the two in turn.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from figures import Figures
from shapes import paper_143k

from octopus.attention.plan import Plan
from octopus.models.backbone import Backbone
from octopus.rollout.episode import Branch, Episode, SampledToken
from octopus.rollout.records import RolloutRecord
from octopus.train.config import LossConfig, StepConfig
from octopus.train.credit.left_out import left_out_terms
from octopus.train.credit.rescore import Rescore
from octopus.train.credit.world import Played
from octopus.train.packing import evenly, pack_rated
from octopus.train.passes import run_pass
from octopus.train.policy import load_policy, policy_folder


class OwnAnswer:
    """An environment that knows no right answer: the episode's own is scored."""

    def reference(self, codec: Any) -> None:
        return None


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--scale", type=int, default=64, help="what every length is divided by")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="file that the result lines are appended to")
    options = parser.parse_args()
    figures = Figures("credit", options.device, " ".join(["python", *sys.argv]), options.json)
    model, codec = load_policy(policy_folder("shipped"), dtype=torch.float32, device=options.device)
    backbone, step = Backbone(model), StepConfig()
    played = episode_of(options.scale)
    pack = pack_rated([evenly(played.record.episode, 0.5)])

    def loss_pass() -> None:
        model.zero_grad(set_to_none=True)
        run_pass(backbone, pack, loss=LossConfig(), step=step, counts=pack.counts)

    actions: dict[str, Callable[[], Any]] = {"loss pass": loss_pass}
    for scope in ("closure", "recompute"):
        rescore = Rescore(backbone, codec, scope=scope, step=step, budget_tokens=1 << 40)
        actions[scope] = lambda rescore=rescore: left_out_terms(rescore, [played])
    seconds = timed(actions, options.repeats, options.device)
    case = f"paper-143k/{options.scale}"
    figures.say(case, "rows", pack.plan.length, "tokens", variant="loss pass")
    figures.say(case, "pass_s", round(seconds["loss pass"], 4), "s", variant="loss pass")
    for scope in ("closure", "recompute"):
        figures.say(case, "rows", rows_of(backbone, actions[scope]), "tokens", variant=f"rescore {scope}")
        figures.say(case, "pass_s", round(seconds[scope], 4), "s", variant=f"rescore {scope}")
        ratio = seconds[scope] / seconds["loss pass"]
        figures.say(case, "to_loss_pass", round(ratio, 4), "ratio", variant=f"rescore {scope}")


def episode_of(scale: int) -> Played:
    """The shape as an episode: what follows a segment's first token is sampled, and the join is the answer."""
    rng = np.random.default_rng(0)
    segments = paper_143k(scale)
    for segment in segments:
        segment.tokens = rng.integers(14, 2048, len(segment.tokens)).tolist()
    root = segments[0].writer
    branches = sorted({segment.writer for segment in segments} - {root})
    episode = Episode(
        name="paper-143k",
        segments=tuple(segments),
        waits=(),
        sampled=tuple(
            SampledToken(segment=segment, offset=offset, log_probability=-7.0, live=True)
            for segment in segments[1:]
            for offset in range(1, len(segment.tokens))
        ),
        reward=1.0,
        branches=tuple(
            Branch(thread=thread, place=(0, number), documents=(), committed=None)
            for number, thread in enumerate(branches)
        ),
    )
    record = RolloutRecord(
        episode=episode,
        mode="octopus",
        seed=0,
        outcome="answered",
        answer="join",
        gold=(),
        documents=(),
        events=(),
    )
    return Played(environment=OwnAnswer(), record=record)


def timed(actions: dict[str, Callable[[], Any]], repeats: int, device: str) -> dict[str, float]:
    """Median seconds of each."""
    found: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeats + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if device == "cuda":
                torch.cuda.synchronize()
            found[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds[1:]) for name, seconds in found.items()}


def rows_of(backbone: Backbone, action: Callable[[], Any]) -> int:
    """Rows of the one pass that an action runs."""
    seen: list[int] = []
    packed = backbone.packed

    def watched(plan: Plan, **settings: Any) -> Any:
        seen.append(plan.length)
        return packed(plan, **settings)

    backbone.packed = watched  # type: ignore[method-assign]
    try:
        action()
    finally:
        backbone.packed = packed  # type: ignore[method-assign]
    (rows,) = seen
    return rows


if __name__ == "__main__":
    main()
