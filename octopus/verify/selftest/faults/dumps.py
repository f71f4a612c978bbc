"""Faults of dumps: configurations, traces, page pools. No model is run, so they are the same in every dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from octopus.verify.facets import Heads, PoolState
from octopus.verify.selftest.fault import Fault
from octopus.verify.subject import Events, Subject

Event = Mapping[str, Any]


def _heads(change: Callable[[Heads], Heads]) -> Callable[[Subject], Subject]:
    def changed(subject: Subject) -> Subject:
        assert subject.heads is not None
        return replace(subject, heads=change(subject.heads))

    return changed


def _pool(change: Callable[[PoolState], PoolState]) -> Callable[[Subject], Subject]:
    def changed(subject: Subject) -> Subject:
        assert subject.pool is not None
        return replace(subject, pool=change(subject.pool))

    return changed


def _events(change: Callable[[list[Event]], Sequence[Event]]) -> Callable[[Subject], Subject]:
    def changed(subject: Subject) -> Subject:
        assert subject.events is not None
        events = tuple(change(list(subject.events.events)))
        return replace(subject, events=Events(events=events, lines=tuple(range(1, len(events) + 1))))

    return changed


def _edited(
    kind: str, edit: Callable[[dict[str, Any]], None], *, last: bool = False
) -> Callable[[list[Event]], list[Event]]:
    """The first (or last) event of a kind, edited."""

    def change(events: list[Event]) -> list[Event]:
        places = [i for i, event in enumerate(events) if event["kind"] == kind]
        at = places[-1 if last else 0]
        event = dict(events[at])
        edit(event)
        return [*events[:at], event, *events[at + 1 :]]

    return change


def _read_one_more(event: dict[str, Any]) -> None:
    segment, start, stop, shift = event["parts"][-1]
    event["parts"] = [*event["parts"][:-1], [segment, start, stop + 1, shift]]


def _append_later(event: dict[str, Any]) -> None:
    event["start"] += 1


def _write_after_cancel(events: list[Event]) -> list[Event]:
    """A tool that outlived its thread writes once more."""
    cancelled = next(event["thread"] for event in events if event["kind"] == "cancel")
    written = [event for event in events if event["kind"] == "append" and event["thread"] == cancelled][-1]
    late = dict(written, start=written["start"] + len(written["tokens"]), order=events[-1]["order"] + 1)
    return [dict(events[0], events=len(events)), *events[1:], late]


def _resume_before_commit(events: list[Event]) -> list[Event]:
    """The reader is woken before what it waits for is committed; orders stay those of the places."""
    resume = next(i for i, event in enumerate(events) if event["kind"] == "resume")
    commit = next(i for i, event in enumerate(events) if event["kind"] == "commit")
    moved = [*events[:commit], events[resume], *events[commit:resume], *events[resume + 1 :]]
    return [events[0], *(dict(event, order=events[i]["order"]) for i, event in enumerate(moved) if i)]


def _lost(kind: str) -> Callable[[list[Event]], list[Event]]:
    """Without the first event of a kind."""

    def change(events: list[Event]) -> list[Event]:
        at = next(i for i, event in enumerate(events) if event["kind"] == kind)
        return [*events[:at], *events[at + 1 :]]

    return change


DUMPS = (
    Fault(
        name="heads_not_divisible",
        code="OCT301",
        about="Query heads cannot share the key/value heads evenly.",
        dump=_heads(lambda heads: replace(heads, query=heads.query - 1)),
    ),
    Fault(
        name="repeated_along_the_sequence",
        code="OCT303",
        about="Keys were repeated along the sequence instead of the heads.",
        dump=_heads(lambda heads: replace(heads, expanded_shape=(1, heads.key_value, 40, heads.dim))),
    ),
    Fault(
        name="rank_has_another_head",
        code="OCT305",
        about="With fewer key/value heads than ranks, a rank holds the wrong one.",
        dump=_heads(lambda heads: replace(heads, tensor_parallel=4, rank_heads=((0,), (1,), (0,), (1,)))),
    ),
    Fault(
        name="event_of_another_version",
        code="OCT601",
        about="The trace says that it is of a version nobody knows.",
        dump=_events(_edited("header", lambda event: event.update(schema_version=99))),
    ),
    Fault(name="event_lost", code="OCT602", about="An event is missing.", dump=_events(_lost("append"))),
    Fault(
        name="read_past_the_snapshot",
        code="OCT603",
        about="A reader mounts a token that the source had not written when it was read.",
        dump=_events(_edited("read", _read_one_more)),
    ),
    Fault(
        name="append_leaves_a_hole",
        code="OCT606",
        about="A token is written behind the end of its segment.",
        dump=_events(_edited("append", _append_later, last=True)),
    ),
    Fault(
        name="write_after_cancel",
        code="OCT611",
        about="A cancelled thread writes once more.",
        dump=_events(_write_after_cancel),
    ),
    Fault(
        name="resumed_before_its_wait_was_met",
        code="OCT614",
        about="A reader goes on before what it waits for is committed.",
        dump=_events(_resume_before_commit),
    ),
    Fault(
        name="reference_lost",
        code="OCT701",
        about="A shared page counts one holder, and two hold it.",
        dump=_pool(lambda pool: replace(pool, pages=(replace(pool.pages[0], count=1), *pool.pages[1:]))),
    ),
    Fault(
        name="page_twice_free",
        code="OCT702",
        about="A page is twice on the free list.",
        dump=_pool(lambda pool: replace(pool, free=(*pool.free, pool.free[0]))),
    ),
    Fault(
        name="page_free_and_held",
        code="OCT702",
        about="A page that somebody holds is on the free list.",
        dump=_pool(lambda pool: replace(pool, free=(*pool.free, pool.pages[0].page))),
    ),
    Fault(
        name="page_lost",
        code="OCT702",
        about="A page is neither free nor held.",
        dump=_pool(lambda pool: replace(pool, free=pool.free[1:])),
    ),
    Fault(
        name="gauge_left_behind",
        code="OCT708",
        about="A gauge still tells what was true before the last release.",
        dump=_pool(lambda pool: replace(pool, metrics={"used": len(pool.pages) + 1, "free": len(pool.free)})),
    ),
)
