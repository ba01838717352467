"""The account's limits. Owns which types share one, what it is called, and how much of it is used. Pure.

EC2 counts vCPUs in a region, spot apart, in buckets of instance families. Their codes are those of Service Quotas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import Scope
from cloud_dispatch.provider.spi import Quota, QuotaUnit

SERVICE = "ec2"
#: The letters that types begin with -> the bucket that they count in; all others are standard.
_BUCKETS = {
    "dl": "dl", "f": "f", "g": "g-vt", "gr": "g-vt", "vt": "g-vt", "hpc": "hpc", "inf": "inf", "p": "p", "trn": "trn",
    "u": "high-memory", "x": "x", "mac": "mac",
}  # fmt: skip
#: Of P machines on the spot market the fifth generation has a bucket of its own; which one later ones count in is not
#: documented. On demand all of them share one.
_P5, _LATER_P = "p5", "p6"
STANDARD = "standard"
#: (bucket, market) -> the code of its quota. What is not here is not told.
CODES: Mapping[tuple[str, Market], str] = {
    (STANDARD, Market.ON_DEMAND): "L-1216C47A", (STANDARD, Market.SPOT): "L-34B43A08",
    ("g-vt", Market.ON_DEMAND): "L-DB2E81BA", ("g-vt", Market.SPOT): "L-3819A6DF",
    ("p", Market.ON_DEMAND): "L-417A185B", ("p", Market.SPOT): "L-7212CCBC",
    (_P5, Market.ON_DEMAND): "L-417A185B", (_P5, Market.SPOT): "L-C4BD4855",
    (_LATER_P, Market.ON_DEMAND): "L-417A185B",
    ("inf", Market.ON_DEMAND): "L-1945791B", ("inf", Market.SPOT): "L-B5D1601B",
    ("trn", Market.ON_DEMAND): "L-2C3B7624", ("trn", Market.SPOT): "L-6B0D517C",
    ("f", Market.ON_DEMAND): "L-74FC7D96", ("f", Market.SPOT): "L-88CF9481",
    ("x", Market.ON_DEMAND): "L-7295265B", ("x", Market.SPOT): "L-E3A00192",
    ("dl", Market.ON_DEMAND): "L-6E869C2A", ("dl", Market.SPOT): "L-85EED4F7",
    ("high-memory", Market.ON_DEMAND): "L-43DA4232",
    ("hpc", Market.ON_DEMAND): "L-F7808C92",
}  # fmt: skip
_FAMILY = re.compile(r"([a-z]+)(\d*)")


def family_of(type_name: str) -> str:
    """The bucket of `m7i.large` ("standard"), `g6.xlarge` ("g-vt")."""
    match = _FAMILY.match(type_name)
    letters, generation = (match[1], int(match[2] or 0)) if match else ("", 0)
    if letters == "p" and generation >= 5:
        return _P5 if generation == 5 else _LATER_P
    return _BUCKETS.get(letters, STANDARD)


def used(reservations: Iterable[Mapping[str, Any]], vcpus: Mapping[str, int]) -> dict[tuple[str, Market], int]:
    """vCPUs of all instances, anybody's, by bucket and market. `vcpus`: what a type has by default, which is what
    counts; of a type that is not in it, what the instance has."""
    count: dict[tuple[str, Market], int] = {}
    for reservation in reservations:
        for instance in reservation.get("Instances", ()):
            name, options = instance["InstanceType"], instance.get("CpuOptions") or {}
            market = Market.SPOT if instance.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND
            key = (family_of(name), market)
            own = options.get("CoreCount", 0) * options.get("ThreadsPerCore", 1)
            count[key] = count.get(key, 0) + vcpus.get(name, own)
    return count


def told(
    limits: Mapping[str, float], count: Mapping[tuple[str, Market], int], families: Iterable[str], region: str
) -> tuple[Quota, ...]:
    """The quotas of `families`, with what is used of each by all that share it. `limits` by code: one that is missing
    was not told."""
    wanted = set(families)
    sums: dict[str, int] = {}
    for key, code in CODES.items():
        sums[code] = sums.get(code, 0) + count.get(key, 0)
    return tuple(
        Quota(
            name=code,
            scope=Scope(family=family, market=str(market), region=region),
            unit=QuotaUnit.VCPUS,
            limit=int(limits[code]) if code in limits else None,
            used=sums[code],
        )
        for (family, market), code in CODES.items()
        if family in wanted
    )
