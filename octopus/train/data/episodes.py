"""Episodes read back from the lines that `rollout.records.as_json` makes, and checked.

A line does not say when what was written, only what follows what. So tokens are given order numbers in which everything
comes after what it continues, what it mounts and what it waited for; a line that has no such order is refused.
"""

from __future__ import annotations

import math
from graphlib import CycleError, TopologicalSorter
from typing import Any

from octopus.core.ancestry import Piece
from octopus.core.cursor import Cursor
from octopus.core.mount import PLACEMENTS, Mount
from octopus.core.segment import Segment
from octopus.core.waits import WaitEdge
from octopus.rollout.agents import Event
from octopus.rollout.episode import Branch, Episode, SampledToken
from octopus.rollout.records import SCHEMA_VERSION, RolloutRecord
from octopus.train.data.fields import Fields

Chunk = tuple[int, int]
"""A stretch of a segment between two waits: numbers of the segment and of the stretch in it."""


def read_episode(line: dict[str, Any], *, place: str, vocabulary: int) -> RolloutRecord:
    """The record that a line describes.

    Args:
        line: A parsed line of `episodes.jsonl`.
        place: What to call the line in messages.
        vocabulary: Number of tokens that the policy knows.

    Raises:
        ConfigError: Something is missing, of a wrong type, out of range or contradicts the rest.
    """
    fields = Fields(line, place)
    version = fields.whole("schema_version")
    if version != SCHEMA_VERSION:
        raise fields.error("schema_version", f"{SCHEMA_VERSION}", version)
    segments = [_segment(fields, number, vocabulary) for number in range(len(fields.items("segments")))]
    # A segment may mount one that was opened later, so mounts come when all segments are there.
    built: list[Segment] = []
    for number, raw in enumerate(segments):
        built.append(_built(number, raw, built))
    for segment, raw in zip(built, segments, strict=True):
        _mount(segment, raw, built)
    waits = _waits(fields, built)
    ends = _write(fields, built, waits)
    episode = Episode(
        name=fields.text("name"),
        segments=tuple(built),
        waits=tuple(
            WaitEdge(waiter=waiter, awaited=awaited, order=order, thread=waiter.segment.writer)
            for (waiter, awaited), order in zip(waits, ends, strict=True)
        ),
        sampled=_sampled(fields, built),
        reward=fields.number("reward"),
        branches=tuple(_branches(fields)),
    )
    return RolloutRecord(
        episode=episode,
        mode=fields.text("mode"),
        seed=fields.whole("seed"),
        outcome=fields.text("outcome"),  # type: ignore[arg-type]  # whatever word ended somebody's episode
        answer=fields.text_or_none("answer"),
        gold=tuple(fields.texts("gold")),
        documents=tuple(fields.texts("documents")),
        events=tuple(tuple(map(_event, events)) for events in fields.objects("events")),
    )


def _segment(fields: Fields, number: int, vocabulary: int) -> Fields:
    raw = fields.item("segments", number)
    for offset, token in enumerate(raw.wholes("tokens")):
        if token >= vocabulary:
            raise raw.error(f"tokens[{offset}]", f"a token below {vocabulary}, the policy's vocabulary", token)
    return raw


def _built(number: int, raw: Fields, earlier: list[Segment]) -> Segment:
    """The segment without its mounts and position."""
    parent = None
    if raw.value("parent") is not None:
        parent = _cursor(raw, "parent", raw.wholes("parent", count=2), earlier)
    segment = Segment(number, parent, raw.whole("position"), raw.whole("thread"), number, 0)
    segment.tokens = raw.wholes("tokens")
    return segment


def _mount(segment: Segment, raw: Fields, built: list[Segment]) -> None:
    """Gives a segment its mounts. Its position is what its parent and they leave it."""
    position = 0 if segment.parent is None else segment.parent.next_position
    mounts = []
    for index, listed in enumerate(raw.items("mounts")):
        place = f"mounts[{index}]"
        parts = [raw.listed(f"{place}[{i}]", part, count=4) for i, part in enumerate(raw.as_list(place, listed))]
        mount = _placed(parts, position, built)
        if mount is None:
            raise raw.error(place, f"parts laid out from position {position}, or where they were written", listed)
        mounts.append(mount)
        position = mount.resume_position
    if position != segment.start_position:
        raise raw.error("position", f"{position}, behind what it continues and mounts", segment.start_position)
    segment.mounts = tuple(mounts)
    above = None if segment.parent is None else segment.parent.segment.mounting
    segment.mounting = segment if mounts else above


