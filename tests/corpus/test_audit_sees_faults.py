"""The audit, rule by rule: each fault is planted in a sound store, and must be named.

Catches: a rule that is dropped, inverted, or weakened until nothing breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from small_store import SmallStore

from octopus.core.cursor import Cursor
from octopus.core.errors import InvariantViolation
from octopus.core.pool import Pool
from octopus.core.thread import Status, Thread


class Cast(NamedTuple):
    """A store with somebody in every part that an audit looks at."""

    store: SmallStore
    root: Thread
    reader: Thread  # has mounted what `source` wrote
    source: Thread
    waiter: Thread  # waits for `source`
    away: Thread  # committed, and in the host tier


def cast() -> Cast:
    store = SmallStore(24, 2, states=12, host=8, host_states=4)
    graph = store.graph
    root = store.root(1, 2, 3, 4, 5)
    graph.end_turn(root)
    reader, source, waiter, away = (store.child(root, 10 + n, 20 + n) for n in range(4))
    graph.read_thread(reader, source)
    store.write(reader, 30)
    graph.wait_threads(waiter, [source])
    graph.commit(away)
    graph.offload(away)
    graph.drop(store.child(root, 40, 41))
    assert away.cursor.segment.host_pages and away.cursor.segment.host_states
    graph.match([1, 2, 3])
    graph.audit()
    return Cast(store, root, reader, source, waiter, away)


def segment_is_gone(c: Cast) -> None:
    del c.store.graph.retention.segments[c.root.cursor.segment.index]


def reference_too_many(c: Cast) -> None:
    c.root.cursor.segment.references.add(1)


def reference_too_few(c: Cast) -> None:
    c.root.cursor.segment.references.remove(5)


def wrong_maximum(c: Cast) -> None:
    c.source.cursor.segment.mount_starts._heap.clear()


def nobody_is_the_tip(c: Cast) -> None:
    c.source.cursor.segment.tip = False
    c.store.graph.retention.cached[c.source.cursor.segment] = None


def held_and_cache(c: Cast) -> None:
    c.store.graph.retention.cached[c.root.cursor.segment] = None


def neither_held_nor_cache(c: Cast) -> None:
    c.store.graph.retention.cached.popitem()


def computed_too_much(c: Cast) -> None:
    c.source.cursor.segment.computed = 3


def never_reached(c: Cast) -> None:
    c.source.cursor.segment.reached = 1


def seen_too_far(c: Cast) -> None:
    (child,) = c.store.graph.fork(c.away.snapshots[1])
    child.cursor.segment.references.remove(2)
    child.cursor.segment.references.add(3)
    child.cursor = child.cursor._replace(length=3)


def page_is_missing(c: Cast) -> None:
    c.source.cursor.segment.pages.pop()


def page_beyond_the_end(c: Cast) -> None:
    c.source.cursor.segment.pages += c.store.pages.allocate(1)


def page_in_both_tiers(c: Cast) -> None:
    c.source.cursor.segment.host_pages = {0: 0}


def page_away_beyond_the_end(c: Cast) -> None:
    c.source.cursor.segment.host_pages = {1: 0}


def state_in_both_tiers(c: Cast) -> None:
    c.away.cursor.segment.states[2] = 0


def page_given_back_too_early(c: Cast) -> None:
    c.away.cursor.segment.host_pages.clear()


def wrong_place_on_the_path(c: Cast) -> None:
    c.source.cursor.segment.path_start += 1


def wrong_depth(c: Cast) -> None:
    c.source.cursor.segment.depth += 1


def wrong_position(c: Cast) -> None:
    c.source.cursor.segment.start_position += 1


def wrong_mount(c: Cast) -> None:
    c.reader.cursor.segment.mounts[0].base += 1


def mount_of_one_too_many(c: Cast) -> None:
    c.reader.cursor.segment.mounts[0].count += 1


def does_not_wait(c: Cast) -> None:
    c.waiter.status = Status.RUNNING


def waits_for_nothing(c: Cast) -> None:
    c.root.status = Status.WAITING


def wakes_the_wrong_one(c: Cast) -> None:
    assert c.waiter.wait is not None
    done = c.store.graph.wait_threads(c.root, [c.away])
    c.source.waiters[done] = None


def turn_kept_for_nobody(c: Cast) -> None:
    c.source.cursor.segment.turns = {2: 1}


def turn_not_kept(c: Cast) -> None:
    c.source.turns += (Cursor(c.source.cursor.segment, 2),)


def page_of_nobody(c: Cast) -> None:
    c.store.pages.allocate(1)


def state_of_nobody(c: Cast) -> None:
    assert c.store.states is not None
    c.store.states.allocate(1)


def host_page_of_nobody(c: Cast) -> None:
    host_pool(c).allocate(1)


def page_of_two(c: Cast) -> None:
    c.reader.cursor.segment.pages[0] = c.source.cursor.segment.pages[0]


def stale_handle(c: Cast) -> None:
    c.source.cursor.segment.pages[0] += 1 << 32


def twice_on_the_free_list(c: Cast) -> None:
    c.store.pages._free.append(c.store.pages._free[0])


def free_and_allocated(c: Cast) -> None:
    c.store.pages._free.append(c.source.cursor.segment.pages[0])


def neither_free_nor_allocated(c: Cast) -> None:
    c.store.pages._free.pop()


def miscounted_host_tier(c: Cast) -> None:
    c.store.graph.retention.swapping.away += 1


def filed_under_other_tokens(c: Cast) -> None:
    c.source.cursor.segment.tokens[0] += 1


def filed_under_other_last_tokens(c: Cast) -> None:
    long = c.store.root(*range(50, 70))
    assert c.store.graph.match(list(range(50, 70))).tokens == 20
    long.cursor.segment.tokens[19] += 1


def filed_and_gone(c: Cast) -> None:
    prefixes = c.store.graph.retention.prefixes
    prefixes._ends[SmallStore(2, 2).root(1).cursor.segment] = next(iter(prefixes._ends.values()))


def filed_but_not_provided(c: Cast) -> None:
    segment = c.source.cursor.segment
    del c.store.graph.retention.prefixes._ends[segment].providers[segment]


def provided_but_not_filed(c: Cast) -> None:
    del c.store.graph.retention.prefixes._ends[c.source.cursor.segment]


def host_pool(c: Cast) -> Pool:
    host = c.store.graph.retention.swapping.host
    assert host is not None and host.pages is not None
    return host.pages


FAULTS: dict[Callable[[Cast], None], str] = {
    segment_is_gone: "somebody stands on the evicted segment",
    reference_too_many: r"counts references \[1, 5",
    reference_too_few: "counts references",
    wrong_maximum: r"takes -1 for the largest of \[0\]",
    nobody_is_the_tip: "wrong about its writer",
    held_and_cache: "must be held or cache, not both",
    neither_held_nor_cache: "must be held or cache, not both",
    computed_too_much: "computed more than it holds",
    never_reached: "has 2 tokens computed, but reached 1",
    seen_too_far: "seen beyond its end",
    page_is_missing: "has 0 pages, computed needs 1",
    page_beyond_the_end: "keeps 2 pages between steps, computed needs 1",
    page_in_both_tiers: "page 0 of .* on the device and in the host tier",
    page_away_beyond_the_end: "page 1 of .* on the device and in the host tier",
    state_in_both_tiers: "the state after 2 tokens of .* on the device and in the host tier",
    page_given_back_too_early: "page 0 of .* can be seen and was given back",
    wrong_place_on_the_path: "stands at 6, depth 1, not 5, 1",
    wrong_depth: "stands at 5, depth 2, not 5, 1",
    wrong_position: "begins at position 6, not at 5",
    wrong_mount: "begins at position 8, not at 7",
    mount_of_one_too_many: "sees 10 tokens before position 9: some are missing or doubled",
    does_not_wait: "wrong about whether it waits",
    waits_for_nothing: "wrong about whether it waits",
    wakes_the_wrong_one: "which waits for it no more",
    turn_kept_for_nobody: "keeps states for turns",
    turn_not_kept: "a turn boundary is on",
    page_of_nobody: "pages allocated but owned by nobody",
    state_of_nobody: "state slots allocated but owned by nobody",
    host_page_of_nobody: "host pages allocated but owned by nobody",
    page_of_two: "pages with two owners",
    stale_handle: "pages owned by handles that are not current",
    twice_on_the_free_list: "a unit of the pages is twice on the free list",
    free_and_allocated: "pages both free and allocated",
    neither_free_nor_allocated: "free plus allocated pages are not all pages",
    miscounted_host_tier: "units are not in the host tier",
    filed_under_other_tokens: "filed under tokens that are not its own",
    filed_under_other_last_tokens: "filed under tokens that are not its own",
    filed_and_gone: "was evicted and can still be found",
    filed_but_not_provided: "provides 0 tokens, filed are 2",
    provided_but_not_filed: "though it is not filed",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_audit_names_the_fault(fault: Callable[[Cast], None]) -> None:
    """Catches: the rule that this fault breaks, gone or weakened."""
    chosen = cast()
    fault(chosen)
    with pytest.raises(InvariantViolation, match=FAULTS[fault]):
        chosen.store.graph.audit()
