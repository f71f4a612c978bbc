"""What the tokens of a group are paid: scripted episodes with one flaw put into one of them.

Catches: a branch that is paid for what another one found; a branch's share paid to the orchestrator, or to the branch
of another episode; a weight that is not applied; an episode that did not fit into memory and lowers the baseline;
text mode, whose branches are root threads, paid by other rules.
"""

from dataclasses import replace
from typing import Any

import pytest
from toy_tasks import environment, right

from octopus.rollout.environment import DescribedObjects
from octopus.rollout.records import RolloutRecord
from octopus.train.packing import RatedEpisode
from octopus.train.rating import rate


def half_right(asked: DescribedObjects, mode: str = "octopus") -> RolloutRecord:
    """The second branch found something else, so the second name is wrong."""
    record = right(asked, mode)
    answer = f"{asked.question.answer.split(', ')[0]}, wrong"
    branches = (record.episode.branches[0], replace(record.episode.branches[1], documents=("OTHER",)))
    return replace(
        record, answer=answer, episode=replace(record.episode, reward=asked.score(answer), branches=branches)
    )


def paid(rated: RatedEpisode) -> list[float]:
    """What the orchestrator and each branch are paid: every token of a thread the same."""
    episode = rated.episode
    branches = [branch.thread for branch in episode.branches]
    (orchestrator,) = {token.thread for token in episode.sampled} - set(branches)
    result: list[float] = []
    for thread in (orchestrator, *branches):
        tokens = zip(episode.sampled, rated.advantages, strict=True)
        (value,) = {advantage for token, advantage in tokens if token.thread == thread}
        result.append(value)
    return result


@pytest.mark.parametrize("mode", ["octopus", "text"])
def test_branches_are_paid_for_what_they_added_alone(mode: str) -> None:
    """Rewards 1 and 1/4; without one branch 1/4, 1/4 and 0, 1/4."""
    asked = environment(parts=2)
    rating = rate(asked, [right(asked, mode), half_right(asked, mode)], branch_weight=0.5)
    assert rating.terms == ((0.75, 0.75), (0.25, 0.0))
    first, second = (0.75 + 0.25) / 2, (0.75 + 0.0) / 2
    good, half = rating.episodes
    assert paid(good) == pytest.approx([0.375, 0.375 + 0.5 * (0.75 - first), 0.375 + 0.5 * (0.75 - second)])
    assert paid(half) == pytest.approx([-0.375, -0.375 + 0.5 * (0.25 - first), -0.375 + 0.5 * (0.0 - second)])
    assert paid(half)[2] < paid(half)[1] < paid(good)[1]


def test_without_weight_branches_are_paid_like_their_episode() -> None:
    asked = environment(parts=2)
    for one in rate(asked, [right(asked), half_right(asked)], branch_weight=0.0).episodes:
        assert len(set(paid(one))) == 1


def test_an_only_branch_is_paid_like_its_episode() -> None:
    asked = environment(parts=1)
    wrong = replace(right(asked), answer="wrong")
    wrong = replace(wrong, episode=replace(wrong.episode, reward=0.0))
    rating = rate(asked, [right(asked), wrong], branch_weight=0.5)
    assert rating.terms == ((None,), (None,))
    assert [paid(one) for one in rating.episodes] == [[0.5, 0.5], [-0.5, -0.5]]


def test_single_mode_has_no_branches() -> None:
    asked = environment(parts=2)
    rating = rate(asked, [right(asked, "single")], branch_weight=0.5)
    assert rating.terms == ((),)
    assert set(rating.episodes[0].advantages) == {0.0}


def test_what_did_not_fit_into_memory_is_not_compared() -> None:
    asked = environment(parts=2)
    lost: dict[str, Any] = {"outcome": "capacity", "answer": None}
    cut = replace(right(asked), **lost)
    cut = replace(cut, episode=replace(cut.episode, reward=0.0))
    rating = rate(asked, [right(asked), cut, right(asked)], branch_weight=0.5)
    assert [paid(one) for one in rating.episodes] == [[0.0, 0.0, 0.0]] * 2
