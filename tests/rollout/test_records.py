"""Records as JSON lines.

Catches: a line that cannot be written, or that depends on what else was in the graph; a record that loses what it holds
when the graph forgets the episode; a record of an episode that goes on.
"""

import json
from typing import Any

import pytest
from toy_job import PolicyEngine, codec, following, play, question, say, script_of

from octopus.core.graph import Graph
from octopus.rollout.agents import AgentLimits
from octopus.rollout.codec import Control
from octopus.rollout.modes import MODES
from octopus.rollout.play import Play
from octopus.rollout.records import as_json, record_of
from octopus.rollout.scripted import play_script


def test_a_line_holds_the_whole_episode() -> None:
    record = play_script("toy/0", question(), codec(), "octopus")
    line: dict[str, Any] = json.loads(json.dumps(as_json(record)))
    assert (line["name"], line["mode"], line["outcome"], line["reward"]) == ("toy/0", "octopus", "answered", 1.0)
    tokens = [line["segments"][segment]["tokens"][offset] for segment, offset, _, _ in line["sampled"]]
    script = script_of(record)
    assert tokens == [token for place in sorted(script) for token in script[place]]
    assert [segment["thread"] for segment in line["segments"]] == [0, 1, 2, 3, 0, 0, 0]
    assert line["segments"][4]["mounts"][0][0][0] == 1 and line["segments"][4]["parent"][0] == 0
    assert [wait[2] for wait in line["waits"]] == [1, 2, 3]
    assert [branch["thread"] for branch in line["branches"]] == [1, 2, 3]
    assert line["events"][1][0] == {
        "kind": "search",
        "argument": "snow white",
        "ok": True,
        "result": "snow.fall : white snow falls on the cold hill",
        "documents": ["a"],
        "attempts": 1,
    }


def test_a_line_does_not_depend_on_the_graph() -> None:
    engine = PolicyEngine(following(script_of(play_script("toy", question(), codec(), "octopus"))))
    first, second = (as_json(play(engine, question())[0]) for _ in range(2))
    assert first == second


def test_an_episode_that_goes_on_has_no_record() -> None:
    graph = Graph()
    root = graph.thread()
    graph.append(root, say(Control.QUESTION, "what?"))
    episode = Play(
        graph, root, environment=question(), codec=codec(), mode=MODES["single"], limits=AgentLimits()
    )
    with pytest.raises(ValueError, match="has not ended yet"):
        record_of(episode, "toy")
