"""Log records: events with stable dotted names and ids as fields. Owns their form on stderr, and that whoever logs goes
on where stderr takes nothing: a disk may be full, or the reader of a pipe gone."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any, TextIO

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


class Records:
    """Takes records, each a text, and writes them to `file` as lines. One that can't be written is lost and counted,
    never an error of whoever logs: instances are ended and budgets kept without a log, too."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._lost = 0
        self._why = ""

    def msg(self, text: str) -> None:
        """Write it; after some were lost, how many."""
        with self._lock:
            try:
                self._file.write(text + "\n")
                self._file.flush()
            except (OSError, ValueError) as error:  # the latter from a file that was closed
                self._lost, self._why = self._lost + 1, str(error)
                return
            lost, self._lost = self._lost, 0
        if lost:
            log = structlog.get_logger(__name__)
            log.warning("log.lost", records=lost, detail=self._why)

    debug = info = warning = error = critical = exception = msg

    def troubles(self) -> list[str]:
        """That records are lost, and why, in words."""
        return [f"the log can't be written, {self._lost:,} records are lost: {self._why}"] if self._lost else []


def configure(level: str, form: str) -> Records:
    """Send records of `level` (debug, info, warning, error) and above to stderr, `form` text or json."""
    records = Records(sys.stderr)
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
        logger_factory=lambda *_: records,
        cache_logger_on_first_use=True,
    )
    return records


def to_stderr() -> None:
    """For a command whose answer is all that stdout shall hold, maybe as JSON."""
    structlog.configure(logger_factory=lambda *_: Records(sys.stderr))
