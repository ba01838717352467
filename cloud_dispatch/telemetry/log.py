"""Log records: events with stable dotted names and ids as fields. Owns their form on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _drop_empty(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {key: value for key, value in event.items() if value not in (None, "")}


class _Quoted:
    """A text that is shown with its odd characters escaped."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def _quote(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """What a terminal would obey is quoted: a VM's words, and a provider's, stand in records."""
    return {
        key: _Quoted(value) if isinstance(value, str) and not value.isprintable() else value
        for key, value in event.items()
    }


def _lines_alone(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A traceback has its lines, and nothing else that a terminal obeys: it ends with somebody's words too."""
    said = event.get("exception")
    if isinstance(said, str):
        event["exception"] = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in said)
    return event


def configure(level: str, form: str) -> None:
    """Send records of `level` (debug, info, warning, error) and above to stderr, `form` text or json."""
    exceptions: Any = structlog.processors.format_exc_info
    rendering: list[Any] = [exceptions, structlog.processors.JSONRenderer()]
    if form == "text":
        console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28)
        rendering = [_quote, exceptions, _lines_alone, console]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _drop_empty,
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def to_stderr() -> None:
    """For a command whose answer is all that stdout shall hold, maybe as JSON."""
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
