"""The fields of a submitted task, one reader each. Owns what each may hold and the words that say what was expected.

A reader turns what was given into a domain value or raises ValueError("expected ..."); it knows no places and no files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar
from urllib.parse import urlsplit

from cloud_dispatch.domain.durations import parse_duration
from cloud_dispatch.domain.resources import MIB, parse_bytes, parse_cpus
from cloud_dispatch.domain.task import CHECKPOINT_SIGNALS, MACHINE_CAUSES, RETRYABLE, Cause, RetryRules
from cloud_dispatch.wire.messages import TRANSFER_SCHEMES

MAX_CPUS_MILLI = 100_000_000
MAX_BYTES = 2**60
MAX_GPUS = 10_000
MAX_ATTEMPTS = 1_000
MAX_PRIORITY = 2**31 - 1
MAX_PER_INSTANCE = 1_000_000
MAX_NAME = 1_024
MAX_WORD = 255
_SHOWN = 60
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,6})?")
_SIZE = re.compile(r"\d{1,19}(\.\d{1,6})?\s*[A-Za-z]{0,3}")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,30})://\S+")
_EXIT = re.compile(r"exit-code:(\d{1,3})")
T = TypeVar("T")
V = TypeVar("V")

#: What each field may hold, for the message when its type is wrong.
EXPECTED = {
    "command": 'text for the shell or a list of arguments (e.g. "echo hi" or ["echo", "hi"])',
    "name": "text",
    "env": 'a table of names and texts (e.g. {"SEED": "1"})',
    "cwd": "a folder",
    "cpus": "a number of cpus of at least 0.001 (e.g. 1, 0.5)",
    "memory": "a size (e.g. 512MiB, 8GiB)",
    "disk": "a size (e.g. 512MiB, 8GiB)",
    "gpus": 'a whole number or a table (e.g. {"count": 1, "type": "a100", "memory": "40GiB"})',
    "labels": 'a table of names and texts (e.g. {"zone": "b"})',
    "inputs": 'a list of tables (e.g. {"url": "https://...", "path": "data.bin"})',
    "outputs": 'a list of paths or tables (e.g. "out.txt" or {"path": "out.txt", "url": "https://.../{token}"})',
    "max_runtime": "a duration (e.g. 90, 10m, 2h)",
    "expected_runtime": "a duration (e.g. 90, 10m, 2h)",
    "checkpoint_signal": f"one of {', '.join(CHECKPOINT_SIGNALS)}",
    "max_attempts": f"a whole number from 1 to {MAX_ATTEMPTS}",
    "retry": 'a list of causes (e.g. ["preempted", "exit-code:75"])',
    "priority": "a whole number",
    "project": "text",
    "user": "text",
    "preemptible": "true or false",
    "max_per_instance": "a whole number, 0 for no limit",
    "exclusive": "true or false",
    "pool": "the name of a pool",
    "idempotency_key": "text",
    "array": "a whole number of at least 1",
    "sweep": 'a table of lists (e.g. {"seed": [1, 2, 3]})',
}


@lru_cache(maxsize=4096)
def cpus(value: int | float | str) -> int:
    """Millicpus."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value.strip()):
        try:
            milli = parse_cpus(value)
        except ValueError:
            milli = 0
        if 0 < milli <= MAX_CPUS_MILLI:
            return milli
    most = MAX_CPUS_MILLI // 1000
    raise ValueError(f"expected {EXPECTED['cpus']}, in steps of 0.001, at most {most}, got {shorten(value)}")


@lru_cache(maxsize=4096)
def size(value: int | str) -> int:
    """Bytes."""
    if not isinstance(value, str) or _SIZE.fullmatch(value.strip()):
        try:
            count = parse_bytes(value)
        except ValueError:
            count = MAX_BYTES + 1
        if count <= MAX_BYTES:
            return count
    raise ValueError(f"expected {EXPECTED['memory']}, at most 1024PiB, got {shorten(value)}")


