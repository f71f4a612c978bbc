"""The benchmark of a whole GRPO iteration, on a tiny hybrid: every phase is run and said, every gate can go red."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import iteration
import pytest
import torch
from figures import Figures
from graph_memory import Lengths
from iteration import Setting, iterate
from tiny_models import tiny_qwen35

from octopus.train.config import OptimizerConfig, StepConfig

PHASES = {
    "prefill", "decode branches", "decode joins", "score and pack", "release", "step", "hand over",
    "decode with new weights",
}  # fmt: skip


class Kept(Figures):
    """Keeps what is said."""

    def __init__(self, path: Path) -> None:
        super().__init__("iteration", "cpu", "test", str(path))
        self.said: dict[tuple[str, str], Any] = {}

    def say(self, case: str, metric: str, value: Any, unit: str, *, variant: str = "octopus", note: str = "") -> None:
        super().say(case, metric, value, unit, variant=variant, note=note)
        self.said[variant, metric] = (value, note)


def run(tmp_path: Path) -> Kept:
    figures = Kept(tmp_path / "iteration.jsonl")
    setting = Setting(
        case="tiny",
        lengths=Lengths().divided(1_024),
        backend="torch",
        step=StepConfig(backend="sliced", recompute=True),
        optimizer=OptimizerConfig(learning_rate=1e-3),
    )
    iterate(figures, tiny_qwen35(dtype=torch.float32), setting)
    return figures


def test_an_iteration_goes_through(tmp_path: Path) -> None:
    """Catches: a phase that is left out, tokens that the trainer does not get, a rollout that it contradicts."""
    figures = run(tmp_path)
    assert figures.red == []
    assert {variant for variant, metric in figures.said if metric == "seconds"} == PHASES
    assert figures.said["step", "seconds"][1] == f"{32 + 2 * (24 * 4 + 12)} tokens"  # The prompt is packed once.
    sampled = 2 * (12 * (4 + 3) + 11)  # One token after each reading is given.
    assert figures.said["score and pack", "seconds"][1] == f"{sampled} tokens"


def test_a_trainer_that_sees_something_else_is_red(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches: a gate that is green whatever rollout and trainer say of a token."""
    honest = iteration.episode_of

    def off(*arguments: Any) -> Any:
        episode = honest(*arguments)
        first = replace(episode.sampled[0], log_probability=(episode.sampled[0].log_probability or 0.0) + 0.01)
        return replace(episode, sampled=(first, *episode.sampled[1:]))

    monkeypatch.setattr(iteration, "episode_of", off)
    assert [line for line in run(tmp_path).red if "rollout and trainer agree" in line]
