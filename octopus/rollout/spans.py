"""Spans: what took how long within what.

    step            a step of a job
      rollout       its rollouts
        episode     one of them
          tool      a call, with all its tries
      credit        what branches added
      update        packs, passes, the new weights
    save            a save that is written
    evaluation      with its episodes

Here is what the library says; `octopus.train.tracing` makes spans of OpenTelemetry of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

SpanName = Literal["step", "rollout", "episode", "tool", "credit", "update", "save", "evaluation"]

Fact = Literal["stage", "step", "episode", "thread", "tool", "attempts", "outcome", "ok"]
"""What may be said of a span: names and numbers of ours, never the words of a user, a model or a tool."""


class Span(Protocol):
    """One that has begun."""

    def end(self, **facts: str | int | bool) -> None:
        """It has ended. `facts` are named by `Fact`."""
        ...


class Spans(Protocol):
    """Gets what a run does."""

    def span(self, name: SpanName, **facts: str | int | bool) -> AbstractContextManager[None]:
        """Around work: whatever begins meanwhile in this Python thread is part of it."""
        ...

    def begin(self, name: SpanName, within: Span | None = None, **facts: str | int | bool) -> Span:
        """Of work that others go on beside; part of `within`, or of the present one."""
        ...


class NoSpan:
    """Is not recorded."""

    def end(self, **facts: str | int | bool) -> None:
        """See `Span.end`."""


class NoSpans:
    """Records nothing."""

    def span(self, name: SpanName, **facts: str | int | bool) -> AbstractContextManager[None]:
        """See `Spans.span`."""
        return nullcontext()

    def begin(self, name: SpanName, within: Span | None = None, **facts: str | int | bool) -> Span:
        """See `Spans.begin`."""
        return _NOTHING


_NOTHING = NoSpan()
NO_SPANS: Spans = NoSpans()
