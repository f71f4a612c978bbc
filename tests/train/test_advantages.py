"""Group-relative advantages.

Catches: division by a left-out or zero deviation; the deviation divided out unasked; a group of one that is paid its
raw reward; rounding that pays equal rewards.
"""

import pytest

from octopus.train.advantages import group_advantages


def test_centred_by_the_mean() -> None:
    assert group_advantages([1, 1, 1, 0, 0, 0, 0, 0]) == [0.625] * 3 + [-0.375] * 5


def test_a_rare_reward_stays_bounded() -> None:
    assert group_advantages([1, 0, 0, 0]) == [0.75, -0.25, -0.25, -0.25]
    assert max(map(abs, group_advantages([1, 0, 0, 0], divide_by_deviation=True))) < 2


def test_divided_by_the_groups_sample_deviation_when_asked() -> None:
    result = group_advantages([1, 1, 1, 0, 0, 0, 0, 0], divide_by_deviation=True)
    assert result == pytest.approx([1.2076] * 3 + [-0.7246] * 5, abs=5e-5)


@pytest.mark.parametrize("rewards", [[], [1.0], [0.1] * 3, [1.0] * 4])
@pytest.mark.parametrize("divide", [False, True])
def test_equal_rewards_pay_exactly_nothing(rewards: list[float], divide: bool) -> None:
    assert group_advantages(rewards, divide_by_deviation=divide) == [0.0] * len(rewards)


@pytest.mark.parametrize("scale", [1.0, 1e6, -1e-6])
@pytest.mark.parametrize("divide", [True, False])
def test_rewards_that_differ_by_rounding_alone_are_equal(scale: float, divide: bool) -> None:
    """Row 1 of public bugs. Catches: a deviation of 1e-17 that blows the order of a sum up to advantages of 0.5.

    Two reward functions that give 0.1 and 0.2 add up to another float than one that gives 0.3.
    """
    assert 0.1 + 0.2 != 0.3
    rewards = [scale * (0.1 + 0.2), scale * 0.3, scale * (0.1 + 0.2), scale * 0.3]
    assert group_advantages(rewards, divide_by_deviation=divide) == [0.0] * 4
    small = group_advantages([scale * 0.3, scale * (0.3 + 1e-9)], divide_by_deviation=divide)
    # What a function means to tell apart stays apart.
    assert small[0] == pytest.approx(-small[1], rel=1e-3, abs=0.0) and small[0] != 0.0


def test_order_of_episodes_only_permutes() -> None:
    assert group_advantages([0.0, 0.5, 1.0]) == group_advantages([1.0, 0.5, 0.0])[::-1]
