"""What rollouts record is what the trainer computes, and does not depend on who shares the batch.

Catches: a recorded log-probability of another place, temperature or view; an episode whose segments are not closed;
noise by batch row, by graph path or by timing; an odd or hopeless episode that crashes the loop or leaves a page.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from toy_job import PolicyEngine, box, codec, play, question, wandering

from octopus.rollout.agents import AgentLimits
from octopus.rollout.environment import Task
from octopus.rollout.loop import Rollouts
from octopus.rollout.modes import MODES
from octopus.rollout.records import RolloutRecord, as_json
from octopus.train.config import StepConfig
from octopus.train.packing import pack
from octopus.train.passes import pack_log_probabilities

DEEP = AgentLimits(turn_tokens=16, thread_tokens=40, turns=6, fan_out=3, depth=2)


def greatest_difference(engine: PolicyEngine, records: list[RolloutRecord]) -> float:
    """Between recorded log-probabilities and those of the trainer's pass over the whole group, one row."""
    row = pack([[record.episode for record in records]])
    assert row.loss_terms == sum(token.live for record in records for token in record.episode.sampled) > 0
    with torch.no_grad():
        values_N = pack_log_probabilities(engine.backbone, row, step=StepConfig())
    return float(np.abs(values_N.double().numpy() - row.sampled_log_probabilities_N).max())


def assert_exact(episodes: int, mode: str, *, dtype: torch.dtype = torch.float32, tolerance: float = 1e-5) -> None:
    engine = PolicyEngine(wandering(mode), dtype=dtype)
    records = play(engine, question(results=2, words=4), mode, seeds=range(episodes), limits=DEEP)
    used = {event.kind for record in records for events in record.events for event in events if event.ok}
    assert used >= {"search", "rewind", "answer"} | ({"fork", "read", "commit"} if mode != "single" else set())
    if mode == "octopus":
        assert any(segment.mounts for record in records for segment in record.episode.segments)
    for start in range(0, episodes, 10):  # as many as a trainer might pack
        assert greatest_difference(engine, records[start : start + 10]) < tolerance


@pytest.mark.parametrize("mode", list(MODES))
def test_the_trainer_finds_the_recorded_log_probabilities(mode: str) -> None:
    assert_exact(10, mode)
    assert_exact(10, mode, dtype=torch.float64, tolerance=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(MODES))
def test_the_trainer_finds_the_recorded_log_probabilities_of_200_episodes(mode: str) -> None:
    assert_exact(200, mode)


@pytest.mark.parametrize("mode", list(MODES))
def test_an_untrained_model_ends_every_episode(mode: str) -> None:
    """Plain sampling from a model that knows nothing: most episodes end at once, none crashes."""
    engine = PolicyEngine()
    records = play(engine, question(), mode, seeds=range(20), temperature=1.0)
    assert {record.outcome for record in records} >= {"bad_action"}
    assert greatest_difference(engine, records) < 1e-5
    again = play(engine, question(), mode, seeds=range(20), temperature=1.0)
    assert [as_json(one) for one in again] == [as_json(one) for one in records]


def patient(text: str) -> str:
    time.sleep(random.random() * 0.01)
    return "found " + text


async def async_patient(text: str) -> str:
    await asyncio.sleep(random.random() * 0.01)
    return "found " + text


@pytest.mark.parametrize(
    ("mode", "tool"),
    [("single", async_patient), ("text", patient), ("octopus", async_patient)],
)
def test_an_episode_says_the_same_whoever_shares_the_batch_and_however_slow_the_tools(
    mode: str, tool: Callable[[str], Any]
) -> None:
    """Bitwise the same record line, up to log-probabilities of 1e-12 in float64."""

    def lines(most_episodes: int) -> list[dict[str, Any]]:
        engine = PolicyEngine(wandering(mode), dtype=torch.float64)
        rollouts = Rollouts(engine, codec(), MODES[mode], limits=DEEP, most_episodes=most_episodes)
        tasks = [Task(name=str(seed), environment=box(tool), seeds=(seed,)) for seed in range(5)]
        return [as_json(record) for (record,) in rollouts.run(tasks)]

    for one, other in zip(lines(1), lines(5), strict=True):
        values = [[token.pop(2) for token in line["sampled"]] for line in (one, other)]
        assert values[0] == pytest.approx(values[1], abs=1e-12)
        for line in (one, other):  # Who opened a segment first among threads that run side by side is a matter of time.
            line["segments"] = sorted(str(segment["tokens"]) for segment in line["segments"])
            line["sampled"] = line["waits"] = None
        assert one == other


@pytest.mark.parametrize("tool", [patient, async_patient])
def test_in_lockstep_even_the_batches_do_not_depend_on_how_fast_tools_are(tool: Callable[[str], Any]) -> None:
    """Catches: a batch whose members, and so the bits of whose logits, are a matter of time. Bitwise, in float32."""

    def outcome() -> tuple[list[int], list[dict[str, Any]]]:
        engine = PolicyEngine(wandering("octopus"))
        records = play(engine, box(tool), seeds=range(6), limits=DEEP, lockstep=True)
        return engine.chosen, [as_json(record) for record in records]

    assert outcome() == outcome()


def test_greedy_needs_no_noise() -> None:
    engine = PolicyEngine()
    records = play(engine, question(), seeds=range(3), temperature=0.0)
    lines = [as_json(record) for record in records]
    for line in lines:
        del line["name"], line["seed"]
    assert lines[0] == lines[1] == lines[2]
