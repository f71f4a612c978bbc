"""A trace runs again, event by event; an audit that fails hands it out."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from core.content import ContentEngine
from core.test_memory import PretendedEngine, random_history

from octopus.core.digest import Digests
from octopus.core.errors import InvariantViolation
from octopus.core.graph import Graph
from octopus.core.replay import replay
from octopus.core.trace import Trace


def lines_of(trace: Trace) -> list[str]:
    return list(trace.json_lines())


@pytest.mark.parametrize("seed", range(8))
def test_any_history_runs_again(seed: int) -> None:
    """Catches: a call whose event does not say enough to make it again; a call that depends on what memory does."""
    engine = PretendedEngine(pages=30, states=None)
    engine.graph = Graph(pages=engine.pool, trace=Trace())
    random_history(engine, seed, 120)
    again = replay(lines_of(engine.graph.trace))
    for thread in engine.graph.threads:
        other = again.retention.threads[thread.id]
        assert (other.status, other.version, other.own_tokens) == (thread.status, thread.version, thread.own_tokens)
        if not thread.status.terminal:
            assert Digests().of(other.cursor) == Digests().of(thread.cursor)
    again.audit()


def test_waits_turns_weights_and_adoptions_run_again() -> None:
    """Catches: a thread that stays waiting in the replay; a timeout that is taken for a wake-up; a lost adoption."""
    now = [0.0]
    graph = Graph(trace=Trace(), clock_s=lambda: now[0])
    root = graph.thread()
    graph.append(root, [1, 2, 3])
    one, two = graph.fork(root, 2)
    graph.wait_threads(root, [one, two], mode="any", until="snapshot", timeout_s=5.0)
    graph.append(one, [4])
    graph.end_turn(one)
    graph.read_thread(two, one, placement="original")
    graph.wait_threads(root, [two], timeout_s=5.0)
    now[0] = 6.0
    assert len(graph.expire_waits()) == 1
    snapshot = graph.commit(one, span=(0, 1))
    (heir,) = graph.fork(snapshot)
    graph.append(heir, [5])
    mark = graph.mark(heir)
    graph.append(heir, [6])
    graph.rewind(heir, mark)
    _, found = graph.thread_from([1, 2, 3, 4, 9])
    assert found.tokens == 4
    graph.fail(two, "no reason")
    graph.cancel(root)
    graph.drop(heir)
    graph.advance_weights()
    lines = lines_of(graph.trace)
    assert lines_of(replay(lines).trace) == lines


def test_a_trace_that_was_changed_is_found_out() -> None:
    """Catches: a replay that compares nothing."""
    graph = Graph(trace=Trace())
    root = graph.thread()
    graph.append(root, [1])
    graph.commit(root)
    lines = lines_of(graph.trace)
    commit = json.loads(lines[3])
    commit["digest"] = "00" * 16
    with pytest.raises(InvariantViolation, match=r"the trace says .* and now it is"):
        replay([*lines[:3], json.dumps(commit)])
    with pytest.raises(InvariantViolation, match="begins with its header"):
        replay(lines[1:])


def test_an_audit_that_fails_hands_out_its_trace(tmp_path: Path) -> None:
    """Catches: a violation in production that nobody can run again."""
    engine = ContentEngine(pages=20, trace=Trace())
    rng = random.Random(0)
    thread = engine.thread([rng.randrange(9) for _ in range(9)])
    engine.compute(thread)
    engine.graph.audit()
    thread.cursor.segment.pages[0], stolen = thread.cursor.segment.pages[1], thread.cursor.segment.pages[0]
    dump = tmp_path / "dump.jsonl"
    with pytest.raises(InvariantViolation, match="pages with two owners: ") as caught:
        engine.graph.audit(dump)
    assert caught.value.dump == dump.read_text()
    again = replay(dump.read_text().splitlines())
    assert [t.cursor.segment.tokens for t in again.threads] == [thread.cursor.segment.tokens]
    thread.cursor.segment.pages[0] = stolen
    engine.graph.audit()
    thread.cursor.segment.start_position = 3
    with pytest.raises(InvariantViolation, match="begins at position 3, not at 0") as caught:
        engine.graph.audit()
    bare = ContentEngine(pages=20)
    bare.thread([1]).cursor.segment.path_start = 2
    with pytest.raises(InvariantViolation, match="stands at 2") as caught:
        bare.graph.audit()
    assert caught.value.dump is None


@pytest.mark.parametrize("kind", ["_init__", "segment", "_setattr__", "_class__", "reach", "page", "", "open", 3, None])
def test_a_trace_calls_what_events_are_made_by_and_nothing_else(kind: object) -> None:
    """Catches: a method of the replayer that a file picks by its name. An earlier line made a thread and a segment."""
    graph = Graph(trace=Trace())
    graph.append(graph.thread(), [1])
    lines = lines_of(graph.trace)
    with pytest.raises(InvariantViolation, match="no call leads to an event of kind"):
        replay([*lines, json.dumps({"kind": kind, "order": len(lines), "index": 0})])
