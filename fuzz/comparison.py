"""What must hold after every move."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fuzz.lines import Line, next_position, view
from fuzz.model import ENDED
from fuzz.world import Pair, World
from octopus.core.cursor import Cursor
from octopus.core.host import Transfer
from octopus.core.pool import unit_of
from octopus.core.visibility import view as parts_seen


def compare(world: World) -> None:
    """Audits the store, and compares every thread, snapshot and wait with the model."""
    world.graph.audit()
    _compare_pools(world)
    _compare_counters(world)
    for pair in world.pairs:
        _compare_thread(world, pair)
    for ours, theirs in world.waits:
        assert ours.done == (theirs.statuses is not None), f"{ours} is open or closed, and should not be"
        if ours.statuses is not None and not theirs.waiter.ended:
            statuses = {id: status.value for id, status in ours.statuses.items()}
            assert statuses == theirs.statuses, f"a wait ended with {statuses}, the model says {theirs.statuses}"
            assert ours.timed_out == theirs.timed_out
    world.waits = [pair for pair in world.waits if not pair[0].done]


def _compare_pools(world: World) -> None:
    """Conservation, counted from what segments and transfers own."""
    segments, transfers = world.graph.segments, world.graph.transfers
    pages = {unit_of(handle) for segment in segments for handle in segment.pages if handle >= 0}
    pages |= {unit for transfer in transfers for unit in _owned(transfer, transfer.pages, transfer.adopted_pages)}
    states = {unit_of(handle) for segment in segments for handle in segment.states.values()}
    states |= {unit for transfer in transfers for unit in _owned(transfer, transfer.states, transfer.adopted_states)}
    for pool, owned in ((world.pages, pages), (world.states, states)):
        if pool is None or (world.engine.step is not None and pool is world.states):
            continue  # An open step owns states that no segment names yet.
        assert pool.free + pool.fenced + len(owned) == pool.capacity, (
            f"{pool.free} {pool.noun} free, {pool.fenced} fenced and {len(owned)} owned of {pool.capacity}"
        )


def _compare_counters(world: World) -> None:
    """The figures of the store say what was seen from outside."""
    stats, transfers = world.graph.stats(), world.graph.transfers
    counters = stats.counters
    leaving = sum(transfer.kind == "offload" for transfer in transfers)
    told = {
        "threads": (stats.threads, len(world.pairs)),
        "segments": (stats.segments, len(world.graph.segments)),
        "transfers": (stats.transfers, len(transfers)),
        "pages under way": (stats.pages_in_transfer, sum(len(transfer.pages) for transfer in transfers)),
        "offloads": (counters.offloads_started, counters.offloads_done + counters.offloads_failed + leaving),
        "restores": (
            counters.restores_started,
            counters.restores_done + counters.restores_failed + len(transfers) - leaving,
        ),
        "late outcomes": (counters.completions_ignored, world.copier.too_late),
        "tokens computed": (counters.tokens_computed, world.engine.tokens_computed),
        "look-ups": (counters.match_calls, len(world.matches)),
        "tokens found": (counters.match_tokens, sum(world.matches)),
    }
    for what, (ours, theirs) in told.items():
        assert ours == theirs, f"the store counts {ours} {what}, there were {theirs}"
    for rung in (counters.evict_tried - counters.evict_helped, counters.offload_tried - counters.offload_helped):
        assert rung >= 0, f"a rung helped more often than it was tried: {counters}"
    assert counters.tokens_recomputed <= counters.tokens_computed
    assert counters.preempt_helped <= counters.preempt_tried


def _owned(transfer: Transfer, moving: Mapping[int, tuple[int, int]], adopted: Collection[int]) -> list[int]:
    """The device units that a copy owns: where it restores to, and what its segment gave up while it is offloaded."""
    return [unit_of(here) for key, (here, _) in moving.items() if transfer.kind == "restore" or key in adopted]


def _compare_thread(world: World, pair: Pair) -> None:
    ours, theirs = pair.ours, pair.theirs
    status = ours.status.value
    assert pair.last_status not in ENDED or status == pair.last_status, f"{ours} was {pair.last_status} before"
    pair.last_status = status
    assert status == theirs.status, f"{ours}: the model says {theirs.status}"
    assert ours.version == theirs.version, f"{ours} has version {ours.version}, the model says {theirs.version}"
    if not theirs.ended:
        assert ours.own_tokens == theirs.own_count
        _compare_place(world, ours.cursor, theirs.line)
    for snapshot, told in pair.snapshots:
        if told in theirs.snapshots:
            assert (snapshot.version, snapshot.span) == (told.version, told.span)
            _compare_place(world, snapshot.cursor, told.line)


def _compare_place(world: World, cursor: Cursor, line: Line) -> None:
    """That a place shows exactly the tokens of its line, each once, at its position, where it was written."""
    assert cursor.next_position == next_position(line), f"{cursor} goes on at {cursor.next_position}"
    seen: dict[int, int] = {}
    for segment, start, stop, shift in parts_seen(cursor):
        first = segment.start_position + start + shift
        uids = world.uids[segment.index][start:stop]
        assert len(uids) == stop - start, f"{cursor} sees {segment} up to {stop}, beyond what was written"
        assert seen.keys().isdisjoint(uids), f"{cursor} sees a token twice"
        seen.update(zip(uids, range(first, first + stop - start), strict=True))
    expected = view(line)
    assert seen == expected, f"{cursor} sees {seen}, the model says {expected}"
    world.engine.check_view(cursor)
