"""What our own page store does is recorded and audited: clean as it is, and each planted fault of memory is found."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from core.content import PAGE, ContentEngine
from random_rollouts import RandomRollout, tiny_engine
from tiny_models import tiny_llama
from trace_events import Event, audit

from octopus.core import pool as pools
from octopus.core import trace
from octopus.core.errors import CapacityExceeded
from octopus.core.graph import Graph
from octopus.core.pool import PagePool
from octopus.core.retention import Retention
from octopus.core.segment import Segment
from octopus.core.trace import Trace
from octopus.verify.audits.traces.fields import FIELDS
from octopus.verify.memory_trace import MemoryTrace


def played(seed: int = 0, *, calls: int = 120, pages: int = 18) -> list[Event]:
    """The events of a random history in little memory, with a host tier; at the end everybody goes."""
    rng = random.Random(seed)
    engine = ContentEngine(pages=pages, host_pages=6, trace=Trace(), rate=None)
    graph = engine.graph
    memory = MemoryTrace(graph)
    threads = [engine.thread([1, 2, 3, 4, 5])]
    for _ in range(calls):
        running = [thread for thread in threads if not thread.status.terminal] or [engine.thread([6, 7])]
        threads += [thread for thread in running if thread not in threads]
        thread = rng.choice(running)
        kind = rng.choice(["append", "append", "fork", "read", "rewind", "compute", "compute", "offload", "drop"])
        try:
            if kind == "append":
                graph.append(thread, [rng.randrange(50) for _ in range(rng.randint(1, 6))])
            elif kind == "fork":
                threads += graph.fork(thread, 2)
            elif kind == "read":
                graph.read_thread(thread, rng.choice(running))
                graph.append(thread, [9])
            elif kind == "rewind":
                graph.rewind(thread, rng.randint(0, thread.own_tokens))
            elif kind == "compute":
                engine.compute(*rng.sample(running, min(2, len(running))))
            elif kind == "offload":
                graph.preempt(thread)
            elif len(threads) > 3:
                threads.remove(thread)
                graph.drop(thread)
        except CapacityExceeded:
            threads.remove(thread)
            graph.drop(thread)
    for thread in threads:
        graph.drop(thread)
    return [json.loads(line) for line in memory.json_lines()]


def codes(events: list[Event]) -> set[str]:
    return {finding.code for finding in audit(events, renumber=False)}


@pytest.mark.parametrize("seed", range(12))
def test_our_store_is_clean_through_every_rung(seed: int) -> None:
    """Catches: an audit that cries wolf over cached pages, fences, copies under way, pages that are filled again."""
    assert codes(played(seed)) == set()


def test_an_engine_is_clean() -> None:
    """Catches: a way in which real steps use pages and the recorder does not know, such as pages of the storage."""
    engine = tiny_engine(tiny_llama(), trace=Trace(), pages=40)
    memory = MemoryTrace(engine.graph)
    RandomRollout(engine, seed=5).run(40)
    events = [json.loads(line) for line in memory.json_lines()]
    assert sum(event.get("op") == "write" for event in events) > 30
    assert codes(events) == set()


def test_the_history_shows_what_there_is_to_audit() -> None:
    """Catches: a recorder that hears nothing, so that all is clean."""
    seen = Counter((event["kind"], event.get("op")) for seed in range(12) for event in played(seed))
    assert min(seen["page", op] for op in ("allocate", "write", "release")) > 100 and seen["pool", None] > 100
    events = played()
    assert [event["order"] for event in events[1:]] == list(range(1, len(events)))
    held = [page for event in events if event["kind"] == "pool" for page in event["pages"]]
    assert all(page["count"] == len(page["holders"]) == 1 for page in held) and len(held) > 100


def test_pages_that_are_there_when_recording_begins_are_known() -> None:
    """Catches: a write to a page that was allocated before."""
    engine = ContentEngine(pages=8, trace=Trace())
    thread = engine.thread([1, 2])
    engine.compute(thread)
    memory = MemoryTrace(engine.graph)
    engine.graph.append(thread, [3] * PAGE)
    engine.compute(thread)
    assert codes([json.loads(line) for line in memory.json_lines()]) == set()
    engine.graph.check()


def test_adopted_prefixes_and_turns_are_known() -> None:
    """Catches: a kind of event that our graph writes and the audit takes for a thread from nowhere."""
    engine = ContentEngine(pages=12, trace=Trace())
    graph, memory = engine.graph, MemoryTrace(engine.graph)
    first = engine.thread([1, 2, 3, 4, 5])
    engine.compute(first)
    graph.end_turn(first)
    graph.drop(first)
    second, found = graph.thread_from([1, 2, 3, 9])
    assert found.tokens == 3
    graph.append(second, [9])
    engine.compute(second)
    graph.rewind(second, 1)
    events = [json.loads(line) for line in memory.json_lines()]
    assert {"adopt", "turn"} <= {event["kind"] for event in events}
    assert codes(events) == set()
    place = next(i for i, event in enumerate(events) if event["kind"] == "adopt")
    assert "OCT607" in codes([*events[:place], events[place] | {"length": 99}, *events[place + 1 :]])
    assert trace.FIELDS.keys() <= FIELDS.keys()


def test_the_command_audits_the_file(tmp_path: Path) -> None:
    """Catches: a kind of event that the reader of files drops."""
    events = played()
    place = next(i for i, event in enumerate(events) if event.get("op") == "release")
    for name, changed, code in (("right", events, 0), ("wrong", [*events[:place], *events[place + 1 :]], 1)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in changed))
        command = [sys.executable, "-m", "octopus.verify.command.main", "trace", str(path), "--isolated"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout
        assert ("OCT702" in done.stdout) == bool(code)


def test_a_page_that_is_never_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment forgets a page, and the pool is not told."""
    right = Retention._give_back_pages

    def forgetful(self: Retention, segment: Segment, start: int, stop: int) -> None:
        if start < stop:
            segment.pages[start] = pools.NO_PAGE
        right(self, segment, start, stop)

    monkeypatch.setattr(Retention, "_give_back_pages", forgetful)
    assert codes(played()) >= {"OCT701"}


