"""Which regions there are, as far as the installed SDK's own list tells, and which zones are a region's own. Imports no
SDK: the list is a file of it."""

from __future__ import annotations

import difflib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path


def doubt(region: str) -> str:
    """Why `region` may not be one, "" where the SDK knows it or is not there. A region may be newer than the SDK."""
    known = _known()
    if not known or region in known:
        return ""
    near = difflib.get_close_matches(region, sorted(known), 3)
    return f"the installed boto3 knows no region {region!r}" + (f"; nearest: {', '.join(near)}" if near else "")


def own_zone(zone: str, region: str) -> bool:
    """Whether it is one of the region's Availability Zones, where its prices hold: their names are the region's and one
    letter. Local Zones and Wavelength Zones have more in theirs (us-west-2-lax-1a), and prices of their own."""
    return zone[:-1] == region and zone[-1:].isalpha()


@cache
def _known() -> frozenset[str]:
    found = find_spec("botocore")
    if found is None or found.origin is None:
        return frozenset()
    try:
        text = (Path(found.origin).parent / "data" / "partitions.json").read_text(encoding="utf-8")
        return frozenset(region for one in json.loads(text)["partitions"] for region in one["regions"])
    except (OSError, ValueError, KeyError):  # another version's data
        return frozenset()
