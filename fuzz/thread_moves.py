"""Operations on threads: the primitives, on both sides. Names and arguments are those of `operations.ARGUMENTS`."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from fuzz.lines import Line, Token, path
from fuzz.world import Pair, World
from octopus.core.ancestry import path_pieces
from octopus.core.errors import CapacityExceeded, NotComputed, StaleHandle
from octopus.core.namespace import Namespace
from octopus.core.prefix import Match

MOST_THREADS = 16
MOST_ENTRIES = 80
"""Beyond these a world grows no further, so that a step stays cheap."""


def root(world: World) -> None:
    """A new root thread."""
    if len(world.pairs) < MOST_THREADS:
        world.adopt(world.graph.thread(), world.model.thread())


def root_from(world: World, thread: int, keep: int, more: int, salt: int) -> None:
    """A root on the first `keep` tokens of some thread and `more` others, found again wherever they are computed."""
    pair = world.pick(thread)
    if pair is None or len(world.pairs) >= MOST_THREADS:
        return
    values = [token.value for token in path(pair.theirs.line)][:keep] + [index % 5 for index in range(more)]
    namespace = Namespace(salt="other" * salt)
    known = _matchable(world, values, namespace.salt)
    ours, match = world.graph.thread_from(array("i", values), namespace=namespace)
    found = _check_match(world, match, values, namespace.salt, known)
    world.matches.append(match.tokens)
    theirs = world.model.thread_from(found, values[len(found) :])
    fresh = world.adopt(ours, theirs, salt=namespace.salt)
    _note(world, fresh, [token.uid for token in path(theirs.line)][len(found) :])


def append(world: World, thread: int, count: int, value: int) -> None:
    """Tokens of few different values, so that different threads often write the same."""
    pair = world.pick(thread)
    if pair is None or len(pair.theirs.line) + count > MOST_ENTRIES:
        return
    values = [(value + index) % 5 for index in range(count)]
    done = world.both(lambda: world.graph.append(pair.ours, values), lambda: world.model.append(pair.theirs, values))
    if done:
        _note(world, pair, done[1])


def fork(world: World, thread: int, n: int) -> None:
    """Children of a thread."""
    pair = world.pick(thread)
    if pair is None or len(world.pairs) + n > MOST_THREADS:
        return
    done = world.both(lambda: world.graph.fork(pair.ours, n), lambda: world.model.fork(pair.theirs, n))
    for ours, theirs in zip(*done, strict=True) if done else ():
        world.adopt(ours, theirs, salt=pair.salt)


def fork_snapshot(world: World, snapshot: int, n: int) -> None:
    """Children of a snapshot, also of one that has gone."""
    kept = [(pair, *snapshot) for pair in world.pairs for snapshot in pair.snapshots]
    if not kept or len(world.pairs) + n > MOST_THREADS:
        return
    pair, ours, theirs = kept[snapshot % len(kept)]
    done = world.both(lambda: world.graph.fork(ours, n), lambda: world.model.fork(theirs, n))
    for child, told in zip(*done, strict=True) if done else ():
        world.adopt(child, told, salt=pair.salt)


def read(world: World, thread: int, source: int, last: int, original: int) -> None:
    """A mount; `last` 0 stands for no limit."""
    reader, other = world.pick(thread), world.pick(source)
    if reader is None or other is None or len(reader.theirs.line) >= MOST_ENTRIES:
        return
    limit = last or None
    if original:
        done = world.both(
            lambda: world.graph.read_thread(reader.ours, other.ours, last=limit, placement="original"),
            lambda: world.model.read(reader.theirs, other.theirs, limit, "original"),
        )
    else:
        done = world.both(
            lambda: world.graph.read_thread(reader.ours, other.ours, last=limit),
            lambda: world.model.read(reader.theirs, other.theirs, limit, "append"),
        )
    assert done is None or done[0] == done[1], f"{done[0]} tokens became visible, the model says {done[1]}"


def wait(world: World, thread: int, first: int, second: int, either: int, snapshot: int, timeout_s: int) -> None:
    """One thread waits for two others; a timeout of 0 stands for none."""
    waiter, one, other = world.pick(thread), world.pick(first), world.pick(second)
    if waiter is None or one is None or other is None:
        return
    limit_s = float(timeout_s) or None
    mode, until = ("all", "any")[either], ("terminal", "snapshot")[snapshot]
    done = world.both(
        lambda: world.graph.wait_threads(
            waiter.ours,
            [one.ours, other.ours],
            mode=mode,  # type: ignore[arg-type]
            until=until,  # type: ignore[arg-type]
            timeout_s=limit_s,
        ),
        lambda: world.model.wait(waiter.theirs, [one.theirs, other.theirs], mode, until, limit_s),
    )
    if done:
        world.waits.append(done)


def tick(world: World, seconds: int) -> None:
    """Time passes."""
    world.clock.now_s += seconds
    ours, theirs = world.graph.expire_waits(), world.model.waits.expire()
    assert {wait.waiter.id for wait in ours} == {wait.waiter.id for wait in theirs}


def mark(world: World, thread: int) -> None:
    """A name for the thread's place."""
    pair = world.pick(thread)
    if pair is None:
        return
    done = world.both(lambda: world.graph.mark(pair.ours), lambda: world.model.mark(pair.theirs))
    if done:
        pair.marks.append(done)


