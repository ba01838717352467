"""A reaper's sign of life: what it leaves behind after a round that has seen everything and ended all that was due.
Owns its text, as reapers write it and drivers read it. Pure, and the standard library only: it goes with the reapers.

A round that has failed leaves none: a reaper that is called and always fails looks like one that is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

#: What it is called where it stands beside other things: in a tag, or in the metadata of an object.
KEY = "cloud-dispatch-reaper"
#: A parameter of AWS's has room for twice as much; a tag of Azure's for 256 characters, where one place is named.
MOST = 2_000


@dataclass(frozen=True, slots=True)
class Sign:
    """Whose VMs the round was for, when it began (ms since the epoch, by the reaper's clock), and where it looked: as
    rounds call their places."""

    deployment: str
    begun_ms: int
    places: tuple[str, ...]


def written(deployment: str, begun_ms: int, places: Iterable[str]) -> str:
    """The text; ValueError where it would not fit."""
    said = {"deployment": deployment, "begun_ms": begun_ms, "places": sorted(places)}
    text = json.dumps(said, separators=(",", ":"), ensure_ascii=False)
    if len(text) > MOST:
        raise ValueError(f"a sign of life of {len(text)} characters, and {MOST} is the most: it names too many places")
    return text


def read(text: str) -> Sign | None:
    """None for what is no sign of life."""
    try:
        said = json.loads(text)
        deployment, begun_ms, places = said["deployment"], said["begun_ms"], said["places"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(deployment, str) or type(begun_ms) is not int or begun_ms <= 0 or not isinstance(places, list):
        return None
    return Sign(deployment, begun_ms, tuple(map(str, places)))
