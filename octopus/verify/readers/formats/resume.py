"""A cache after a rewind or an eviction: `kept_positions` of what stayed, `next_position` of the next token."""

from __future__ import annotations

from octopus.verify.facets import Resume
from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part."""
    kept, following = bag.integers("kept_positions"), bag.number("next_position")
    if kept is None and following is None:
        return []
    if kept is None or following is None or kept.ndim != 1:
        raise Unreadable("kept_positions (a list) and next_position (a number) belong together")
    return [Part(fields={"resume": Resume(kept_positions_N=kept, next_position=following)})]


FORMAT = Format(name="resume", names=("kept_positions", "next_position"), read=read)
