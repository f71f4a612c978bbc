"""Tools: typed Python functions of one argument that a policy may call, and what comes back of a call.

Whatever a tool does, it comes back as text: a result, or an error's words. Text of tools is data. It is encoded without
control tokens, so it can neither end a turn nor begin one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, get_type_hints

CUT = " ... [cut]"
"""Ends a text that was longer than its limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOutput:
    """What a tool returns that has more to tell than a text.

    Attributes:
        text: What the policy sees.
        documents: The ids of the documents that the text shows, for the credit of whoever found them.
    """

    text: str
    documents: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolLimits:
    """What a call may take.

    Attributes:
        time_s: Seconds after which an attempt is abandoned.
        retries: How often a call is tried again that raised or was abandoned.
        result_characters: Longer texts are cut there, and end with ` ... [cut]`.
    """

    time_s: float = 10.0
    retries: int = 1
    result_characters: int = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What comes back of a call.

    Attributes:
        text: The tool's text, or what went wrong.
        ok: Whether it is the tool's.
        documents: See `ToolOutput`.
        again: Whether it may be worth another try.
        attempts: How often the call was tried.
    """

    text: str
    ok: bool
    documents: tuple[str, ...] = ()
    again: bool = False
    attempts: int = 1


class Tool:
    """A function of one `str` or `int`, sync or async, that returns a `str` or a `ToolOutput`."""

    def __init__(self, function: Callable[[Any], Any], *, limits: ToolLimits | None = None) -> None:
        """Raises TypeError, naming the function, if it does not take one annotated `str` or `int`."""
        hints = get_type_hints(function if inspect.isroutine(function) else type(function).__call__)
        names = list(inspect.signature(function).parameters)
        kind = hints.get(names[0]) if len(names) == 1 else None
        if kind not in (str, int):
            raise TypeError(f"a tool takes one argument, annotated str or int; {function} takes {names}")
        self.function = function
        self.limits = limits or ToolLimits()
        self.takes_number = kind is int
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )

    def argument(self, text: str) -> str | int:
        """The policy's words as the function takes them. Raises ValueError if it takes a number and they are none."""
        return int(text) if self.takes_number else text

    def call(self, text: str, settled: Future[ToolResult]) -> None:
        """Runs the sync function in this thread; `settled` gets what comes back, whatever it raises."""
        with _Settling(self, settled):
            settled.set_result(self.result(self.function(self.argument(text))))

    async def acall(self, text: str, settled: Future[ToolResult]) -> None:
        """Runs the async function in this event loop; `settled` gets what comes back, whatever it raises."""
        with _Settling(self, settled):
            awaitable: Awaitable[Any] = self.function(self.argument(text))
            settled.set_result(self.result(await awaitable))

    def call_now(self, text: str) -> ToolResult:
        """Runs the function to its end, without a time limit or another try."""
        settled: Future[ToolResult] = Future()
        if self.is_async:
            asyncio.run(self.acall(text, settled))
        else:
            self.call(text, settled)
        return settled.result()

    def result(self, returned: object) -> ToolResult:
        """What a return value comes to."""
        output = ToolOutput(text=returned) if isinstance(returned, str) else returned
        if not isinstance(output, ToolOutput) or not isinstance(output.text, str):
            return ToolResult(text=f"the tool returned {type(returned).__name__}, not text", ok=False)
        return ToolResult(text=self.cut(output.text), ok=True, documents=tuple(output.documents))

    def cut(self, text: str) -> str:
        """The text within its limit."""
        limit = self.limits.result_characters
        return text if len(text) <= limit else text[:limit] + CUT


class _Settling:
    """Settles a call with the words of whatever its block raises: a tool may raise anything, and nothing of it is lost.

    The words are made here, where the tool runs, since an exception's own `__str__` may misbehave as well.
    """

    def __init__(self, tool: Tool, settled: Future[ToolResult]) -> None:
        self._tool = tool
        self._settled = settled

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            text = self._tool.cut(f"{type(error).__name__}: {error}")
            self._settled.set_result(ToolResult(text=text, ok=False, again=True))
        return True
