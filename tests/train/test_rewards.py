"""Reward functions in TRL's signature, and the rollouts that they judge.

Catches: one reward that is broadcast to all; a completion that is scored with another's prompt or column; a None that
counts as 0; a function that never returns and holds up the run; a NaN that gets into a gradient; functions that are
asked once a rollout instead of once for all.
"""

import asyncio
import math
import threading
from typing import Any

import pytest
from toy_tasks import environment, right

from octopus.core.errors import ConfigError, OctopusError
from octopus.rollout.environment import Task
from octopus.rollout.judging import judged
from octopus.rollout.records import RolloutRecord
from octopus.train.credit.world import Played
from octopus.train.data.asked import AskedRow, RowJudge
from octopus.train.data.rewards import Given, Rewards
from octopus.train.data.rows import rows_of
from octopus.train.job_config import CreditConfig
from octopus.train.rating import rate


def given(count: int) -> Given:
    return Given(
        prompts=[f"prompt {n}" for n in range(count)],
        completions=[f"said {n}" for n in range(count)],
        completion_ids=[[n] for n in range(count)],
        columns={"answer": [f"said {n % 2}" for n in range(count)]},
    )


def exact(completions: list[str], answer: list[str], **rest: Any) -> list[float]:
    return [float(said == truth) for said, truth in zip(completions, answer, strict=True)]


async def slow(completion_ids: list[list[int]], **rest: Any) -> list[float | None]:
    await asyncio.sleep(0.01)
    return [None if ids[0] == 1 else float(ids[0]) for ids in completion_ids]


def test_sync_and_async_functions_are_weighed_and_added() -> None:
    rewards = Rewards([exact, slow], weights=[2.0, 10.0])
    values = rewards.score(given(3))
    assert values == [[1.0, 0.0], [1.0, None], [0.0, 2.0]]
    assert [rewards.total(value, rollout="x") for value in values] == [2.0, 2.0, 20.0]
    assert Rewards([exact, slow]).total([1.0, 3.0], rollout="x") == 4.0


def test_async_functions_run_side_by_side() -> None:
    """Catches functions that are awaited one after the other: each of these ends only once the other has begun."""
    met = [asyncio.Event(), asyncio.Event()]

    def meeting(own: int) -> Any:
        async def meet(completions: list[str], **rest: Any) -> list[float]:
            met[own].set()
            await met[1 - own].wait()
            return [1.0] * len(completions)

        return meet

    assert Rewards([meeting(0), meeting(1)], time_s=20).score(given(1)) == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1.0], "reward function bad: expected a list of 3, one entry a rollout, came 1"),
        (1.0, "expected a list of 3, one entry a rollout, came float"),
        ("abc", "came str"),
        ([1.0, "2", None], "entry 1: expected a finite number or None, came '2'"),
        ([1.0, 2.0, math.nan], "entry 2: expected a finite number or None, came nan"),
        ([math.inf, 2.0, 3.0], "entry 0"),
    ],
)
def test_what_is_no_list_of_rewards_is_refused(returned: Any, message: str) -> None:
    def bad(completions: list[str], **rest: Any) -> Any:
        return returned

    with pytest.raises(OctopusError, match=message):
        Rewards([bad]).score(given(3))


def test_a_function_that_never_returns_is_given_up() -> None:
    held = threading.Event()

    def hangs(completions: list[str], **rest: Any) -> list[float]:
        held.wait(60)
        return [0.0] * len(completions)

    async def sleeps(completions: list[str], **rest: Any) -> list[float]:
        await asyncio.sleep(60)
        return []

    for function in (hangs, sleeps):
        with pytest.raises(OctopusError, match=r"hangs|sleeps gave nothing within 0\.05 s"):
            Rewards([function], time_s=0.05).score(given(1))
    held.set()


def test_what_a_function_raises_is_not_hidden() -> None:
    def breaks(completions: list[str], **rest: Any) -> list[float]:
        raise TimeoutError("the function's own")

    with pytest.raises(TimeoutError, match="the function's own"):
        Rewards([breaks]).score(given(1))


