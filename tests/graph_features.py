"""Which situations a random episode contains, read off its events and its final segments."""

from __future__ import annotations

from collections.abc import Iterator

from random_graphs import LONG, Event, RandomEpisode

from octopus.verify.oracle import Oracle, OracleThread

FEATURES = frozenset(
    {
        "depth 6", "second root", "fork of an empty root", "fork at offset 0", "fork of a snapshot",
        "append past a child", "empty segment", *(f"segment of {length}" for length in (1, *LONG)),
        "read of self", "read of an ancestor", "read of a descendant", "read of a cousin", "read of another root",
        "read of a committed thread", "read of a committed span", "read of nothing new", "read by an empty root",
        "read again", "last, then all", "two reads without a token between", "append placement", "original placement",
        "mount of a mount", "holes closed", "wait on a finished thread", "cancel", "fail",
        "rewind to a count", "rewind to a mark", "rewind to a snapshot", "rewind refused", "abandoned mark",
        "rewind to a snapshot off the line", "rewind past a mount",
        "rewind to a mount's offset 0", "rewind to right before a mount", "rewind into a segment with children",
    }
)  # fmt: skip

# Calls that change nothing, so that no graph shows them.
REFUSALS = frozenset({"rewind refused", "abandoned mark"})


def features_of(episode: RandomEpisode) -> set[str]:
    """Return those of `FEATURES` that occur in the episode."""
    graph, oracle, _, events = episode
    found = {f"segment of {len(segment.tokens)}" for segment in graph.segments if segment.tokens} & FEATURES
    if any(not segment.tokens for segment in graph.segments):
        found.add("empty segment")
    if sum(thread.parent is None for thread in oracle.threads) > 1:
        found.add("second root")
    for i, event in enumerate(events):
        if event.kind == "read":
            found |= set(_of_read(event, events[:i], oracle))
        elif event.kind == "rewind":
            found |= set(_of_rewind(event, episode))
        else:
            found |= set(_of_other(event, episode))
    assert found <= FEATURES, found - FEATURES
    return found


def _of_other(event: Event, episode: RandomEpisode) -> Iterator[str]:
    if event.kind in {"cancel", "fail", "rewind refused", "fork of a snapshot"}:
        yield event.kind
    if event.detail == "abandoned mark":
        yield "abandoned mark"
    if event.kind == "wait":
        yield "wait on a finished thread"
    if event.kind == "open" and len(list(_ancestors(event.thread))) >= 6:
        yield "depth 6"
    if event.kind == "fork" and event.cursor.length == 0:
        yield "fork at offset 0" if event.after.seen else "fork of an empty root"
    if event.kind == "append":
        segment, stop = event.cursor
        children = [s.parent for s in episode.graph.segments[: event.segments] if s.parent and s.tokens]
        if any(parent.segment is segment and parent.length <= stop - len(event.new) for parent in children):
            yield "append past a child"


def _of_read(event: Event, earlier: list[Event], oracle: Oracle) -> Iterator[str]:
    reader, source = event.thread, event.source
    assert source is not None
    if not event.new:
        yield "read of nothing new"
        if source is reader:
            yield "read of self"
        return
    placement, amount = event.detail.split()
    yield f"{placement} placement"
    yield _kinship(reader, source)
    if source.status == "committed":
        yield "read of a committed thread"
        if source.snapshots[-1].span and amount == "all":
            yield "read of a committed span"
    if not event.before.path:
        yield "read by an empty root"
    before = [e for e in earlier if e.kind == "read" and e.thread is reader and e.new]
    if any(e.source is source for e in before):
        yield "read again"
    if amount == "all" and any(e.source is source and "last" in e.detail for e in before):
        yield "last, then all"
    if before and before[-1].after is event.before:
        yield "two reads without a token between"
    tokens = [oracle.tokens[i] for i in event.new]
    if any(_sees_foreign(oracle, i) for i in event.new):
        yield "mount of a mount"
    if placement == "append" and tokens[-1].position - tokens[0].position >= len(tokens):
        yield "holes closed"


def _of_rewind(event: Event, episode: RandomEpisode) -> Iterator[str]:
    if event.after is event.before:
        return
    yield f"rewind to a {event.detail}".replace("mark off the line", "mark")
    reads = [e for e in episode.events if e.kind == "read" and e.new]
    undone = len(event.before.seen) - len(event.after.seen) > len(event.before.path) - len(event.after.path)
    if undone:
        yield "rewind past a mount"
    if any(read.after is event.after for read in reads) and event.cursor.length == 0:
        yield "rewind to a mount's offset 0"
    if undone and any(read.before is event.after for read in reads):
        yield "rewind to right before a mount"
    segment, length = event.cursor
    children = [s.parent for s in episode.graph.segments[: event.segments] if s.parent]
    if any(parent.segment is segment and parent.length > length > 0 for parent in children):
        yield "rewind into a segment with children"


def _kinship(reader: OracleThread, source: OracleThread) -> str:
    above_reader, above_source = list(_ancestors(reader)), list(_ancestors(source))
    if source is reader:
        return "read of self"
    if source in above_reader:
        return "read of an ancestor"
    if reader in above_source:
        return "read of a descendant"
    return "read of a cousin" if set(above_reader) & set(above_source) else "read of another root"


def _ancestors(thread: OracleThread) -> Iterator[OracleThread]:
    while thread.parent is not None:
        thread = thread.parent
        yield thread


def _sees_foreign(oracle: Oracle, token_id: int) -> bool:
    length, at = 0, token_id
    while at is not None:
        length, at = length + 1, oracle.tokens[at].predecessor
    return len(oracle.tokens[token_id].visible) > length
