"""The paired interval against the distribution that it samples.

Catches: questions resampled apart instead of in pairs; before and after exchanged; an interval of another level; a
resample of another size than the data; an interval that changes from call to call.
"""

import math
import random

import pytest

from octopus.train.bootstrap import paired_interval


def binomial_quantile(count: int, share: float, level: float) -> int:
    """The smallest number of successes whose cumulated probability reaches `level`."""
    cumulated = 0.0
    for successes in range(count + 1):
        cumulated += math.comb(count, successes) * share**successes * (1 - share) ** (count - successes)
        if cumulated >= level:
            return successes
    return count


@pytest.mark.parametrize(("count", "risen"), [(20, 5), (100, 30), (1000, 60)])
def test_equals_the_binomial_when_questions_only_rise(count: int, risen: int) -> None:
    """Each resample's number of risen questions is binomial."""
    before, after = [0.0] * count, [1.0] * risen + [0.0] * (count - risen)
    interval = paired_interval(before, after)
    assert interval.difference == risen / count
    for end, level in ((interval.low, 0.025), (interval.high, 0.975)):
        assert end == pytest.approx(binomial_quantile(count, risen / count, level) / count, abs=1.01 / count)


def test_pairs_stay_pairs() -> None:
    """Both evaluations vary much, their difference not at all."""
    before = [float(random.Random(0).random() < 0.5) for _ in range(200)]
    interval = paired_interval(before, [value + 0.25 for value in before])
    assert (interval.low, interval.difference, interval.high) == (0.25, 0.25, 0.25)


def test_the_ends_are_near_the_normal_ones() -> None:
    rng = random.Random(1)
    before = [rng.random() for _ in range(500)]
    after = [rng.random() for _ in range(500)]
    interval = paired_interval(before, after)
    differences = [b - a for a, b in zip(before, after, strict=True)]
    error = math.sqrt(sum((d - interval.difference) ** 2 for d in differences)) / 500
    assert interval.low == pytest.approx(interval.difference - 1.96 * error, abs=0.1 * error)
    assert interval.high == pytest.approx(interval.difference + 1.96 * error, abs=0.1 * error)


def test_the_seed_decides_and_the_sign_is_after_minus_before() -> None:
    before, after = [1.0, 0.0, 1.0, 0.0, 0.0] * 20, [1.0, 1.0, 1.0, 0.0, 1.0] * 20
    assert paired_interval(before, after, seed=3) == paired_interval(before, after, seed=3)
    assert paired_interval(before, after).low > 0 > paired_interval(after, before).high
    assert str(paired_interval([0.0, 0.0], [1.0, 1.0])) == "+1.000 [+1.000, +1.000]"


@pytest.mark.parametrize(("before", "after"), [([], []), ([1.0], [1.0, 0.0])])
def test_other_questions_are_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match="expected figures of the same questions"):
        paired_interval(before, after)
