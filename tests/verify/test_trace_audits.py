"""Traces: what graphs really write is clean, and one changed event is found under its own code, on its own line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
import random_graphs
from trace_events import Event, audit, family, index, subject, traced, with_changed, with_event

from octopus.core.graph import Graph
from octopus.core.trace import Trace
from octopus.verify.audits.traces import trace_subject

RIGHT = traced(family)
READ = index(RIGHT, "read")


def page(op: str, **fields: object) -> Event:
    return {"kind": "page", "op": op, "page": 3, "generation": 1, "thread": 0, **fields}


def paged(*events: Event) -> list[Event]:
    """Page events before the threads are dropped."""
    at = index(RIGHT, "drop")
    return [*RIGHT[:at], *events, *RIGHT[at:]]


def pool(**fields: object) -> list[Event]:
    state: Event = {
        "kind": "pool", "capacity": 4, "free": [2, 3], "metrics": {"used": 2, "free": 2},
        "pages": [{"page": n, "generation": 1, "count": 1, "holders": ["a"]} for n in (0, 1)],
    }  # fmt: skip
    return paged({**state, **fields})


PAGE = {"page": 0, "generation": 1, "count": 2, "holders": ["a"]}

def bad_read(source: int) -> Event:
    """A read of a source by the root, into the segment on which it then stands."""
    fields = {"segment": 3, "start_position": 8, "parts": [[2, 0, 1, 4]]}
    return {"reader": 0, "source": source, "snapshot_version": 1, **fields}


def cancelled_source() -> list[Event]:
    """The root reads a thread that was cancelled before."""
    return with_event(with_event(RIGHT, 5, "cancel", thread=2), 14, "read", **bad_read(2))


def holed() -> list[Event]:
    """The root reads only the outer tokens of the three that its child wrote."""
    events = with_changed(RIGHT, "append", 1, tokens=[8, 9, 4])
    events = with_changed(with_changed(events, "commit", length=3), "wait_edge", awaited_length=3)
    return with_changed(events, "read", parts=[[1, 0, 1, 0], [1, 2, 3, -1]])


def recommitted() -> list[Event]:
    """A thread commits the same place twice, and the digests differ."""

    def play(graph: Graph) -> None:
        root = graph.thread()
        graph.append(root, [1])
        graph.commit(root, keep_running=True)
        graph.commit(root)

    return with_changed(traced(play), "commit", 1, digest="0" * 32)


def early(events: list[Event]) -> list[Event]:
    """The commit that the root waits for comes after it has resumed."""
    at = index(events, "commit")
    return [*events[:at], events[at + 1], events[at], *events[at + 2 :]]


FAULTS: dict[str, tuple[str, Callable[[], list[Event]]]] = {
    "no header": ("OCT601", lambda: RIGHT[1:]),
    "other version": ("OCT601", lambda: with_changed(RIGHT, "header", schema_version=2)),
    "unknown kind": ("OCT601", lambda: with_event(RIGHT, 2, "teleport", thread=0)),
    "missing field": ("OCT601", lambda: [{k: v for k, v in e.items() if k != "parts"} for e in RIGHT]),
    "wrong type": ("OCT601", lambda: with_changed(RIGHT, "append", tokens=[1, -2])),
    "unknown thread": ("OCT601", lambda: with_changed(RIGHT, "append", thread=9)),
    "beyond what is written": ("OCT603", lambda: with_changed(RIGHT, "read", parts=[[1, 0, 3, 0]])),
    "version from nowhere": ("OCT603", lambda: with_changed(RIGHT, "read", snapshot_version=3)),
    "source cancelled": ("OCT604", cancelled_source),
    "older version read": ("OCT605", lambda: with_changed(RIGHT, "read", snapshot_version=0)),
    "older version committed": ("OCT605", lambda: with_changed(RIGHT, "commit", version=0)),
    "append overwrites": ("OCT606", lambda: with_changed(RIGHT, "append", 3, start=0, segment=1, thread=1)),
    "append leaves a gap": ("OCT606", lambda: with_changed(RIGHT, "append", 3, start=4)),
    "mount with a hole": ("OCT607", holed),
    "segment beyond its parent": ("OCT607", lambda: with_changed(RIGHT, "open", parent_length=5)),
    "commit elsewhere": ("OCT607", lambda: with_changed(RIGHT, "commit", length=1)),
    "append after cancel": ("OCT611", lambda: with_event(RIGHT, 6, "cancel", thread=2)),
    "digest of the place differs": ("OCT612", recommitted),
    "resumed too early": ("OCT614", lambda: early(RIGHT)),
    "acts while waiting": ("OCT614", lambda: with_event(RIGHT, 8, "mark", thread=0, segment=0, length=3)),
    "published place overwritten": ("OCT706", lambda: with_changed(RIGHT, "append", 1, start=0, segment=0, thread=0)),
    "cancelled becomes committed": ("OCT707", lambda: with_event(RIGHT, 8, "cancel", thread=1)),
    "told another status": ("OCT707", lambda: with_changed(RIGHT, "resume", statuses=[[1, "running"]])),
    "branch at the wrong position": ("OCT203", lambda: with_changed(RIGHT, "open", start_position=4)),
    "mount with a hole in positions": ("OCT214", lambda: with_changed(RIGHT, "read", 1, parts=[[3, 1, 2, -1]])),
    "shared page is written": (
        "OCT608",
        lambda: paged(page("allocate"), page("share"), page("write", thread=1, start=0, stop=2)),
    ),
    "stale generation": ("OCT609", lambda: paged(page("allocate"), page("write", generation=2))),
    "use after free": ("OCT609", lambda: paged(page("allocate"), page("release"), page("share"))),
    "left at the end": ("OCT610", lambda: paged(page("allocate"))),
    "restored with other content": (
        "OCT612",
        lambda: paged(page("allocate"), page("write", hash="a"), page("restore", hash="b"), page("release")),
    ),
    "preempted four times": ("OCT613", lambda: paged(*[{"kind": "preempt", "thread": 0}] * 4)),
    "count is not holders": ("OCT701", lambda: pool(pages=[PAGE, {**PAGE, "page": 1, "count": 1}])),
    "free twice": ("OCT702", lambda: pool(free=[2, 2, 3])),
    "allocated while held": (
        "OCT702",
        lambda: paged(page("allocate"), page("allocate", generation=2), page("release", generation=2)),
    ),
    "read finds other content": (
        "OCT703",
        lambda: paged(page("allocate"), page("write", hash="a"), page("read", hash="b"), page("release")),
    ),
    "slot written twice": (
        "OCT704",
        lambda: paged(page("allocate"), *[page("write", start=0, stop=2)] * 2, page("release")),
    ),
    "pages are lost": ("OCT705", lambda: pool(free=[2])),
    "gauge is wrong": ("OCT708", lambda: pool(metrics={"used": 4})),
    "generation stands still": ("OCT709", lambda: paged(*[page("allocate"), page("release")] * 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_one_wrong_event_is_found(name: str) -> None:
    """Catches: each rule of OCT6xx and OCT7xx that is gone."""
    code, make = FAULTS[name]
    assert code in {finding.code for finding in audit(make())}


@pytest.mark.parametrize(
    ("code", "orders"),
    [("OCT602", [1, 2, 4]), ("OCT602", [1, 2, 2]), ("OCT602", [2, 3, 4]), ("OCT601", [1, "x", 3])],
)
def test_order_numbers(code: str, orders: list[object]) -> None:
    """Catches: gaps, repeats, a late start, and a number that is none."""
    events = [RIGHT[0] | {"events": 3}, *({**e, "order": o} for e, o in zip(RIGHT[1:4], orders, strict=True))]
    assert code in {finding.code for finding in audit(events, renumber=False)}


def test_a_trace_that_was_cut_off_is_noticed() -> None:
    """Catches: a header whose promise nobody compares."""
    assert {finding.code for finding in audit(RIGHT[:-2], renumber=False)} == {"OCT602"}


def test_clean_traces_and_clean_pools_have_no_findings() -> None:
    """Catches: a rule that cries for nothing."""
    assert audit(RIGHT) == [] and audit(pool()) == []
    shared = [
        page("allocate"), page("write", start=0, stop=2, hash="a"), page("share"),
        page("write", start=2, stop=3, hash="b"), page("offload", hash="b"), page("restore", hash="b"),
        page("release"), page("release"), page("allocate", generation=2), page("release", generation=2),
    ]  # fmt: skip
    assert audit(paged(*shared)) == []


def test_a_finding_names_the_line_of_its_event() -> None:
    """Catches: a line that is off by the header."""
    (finding,) = [f for f in audit(with_changed(RIGHT, "read", parts=[[1, 0, 3, 0]])) if f.code == "OCT603"]
    assert finding.location.line == READ + 1


@pytest.mark.parametrize("seed", range(60))
def test_what_random_graphs_write_is_clean(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a rule that a legal order of calls breaks, and rows that differ from what was appended."""
    monkeypatch.setattr(random_graphs, "Graph", lambda: Graph(trace=Trace()))
    episode = random_graphs.random_episode(seed, size=random.Random(seed).randrange(1, 60))
    assert episode.graph.trace is not None
    events = list(map(json.loads, episode.graph.trace.json_lines()))
    assert audit(events, renumber=False) == []
    rows = trace_subject(subject(events, renumber=False))
    assert (0 if rows is None else rows.length) == len(episode.oracle.tokens)
