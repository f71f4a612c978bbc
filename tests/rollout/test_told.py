"""What episodes tell of themselves, to the log and as spans.

Catches: a line of one episode with the ids of another that is played beside it; a tool in a Python thread, or in an
event loop, that has lost them; ids that stay when the work is done; a tool's failure, or a shortage of memory, that
nobody hears of; a span that never ends, or hangs on another parent.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import structlog
from toy_job import PolicyEngine, box, codec, following, play, question, say, script_of

from octopus.rollout.agents import AgentLimits
from octopus.rollout.codec import Control
from octopus.rollout.environment import Task
from octopus.rollout.logs import new_logger
from octopus.rollout.loop import Rollouts
from octopus.rollout.modes import MODES
from octopus.rollout.scripted import play_script
from octopus.rollout.spans import Span, SpanName

SEARCH_AND_ANSWER = {(0,): [*say(Control.SEARCH, "snow"), *say(Control.ANSWER, "yes")]}


def fine(text: str) -> str:
    return "fine"


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.msg for record in caplog.records if isinstance(record.msg, dict)]


@pytest.mark.parametrize("kind", ["sync", "async", "sync, tried again", "async, tried again"])
def test_episodes_side_by_side_do_not_swap_ids(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    logger, together = new_logger("octopus.tests"), threading.Barrier(2)

    def environment(name: str) -> Any:
        tries: list[int] = []

        def tool(text: str) -> str:
            together.wait(5)  # Both are at work at the same time.
            tries.append(1)
            logger.warning("tool.failed", mine=name)
            if "again" in kind and len(tries) == 1:
                raise ValueError
            return name

        async def atool(text: str) -> str:
            await asyncio.sleep(0.02)
            tries.append(1)
            logger.warning("tool.failed", mine=name)
            if "again" in kind and len(tries) == 1:
                raise ValueError
            return name

        return box(atool if "async" in kind else tool, retries=1)

    engine = PolicyEngine(following(SEARCH_AND_ANSWER))
    rollouts = Rollouts(engine, codec(), MODES["single"])
    rollouts.run([Task(name=name, environment=environment(name)) for name in ("snow", "fire")])
    told = [event for event in events(caplog) if "mine" in event]
    assert len(told) == (4 if "again" in kind else 2)
    assert all(event["episode"] == f"{event['mine']}/0" for event in told)
    assert len({event["thread"] for event in told}) == 2
    assert structlog.contextvars.get_contextvars() == {}


def test_a_failed_tool_and_a_lack_of_memory_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def failing(text: str) -> str:
        raise ValueError(f"no {text}")

    play(PolicyEngine(following(SEARCH_AND_ANSWER)), box(failing, retries=2), "single")
    (failed,) = events(caplog)
    assert failed.pop("thread") >= 0
    assert failed == {
        "event": "tool.failed", "level": "warning", "tool": "search", "attempts": 3, "error": "ValueError: no snow",
        "episode": "toy/0",
    }  # fmt: skip
    caplog.clear()
    script = {(0,): say(Control.SEARCH, "snow " * 50)}
    play(PolicyEngine(following(script), pages=2), box(failing), limits=AgentLimits(turn_tokens=100))
    assert [event["event"] for event in events(caplog)] == ["memory.refused"]
    caplog.clear()
    script = script_of(play_script("toy", question(), codec(), "octopus"))
    play(PolicyEngine(following(script), pages=17), question(), seeds=range(5))
    names = {event["event"] for event in events(caplog)}
    assert names == {"episode.paused", "episode.put_off"}


def test_a_try_that_hangs_keeps_the_next_from_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: one context for all tries of a call, which the first is still in."""
    tries, release = [], threading.Event()

    def slow_first(text: str) -> str:
        tries.append(1)
        if len(tries) == 1:
            release.wait(10)
        new_logger("octopus.tests").warning("tool.failed", mine=len(tries))
        return "fine"

    play(PolicyEngine(following(SEARCH_AND_ANSWER)), box(slow_first, retries=1, time_s=0.2), "single")
    release.set()
    assert [event["episode"] for event in events(caplog) if event.get("mine") == 2][:1] == ["toy/0"]


def test_what_is_not_warned_of_is_quiet_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: a library that writes into the output of a program that has set up nothing."""
    new_logger("octopus.tests").info("step.taken")
    assert not caplog.records
    with caplog.at_level(logging.INFO, "octopus"):
        new_logger("octopus.tests").info("step.taken")
    assert len(caplog.records) == 1


class Recorder:
    """Spans as name, number of the one around it, and facts; what has not ended is `open`."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int | None]] = []
        self.facts: list[dict[str, Any]] = []
        self.open: set[int] = set()

    def span(self, name: SpanName, **facts: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, name: SpanName, within: Span | None = None, **facts: Any) -> Recorded:
        number = len(self.begun)
        self.begun.append((name, within.number if isinstance(within, Recorded) else None))
        self.facts.append(facts)
        self.open.add(number)
        return Recorded(self, number)


class Recorded:
    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder = recorder
        self.number = number

    def end(self, **facts: Any) -> None:
        self._recorder.open.remove(self.number)
        self._recorder.facts[self.number] |= facts


def test_every_episode_and_every_call_is_a_span_that_ends() -> None:
    recorder = Recorder()
    play(PolicyEngine(following(SEARCH_AND_ANSWER)), box(fine), "single", seeds=(0, 1), spans=recorder)
    assert not recorder.open
    assert sorted(recorder.begun) == [("episode", None), ("episode", None), ("tool", 0), ("tool", 1)]
    assert recorder.facts[0] == {"episode": "toy/0", "outcome": "answered"}
    thread = recorder.facts[2].pop("thread")
    assert isinstance(thread, int) and recorder.facts[2] == {"tool": "search", "ok": True, "attempts": 1}


def test_calls_that_are_abandoned_end_with_their_episode() -> None:
    """Catches: a span of a tool that is never closed, since nobody waits for it any more."""
    search, release = say(Control.SEARCH, "snow"), threading.Event()

    def policy(record: Any, draw: Any) -> int:
        if draw.seed == 0:
            return search[draw.made]
        if draw.made > len(search):  # The other one is in its tool by now.
            raise RuntimeError("device lost")
        return codec().encode_text("snow")[0] if draw.made else int(Control.SEARCH)

    def hanging(text: str) -> str:
        release.wait(10)
        return "late"

    recorder = Recorder()
    with pytest.raises(RuntimeError, match="device lost"):
        play(PolicyEngine(policy), box(hanging), "single", seeds=(0, 1), spans=recorder)
    release.set()
    assert recorder.begun == [("episode", None), ("episode", None), ("tool", 0)] and not recorder.open


def test_spans_end_where_a_run_is_given_up() -> None:
    def broken(*arguments: Any) -> int:
        raise RuntimeError("device lost")

    recorder, engine = Recorder(), PolicyEngine(broken)
    with pytest.raises(RuntimeError, match="device lost"):
        play(engine, box(fine), spans=recorder)
    assert recorder.begun == [("episode", None)] and not recorder.open
    assert recorder.facts == [{"episode": "toy/0", "outcome": "left"}]
