"""Episodes that were written to a file are read back as they were, and what contradicts itself is refused by line.

Catches: a mount at another position; a token that stays unsampled or counts though it is not live; a wait that turns
the order of events around; a wrong line that is taken, or refused without saying where.
"""

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policy
from toy_tasks import environment

from octopus.core.errors import ConfigError
from octopus.core.graph import Graph
from octopus.rollout.agents import AgentLimits, State
from octopus.rollout.codec import Control, framed
from octopus.rollout.modes import MODES
from octopus.rollout.play import Play
from octopus.rollout.records import RolloutRecord, as_json, record_of
from octopus.rollout.scripted import play_script
from octopus.train.data.demonstrations import Demonstrations
from octopus.train.data.episodes import read_episode
from octopus.train.packing import evenly, pack_rated

VOCABULARY = 2048


def wild(mode: str, seed: int) -> RolloutRecord:
    """An episode in which agents fork, read, rewind, commit and fail at random."""
    codec, rng = tiny_policy.codec(), random.Random(seed)
    graph = Graph()
    root = graph.thread()
    asked = environment(2)
    graph.append(root, codec.prompt(asked, MODES[mode]))
    limits = AgentLimits(turn_tokens=12, thread_tokens=80, turns=6, depth=2)
    play = Play(graph, root, environment=asked, codec=codec, mode=MODES[mode], limits=limits)
    while play.outcome is None:
        for agent in list(play.those(State.READY)):
            allowed = sorted(MODES[mode].actions(agent) - {Control.ANSWER}) + [Control.ANSWER] * (rng.random() < 0.1)
            for token in framed(rng.choice(allowed), codec.encode_text(rng.choice(("1", "2", "opened paths", "file")))):
                if agent.state is State.READY and play.outcome is None:
                    play.take(agent, token, -rng.random())
        for agent in list(play.those(State.CALLING)):
            assert agent.request is not None
            tool, _, words = agent.request
            play.settle(agent, tool.call_now(words))
        for agent in list(play.those(State.COMMITTING)):
            play.commit(agent)
    return record_of(play, f"wild-{seed}")


def back(record: RolloutRecord) -> RolloutRecord:
    return read_episode(json.loads(json.dumps(as_json(record))), place="here", vocabulary=VOCABULARY)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_what_is_read_is_what_was_written(mode: str) -> None:
    """And it is packed as the episode itself: the same row, the same pairs, the same loss terms."""
    mounts = waits = 0
    for seed in range(25):
        record = wild(mode, seed)
        again = back(record)
        assert as_json(again) == as_json(record)
        mounts += sum(len(segment.mounts) for segment in again.episode.segments)
        waits += len(again.episode.waits)
        one, other = (pack_rated([evenly(r.episode, 1.0)]) for r in (record, again))
        for name in ("tokens_T", "positions_T", "subtree_ends_T", "predecessors_T"):
            assert np.array_equal(getattr(one.plan, name), getattr(other.plan, name))
        assert one.plan.slices == other.plan.slices and one.plan.wait_edges == other.plan.wait_edges
        assert np.array_equal(one.targets.token_rows_N, other.targets.token_rows_N)
        assert np.array_equal(one.sampled_log_probabilities_N, other.sampled_log_probabilities_N, equal_nan=True)
    assert (mounts > 20) == (mode == "octopus") and (waits > 20) == (mode != "single")


def line() -> dict[str, Any]:
    return json.loads(json.dumps(as_json(play_script("toy", environment(2), tiny_policy.codec(), "octopus"))))


