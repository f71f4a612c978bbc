"""How the library logs: records of Python's `logging` whose message is an event and its figures.

Names of events are a closed set, see docs/logs.md. Whose event it is (run, step, episode, thread) is bound around the
work, through context variables. Nobody has to set anything up; what renders the records is `octopus.train.logs`.
"""

from __future__ import annotations

import logging
from typing import cast

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter


def new_logger(name: str) -> BoundLogger:
    """A logger that says `logger.info("save.written", bytes=10)`, under the name of a module."""
    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast(BoundLogger, wrapped)