def test_unfit_functions_and_weights_are_refused() -> None:
    def narrow(completions: list[str]) -> list[float]:
        return [0.0] * len(completions)

    with pytest.raises(ConfigError, match=r"reward function narrow cannot be called with .*; let it take \*\*columns"):
        Rewards([narrow]).refuse_unfit(["answer"])
    Rewards([exact]).refuse_unfit(["answer", "level"])
    with pytest.raises(ConfigError, match="at least one reward function"):
        Rewards([])
    with pytest.raises(ConfigError, match="a weight for each of 1 reward functions, came 2"):
        Rewards([exact], weights=[1, 2])
    with pytest.raises(ConfigError, match="finite"):
        Rewards([exact], weights=[math.nan])
    with pytest.raises(OctopusError, match="no reward function applies to row 3: slow returned None"):
        Rewards([slow]).total([None], rollout="row 3")


def asked(number: int, rewards: Rewards, *, chat: bool = False) -> AskedRow:
    prompt: Any = [{"role": "user", "content": f"prompt {number}"}] if chat else f"prompt {number}"
    return AskedRow(row=rows_of([{"prompt": prompt, "answer": str(number)}])[0], rewards=rewards)


def answered(parts: int, answer: str | None, outcome: str = "answered") -> RolloutRecord:
    from dataclasses import replace

    return replace(right(environment(parts)), answer=answer, outcome=outcome)  # type: ignore[arg-type]


def test_every_rollout_is_judged_with_its_own_prompt() -> None:
    """And all rollouts of all tasks in one call; what an answer earned is then known to the credit of branches."""
    calls, ids = [], []

    def seen(prompts: list[str], completions: list[Any], completion_ids: Any, answer: list[str]) -> list[float]:
        calls.append((prompts, completions, answer))
        ids.extend(completion_ids)
        scored = zip(prompts, completions, answer, strict=True)
        return [float(truth == prompt[-1]) + len(said) for prompt, said, truth in scored]

    rewards = Rewards([seen])
    judge = RowJudge(rewards)
    environments = [asked(0, rewards), asked(1, rewards)]
    tasks = [Task(name=str(n), environment=one, judge=judge) for n, one in enumerate(environments)]
    tasks.insert(1, Task(name="other", environment=environment(1)))
    other = answered(1, "kept")
    late = (answered(1, None, "turns"), answered(2, "e", "capacity"))
    groups = [(answered(1, "a"), answered(2, "bcd")), (other,), late]
    first, untouched, second = judged(tasks, groups)
    assert calls == [(["prompt 0", "prompt 0", "prompt 1"], ["a", "bcd", ""], ["0", "0", "1"])]
    assert [record.episode.reward for record in (*first, *second)] == [2.0, 4.0, 1.0, 1.0]
    assert untouched == (other,)
    assert len(ids) == 3 and all(ids) and ids[0] != ids[1]
    assert first[0].events[0][-1].kind == "reward" and first[0].events[0][-1].result == "2.0"
    assert environments[0].score("bcd") == 4.0 and len(calls) == 1
    assert environments[0].score("xy") == 3.0 and len(calls) == 2
    played = [Played(environment=environments[0], record=record) for record in first]
    rating = rate(played, [() for _ in played], credit=CreditConfig())
    advantages = [one.advantages[0] for one in rating.episodes]
    assert advantages == [-1.0, 1.0]


def test_chat_prompts_get_chat_completions() -> None:
    def seen(prompts: list[Any], completions: list[Any], **rest: Any) -> list[float]:
        assert prompts == [[{"role": "user", "content": "prompt 0"}]]
        assert completions == [[{"role": "assistant", "content": "a"}]]
        prompts[0].clear()  # what a function does to its arguments stays with it
        return [0.5]

    rewards = Rewards([seen])
    row = asked(0, rewards, chat=True)
    assert RowJudge(rewards).judge([row], [answered(1, "a")])[0].episode.reward == 0.5
    assert row.messages() == [{"role": "user", "content": "prompt 0"}]
