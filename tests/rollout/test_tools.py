"""Calls of tools.

Catches: a tool that can stop the loop, whatever it raises, returns or never returns; tools that run one after
the other; a time limit that is not kept; tries without end; a text without limit; an async tool that blocks the next.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from octopus.rollout.calls import Calls
from octopus.rollout.tools import CUT, Tool, ToolLimits, ToolOutput, ToolResult


def outcome(function: Callable[..., Any], argument: str = "x", **limits: Any) -> ToolResult:
    calls = Calls()
    call = calls.start(Tool(function, limits=ToolLimits(**{"retries": 0} | limits)), argument)
    while (result := calls.poll(call)) is None:
        calls.wait([call])
    return result


def test_sync_and_async_tools_give_their_texts() -> None:
    def shout(text: str) -> str:
        return text.upper()

    async def find(text: str) -> ToolOutput:
        await asyncio.sleep(0)
        return ToolOutput(text=text + "!", documents=("a",))

    class Counter:
        async def __call__(self, number: int) -> str:
            return str(number + 1)

    assert outcome(shout) == ToolResult(text="X", ok=True)
    assert outcome(find) == ToolResult(text="x!", ok=True, documents=("a",))
    assert outcome(Counter(), " 41 ") == ToolResult(text="42", ok=True)
    assert not outcome(Counter(), "many").ok


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [ValueError("no"), KeyError("<|end|>"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_tool_raises_comes_back_as_words(error: BaseException, is_async: bool) -> None:
    def fail(text: str) -> str:
        raise error

    async def afail(text: str) -> str:
        raise error

    result = outcome(afail if is_async else fail)
    assert not result.ok and result.text == f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("returned", [None, b"bytes", 3, ToolOutput(text=4), ["x"]])  # type: ignore[arg-type]
def test_what_is_not_text_is_an_error(returned: object) -> None:
    def odd(text: str) -> object:
        return returned

    result = outcome(odd)
    assert not result.ok and result.text == f"the tool returned {type(returned).__name__}, not text"


def test_long_texts_and_long_errors_are_cut_and_say_so() -> None:
    def long(text: str) -> str:
        return "y" * 10_000_000

    def wrong(text: str) -> str:
        raise ValueError("y" * 10_000_000)

    assert outcome(long, result_characters=50).text == "y" * 50 + CUT
    assert outcome(wrong, result_characters=50).text == "ValueError: " + "y" * 38 + CUT


def test_tools_that_never_return_are_abandoned_at_their_time_limit() -> None:
    never = threading.Event()

    def hang(text: str) -> str:
        never.wait()
        return ""

    async def ahang(text: str) -> str:
        await asyncio.sleep(1000)
        return ""

    async def stubborn(text: str) -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)
        return ""

    for function in (hang, ahang, stubborn):
        began = time.monotonic()
        result = outcome(function, time_s=0.05)
        assert result == ToolResult(text="the tool gave no result within 0.05 s", ok=False, again=True)
        assert time.monotonic() - began < 1
    never.set()


def test_an_async_tool_that_never_awaits_does_not_block_the_next() -> None:
    stuck, calls = threading.Event(), Calls()

    async def blocks(text: str) -> str:
        stuck.wait()
        return ""

    async def fine(text: str) -> str:
        return "fine"

    for function, expected in ((blocks, False), (fine, True)):
        call = calls.start(Tool(function, limits=ToolLimits(time_s=0.3, retries=0)), "x")
        while (result := calls.poll(call)) is None:
            calls.wait([call])
        assert result.ok is expected
    stuck.set()


def test_tries_are_counted_and_bounded() -> None:
    tries = []

    def third_time(text: str) -> str:
        tries.append(text)
        if len(tries) < 3:
            raise OSError("busy")
        return "done"

    assert outcome(third_time, retries=2) == ToolResult(text="done", ok=True, attempts=3)
    tries.clear()
    assert outcome(third_time, retries=1) == ToolResult(text="OSError: busy", ok=False, again=True, attempts=2)
    assert tries == ["x", "x"]


def test_an_error_that_has_no_words_runs_into_the_time_limit() -> None:
    async def fail(text: str) -> str:
        raise Unspeakable

    assert not outcome(fail, time_s=0.1).ok


@pytest.mark.parametrize("is_async", [False, True])
def test_tools_overlap(is_async: bool) -> None:
    def slow(text: str) -> str:
        time.sleep(0.2)
        return text

    async def aslow(text: str) -> str:
        await asyncio.sleep(0.2)
        return text

    calls, tool = Calls(), Tool(aslow if is_async else slow)
    began = time.monotonic()
    both = [calls.start(tool, "x") for _ in range(2)]
    while any(calls.poll(call) is None for call in both):
        calls.wait(both)
    assert time.monotonic() - began < 0.35


def test_a_tool_takes_one_typed_argument() -> None:
    def two(text: str, more: str) -> str:
        return text + more

    def untyped(text) -> str:
        return text

    for function in (two, untyped, print):
        with pytest.raises(TypeError, match="a tool takes one argument, annotated str or int"):
            Tool(function)
