"""What the tokens of a group are paid: scripted episodes with one flaw put into one of them.

Catches: a branch that is paid for what another one found; a branch's share paid to the orchestrator, or to the branch
of another episode; a weight or a limit that is not applied; an episode that did not fit into memory and lowers the
baseline; text mode, whose branches are root threads, paid by other rules; tasks that share a baseline; an episode that
is scored with another task's question.
"""

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toy_tasks import environment, right

from octopus.rollout.environment import DescribedObjects, Task
from octopus.rollout.records import RolloutRecord
from octopus.train.credit.coverage import Coverage
from octopus.train.credit.crediting import Crediting
from octopus.train.credit.left_out import left_out_terms
from octopus.train.credit.world import Played
from octopus.train.job_config import CreditConfig, GrpoConfig, JobConfig, JobRunConfig
from octopus.train.packing import RatedEpisode
from octopus.train.rating import Rating, comparable, rate
from octopus.train.stages import Reinforcement, policy_lag


def half_right(asked: DescribedObjects, mode: str = "octopus") -> RolloutRecord:
    """The second branch found something else, so the second name is wrong."""
    record = right(asked, mode)
    answer = f"{asked.question.answer.split(', ')[0]}, wrong"
    branches = (record.episode.branches[0], replace(record.episode.branches[1], documents=("OTHER",)))
    return replace(
        record, answer=answer, episode=replace(record.episode, reward=asked.score(answer), branches=branches)
    )


def rated(asked: DescribedObjects, records: list[RolloutRecord], **credit: Any) -> Rating:
    """The group, credited by coverage."""
    group = comparable([Played(environment=asked, record=record) for record in records])
    return rate(group, left_out_terms(Coverage("closure"), group), credit=CreditConfig(**credit))


def values(rating: Rating) -> tuple[tuple[float | None, ...], ...]:
    return tuple(tuple(term.value for term in terms) for terms in rating.terms)


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
    rating = rated(asked, [right(asked, mode), half_right(asked, mode)], weight=0.5)
    assert values(rating) == ((0.75, 0.75), (0.25, 0.0))
    first, second = (0.75 + 0.25) / 2, (0.75 + 0.0) / 2
    good, half = rating.episodes
    assert paid(good) == pytest.approx([0.375, 0.375 + 0.5 * (0.75 - first), 0.375 + 0.5 * (0.75 - second)])
    assert paid(half) == pytest.approx([-0.375, -0.375 + 0.5 * (0.25 - first), -0.375 + 0.5 * (0.0 - second)])
    assert paid(half)[2] < paid(half)[1] < paid(good)[1]


def test_without_weight_branches_are_paid_like_their_episode() -> None:
    asked = environment(parts=2)
    for one in rated(asked, [right(asked), half_right(asked)], weight=0.0).episodes:
        assert len(set(paid(one))) == 1


def test_an_only_branch_is_paid_like_its_episode() -> None:
    asked = environment(parts=1)
    wrong = replace(right(asked), answer="wrong")
    wrong = replace(wrong, episode=replace(wrong.episode, reward=0.0))
    rating = rated(asked, [right(asked), wrong], weight=0.5)
    assert values(rating) == ((None,), (None,))
    assert [paid(one) for one in rating.episodes] == [[0.5, 0.5], [-0.5, -0.5]]


def test_single_mode_has_no_branches() -> None:
    asked = environment(parts=2)
    rating = rated(asked, [right(asked, "single")], weight=0.5)
    assert values(rating) == ((),)
    assert set(rating.episodes[0].advantages) == {0.0}


def test_what_did_not_fit_into_memory_is_not_compared() -> None:
    asked = environment(parts=2)
    lost: dict[str, Any] = {"outcome": "capacity", "answer": None}
    cut = replace(right(asked), **lost)
    cut = replace(cut, episode=replace(cut.episode, reward=0.0))
    rating = rated(asked, [right(asked), cut, right(asked)], weight=0.5)
    assert [paid(one) for one in rating.episodes] == [[0.0, 0.0, 0.0]] * 2


def test_what_a_branch_added_is_paid_up_to_a_limit() -> None:
    """Terms 0.75 and 0.25 count as 0.5 and 0.25; catches a limit on what is left after centring."""
    asked = environment(parts=2)
    records = [right(asked), half_right(asked)]
    first = [paid(one)[1] for one in rated(asked, records, weight=1.0, clip=0.5).episodes]
    assert first == pytest.approx([0.375 + 0.125, -0.375 - 0.125])


def test_without_terms_branches_are_paid_like_their_episode() -> None:
    asked = environment(parts=2)
    group = [Played(environment=asked, record=record) for record in (right(asked), half_right(asked))]
    rating = rate(group, [(), ()], credit=CreditConfig())
    assert [paid(one) for one in rating.episodes] == [[0.375] * 3, [-0.375] * 3]


