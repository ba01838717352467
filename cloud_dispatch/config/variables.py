"""Variables in a file, as systemd reads it for a service (`EnvironmentFile=`). Owns how such a file is read; pure."""

from __future__ import annotations

import re

#: A value in quotes goes on over lines, and one without where a line ends in a backslash. What does not look like an
#: assignment is skipped, such as a line that begins with # or ;.
_ASSIGNMENT = re.compile(
    r"""
    ^[ \t]* (?P<name>[A-Za-z_][A-Za-z0-9_]*) [ \t]*=[ \t]*
    (?: '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | (?P<plain>(?:[^\n\\]|\\.)*) )
    [ \t]*$
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\(["\\`$\n])')


def parsed(text: str) -> dict[str, str]:
    """Their values by their names; the last one of a name counts."""
    return {found["name"]: _value(found) for found in _ASSIGNMENT.finditer(text)}


def _value(found: re.Match[str]) -> str:
    if found["single"] is not None:
        return found["single"]
    if found["double"] is not None:
        return _ESCAPED_IN_QUOTES.sub(_bare, found["double"])
    return _ESCAPED.sub(_bare, found["plain"].rstrip(" \t\r"))


def _bare(escaped: re.Match[str]) -> str:
    return escaped[1].strip("\n")
