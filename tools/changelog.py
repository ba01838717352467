"""Reads CHANGELOG.md, which keeps a shape (Keep a Changelog) so that a release can be made by it. Owns that shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
UNRELEASED = "Unreleased"
_SECTION = re.compile(r"## \[([^\]]+)\](?: - (\S+))?")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Release:
    """A section: its version or `Unreleased`, its date as it stands there, and the lines of each kind of change."""

    version: str
    day: str
    changes: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def number(self) -> tuple[int, ...]:
        match = _VERSION.fullmatch(self.version)
        return tuple(map(int, match.groups())) if match else ()


def releases(text: str) -> list[Release]:
    """The sections, in the order of the file. Whatever is no heading belongs to the one above it."""
    found: list[tuple[str, str, list[tuple[str, list[str]]]]] = []
    for line in text.splitlines():
        if line.startswith("## "):
            match = _SECTION.fullmatch(line)
            found.append((match[1], match[2] or "", []) if match else (line, "", []))
        elif line.startswith("### ") and found:
            found[-1][2].append((line.removeprefix("### "), []))
        elif line.startswith("- ") and found and found[-1][2]:
            found[-1][2][-1][1].append(line.removeprefix("- "))
    return [Release(name, day, tuple((kind, tuple(own)) for kind, own in kinds)) for name, day, kinds in found]


def problems(text: str) -> list[str]:
    """What is wrong with the shape, a line each."""
    found = releases(text)
    said = list(_of_order(found))
    for one in found:
        kinds = [kind for kind, _ in one.changes]
        said += [f"{one.version}: {kind}: expected one of {', '.join(KINDS)}" for kind in kinds if kind not in KINDS]
        said += [f"{one.version}: {kind}: stands there twice" for kind in sorted(set(kinds)) if kinds.count(kind) > 1]
        said += [f"{one.version}: {kind}: has no line" for kind, lines in one.changes if not lines]
        if one.version != UNRELEASED:
            said += _of_release(one)
    return said


def _of_order(found: list[Release]) -> Iterator[str]:
    if not found or found[0].version != UNRELEASED:
        yield f"expected [{UNRELEASED}] as the first section"
    for above, below in pairwise(found[1:]):
        if above.number and below.number and above.number <= below.number:
            yield f"{below.version}: expected versions from the newest to the oldest, and {above.version} is above it"


def _of_release(one: Release) -> Iterator[str]:
    if not one.number:
        yield f"{one.version}: expected [X.Y.Z]"
    try:
        date.fromisoformat(one.day)
    except ValueError:
        yield f"{one.version}: expected the day, as in `## [{one.version}] - 2026-11-22`"
    if not one.changes:
        yield f"{one.version}: says nothing"
