"""Spans of a run as OpenTelemetry has them. Needs the extra `otel`.

Where they go is said by the standard environment variables of OpenTelemetry, which its SDK reads:
`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME` and the rest.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import cast, get_args

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import Status, StatusCode, Tracer, format_trace_id, set_span_in_context
from structlog.contextvars import bound_contextvars

from octopus import __version__
from octopus.core.errors import invariant
from octopus.rollout.spans import Fact, Span, SpanName, Spans

FACTS = frozenset(get_args(Fact))

LEAVING_S = 3.0
"""A run that is to stop does not wait longer for a collector that is away."""


@contextmanager
def exported(*, leaving_s: float = LEAVING_S) -> Iterator[Spans]:
    """Sends spans over OTLP (HTTP) meanwhile; what is left in the end is sent then, for at most `leaving_s` seconds."""
    resource = Resource.create({SERVICE_NAME: "octopus"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, id_generator=OwnIds(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield OtelSpans(provider.get_tracer("octopus", __version__))
    finally:
        leaving = threading.Thread(target=provider.shutdown, name="spans", daemon=True)
        leaving.start()
        leaving.join(leaving_s)


class OwnIds(IdGenerator):
    """Ids from the system.

    The SDK's own come from Python's global generator, which a run saves and restores: ids would repeat.
    """

    def generate_span_id(self) -> int:
        """See `IdGenerator`; 0 stands for none."""
        return secrets.randbelow((1 << 64) - 1) + 1

    def generate_trace_id(self) -> int:
        """Likewise."""
        return secrets.randbelow((1 << 128) - 1) + 1


class OtelSpans:
    """See `Spans`. Lines that are logged within a span carry its `trace_id`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def span(self, name: SpanName, **facts: str | int | bool) -> AbstractContextManager[None]:
        """See `Spans.span`."""
        return _Present(self._tracer, name, _attributes(facts))

    def begin(self, name: SpanName, within: Span | None = None, **facts: str | int | bool) -> Span:
        """See `Spans.begin`."""
        context = None if within is None else set_span_in_context(cast(_Begun, within).span)
        return _Begun(self._tracer.start_span(name, context, attributes=_attributes(facts)))


class _Present(AbstractContextManager[None]):
    """A span while it is the present one. Of an error that leaves it only the kind is told, not its words."""

    def __init__(self, tracer: Tracer, name: str, attributes: dict[str, str | int | bool]) -> None:
        self._current = tracer.start_as_current_span(name, attributes=attributes)
        self._stack = ExitStack()

    def __enter__(self) -> None:
        self._span = self._stack.enter_context(self._current)
        trace_id = format_trace_id(self._span.get_span_context().trace_id)
        self._stack.enter_context(bound_contextvars(trace_id=trace_id))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._span.set_status(Status(StatusCode.ERROR, kind.__name__))
        self._stack.close()  # Without the error, of which the SDK would record everything.


class _Begun:
    """See `Span`."""

    def __init__(self, span: OtelSpan) -> None:
        self.span = span

    def end(self, **facts: str | int | bool) -> None:
        self.span.set_attributes(_attributes(facts))
        self.span.end()


def _attributes(facts: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    invariant(FACTS.issuperset(facts), f"a span says {sorted(facts)}, allowed are {sorted(FACTS)}")
    return {f"octopus.{name}": value for name, value in facts.items()}
