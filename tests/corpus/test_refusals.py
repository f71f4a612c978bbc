"""Calls and files that are refused because of what they say themselves."""

from __future__ import annotations

import json

import pytest

from octopus.core.errors import InvariantViolation
from octopus.core.graph import Graph
from octopus.core.replay import replay
from octopus.core.trace import Trace


@pytest.mark.parametrize("span", [(2, 1), (-1, 1), (0, 4), (4, 4)])
def test_a_span_lies_within_the_threads_tokens(span: tuple[int, int]) -> None:
    """Catches: a span that ends before it begins, or reaches beyond the tokens there are."""
    graph = Graph()
    thread = graph.thread()
    graph.append(thread, [1, 2, 3])
    with pytest.raises(ValueError):
        graph.commit(thread, span=span)
    assert graph.commit(thread, span=(0, 3)).version == 1


def test_a_trace_that_tells_of_what_did_not_happen_is_refused() -> None:
    """Catches: a replay that breaks, or goes on, where a call has left no event."""
    graph = Graph(trace=Trace())
    one = graph.thread()
    graph.append(one, [1])
    (two,) = graph.fork(one)
    graph.append(one, [2])
    graph.read_thread(two, one)
    assert graph.trace is not None
    lines = list(graph.trace.json_lines())
    (read,) = [line for line in lines if json.loads(line)["kind"] == "read"]
    order = json.loads(lines[-1])["order"]
    again = json.dumps({**json.loads(read), "order": order + 1})
    with pytest.raises(InvariantViolation):
        replay([*lines, again])
