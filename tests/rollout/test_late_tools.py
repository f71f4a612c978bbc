"""A tool that goes on after whoever called it was cancelled."""

from __future__ import annotations

import threading
import time

from toy_job import PolicyEngine, box, following, play, say

from octopus.rollout.agents import State
from octopus.rollout.cancelling import Cancelling
from octopus.rollout.codec import Control


def test_a_tool_that_returns_after_the_cancellation_is_not_heard() -> None:
    """Row 10 of public bugs. Catches: a result that is handed to whoever has ended; a call with no end, or with two.

    The second child's tool has the first one cancelled, then lets that one's tool return, while the episode goes on.
    """
    cancelling, release, returned = Cancelling(), threading.Event(), threading.Event()

    def tool(text: str) -> str:
        if text == "late":
            release.wait(20)
            returned.set()
        else:
            while len(calling := [one.thread for one in cancelling.live() if one.state is State.CALLING]) < 2:
                time.sleep(0.001)
            assert cancelling.ask(thread=min(calling))
            while not cancelling.ended:
                time.sleep(0.001)
            release.set()
            assert returned.wait(5)
        return text

    script = {
        (0,): [*say(Control.FORK, "2"), *say(Control.ANSWER, "yes")],
        (0, 0): [*say(Control.SEARCH, "late"), *say(Control.COMMIT, "no")],
        (0, 1): [*say(Control.SEARCH, "now"), *say(Control.COMMIT, "yes")],
    }
    (record,) = play(PolicyEngine(following(script)), box(tool, time_s=30.0), cancelling=cancelling)
    assert returned.is_set() and record.outcome == "answered"
    assert [(event.kind, event.result) for event in record.events[1]] == [("failed", "cancelled")]
    assert [branch.committed for branch in record.episode.branches] == [None, "yes"]
    assert [event.attempts for events in record.events for event in events if event.attempts] == [1]
