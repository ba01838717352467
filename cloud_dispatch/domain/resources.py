"""Quantities that tasks ask for and instances have. Owns the resource vector and the text of quantities."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


@dataclass(frozen=True, slots=True, order=True)
class Resources:
    """An amount of everything that is divided among tasks: cpus in millicpus, memory and disk in bytes, GPUs whole."""

    cpus_milli: int = 0
    memory: int = 0
    disk: int = 0
    gpus: int = 0

    def fits(self, room: Resources) -> bool:
        """Whether this much can be taken out of `room`."""
        return (
            self.cpus_milli <= room.cpus_milli
            and self.memory <= room.memory
            and self.disk <= room.disk
            and self.gpus <= room.gpus
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.cpus_milli - other.cpus_milli,
            self.memory - other.memory,
            self.disk - other.disk,
            self.gpus - other.gpus,
        )

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.cpus_milli + other.cpus_milli,
            self.memory + other.memory,
            self.disk + other.disk,
            self.gpus + other.gpus,
        )

    def times(self, other: Resources, bound: int) -> int:
        """How many times `other` fits in this, at most `bound`."""
        count = bound
        for have, want in (
            (self.cpus_milli, other.cpus_milli),
            (self.memory, other.memory),
            (self.disk, other.disk),
            (self.gpus, other.gpus),
        ):
            if want > 0:
                count = min(count, max(have, 0) // want)
        return count


def parse_bytes(value: int | str) -> int:
    """Bytes from `512`, `"512MB"`, `"8GiB"`, `"8G"` (binary); ValueError for anything else or a negative amount."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{value} bytes is negative")
        return value
    match = _BYTES.fullmatch(str(value).strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{value!r} is not a size (expected e.g. 512MiB, 8GiB, 100GB)")
    return int(Decimal(match[1]) * _UNITS[match[2].lower()])


def parse_cpus(value: int | float | str) -> int:
    """Millicpus from `2`, `0.5`, `"1.5"`; ValueError below one thousandth or for anything else."""
    try:
        milli = Decimal(str(value)) * 1000
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a number of cpus (expected e.g. 1, 0.5)") from None
    if not milli.is_finite() or milli != milli.to_integral_value() or milli < 1:
        raise ValueError(f"{value!r} cpus: expected at least 0.001, in steps of 0.001")
    return int(milli)


def format_bytes(count: int) -> str:
    """`8GiB`, `512MiB`, `1.5GiB`: the largest binary unit, at most one decimal."""
    for unit, size in (("TiB", 2**40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            text = f"{count / size:.1f}".removesuffix(".0")
            return f"{text}{unit}"
    return f"{count}B"


def format_size(count: int) -> str:
    """The shortest exact text in binary units: `16MiB`, `1000B`; `parse_bytes` reads it back."""
    for unit, size in (("TiB", 2**40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count}B"


def format_cpus(milli: int) -> str:
    """`2`, `0.5`."""
    return f"{milli / 1000:g}"
