"""Spans of a run, as OpenTelemetry's SDK gets them.

Catches: a span on the wrong parent, or one that is never closed; a part of a step without a span; words of an error, a
tool or a model in it; ids that repeat after a resume; a library that is loaded though nobody asked for it; a collector
that is away and holds a run up; an address other than the standard variables say.
"""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import tiny_policy
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.contextvars import get_contextvars
from test_job_cli import JOB
from test_job_run import config
from toy_tasks import ToyTasks

from octopus.core.errors import InvariantViolation
from octopus.train.job import Job
from octopus.train.tracing import OtelSpans, OwnIds, exported


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(memory: InMemorySpanExporter) -> OtelSpans:
    provider = TracerProvider(id_generator=OwnIds())
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return OtelSpans(provider.get_tracer("test"))


def above(span: ReadableSpan, all_spans: tuple[ReadableSpan, ...]) -> str | None:
    """The name of the span around it."""
    names = {one.context.span_id: one.name for one in all_spans}
    return None if span.parent is None else names[span.parent.span_id]


def test_a_job_in_spans(memory: InMemorySpanExporter, spans: OtelSpans, tmp_path: Path) -> None:
    settings = config(tmp_path / "run", imitation=20, grpo=2)
    model, codec = tiny_policy.model(), tiny_policy.codec()
    Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), report=lambda line: None, spans=spans).run()
    done = memory.get_finished_spans()
    found = Counter((span.name, above(span, done)) for span in done)
    saves, tools = found.pop(("save", None)), found.pop(("tool", "episode"))
    assert saves >= 8 and tools > 0
    assert found == {
        ("step", None): 22, ("update", "step"): 22, ("rollout", "step"): 2, ("credit", "step"): 2,
        ("episode", "rollout"): 2 * 4 * 6, ("evaluation", None): 4, ("episode", "evaluation"): 2 * 12 + 2 * 16,
    }  # fmt: skip
    assert len({span.context.span_id for span in done}) == len(done)  # Although generators were restored.
    assert len({span.context.trace_id for span in done}) == 22 + 4 + saves
    by_name = {span.name: dict(span.attributes or {}) for span in done}
    assert by_name["step"] == {"octopus.stage": "grpo", "octopus.step": 22}
    assert by_name["tool"].keys() == {"octopus.thread", "octopus.tool", "octopus.ok", "octopus.attempts"}
    assert by_name["episode"].keys() == {"octopus.episode", "octopus.outcome"}


def test_spans_draw_nothing_from_the_generators_of_a_run(spans: OtelSpans) -> None:
    before = random.getstate()
    with spans.span("step", step=1):
        spans.begin("episode", episode="a/0").end(outcome="answered")
    assert random.getstate() == before


def test_an_error_is_told_by_its_kind_and_others_are_refused(memory: InMemorySpanExporter, spans: OtelSpans) -> None:
    def failing() -> None:
        with spans.span("step", step=1):
            assert set(get_contextvars()) == {"trace_id"}
            raise ValueError("secret words")

    with pytest.raises(ValueError, match="secret"):
        failing()
    (span,) = memory.get_finished_spans()
    assert "secret" not in span.to_json() and span.status.description == "ValueError"
    assert get_contextvars() == {}
    with pytest.raises(InvariantViolation, match="a span says"):
        spans.begin("tool", query="secret words")


def test_an_error_that_is_being_handled_elsewhere_is_not_the_spans_own(
    memory: InMemorySpanExporter, spans: OtelSpans
) -> None:
    """Catches: a save on the way out of a run that looks as if it had failed."""
    try:
        raise KeyError
    except KeyError:
        with spans.span("save", step=1):
            pass
    assert memory.get_finished_spans()[0].status.is_unset


class Collector(BaseHTTPRequestHandler):
    """Takes spans, as OTLP has them over HTTP."""

    taken: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        zipped = self.headers.get("Content-Encoding") == "gzip"
        self.taken.append((self.path, gzip.decompress(data) if zipped else data))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_spans_go_where_the_standard_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """And their ids are no draws of the generator that a run saves and restores: they would repeat."""
    Collector.taken = []
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        for _ in range(2):
            random.seed(1)
            with exported() as spans, spans.span("step", step=1):
                pass
        server.shutdown()
    assert [path for path, _ in Collector.taken] == ["/v1/traces"] * 2
    sent = [ExportTraceServiceRequest.FromString(data).resource_spans[0] for _, data in Collector.taken]
    for one in sent:
        assert {a.key: a.value.string_value for a in one.resource.attributes}["service.name"] == "mine"
    one, other = (one.scope_spans[0].spans[0] for one in sent)
    assert one.name == other.name == "step" and one.span_id != other.span_id and one.trace_id != other.trace_id


def test_a_collector_that_is_away_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")  # Nobody listens.
    began = time.monotonic()
    with exported(leaving_s=0.3) as spans:
        for step in range(1_000):
            with spans.span("step", step=step):
                pass
        assert time.monotonic() - began < 2
    assert time.monotonic() - began < 2.5


def test_nothing_is_loaded_unless_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_policy.policy_folder(tmp_path / "policy")
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from octopus import cli\n"
        f"arguments = ['train', {str(tmp_path / 'job.toml')!r}, '--set', 'imitation.steps=1']\n"
        "print(cli.main([*arguments, '--spans']), cli.main(arguments))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "octopus: --spans needs opentelemetry" in done.stderr and "octopus-kv[otel]" in done.stderr
    assert done.stdout.splitlines()[-2:] == ["2 0", "[]"]
