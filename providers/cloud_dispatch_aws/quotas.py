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
STANDARD = "standard"
#: (bucket, market) -> the code of its quota. P5 has one of its own on the spot market, and is not told.
CODES: Mapping[tuple[str, Market], str] = {
    (STANDARD, Market.ON_DEMAND): "L-1216C47A", (STANDARD, Market.SPOT): "L-34B43A08",
    ("g-vt", Market.ON_DEMAND): "L-DB2E81BA", ("g-vt", Market.SPOT): "L-3819A6DF",
    ("p", Market.ON_DEMAND): "L-417A185B", ("p", Market.SPOT): "L-7212CCBC",
    ("inf", Market.ON_DEMAND): "L-1945791B", ("inf", Market.SPOT): "L-B5D1601B",
    ("trn", Market.ON_DEMAND): "L-2C3B7624", ("trn", Market.SPOT): "L-6B0D517C",
    ("f", Market.ON_DEMAND): "L-74FC7D96", ("f", Market.SPOT): "L-88CF9481",
    ("x", Market.ON_DEMAND): "L-7295265B", ("x", Market.SPOT): "L-E3A00192",
    ("dl", Market.ON_DEMAND): "L-6E869C2A", ("dl", Market.SPOT): "L-85EED4F7",
    ("high-memory", Market.ON_DEMAND): "L-43DA4232",
    ("hpc", Market.ON_DEMAND): "L-F7808C92",
}  # fmt: skip
_LETTERS = re.compile(r"[a-z]+")


def family_of(type_name: str) -> str:
    """The bucket of `m7i.large` ("standard"), `g6.xlarge` ("g-vt")."""
    match = _LETTERS.match(type_name)
    return _BUCKETS.get(match[0] if match else "", STANDARD)


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
    """The quotas of `families`. `limits` by code: one that is missing was not told."""
    wanted = set(families)
    return tuple(
        Quota(
            name=code,
            scope=Scope(family=family, market=str(market), region=region),
            unit=QuotaUnit.VCPUS,
            limit=int(limits[code]) if code in limits else None,
            used=count.get((family, market), 0),
        )
        for (family, market), code in CODES.items()
        if family in wanted
    )
