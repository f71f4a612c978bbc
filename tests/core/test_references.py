"""The multiset of lengths agrees with a plain list, and does not grow with what has gone."""

from __future__ import annotations

import random

import pytest

from octopus.core.references import LengthMultiset


def test_it_agrees_with_a_list() -> None:
    """Catches: a maximum that has gone, a count that is off by one, a range that includes its ends."""
    rng = random.Random(0)
    for _ in range(200):
        lengths, plain = LengthMultiset(), []
        for _ in range(200):
            if plain and rng.random() < 0.5:
                length = plain.pop(rng.randrange(len(plain)))
                lengths.remove(length)
            else:
                length = rng.randrange(12)
                plain.append(length)
                lengths.add(length)
            assert (len(lengths), sorted(lengths)) == (len(plain), sorted(plain))
            assert lengths.maximum == max(plain, default=-1)
            assert lengths.count(length) == plain.count(length)
            assert lengths.between(3, 8) == sorted({one for one in plain if 3 < one < 8})


def test_a_length_that_is_not_there_cannot_be_taken_out() -> None:
    """Catches: a count that is clamped at zero."""
    lengths = LengthMultiset()
    lengths.add(3)
    lengths.remove(3)
    with pytest.raises(KeyError):
        lengths.remove(3)


def test_its_memory_is_that_of_what_is_in() -> None:
    """Catches: a heap that keeps every length that ever came and went below the maximum."""
    lengths = LengthMultiset()
    lengths.add(1_000_000)
    for length in range(20_000):
        lengths.add(length % 7)
        lengths.remove(length % 7)
    assert len(lengths._heap) < 50
    lengths.remove(1_000_000)
    assert lengths.maximum == -1


def test_the_heap_names_few_that_have_gone() -> None:
    """Catches: a slack that grows with what is in faster than it says."""
    lengths = LengthMultiset()
    for length in range(100):
        lengths.add(1_000_000 + length)
    for length in range(1_000):
        lengths.add(length)
        lengths.remove(length)
        assert len(lengths._heap) <= 100 + 100 + 16