def memory(value: int | str) -> int:
    """Bytes, not zero: a task that asks for no memory would be packed without end. So few that no process starts in
    them were meant as another unit."""
    count = size(value)
    if count == 0:
        raise ValueError("expected more than no memory (leave it out for the default)")
    if count < MIB:
        raise ValueError(f"expected at least 1MiB, got {count} bytes (a number without a unit is bytes: 4GiB, 512MiB)")
    return count


@lru_cache(maxsize=4096)
def duration(value: int | float | str) -> int:
    """Milliseconds, more than none."""
    milliseconds = parse_duration(value)
    if milliseconds <= 0:
        raise ValueError("expected a duration longer than zero (leave it out for none)")
    return milliseconds


def checkpoint_signal(value: str) -> str:
    """The name of a signal, or none."""
    if value and value not in CHECKPOINT_SIGNALS:
        raise ValueError(f"expected {EXPECTED['checkpoint_signal']}, got {shorten(value)}")
    return value


@lru_cache(maxsize=1024)
def retry_rules(causes: tuple[str, ...] | None, attempts: int | None) -> RetryRules:
    """The rules; without `causes` the ends that are the machine's fault are retried."""
    default = RetryRules()
    if attempts is not None and not 1 <= attempts <= MAX_ATTEMPTS:
        raise ValueError(f"max_attempts: expected {EXPECTED['max_attempts']}")
    chosen, codes = set(MACHINE_CAUSES if causes is None else ()), set()
    for text in causes or ():
        match = _EXIT.fullmatch(text)
        if match and 1 <= int(match[1]) <= 255:
            codes.add(int(match[1]))
        elif text in RETRYABLE:
            chosen.add(Cause(text))
        else:
            known = ", ".join(sorted(RETRYABLE))
            raise ValueError(f"retry: expected causes out of: {known}, exit-code:N (N 1 to 255), got {shorten(text)}")
    return RetryRules(default.max_attempts if attempts is None else attempts, frozenset(chosen), frozenset(codes))


def word(value: str) -> str:
    """A short text on one line, as names of projects, users and pools are."""
    if len(value) > MAX_WORD or (value and not value.isprintable()):
        raise ValueError(f"expected at most {MAX_WORD} printable characters")
    return value


def name(value: str) -> str:
    """A text to show, any script."""
    if len(value) > MAX_NAME:
        raise ValueError(f"expected at most {MAX_NAME} characters")
    return value


def relative_path(value: str) -> str:
    """A file below the task's working folder, without empty or `.` steps."""
    parts = [part for part in value.split("/") if part not in ("", ".")]
    if not parts or value.startswith("/") or value.endswith("/") or ".." in parts:
        raise ValueError(
            'expected a path below the working folder, without ".." (e.g. "results/out.json"), got ' + shorten(value)
        )
    return "/".join(parts)


def folder(value: str) -> str:
    """A working folder: relative without `..`, or absolute."""
    if ".." in value.split("/"):
        raise ValueError('expected a folder without ".."')
    return value


def url(value: str) -> str:
    """A URL with a scheme that an agent can transfer, which it can take to pieces once `{token}` is a number."""
    named = _SCHEME.fullmatch(value)
    if named is None:
        raise ValueError("expected a URL with its scheme (e.g. https://host/data.bin)")
    if named[1] not in TRANSFER_SCHEMES:
        known = ", ".join(TRANSFER_SCHEMES)
        raise ValueError(f"expected a URL of one of the schemes {known}, got {named[1]}://...")
    try:
        parts = urlsplit(value.replace("{token}", "1"))
        place = parts.path if parts.scheme == "file" else parts.hostname
        if not place or parts.port == 0:
            raise ValueError
    except ValueError:  # what it says may quote the URL, and with it a password
        raise ValueError(
            "expected a URL whose host and port can be read (e.g. https://host:8443/data.bin, http://[::1]/data.bin)"
        ) from None
    return value


def text_of(value: str | int | float | bool) -> str:
    """How a value of a sweep or an environment reads in a command."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def shorten(value: object) -> str:
    """`value` for a message: never long, never with characters that a terminal obeys."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def read(place: str, reader: Callable[[V], T], value: V) -> T:
    """`reader(value)`; its ValueError is prefixed with the field's name."""
    try:
        return reader(value)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
