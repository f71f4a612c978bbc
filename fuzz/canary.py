"""Canaries: faults that are planted in the store one at a time. A fuzzer that does not find each of them is blind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from fuzz.episodes import FINDINGS, carry_out, drawn
from octopus.core import visibility
from octopus.core.mount import Mount, Part
from octopus.core.pool import Pool
from octopus.core.segment import Segment
from octopus.core.thread import Thread


@dataclass(frozen=True, kw_only=True, slots=True)
class Canary:
    """A fault: `planted()` is in force while its block runs."""

    name: str
    planted: Callable[[], AbstractContextManager[object]]


@contextmanager
def _view_ends_one_token_late() -> Iterator[None]:
    """What a path shows reaches one token beyond the cursor, where the segment has one."""
    right = visibility.view

    def late(cursor: Any) -> list[Part]:
        parts = right(cursor)
        return [
            part._replace(stop=part.stop + (part.segment is cursor.segment and part.stop < len(part.segment.tokens)))
            for part in parts
        ]

    with mock.patch("fuzz.comparison.parts_seen", late), mock.patch("fuzz.engine.view", late):
        yield


@contextmanager
def _property(owner: type, name: str, wrong: Callable[[Any, Any], Any]) -> Iterator[None]:
    right = vars(owner)[name].fget
    with mock.patch.object(owner, name, property(lambda self: wrong(self, right(self)))):
        yield


@contextmanager
def _release_forgets_one() -> Iterator[None]:
    right = Pool.release
    with mock.patch.object(Pool, "release", lambda self, handles: right(self, list(handles)[1:])):
        yield


@contextmanager
def _mount_takes_one_position_more() -> Iterator[None]:
    right = Mount.__init__

    def wrong(self: Mount, *fields: Any) -> None:
        right(self, *fields)
        self.resume_position += 1

    with mock.patch.object(Mount, "__init__", wrong):
        yield


CANARIES = (
    Canary(name="a view ends one token late", planted=_view_ends_one_token_late),
    Canary(
        name="the last visible token of a segment is given back",
        planted=lambda: _property(Segment, "visible_end", lambda segment, end: max(0, end - 1)),
    ),
    Canary(name="a mount takes one position too many", planted=_mount_takes_one_position_more),
    Canary(name="a release forgets a unit", planted=_release_forgets_one),
    Canary(
        name="a thread counts one own token too few",
        planted=lambda: _property(Thread, "own_tokens", lambda thread, count: max(0, count - 1)),
    ),
)


def found_after(canary: Canary, *, seed: int, episodes: int, operations: int) -> int | None:
    """The number of episodes until the fault is found; None if it never is."""
    with canary.planted():
        for number in range(episodes):
            try:
                carry_out(drawn(seed + number, operations=operations))
            except FINDINGS:
                return number + 1
    return None