def changed(place: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        *above, last = place
        inner: Any = line
        for key in above:
            inner = inner[key]
        inner[last] = value

    return change


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["schema_version"], 2, "schema_version: expected 1, came 2"),
        (["name"], 3, "name: expected a text, came 3"),
        (["reward"], None, "reward: expected a finite number, came None"),
        (["segments", 0, "tokens", 1], 2048, r"segments\[0\]: tokens\[1\]: expected a token below 2048"),
        (["segments", 0, "tokens", 1], True, r"tokens: expected whole numbers"),
        (["segments", 1, "parent"], [1, 0], r"segments\[1\]: parent: expected a place in an earlier segment"),
        (["segments", 1, "parent"], [0, 10_000], "parent: expected a place in an earlier segment"),
        (["segments", 1, "position"], 3, r"segments\[1\]: position: expected \d+, behind what it continues and mounts"),
        (["segments", 3, "mounts", 0, 0, 3], 1, r"segments\[3\]: mounts\[0\]: expected parts laid out from position"),
        (["segments", 3, "mounts", 0, 0, 0], 99, r"mounts\[0\]: expected parts"),
        (["segments", 3, "mounts", 0, 0, 2], 99, r"mounts\[0\]: expected parts"),
        (["sampled", 0, 1], 10_000, r"sampled\[0\]: expected a token of a segment, each once"),
        (["sampled", 1], "first", r"sampled\[1\]: expected a list of 4"),
        (["sampled", 0, 2], 0.5, r"sampled\[0\]: expected \[segment, offset, log-probability or null"),
        (["sampled", 0, 3], 1, r"sampled\[0\]: expected \[segment, offset"),
        (["sampled", 0], [0, 0, None, True], "nothing predicts the first"),
        (["waits", 0], [0, 1, 2], r"waits\[0\]: expected a list of 4"),
        (["branches", 0, "committed"], 1, r"branches\[0\]: committed: expected a text, came 1"),
        (["events", 1, 0, "ok"], "yes", r"events\[1\]\[0\]: ok: expected true or false"),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_named(tmp_path: Path, place: list[Any], value: Any, message: str) -> None:
    wrong = line()
    changed(place, value)(wrong)
    path = tmp_path / "demos.jsonl"
    path.write_text(f"{json.dumps(line())}\n\n{json.dumps(wrong)}\n")
    with pytest.raises(ConfigError, match=r"demos\.jsonl, line 3: .*" + message):
        Demonstrations.read(path, vocabulary=VOCABULARY, seed=0)


def test_every_missing_field_is_named() -> None:
    for key in line():
        wrong = line()
        del wrong[key]
        with pytest.raises(ConfigError, match=f"here: {key} is missing"):
            read_episode(wrong, place="here", vocabulary=VOCABULARY)


def test_segments_that_wait_in_a_circle_are_refused() -> None:
    wrong = line()
    number = next(n for n, segment in enumerate(wrong["segments"]) if segment["mounts"])
    first = wrong["waits"][0]
    wrong["waits"].append([first[2], 0, number, 1])  # the child goes on only after the root has read it
    with pytest.raises(ConfigError, match="expected segments that can be written one after the other, came 'a cycle'"):
        read_episode(wrong, place="here", vocabulary=VOCABULARY)


def test_demonstrations_come_in_turn_and_none_is_empty(tmp_path: Path) -> None:
    lines = [line() | {"name": str(number), "step": 7} for number in range(5)]
    path = tmp_path / "demos.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    demonstrations = Demonstrations.read(path, vocabulary=VOCABULARY, seed=3)
    drawn = [record.episode.name for step in range(1, 6) for record in demonstrations.draw(step, 2)]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == ["0", "1", "2", "3", "4"]
    assert sorted(r.episode.name for r in demonstrations.draw(1, 8)) == ["0", "1", "2", "3", "4"]
    silent = copy.deepcopy(lines[0])
    for token in silent["sampled"]:
        token[3] = False
    path.write_text(json.dumps(silent))
    with pytest.raises(ConfigError, match="line 1: expected at least one sampled token that is live, came none"):
        Demonstrations.read(path, vocabulary=VOCABULARY, seed=0)
    path.write_text("\n")
    with pytest.raises(ConfigError, match="expected at least one episode, came none"):
        Demonstrations.read(path, vocabulary=VOCABULARY, seed=0)
