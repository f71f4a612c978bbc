"""Cancelling from outside: an episode, a thread, one that waits for a tool; nothing of them stays behind.

`play` sees to that: pages, state slots, threads, segments and waits are those of before.

Catches: a cancellation that waits for a tool that hangs; one that takes along who is no descendant, or a thread that
has committed; a cancelled episode that is learned from, or thins out its group; one that has ended and is called
cancelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from toy_job import PolicyEngine, box, following, play, say

from octopus.rollout.agents import State
from octopus.rollout.cancelling import LONGEST_S, Cancelling, LiveThread
from octopus.rollout.codec import Control

YES = say(Control.ANSWER, "yes")


class Operator:
    """Cancels from a Python thread of its own as soon as somebody is as it wishes."""

    def __init__(self, wanted: Callable[[LiveThread], bool], *, whole: bool = False) -> None:
        self.cancelling, self.wanted, self.whole = Cancelling(), wanted, whole
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        while not (found := [one for one in self.cancelling.live() if self.wanted(one)]):
            time.sleep(0.001)
        asked = {"episode": found[0].episode} if self.whole else {"thread": found[0].thread}
        assert self.cancelling.ask(**asked)


def echo(text: str) -> str:
    return text


def hanging(release: threading.Event) -> Callable[[str], str]:
    def tool(text: str) -> str:
        release.wait(30)
        return text

    return tool


@pytest.mark.parametrize("lockstep", [False, True])
def test_an_episode_whose_tool_hangs_is_cancelled(lockstep: bool) -> None:
    """Row 9 of public bugs: ending waited for the tool's thread."""
    release = threading.Event()
    operator = Operator(lambda one: one.state is State.CALLING, whole=True)
    script = following({(0,): [*say(Control.SEARCH, "a"), *YES]})
    began = time.monotonic()
    (record,) = play(
        PolicyEngine(script), box(hanging(release), time_s=30.0), cancelling=operator.cancelling, lockstep=lockstep
    )
    assert time.monotonic() - began < 10
    release.set()
    assert (record.outcome, record.answer, record.episode.reward) == ("cancelled", None, 0.0)
    assert not any(token.live for token in record.episode.sampled) and record.episode.sampled
    cancelling = operator.cancelling
    assert cancelling.ended == {("operator", State.CALLING): 1}
    assert cancelling.released[-1] == 1 and sum(cancelling.released) <= len(LONGEST_S) + 1
    assert cancelling.live() == [] and not cancelling.ask(episode="toy/0")


def test_a_child_is_cancelled_alone_and_its_parent_is_told() -> None:
    release = threading.Event()
    script = {
        (0,): [*say(Control.FORK, "3"), *YES],
        (0, 0): say(Control.COMMIT, "yes"),
        (0, 1): [*say(Control.SEARCH, "b"), *say(Control.COMMIT, "no")],
        (0, 2): say(Control.COMMIT, "yes"),
    }
    operator = Operator(lambda one: one.state is State.CALLING)
    (record,) = play(
        PolicyEngine(following(script)), box(hanging(release), time_s=30.0), cancelling=operator.cancelling
    )
    release.set()
    assert record.outcome == "answered" and record.correct
    assert [branch.committed for branch in record.episode.branches] == ["yes", None, "yes"]
    cancelled = record.episode.branches[1].thread
    assert {token.live for token in record.episode.sampled if token.thread == cancelled} == {False}
    assert {token.live for token in record.episode.sampled if token.thread != cancelled} == {True}
    assert [event.result for event in record.events[2]] == ["cancelled"]


def test_the_others_of_a_group_are_what_they_would_have_been() -> None:
    """Also whoever asks for one that is not there is told so, and nothing is kept for the next run."""
    script = following({(0,): [*say(Control.SEARCH, "a"), *YES]})
    alone = play(PolicyEngine(script), box(echo), seeds=(1, 2, 3))
    operator = Operator(lambda one: one.episode == "toy/1", whole=True)
    records = play(PolicyEngine(script), box(echo), seeds=(1, 2, 3), cancelling=operator.cancelling)
    assert [record.outcome for record in records] == ["answered", "cancelled", "answered"]
    for number in (0, 2):
        assert [token.log_probability for token in records[number].episode.sampled] == pytest.approx(
            [token.log_probability for token in alone[number].episode.sampled], abs=1e-5
        )
    assert not operator.cancelling.ask(thread=10**9) and operator.cancelling.taken() == []


def test_a_run_that_stops_counts_whom_it_ends() -> None:
    cancelling = Cancelling()

    def stopping(*_: object) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(PolicyEngine(stopping), box(echo), cancelling=cancelling)
    assert cancelling.ended == {("stop", State.READY): 1} and cancelling.released[-1] == 0


def test_times_are_counted_within_bounds() -> None:
    """The bucket of 0.1 s holds all that took at most so long."""
    times = iter([0.0, 0.05, 0.0, 7.0])
    cancelling = Cancelling(clock_s=lambda: next(times))
    cancelling.plays(lambda: [LiveThread(thread=1, episode="a", state=State.READY)])
    for _ in range(2):
        assert cancelling.ask(thread=1)
        (wish,) = cancelling.taken()
        cancelling.carried_out(wish, State.READY)
    within = dict(zip((*LONGEST_S, None), cancelling.released, strict=True))
    assert (within[0.03], within[0.1], within[3.0], within[10.0], within[None]) == (0, 1, 1, 2, 2)
    assert cancelling.release_s == pytest.approx(7.05)
