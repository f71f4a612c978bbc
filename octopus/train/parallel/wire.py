"""Groups of rollout records as JSON values that another rank makes the same records of.

Nothing is left out that rating, packing or a journal reads. What belongs to a store (pages, states, who stands where)
is not sent: nobody decodes from these segments again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from octopus.core.ancestry import Piece
from octopus.core.cursor import Cursor
from octopus.core.mount import Mount
from octopus.core.segment import Segment
from octopus.core.waits import WaitEdge
from octopus.rollout.agents import Event
from octopus.rollout.episode import Branch, Episode, SampledToken
from octopus.rollout.records import RolloutRecord

Json = dict[str, Any]
Group = tuple[RolloutRecord, ...]


def to_wire(group: Sequence[RolloutRecord]) -> Json:
    """A group. Segments that its episodes share are sent once, in the order of their creation."""
    found = {segment for record in group for segment in record.episode.segments}
    segments = sorted(found, key=lambda segment: segment.index)
    numbers = {segment: number for number, segment in enumerate(segments)}
    return {
        "segments": [_segment_out(segment, numbers) for segment in segments],
        "records": [_record_out(record, numbers) for record in group],
    }


def from_wire(value: Json) -> Group:
    """The group that `to_wire` was given, on segments of its own."""
    segments: list[Segment] = []
    for item in value["segments"]:
        segments.append(_segment_in(item, segments))
    for segment, item in zip(segments, value["segments"], strict=True):  # A mount may show what was opened later.
        segment.mounts = tuple(_mount_in(mount, segments) for mount in item["mounts"])
        above = None if segment.parent is None else segment.parent.segment.mounting
        segment.mounting = segment if segment.mounts else above
    return tuple(_record_in(item, segments) for item in value["records"])


def _segment_out(segment: Segment, numbers: dict[Segment, int]) -> Json:
    return {
        "index": segment.index,
        "parent": None if segment.parent is None else _cursor_out(segment.parent, numbers),
        "start_position": segment.start_position,
        "writer": segment.writer,
        "opened_at": segment.opened_at,
        "weights_version": segment.weights_version,
        "tokens": segment.tokens,
        "stamps": segment.stamps,
        "mounts": [_mount_out(mount, numbers) for mount in segment.mounts],
    }


def _segment_in(item: Json, before: Sequence[Segment]) -> Segment:
    segment = Segment(
        item["index"],
        None if item["parent"] is None else _cursor_in(item["parent"], before),
        item["start_position"],
        item["writer"],
        item["opened_at"],
        item["weights_version"],
    )
    segment.tokens = item["tokens"]
    segment.stamps = [(offset, order) for offset, order in item["stamps"]]
    return segment


def _mount_out(mount: Mount, numbers: dict[Segment, int]) -> Json:
    return {
        "source": _cursor_out(mount.source, numbers),
        "start": mount.start,
        "base": mount.base,
        "placement": mount.placement,
        "pieces": [[numbers[part.segment], part.start, part.stop] for part in mount.parts],
    }


def _mount_in(item: Json, segments: Sequence[Segment]) -> Mount:
    pieces = [Piece(segments[number], start, stop) for number, start, stop in item["pieces"]]
    source = _cursor_in(item["source"], segments)
    return Mount(source, item["start"], item["base"], item["placement"], pieces)


def _record_out(record: RolloutRecord, numbers: dict[Segment, int]) -> Json:
    episode = record.episode
    return {
        "mode": record.mode,
        "seed": record.seed,
        "outcome": record.outcome,
        "answer": record.answer,
        "gold": record.gold,
        "documents": record.documents,
        "events": [[asdict(event) for event in events] for events in record.events],
        "name": episode.name,
        "segments": [numbers[segment] for segment in episode.segments],
        "waits": [
            [_cursor_out(edge.waiter, numbers), _cursor_out(edge.awaited, numbers), edge.order, edge.thread]
            for edge in episode.waits
        ],
        "sampled": [[numbers[t.segment], t.offset, t.log_probability, t.live] for t in episode.sampled],
        "reward": episode.reward,
        "branches": [asdict(branch) for branch in episode.branches],
    }


def _record_in(item: Json, segments: Sequence[Segment]) -> RolloutRecord:
    episode = Episode(
        name=item["name"],
        segments=tuple(segments[number] for number in item["segments"]),
        waits=tuple(
            WaitEdge(_cursor_in(waiter, segments), _cursor_in(awaited, segments), order, thread)
            for waiter, awaited, order, thread in item["waits"]
        ),
        sampled=tuple(
            SampledToken(segment=segments[number], offset=offset, log_probability=log_probability, live=live)
            for number, offset, log_probability, live in item["sampled"]
        ),
        reward=item["reward"],
        branches=tuple(Branch(**_tuples(branch, "place", "documents")) for branch in item["branches"]),
    )
    return RolloutRecord(
        episode=episode,
        mode=item["mode"],
        seed=item["seed"],
        outcome=item["outcome"],
        answer=item["answer"],
        gold=tuple(item["gold"]),
        documents=tuple(item["documents"]),
        events=tuple(tuple(Event(**_tuples(event, "documents")) for event in events) for events in item["events"]),
    )


def _tuples(item: Json, *names: str) -> Json:
    """JSON knows lists only."""
    return item | {name: tuple(item[name]) for name in names}


def _cursor_out(cursor: Cursor, numbers: dict[Segment, int]) -> list[int]:
    return [numbers[cursor.segment], cursor.length]


def _cursor_in(pair: Sequence[int], segments: Sequence[Segment]) -> Cursor:
    return Cursor(segments[pair[0]], pair[1])
