"""What a machine type is: its family, its architecture, its GPUs, its quota. Pure, by documentation.

Nothing here needs the SDK, so that settings and prices can use it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Card:
    """A kind of GPU: what tasks call it, the same at every cloud; GiB of a device; and how SKUs and quotas name it."""

    name: str
    gib: int
    billed: str


#: By the names that `machineTypes` and `acceleratorTypes` have. A model has one name, whatever its memory: by that
#: tasks tell the larger A100 from the smaller one.
GPUS = {
    vendor: Card(name, gib, billed or name)
    for vendor, name, gib, billed in (
        ("nvidia-tesla-t4", "t4", 16, ""), ("nvidia-tesla-p4", "p4", 8, ""), ("nvidia-tesla-p100", "p100", 16, ""),
        ("nvidia-tesla-v100", "v100", 16, ""), ("nvidia-tesla-a100", "a100", 40, ""),
        ("nvidia-a100-80gb", "a100", 80, "a100-80gb"), ("nvidia-l4", "l4", 24, ""),
        ("nvidia-h100-80gb", "h100", 80, ""), ("nvidia-h100-mega-80gb", "h100", 80, ""),
        ("nvidia-h200-141gb", "h200", 141, ""), ("nvidia-b200", "b200", 180, ""),
        ("nvidia-rtx-pro-6000", "rtx-pro-6000", 96, ""),
    )
}  # fmt: skip
#: Families with Arm processors; the field `architecture` of a machine type says it too, where it is there.
_ARM = frozenset({"t2a", "c4a", "n4a", "a4x"})
ORDINARY = "CPUS"
#: Families whose cores count together, as `CPUS` ("Allocation quotas"). Regions tell of `E2_CPUS` too, but E2 counts
#: here all the same.
_ORDINARY = frozenset({"e2", "f1", "g1", "g2", "n1"})
#: Families that boot from a persistent disk; all newer ones take Hyperdisk only
#: (https://cloud.google.com/compute/docs/disks/hyperdisks, and the pages of each series).
_PERSISTENT = frozenset(
    {
        "a2",
        "a3",
        "c2",
        "c2d",
        "c3",
        "c3d",
        "e2",
        "f1",
        "g1",
        "g2",
        "h3",
        "m1",
        "m2",
        "m3",
        "n1",
        "n2",
        "n2d",
        "t2a",
        "t2d",
    }
)
#: Neither can be live-migrated, and a launch has to say so.
_NO_MIGRATION = frozenset({"a2", "a3", "a4", "a4x", "g2", "g4", "h3", "h4d", "z3"})
_CUSTOM = re.compile(
    r"(?:(?P<family>[a-z][0-9][a-z]?)-)?custom-(?P<cpus>[0-9]{1,3})-(?P<memory>[0-9]{3,7})(?P<ext>-ext)?"
)


@dataclass(frozen=True, slots=True)
class Custom:
    """A custom machine type, whose name says all that there is to know."""

    family: str
    cpus: int
    memory_mib: int
    extended: bool


def gpu(vendor: str) -> Card:
    """The card of a vendor's name; where it is newer than this table, by that name, of unknown memory."""
    own = vendor.removeprefix("nvidia-").removeprefix("tesla-")
    return GPUS.get(vendor, Card(own, 0, own))


def billed_gpu(billed: str) -> Card:
    """The card that SKUs and quotas call so."""
    return next((one for one in GPUS.values() if one.billed == billed), Card(billed, 0, billed))


def custom(name: str) -> Custom | None:
    """What `n2-custom-4-16384`, `custom-2-4096-ext` is; None for a type that is not custom."""
    found = _CUSTOM.fullmatch(name)
    if found is None:
        return None
    return Custom(found["family"] or "n1", int(found["cpus"]), int(found["memory"]), bool(found["ext"]))


def family_of(name: str) -> str:
    """`n2d` of `n2d-standard-4`, `n1` of `custom-2-4096`."""
    own = custom(name)
    return own.family if own else name.partition("-")[0]


def architecture_of(name: str, said: str = "") -> str:
    """`x86_64` or `arm64`. `said`: the machine type's own word, "" where there is none."""
    if said:
        return "arm64" if said.upper() == "ARM64" else "x86_64"
    return "arm64" if family_of(name) in _ARM else "x86_64"


def quota_of(name: str) -> str:
    """The quota of cores that the type counts against, on demand: for most families one of their own. Those that came
    after C3 Google counts as `CPUS_PER_VM_FAMILY`, which no region tells of: their names here follow the older ones."""
    family = family_of(name)
    return ORDINARY if family in _ORDINARY else f"{family.upper()}_CPUS"


def migrates(name: str, *, gpus: bool) -> bool:
    """Whether such a VM is moved out of the way of maintenance."""
    return not gpus and family_of(name) not in _NO_MIGRATION


def disk_type_of(name: str, wished: str) -> str:
    """The type of a boot disk: the one wished for, else one that the type takes."""
    return wished or ("pd-balanced" if family_of(name) in _PERSISTENT else "hyperdisk-balanced")
