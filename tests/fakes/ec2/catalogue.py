"""Instance types and what they cost. The facts of types come from moto's table of what EC2 itself said.

Prices are for tests alone: near the true ones of us-east-1, of no date.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.fakes.aws.model import Shape, service

_NANO = 1_000_000_000
#: Nano-dollars an hour on demand.
_PRICES = {
    "t3.micro": 10_400_000,
    "t3.medium": 41_600_000,
    "t4g.small": 16_800_000,
    "m7g.large": 81_600_000,
    "m7g.xlarge": 163_200_000,
    "c6i.large": 85_000_000,
    "c7g.large": 72_500_000,
    "c7g.2xlarge": 290_000_000,
    "r6i.large": 126_000_000,
    "g4dn.xlarge": 526_000_000,
    "g5.xlarge": 1_006_000_000,
    "p4d.24xlarge": 21_957_642_000,
}
_A_VCPU = 48_000_000
_SPOT_PERCENT = 38
#: Quota codes of Service Quotas: (on demand, spot) by class of families, with the names that AWS gives them.
QUOTAS: dict[str, tuple[str, str]] = {
    "Standard (A, C, D, H, I, M, R, T, Z)": ("L-1216C47A", "L-34B43A08"),
    "DL": ("L-6E869C2A", "L-85EED4F7"),
    "F": ("L-74FC7D96", "L-88CF9481"),
    "G and VT": ("L-DB2E81BA", "L-3819A6DF"),
    "Inf": ("L-1945791B", "L-B5D1601B"),
    "P": ("L-417A185B", "L-7212CCBC"),
    "Trn": ("L-2C3B7624", "L-6B0D517C"),
    "X": ("L-7295265B", "L-E3A00192"),
}
_PREFIXES = {
    "dl": "DL", "f": "F", "g": "G and VT", "gr": "G and VT", "vt": "G and VT", "inf": "Inf", "p": "P", "trn": "Trn",
    "x": "X",
}  # fmt: skip
AMPLE = 1_000_000


@cache
def _all() -> dict[str, dict[str, Any]]:
    spec = find_spec("moto")
    if spec is None or spec.origin is None:
        raise RuntimeError("the fake EC2 takes the facts of instance types from moto: make setup")
    packed = Path(spec.origin).parent / "ec2" / "resources" / "instance_types.json.gz"
    types: dict[str, dict[str, Any]] = json.loads(gzip.decompress(packed.read_bytes()))
    return types


def _conforming(shape: Shape, value: Any) -> Any:
    """What the model has of a value: the table is of another date, and knows other words."""
    if shape.kind == "structure":
        members = shape.members
        return {name: _conforming(members[name].shape, below) for name, below in value.items() if name in members}
    if shape.kind == "list":
        item = shape.item.shape
        return [_conforming(item, below) for below in value if not item.enum or below in item.enum]
    return value


@cache
def types(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The types of these names as DescribeInstanceTypes tells them; ("*",) is all that the model has."""
    everything, shape = _all(), service("ec2").shape("InstanceTypeInfo")
    known = service("ec2").shape("InstanceType").enum
    wanted = [name for name in everything if name in known] if names == ("*",) else names
    return {name: _conforming(shape, everything[name]) for name in wanted}


def vcpus(info: dict[str, Any]) -> int:
    """The vCPUs that quotas count."""
    count: int = info["VCpuInfo"]["DefaultVCpus"]
    return count


def on_demand_nano(info: dict[str, Any]) -> int:
    """Nano-dollars an hour."""
    return _PRICES.get(info["InstanceType"], vcpus(info) * _A_VCPU)


def spot_nano(info: dict[str, Any], zone: str) -> int:
    """Nano-dollars an hour where nothing else is said; zones differ a little."""
    return on_demand_nano(info) * (_SPOT_PERCENT + ord(zone[-1]) - ord("a")) // 100


def dollars(nano: int) -> str:
    """As AWS writes prices."""
    return f"{nano // _NANO}.{nano % _NANO:09d}"[:-3]


@cache
def quota_class(type_name: str) -> str:
    """The class of families whose vCPU quota the type counts against."""
    letters = re.match(r"[a-z]+", type_name)
    assert letters is not None
    prefix = letters.group()
    return _PREFIXES.get(prefix, "Standard (A, C, D, H, I, M, R, T, Z)")