def rewind(world: World, thread: int, back: int) -> None:
    """So many own tokens back; beyond the fork point it must be refused."""
    pair = world.pick(thread)
    if pair is None:
        return
    to = pair.theirs.own_count - back
    world.both(lambda: world.graph.rewind(pair.ours, to), lambda: world.model.rewind(pair.theirs, to))


def rewind_to_mark(world: World, thread: int, mark: int) -> None:
    """To a mark, also to one that was abandoned."""
    pair = world.pick(thread)
    if pair is None or not pair.marks:
        return
    ours, theirs = pair.marks[mark % len(pair.marks)]
    world.both(lambda: world.graph.rewind(pair.ours, ours), lambda: world.model.rewind(pair.theirs, theirs))


def rewind_to_snapshot(world: World, thread: int, snapshot: int) -> None:
    """To a snapshot of its own, wherever that lies."""
    pair = world.pick(thread)
    if pair is None or not pair.snapshots:
        return
    ours, theirs = pair.snapshots[snapshot % len(pair.snapshots)]
    world.both(lambda: world.graph.rewind(pair.ours, ours), lambda: world.model.rewind(pair.theirs, theirs))


def commit(world: World, thread: int, span: int, start: int, length: int, keep_running: int) -> None:
    """A snapshot, with a span that may reach beyond the thread's tokens. What is not computed is computed first."""
    pair = world.pick(thread)
    if pair is None:
        return
    if pair in world.ready([pair]) and not _computed(world, pair):
        return
    chosen = (start, start + length) if span else None
    done = world.both(
        lambda: world.graph.commit(pair.ours, span=chosen, keep_running=bool(keep_running)),
        lambda: world.model.commit(pair.theirs, chosen, bool(keep_running)),
    )
    if done:
        pair.snapshots.append(done)


def cancel(world: World, thread: int) -> None:
    """Ends a subtree."""
    pair = world.pick(thread)
    if pair is not None:
        world.both(lambda: world.graph.cancel(pair.ours), lambda: world.model.cancel(pair.theirs))


def fail(world: World, thread: int) -> None:
    """Ends one thread."""
    pair = world.pick(thread)
    if pair is not None:
        world.both(lambda: world.graph.fail(pair.ours, "planted"), lambda: world.model.fail(pair.theirs))


def drop(world: World, thread: int) -> None:
    """Gives a handle back: any, not only a running thread's."""
    if world.pairs:
        drop_pair(world, world.pairs[thread % len(world.pairs)])


def drop_pair(world: World, pair: Pair) -> None:
    """Gives this handle back on both sides."""
    world.both(lambda: world.graph.drop(pair.ours), lambda: world.model.drop(pair.theirs))
    world.pairs.remove(pair)
    world.dropped = [*world.dropped[-3:], pair.ours]


