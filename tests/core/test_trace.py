"""The trace is what docs/trace.md says it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from octopus.core.graph import Graph
from octopus.core.trace import FIELDS, Trace, encoded_event

DOCUMENT = Path(__file__).parents[2] / "docs" / "trace.md"


def test_the_documented_example_is_what_happens() -> None:
    """Catches: any change of the format that the document does not tell."""
    trace = Trace()
    graph = Graph(trace=trace)
    root = graph.thread()
    graph.append(root, [5, 6, 7])
    (child,) = graph.fork(root)
    graph.append(child, [8, 9])
    graph.read_thread(root, child)
    example = DOCUMENT.read_text().split("```json\n")[1].split("```")[0]
    assert [json.loads(line) for line in trace.json_lines()] == [json.loads(line) for line in example.splitlines()]


def test_every_kind_is_documented_with_its_fields() -> None:
    """Catches: a field that was added in one place only."""
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", DOCUMENT.read_text(), flags=re.MULTILINE)
    documented = {
        kind: tuple(re.findall(r"`(\w+)`", fields)) for kinds, fields in rows for kind in re.findall(r"`(\w+)`", kinds)
    }
    assert documented == FIELDS


def test_every_primitive_leaves_its_event_in_order() -> None:
    """Catches: a primitive that is not traced, and an order number used twice."""
    trace = Trace()
    graph = Graph(trace=trace)
    root = graph.thread()
    graph.append(root, [1])
    one, two = graph.fork(root, 2)
    graph.append(one, [2])
    graph.mark(one)
    graph.end_turn(one)
    graph.rewind(one, 0)
    graph.thread_from([1, 2, 3])
    graph.wait_threads(root, [one])
    graph.commit(one, span=(0, 0))
    graph.read_thread(two, one)
    graph.fail(two, "no reason")
    graph.cancel(root)
    graph.drop(root)
    graph.advance_weights()
    events = [json.loads(line) for line in trace.json_lines()][1:]
    assert [event["order"] for event in events] == list(range(1, len(events) + 1))
    assert {event["kind"] for event in events} == set(FIELDS) - {"read"}
    commit = next(event for event in events if event["kind"] == "commit")
    assert (len(commit["digest"]), commit["span"]) == (32, [0, 0])


def test_a_read_says_where_its_segment_begins_now() -> None:
    """Catches: the start position of the opening, which a second read into the same segment has moved."""
    trace = Trace()
    graph = Graph(trace=trace)
    root = graph.thread()
    graph.append(root, [0])
    one, two, reader = graph.fork(root, 3)
    graph.append(one, [1] * 3)
    graph.append(two, [2] * 4)
    graph.read_thread(reader, one)
    graph.read_thread(reader, two)
    reads = [event for event in map(json.loads, trace.json_lines()) if event["kind"] == "read"]
    assert [event["start_position"] for event in reads] == [4, 8]
    assert reader.cursor.segment.start_position == 8


def test_an_event_without_one_of_its_fields_is_not_encoded() -> None:
    """Catches: fields that slip by one place, or are left out, without a word."""
    with pytest.raises(ValueError, match="shorter"):
        encoded_event((1, "adopt", 0, 0))
