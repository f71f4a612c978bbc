"""Pools: generation-checked handles and conservation."""

from __future__ import annotations

import pytest

from octopus.core.errors import CapacityExceeded, DoubleRelease, InvariantViolation, StaleHandle
from octopus.core.pool import PagePool, StatePool


def test_a_handle_dies_with_its_release() -> None:
    """Catches: a generation that does not rise, so that an old handle names the unit's new owner."""
    pool = PagePool(2)
    (old,) = pool.allocate(1)
    pool.release([old])
    new = pool.allocate(2)
    with pytest.raises(StaleHandle, match=r"handle 0x\w+ is not current: unit \d of the pages has moved on"):
        pool.unit(old)
    assert sorted(pool.unit(handle) for handle in new) == [0, 1]


def test_a_second_release_is_refused_and_changes_nothing() -> None:
    """Catches: a count that is clamped, or a release that frees the valid handles before it refuses the bad one."""
    pool = StatePool(3)
    first, second = pool.allocate(2)
    pool.release([first])
    with pytest.raises(DoubleRelease, match=r"unit \d of the state slots was already given back; release each"):
        pool.release([second, first])
    assert (pool.free, pool.used) == (2, 1)
    pool.check([second])
    with pytest.raises(DoubleRelease, match="names the same of its state slots twice"):
        pool.release([second, second])
    pool.check([second])


def test_a_handle_of_nowhere_is_refused() -> None:
    """Catches: trusting the generation bits alone, an index error, a negative count that takes units away."""
    pool = PagePool(4)
    (owned,) = pool.allocate(1)
    for foreign in (7 << 32 | 2, 7, 7 << 32 | 9, -1):
        with pytest.raises(StaleHandle, match="never given out by this pool of 4 pages"):
            pool.release([owned, foreign])
        with pytest.raises(StaleHandle, match="is not current"):
            pool.unit(foreign)
        with pytest.raises(InvariantViolation, match="owned by handles that are not current"):
            pool.check([owned, foreign])
    with pytest.raises(ValueError, match="cannot allocate -1 pages; the number is 0 or more"):
        pool.allocate(-1)
    pool.check([owned])


def test_too_small_a_pool_says_what_is_free() -> None:
    """Catches: an allocation that takes what there is before it refuses."""
    pool = PagePool(4, page_size=8)
    pool.allocate(3)
    with pytest.raises(CapacityExceeded, match="need 2 pages, 1 of 4 are free"):
        pool.allocate(2)
    assert pool.free == 1
    assert pool.allocate(0) == []
    assert [pool.pages_for(tokens) for tokens in (0, 1, 8, 9)] == [0, 1, 1, 2]


@pytest.mark.parametrize("capacity", [0, -1])
def test_an_empty_pool_cannot_be_built(capacity: int) -> None:
    """Catches: a pool of nothing that fails only at the first allocation."""
    with pytest.raises(ValueError, match="a pool needs at least 1 of its pages"):
        PagePool(capacity)


def test_conservation_finds_lost_and_doubled_units() -> None:
    """Catches: a check that compares counts only, so that one lost and one doubled unit cancel."""
    pool = PagePool(4)
    one, two = pool.allocate(2)
    pool.check([two, one])
    with pytest.raises(InvariantViolation, match="allocated but owned by nobody"):
        pool.check([one])
    with pytest.raises(InvariantViolation, match="two owners"):
        pool.check([one, one])
    pool.release([two])
    with pytest.raises(InvariantViolation, match="pages owned by handles that are not current: 0x"):
        pool.check([one, two])