def weights(world: World) -> None:
    """An optimiser step."""
    world.graph.advance_weights()
    world.model.advance_weights()


def stale(world: World, thread: int) -> None:
    """Uses a handle that was dropped: each call must refuse it."""
    if not world.dropped:
        return
    gone, pair = world.dropped[thread % len(world.dropped)], world.pick(thread)
    calls: list[Callable[[], object]] = [
        lambda: world.graph.append(gone, [1]),
        lambda: world.graph.drop(gone),
        lambda: world.graph.cancel(gone),
        lambda: world.graph.fork(gone),
        lambda: world.graph.preempt(gone),
        lambda: world.graph.offload(gone),
        lambda: world.graph.end_turn(gone),
        lambda: world.graph.set_priority(gone, 1),
    ]
    if pair is not None and pair.theirs.status == "running" and pair.theirs.weights == world.model.weights:
        calls.append(lambda: world.graph.read_thread(pair.ours, gone))
    for call in calls:
        try:
            call()
        except StaleHandle:
            continue
        raise AssertionError("a dropped handle was taken")


def _computed(world: World, pair: Pair) -> bool:
    """Whether the thread is computed, after an attempt; a commit before it must be refused."""
    if not world.graph.is_computed(pair.ours.cursor):
        try:
            world.graph.commit(pair.ours)
        except NotComputed:
            return world.engine.step is None and world.if_there_is_room(lambda: world.engine.compute([pair.ours]))
        except CapacityExceeded as error:
            raise AssertionError("a commit takes no memory") from error
        raise AssertionError("tokens without KV were committed")
    return True


def _note(world: World, pair: Pair, uids: list[int]) -> None:
    """Tells the engine, and the check of namespaces, what the last append of the thread has written."""
    if uids:
        world.uids.setdefault(pair.ours.cursor.segment.index, []).extend(uids)
        world.written_for.update(dict.fromkeys(uids, (pair.salt, world.model.weights)))


def _check_match(world: World, match: Match, values: list[int], salt: str, known: int) -> list[tuple[int, int]]:
    """The `(uid, value)` of the matched tokens, once they are seen to be equal, of this namespace, and enough."""
    pieces = [] if match.cursor is None else path_pieces(match.cursor)
    uids = [uid for piece in pieces for uid in world.uids[piece.segment.index][piece.start : piece.stop]]
    found = [token for piece in pieces for token in piece.segment.tokens[piece.start : piece.stop]]
    assert found == values[: match.tokens], f"matched {found}, asked for {values}"
    assert len(uids) == match.tokens, f"a match of {match.tokens} tokens names {len(uids)}"
    for uid in uids:
        asked = (salt, world.model.weights)
        assert world.written_for[uid] == asked, f"token {uid} is of {world.written_for[uid]}, asked for {asked}"
    assert match.limited == (match.equal > match.tokens), f"{match} is wrong about its limit"
    assert match.equal >= known, f"{match}, though {known} tokens are there"
    assert world.states is not None or match.tokens == match.equal, f"{match} stops early"
    return list(zip(uids, found, strict=True))


def _matchable(world: World, values: list[int], salt: str) -> int:
    """How many leading values a living thread's or snapshot's computed tokens before any read are known to equal."""
    longest = 0
    for pair in world.pairs:
        theirs = pair.theirs
        if theirs.weights != world.model.weights or pair.salt != salt:
            continue
        places = [] if theirs.ended else [(pair.ours.cursor, theirs.line)]
        places += [(ours.cursor, told.line) for ours, told in pair.snapshots if told in theirs.snapshots]
        for cursor, line in places:
            computed = 0
            for piece in path_pieces(cursor):
                computed += min(piece.stop, piece.segment.computed) - piece.start
                if piece.segment.computed < piece.stop:
                    break
            longest = max(longest, _equal_values(line, values, computed))
    return longest


def _equal_values(line: Line, values: list[int], computed: int) -> int:
    equal = 0
    for entry, value in zip(line, values[:computed], strict=False):
        if not isinstance(entry, Token) or entry.value != value:
            break
        equal += 1
    return equal
