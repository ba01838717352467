"""Which tasks are of one kind, so that how they end on one machine is compared with how they end on others. Pure."""

from __future__ import annotations

import re

import msgspec

_MOST = 80  # characters of a program's name
_NAME = r"[A-Za-z_][A-Za-z0-9_]*="
#: What a shell command sets for its program, before it: that differs from task to task, and may be a secret.
_set = re.compile(rf"""\s*(?:{_NAME}(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\])*\s+)*""", re.DOTALL).match
_is_set = re.compile(_NAME).match


class _Told(msgspec.Struct):
    """What of a specification says it (field names of `TaskSpec`)."""

    argv: tuple[str, ...] = ()
    shell: str = ""
    project: str = ""
    user: str = ""
    array_id: str = ""


_decode = msgspec.json.Decoder(_Told).decode


def kind_of(spec: bytes) -> str:
    """In words: the array that a task is of, else its program and whose it is. `spec` is its specification as stored
    JSON."""
    told = _decode(spec)
    if told.array_id:
        return f"array {told.array_id}"
    program = told.argv[0] if told.argv else _program(told.shell)
    of = "/".join(filter(None, (told.project, told.user)))
    return f"{program[:_MOST]} of {of}" if of else program[:_MOST]


def _program(shell: str) -> str:
    start = _set(shell)
    word = next(iter(shell[start.end() if start else 0 :].split(maxsplit=1)), "")
    return "" if _is_set(word) else word
