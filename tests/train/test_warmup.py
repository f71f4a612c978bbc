"""The warm-up: its data, its schedule, its measure of turns, and resuming it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from octopus.rollout.codec import Codec, Control
from octopus.train import warmup
from octopus.train.optimizer import learning_rate
from octopus.train.policy import SHIPPED
from octopus.train.warmup import Warmup, rates
from octopus.train.warmup_config import WarmupConfig, load_recipe
from octopus.train.warmup_data import held_out_pack, warmup_pack

RECIPE = Path(__file__).parents[2] / "examples" / "warmup.toml"
TOKENIZER = SHIPPED / "tokenizer.json"


@pytest.fixture(autouse=True)
def few_held_out_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "HELD_OUT", 3)


def small(**schedule: float) -> WarmupConfig:
    config = load_recipe(RECIPE)
    shape = replace(
        config.shape, hidden=32, mlp=32, layers=2, heads=2, kv_heads=1, head_dim=12, recurrent_key_heads=1,
        recurrent_value_heads=1, recurrent_key_dim=8, recurrent_value_dim=8,
    )  # fmt: skip
    data = replace(config.data, episodes=5, documents=12)
    return replace(config, shape=shape, data=data, schedule=replace(config.schedule, steps=4, **schedule))


def start(folder: Path, config: WarmupConfig) -> tuple[Warmup, list[str]]:
    lines: list[str] = []
    return Warmup(config, folder=folder, codec_path=TOKENIZER, device="cpu", report=lines.append), lines


def test_a_step_is_a_pure_function_of_seed_and_number() -> None:
    """Catches: data that depends on what was drawn before, so that a resumed run sees other episodes."""
    codec, data = Codec.load(TOKENIZER), small().data
    one, same, other = (warmup_pack(data, codec, seed=0, step=step) for step in (3, 3, 4))
    assert np.array_equal(one.plan.tokens_T, same.plan.tokens_T)
    assert not np.array_equal(one.plan.tokens_T[:50], other.plan.tokens_T[:50])
    assert (one.advantages_N == 1).all() and len(one.plan.starts) == 0


def test_the_learning_rate_rises_and_falls() -> None:
    """Catches: a first step at full rate, and a rate that ends at 0 or starts again."""
    schedule = replace(load_recipe(RECIPE).schedule, steps=100, rise_steps=10, learning_rate=1.0)
    came = [learning_rate(rates(schedule), step=step, steps=100) for step in range(1, 101)]
    assert came[0] == pytest.approx(0.1) and came[9] == came[10] == 1.0
    assert all(a > b for a, b in pairwise(came[10:]))
    assert 0.01 < came[-1] < 0.02


@pytest.mark.parametrize("spoiled", [None, Control.SEARCH, Control.ANSWER])
def test_a_turn_counts_only_if_every_token_is_right(
    spoiled: Control | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Catches: token accuracy instead of turn accuracy, and turns cut at the wrong tokens."""
    run, _ = start(tmp_path, small())
    pack = held_out_pack(run.codec, count=4, seed=0)
    labels_N = torch.from_numpy(pack.targets.labels_N)
    said_N = labels_N.clone()
    if spoiled is not None:
        said_N[(labels_N == int(spoiled)).nonzero()[0] + 2] += 1  # One token inside the first such turn.
    monkeypatch.setattr(run.backbone, "logits", lambda _: torch.nn.functional.one_hot(said_N, 2049).float())
    shares = warmup.turn_accuracy(run.backbone, pack)
    expected = dict.fromkeys(("fork", "search", "commit", "answer"), 1.0)
    assert shares == expected if spoiled is None else shares == expected | {spoiled.name.lower(): 0.75}


def test_a_stopped_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    """Catches: an optimiser, a step number or a data position that the save leaves out."""
    whole, _ = start(tmp_path / "whole", small(check_every_steps=2))
    assert whole.run(workers=0)
    first, _ = start(tmp_path / "cut", small(check_every_steps=2))
    assert not first.run(workers=0, seconds=0)
    second, lines = start(tmp_path / "cut", small(check_every_steps=2))
    assert second.run(workers=0)
    assert "from step 1 of 4" in lines[0]
    for one, other in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_rule_stops_at_the_first_check_that_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a mean over kinds of turns instead of the worst, and going on after the rule has said stop.

    Also when it is run again.
    """
    good = dict.fromkeys(("fork", "search", "commit", "answer"), 0.51)
    checks = iter([{"fork": 1.0, "search": 0.4, "commit": 1.0, "answer": 1.0}, good, good])
    monkeypatch.setattr(warmup, "turn_accuracy", lambda *_: next(checks))
    run, _ = start(tmp_path, small(check_every_steps=1, stop_share=0.5))
    assert run.run(workers=0)
    assert run.step == 2
    again, _ = start(tmp_path, small(check_every_steps=1, stop_share=0.5))
    assert again.run(workers=0)
    assert again.step == 2