def _placed(parts: list[list[int]], position: int, built: list[Segment]) -> Mount | None:
    """The mount that shows these parts to a reader at `position`; None if there is no such mount."""
    pieces = []
    for segment, start, stop, _ in parts:
        if not (0 <= segment < len(built) and 0 <= start < stop <= len(built[segment].tokens)):
            return None
        pieces.append(Piece(built[segment], start, stop))
    if not pieces:
        return None
    first, last = pieces[0], pieces[-1]
    for placement in PLACEMENTS:
        source, start = Cursor(last.segment, last.stop), first.segment.path_start + first.start
        mount = Mount(source, start, position, placement, list(pieces))
        if [part.shift for part in mount.parts] == [shift for *_, shift in parts]:
            return mount
    return None


def _waits(fields: Fields, built: list[Segment]) -> list[tuple[Cursor, Cursor]]:
    listed = [fields.listed(f"waits[{i}]", wait, count=4) for i, wait in enumerate(fields.items("waits"))]
    return [
        (
            _cursor(fields, f"waits[{number}]", wait[:2], built),
            _cursor(fields, f"waits[{number}]", wait[2:], built),
        )
        for number, wait in enumerate(listed)
    ]


def _write(fields: Fields, built: list[Segment], waits: list[tuple[Cursor, Cursor]]) -> list[int]:
    """Stamps every token with an order number; returns one for each wait, at which it was over."""
    cuts = [sorted({0} | {waiter.length for waiter, _ in waits if waiter.segment is segment}) for segment in built]

    def last(place: Cursor) -> Chunk:
        """The chunk of the last token before a place; the segment's first if there is none in it."""
        return place.segment.index, max(0, sum(cut < place.length for cut in cuts[place.segment.index]) - 1)

    after: dict[Chunk, set[Chunk]] = {}
    for number, segment in enumerate(built):
        seen = [] if segment.parent is None else [segment.parent]
        seen += [Cursor(part.segment, part.stop) for mount in segment.mounts for part in mount.parts]
        after[number, 0] = set(map(last, seen))
        after |= {(number, later): {(number, later - 1)} for later in range(1, len(cuts[number]))}
    for waiter, awaited in waits:
        own = waiter.segment
        goes_on = [(own.index, cuts[own.index].index(waiter.length))]
        goes_on += [(s.index, 0) for s in built if s.parent == waiter and s.writer == own.writer]
        for chunk in goes_on:
            after[chunk].add(last(awaited))
    try:
        order = {chunk: number for number, chunk in enumerate(TopologicalSorter(after).static_order(), start=1)}
    except CycleError as error:
        raise fields.error("segments", "segments that can be written one after the other", "a cycle") from error
    for number, segment in enumerate(built):
        stamps = [(cut, order[number, later]) for later, cut in enumerate(cuts[number])]
        segment.stamps = [stamp for stamp in stamps if stamp[0] < len(segment.tokens)]
        segment.opened_at = order[number, 0]
    return [
        max(order[last(awaited)], order[last(waiter)] if waiter.length else 0) for waiter, awaited in waits
    ]


def _sampled(fields: Fields, built: list[Segment]) -> tuple[SampledToken, ...]:
    sampled, taken = [], set()
    for number, entry in enumerate(fields.items("sampled")):
        place = f"sampled[{number}]"
        values = fields.as_list(place, entry, count=4)
        segment, offset = fields.listed(place, values[:2], count=2)
        _, _, log_probability, live = values
        if segment >= len(built) or offset >= len(built[segment].tokens) or (segment, offset) in taken:
            raise fields.error(place, "a token of a segment, each once", entry)
        taken.add((segment, offset))
        probable = log_probability is None or (
            isinstance(log_probability, int | float) and math.isfinite(log_probability) and log_probability <= 0
        )
        if not probable or not isinstance(live, bool):
            raise fields.error(place, "[segment, offset, log-probability or null, true or false]", entry)
        if built[segment].path_start + offset == 0:
            raise fields.error(place, "a token that something stands before: nothing predicts the first", entry)
        sampled.append(
            SampledToken(segment=built[segment], offset=offset, log_probability=log_probability, live=live)
        )
    return tuple(sampled)


def _branches(fields: Fields) -> list[Branch]:
    branches = []
    for number in range(len(fields.items("branches"))):
        raw = fields.item("branches", number)
        branches.append(
            Branch(
                thread=raw.whole("thread"),
                place=(0, number),
                documents=tuple(raw.texts("documents")),
                committed=raw.text_or_none("committed"),
            )
        )
    return branches


def _event(raw: Fields) -> Event:
    return Event(
        kind=raw.text("kind"),
        argument=raw.text("argument"),
        ok=raw.flag("ok"),
        result=raw.text("result"),
        documents=tuple(raw.texts("documents")),
        attempts=raw.whole("attempts"),
    )


def _cursor(fields: Fields, place: str, pair: list[int], built: list[Segment]) -> Cursor:
    number, length = pair
    if number >= len(built) or length > len(built[number].tokens):
        raise fields.error(place, "a place in an earlier segment, [segment, length]", pair)
    return Cursor(built[number], length)
