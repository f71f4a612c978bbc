"""Calls and files that are refused because of what they say themselves."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from small_store import SmallStore

from octopus.core.errors import InvariantViolation, StaleHandle, StaleWeights
from octopus.core.graph import Graph
from octopus.core.replay import replay
from octopus.core.thread import Thread
from octopus.core.trace import Trace

CALLS: dict[str, Callable[[Graph, Thread, Thread], object]] = {
    "fork": lambda graph, bad, good: graph.fork(bad),
    "append": lambda graph, bad, good: graph.append(bad, [1]),
    "read with": lambda graph, bad, good: graph.read_thread(bad, good),
    "read": lambda graph, bad, good: graph.read_thread(good, bad),
    "rewind": lambda graph, bad, good: graph.rewind(bad, 0),
    "mark": lambda graph, bad, good: graph.mark(bad),
    "commit": lambda graph, bad, good: graph.commit(bad),
    "wait with": lambda graph, bad, good: graph.wait_threads(bad, [good]),
    "end a turn": lambda graph, bad, good: graph.end_turn(bad),
    "step": lambda graph, bad, good: graph.begin_step([bad]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_thread_of_another_graph_or_of_older_weights_is_refused(call: Callable[..., object]) -> None:
    """Catches: a guard that is content with half of what it asks."""
    graph, other = Graph(), Graph()
    old, foreign = graph.thread(), other.thread()
    for thread, its in ((old, graph), (foreign, other)):
        its.append(thread, [1])
    assert old.id == foreign.id
    with pytest.raises(StaleHandle):
        call(graph, foreign, old)
    graph.advance_weights()
    with pytest.raises(StaleWeights):
        call(graph, old, graph.thread())
    assert (old.own_tokens, foreign.own_tokens) == (1, 1)


def test_a_stretch_is_published_once() -> None:
    """Catches: a pass that is told of twice and counted twice, or one of another step."""
    store = SmallStore(4, 2)
    thread = store.graph.thread()
    store.graph.append(thread, [1])
    with store.graph.begin_step([thread]) as step:
        ((stretch,),) = step.waves
        step.publish(stretch)
        with pytest.raises(InvariantViolation, match="published already"):
            step.publish(stretch)
    assert store.graph.stats().counters.tokens_computed == 1


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
