"""A trace of events, one JSON object a line (docs/trace.md): passed on as it is, the header included."""

from __future__ import annotations

from octopus.verify.inputs import Hints
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import Events


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part, if the lines are events: if the first one has a `kind`."""
    if not bag.lines or "kind" not in bag.lines[0].value:
        return []
    events = Events(
        events=tuple(line.value for line in bag.lines), lines=tuple(line.number for line in bag.lines)
    )
    return [Part(fields={"events": events}, length=0, name="trace")]


FORMAT = Format(name="trace", names=(), read=read)