def test_a_page_that_stays_listed_when_it_is_given_back_is_found() -> None:
    """The pool gets a page back that a segment goes on to write."""
    engine = ContentEngine(pages=8, trace=Trace(), rate=None)
    graph, memory = engine.graph, MemoryTrace(engine.graph)
    root = engine.thread([1] * PAGE)
    engine.compute(root)
    assert graph.retention.pages is not None
    graph.retention.pages.release(root.cursor.segment.pages)
    assert codes([json.loads(line) for line in memory.json_lines()]) >= {"OCT701", "OCT702", "OCT705"}


def test_a_generation_that_does_not_rise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page comes back under the handle that it had."""
    monkeypatch.setattr(pools, "_NEXT_GENERATION", 0)
    assert "OCT709" in codes(played())


def test_a_page_of_two_segments_is_found() -> None:
    """A fork's child is given its parent's last page, to be filled up."""
    engine = ContentEngine(pages=16, trace=Trace())
    graph, memory = engine.graph, MemoryTrace(engine.graph)
    root = engine.thread([1, 2])
    engine.compute(root)
    child = graph.fork(root, 1)[0]
    graph.append(child, [3])
    engine.compute(child)
    shared = child.cursor.segment
    assert shared.parent is not None
    shared.pages[0] = shared.parent.segment.pages[0]
    memory.snapshot()
    assert "OCT701" in codes([json.loads(line) for line in memory.json_lines()])


def test_a_slot_that_is_written_twice_is_found() -> None:
    """Tokens are computed again into the pages that hold them already."""
    engine = ContentEngine(pages=16, trace=Trace(), rate=None)
    memory = MemoryTrace(engine.graph)
    root = engine.thread([1, 2])
    engine.compute(root)
    root.cursor.segment.computed = 1
    memory.snapshot()
    engine.compute(root)
    assert codes([json.loads(line) for line in memory.json_lines()]) == {"OCT704"}


def test_a_gauge_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One page too few is told to be free."""
    monkeypatch.setattr(PagePool, "free", property(lambda pool: pool.capacity - pool.used - 1))
    assert "OCT708" in codes(played(pages=200))


def test_nothing_is_recorded_without_pool_or_trace() -> None:
    """Catches: a trace that looks clean since there was nothing to record."""
    for graph in (Graph(trace=Trace()), Graph(pages=PagePool(4))):
        with pytest.raises(ValueError, match="pool and a trace"):
            MemoryTrace(graph)
