"""Points inside of the store: where a count changes, another thread may go on, unless a lock keeps it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from fuzz.scheduler import Scheduler
from octopus.core.references import LengthCounts, LengthMultiset

WATCHED = ((LengthCounts, "add"), (LengthCounts, "remove"), (LengthMultiset, "add"), (LengthMultiset, "remove"))


@contextmanager
def watched(scheduler: Scheduler) -> Iterator[None]:
    """While it is open, every change of a segment's references begins with a point."""
    with ExitStack() as stack:
        for owner, name in WATCHED:
            stack.enter_context(mock.patch.object(owner, name, _after_a_point(scheduler, owner, name)))
        yield


def _after_a_point(scheduler: Scheduler, owner: type[LengthCounts], name: str) -> Callable[..., None]:
    right: Callable[..., None] = vars(owner)[name]

    def call(self: LengthCounts, *arguments: int) -> None:
        scheduler.point(name)
        right(self, *arguments)

    return call
