"""The log of a process: one JSON object a line; at a terminal, a line that people read.

Whatever comes of tools, models or clients is text from strangers. No value may end its line, speak to a terminal,
fill the disk, or pass for another one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

MOST_CHARACTERS = 400
"""Of a value; what is beyond is counted."""
MOST_TRACE_CHARACTERS = 8_000
"""Of a traceback, whose end is kept."""
MOST_A_SECOND = 20
"""Lines of one event."""


@contextmanager
def logged(stream: TextIO) -> Iterator[None]:
    """Logs to the stream meanwhile: what Octopus says, and the warnings of its libraries.

    At a terminal the lines of progress say how a run goes on, so that only warnings are logged.
    """
    terminal = stream.isatty()
    handler = logging.StreamHandler(stream)
    handler.addFilter(lambda record: _is_wanted(record, terminal=terminal))
    handler.addFilter(Flood())
    handler.setFormatter(_formatter(terminal=terminal))
    root, own = logging.getLogger(), logging.getLogger("octopus")
    before = own.level
    root.addHandler(handler)
    own.setLevel(logging.WARNING if terminal else logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        own.setLevel(before)
        root.removeHandler(handler)


@contextmanager
def models_logged(stream: TextIO) -> Iterator[None]:
    """As `logged`, in a process that loads models: their libraries have handlers of their own, and draw bars."""
    with logged(stream), _torch_without_handlers():
        from transformers.utils import logging as theirs  # It speaks while it is loaded.

        bars = theirs.is_progress_bar_enabled()
        theirs.disable_default_handler()
        theirs.enable_propagation()
        if not stream.isatty():
            theirs.disable_progress_bar()
        try:
            yield
        finally:
            theirs.enable_default_handler()
            theirs.disable_propagation()
            if bars:
                theirs.enable_progress_bar()


@contextmanager
def _torch_without_handlers() -> Iterator[None]:
    import torch  # noqa: F401  # It gives its logger a handler.

    logger = logging.getLogger("torch")
    handlers, propagates = list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [], True
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagates


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text on one line: its first characters, what is not printable escaped, and how many characters were cut."""
    head = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:most])
    cut = len(text) - most
    return f"{head} ... [{cut:,} characters cut]" if cut > 0 else head


class Flood(logging.Filter):
    """Lets at most `MOST_A_SECOND` lines of one event pass each second; the next line says how many were left out."""

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._seconds: dict[str, tuple[int, int]] = {}  # Of each event: the second, and its lines in it.

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        event = _event(record) or record.name
        now = int(self._clock_s())
        second, lines = self._seconds.get(event, (now, 0))
        if second == now:
            self._seconds[event] = now, lines + 1
            return lines < MOST_A_SECOND
        self._seconds[event] = now, 1
        if lines > MOST_A_SECOND:
            record.left_out = lines - MOST_A_SECOND
        return True


def _is_wanted(record: logging.LogRecord, *, terminal: bool) -> bool:
    """Whether it is ours or a warning. How a run ended is told to a terminal by the command itself."""
    event = _event(record)
    return record.levelno >= logging.WARNING if event is None else not (terminal and event == "run.ended")


def _event(record: logging.LogRecord) -> str | None:
    """The event of a record of ours."""
    return record.msg["event"] if isinstance(record.msg, dict) else None


def _formatter(*, terminal: bool) -> logging.Formatter:
    renderer: Processor = structlog.processors.JSONRenderer()
    if terminal:
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(repr_native_str=True, exception_formatter=plain)
    return ProcessorFormatter(
        foreign_pre_chain=[structlog.contextvars.merge_contextvars, structlog.stdlib.add_log_level, _of_library],
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _left_out,
            ProcessorFormatter.remove_processors_meta,
            _plain,
            renderer,
        ],
    )


def _of_library(_: object, __: str, event: EventDict) -> EventDict:
    """What another library says is a text of an event that is always called the same."""
    return {**event, "event": "library.said", "logger": event["_record"].name, "text": event["event"]}


def _left_out(_: object, __: str, event: EventDict) -> EventDict:
    count = getattr(event["_record"], "left_out", None)
    return event if count is None else {**event, "left_out": count}


def _plain(_: object, __: str, event: EventDict) -> EventDict:
    """Every value as JSON has it, texts as `shown`; what all lines have comes first."""
    ordered = {name: event[name] for name in ("timestamp", "level", "event")} | dict(event)
    return {name: _plain_value(name, value) for name, value in ordered.items()}


def _plain_value(name: str, value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    text = str(value)
    if name == "exception":
        return "\n".join(shown(line) for line in text[-MOST_TRACE_CHARACTERS:].split("\n"))
    return shown(text)
