"""Log records: events with stable dotted names and ids as fields. Owns their form on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _drop_empty(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {key: value for key, value in event.items() if value not in (None, "")}


def configure(level: str, form: str) -> None:
    """Send records of `level` (debug, info, warning, error) and above to stderr, `form` text or json."""
    renderer: Any = structlog.processors.JSONRenderer()
    if form == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _drop_empty,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def to_stderr() -> None:
    """For a command whose answer is all that stdout shall hold, maybe as JSON."""
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