def test_one_reward_in_twenty_stays_bounded() -> None:
    asked = environment(parts=2)
    lost: dict[str, Any] = {"answer": None}
    none = replace(right(asked), **lost)
    none = replace(none, episode=replace(none.episode, reward=0.0))
    rating = rated(asked, [none] * 7 + [right(asked)] + [none] * 12, weight=0.5)
    everything = [paid(one) for one in rating.episodes]
    assert everything[7] == pytest.approx([0.95, 0.95 + 0.5 * 0.95 * 0.75, 0.95 + 0.5 * 0.95 * 0.75])
    assert all(abs(value) < 1.5 for one in everything for value in one)
    assert [sum(column) for column in zip(*everything, strict=True)] == pytest.approx([0, 0, 0])


def test_order_of_episodes_only_permutes() -> None:
    asked = environment(parts=2)
    records = [right(asked), half_right(asked), replace(right(asked), answer=None), half_right(asked)]
    before = [paid(one) for one in rated(asked, records, weight=0.5).episodes]
    order = random.Random(0).sample(range(4), 4)
    after = [paid(one) for one in rated(asked, [records[i] for i in order], weight=0.5).episodes]
    assert after == [pytest.approx(before[i]) for i in order]


def test_order_of_branches_only_permutes() -> None:
    """A record that lists its branches the other way round pays every thread the same."""
    asked = environment(parts=2)

    def by_thread(records: list[RolloutRecord]) -> list[dict[int, float]]:
        return [
            {token.thread: value for token, value in zip(one.episode.sampled, one.advantages, strict=True)}
            for one in rated(asked, records, weight=0.5).episodes
        ]

    records = [right(asked), half_right(asked)]
    turned = [
        replace(record, episode=replace(record.episode, branches=record.episode.branches[::-1]))
        for record in records
    ]
    assert by_thread(turned) == [pytest.approx(worth) for worth in by_thread(records)]


def test_credited_together_or_alone_each_episode_is_scored_with_its_own_question() -> None:
    """Two tasks, credited in one call, whose episodes are given in turn."""
    one, other = environment(parts=2), environment(parts=1)
    played = [
        Played(environment=asked, record=record)
        for asked, record in [(one, right(one)), (other, right(other)), (one, half_right(one))]
    ]
    together = left_out_terms(Coverage("closure"), played)
    assert together == [left_out_terms(Coverage("closure"), [alone])[0] for alone in played]
    assert [[term.value for term in terms] for terms in together] == [[0.75, 0.75], [None], [0.25, 0.0]]


def test_groups_are_tasks_whatever_their_prompts_and_order() -> None:
    """Two tasks with the same prompt, one always solved and one never: nobody did better than the group."""
    asked = environment(parts=2)
    lost: dict[str, Any] = {"answer": None}
    never = replace(right(asked), **lost)
    never = replace(never, episode=replace(never.episode, reward=0.0))
    grpo = GrpoConfig(steps=1, credit=CreditConfig(weight=1.0))
    config: Any = JobConfig(kind="job", run=JobRunConfig(folder="x"), grpo=grpo)
    unused: Any = SimpleNamespace(model=torch.nn.Module())
    crediting = Crediting(config, backbone=unused, dialect=unused, new_engine=unused)
    stage = Reinforcement(config, backbone=unused, rollouts=unused, tasks=unused, crediting=crediting)
    tasks = [Task(name=name, environment=asked) for name in ("solved", "not")]
    ratings, figures = stage._rate(tasks, [[right(asked), right(asked)], [never, never]])
    assert [[paid(one) for one in rating.episodes] for rating in ratings] == [[[0.0] * 3] * 2] * 2
    assert figures["branch_term"] == 0.75 / 2 and figures["credit_seconds"] >= 0
    mixed, _ = stage._rate(tasks, [[right(asked), never], [never, right(asked)]])
    solved, not_solved = [0.5, 0.875, 0.875], [-0.5, -0.875, -0.875]
    assert [[paid(one) for one in rating.episodes] for rating in mixed] == [
        [solved, not_solved],
        [not_solved, solved],
    ]


def test_terms_for_another_number_of_episodes_are_refused() -> None:
    """Catches one value that is broadcast to all."""
    asked = environment(parts=2)
    group = [Played(environment=asked, record=right(asked)) for _ in range(3)]
    terms = left_out_terms(Coverage("closure"), group[:1])
    with pytest.raises(ValueError, match="zip"):
        rate(group, terms, credit=CreditConfig())


def test_the_lag_is_that_of_the_oldest_weights_that_sampled() -> None:
    """Catches: a constant, the newest weights instead of the oldest, and tokens that nothing is learned from."""
    record = right(environment(parts=2))
    assert policy_lag([record], 0) == policy_lag([], 5) == 0
    for token in record.episode.sampled:
        token.segment.weights_version = 3
    oldest = record.episode.sampled[-1]
    oldest.segment.weights_version = 1
    assert policy_lag([record], 3) == 2
    live = [replace(t, live=t.segment is not oldest.segment) for t in record.episode.sampled]
    assert policy_lag([replace(record, episode=replace(record.episode, sampled=tuple(live)))], 3) == 0
