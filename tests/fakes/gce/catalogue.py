"""Machine types as Compute Engine documents them, custom ones too, and the quotas that they count against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

AMPLE = 1_000_000


@dataclass(frozen=True, slots=True)
class MachineType:
    """One machine type. `gpu` is an accelerator type that comes with it."""

    name: str
    cpus: int
    memory_mb: int
    gpu: str = ""
    gpus: int = 0
    architecture: str = "X86_64"
    shared: bool = False

    @property
    def family(self) -> str:
        """As "n2d"."""
        return self.name.partition("-")[0] if not self.name.startswith("custom") else "n1"


def _made() -> Iterator[MachineType]:
    yield MachineType("e2-micro", 2, 1024, shared=True)
    yield MachineType("e2-small", 2, 2048, shared=True)
    yield MachineType("e2-medium", 2, 4096, shared=True)
    per_cpu = {"standard": 4096, "highmem": 8192, "highcpu": 1024}
    for family, kinds, sizes in (
        ("e2", ("standard", "highmem", "highcpu"), (2, 4, 8, 16)),
        ("n2", ("standard", "highmem", "highcpu"), (2, 4, 8, 16, 32, 48, 64, 80)),
        ("n2d", ("standard", "highmem", "highcpu"), (2, 4, 8, 16, 32, 48, 64, 96)),
        ("c2", ("standard",), (4, 8, 16, 30, 60)),
        ("t2d", ("standard",), (1, 2, 4, 8, 16, 32, 48, 60)),
        ("t2a", ("standard",), (1, 2, 4, 8, 16, 32, 48)),
        ("n1", ("standard",), (1, 2, 4, 8, 16, 32, 64, 96)),
    ):
        for kind in kinds:
            each = 3840 if family == "n1" else per_cpu[kind]
            architecture = "ARM64" if family == "t2a" else "X86_64"
            for cpus in sizes:
                yield MachineType(f"{family}-{kind}-{cpus}", cpus, cpus * each, architecture=architecture)
    for kind, each in (("standard", 4096), ("highmem", 8192), ("highcpu", 2048)):
        for cpus in (4, 8, 22, 44, 88, 176):
            yield MachineType(f"c3-{kind}-{cpus}", cpus, cpus * each)
    for cpus in (2, 4, 8):
        yield MachineType(f"c4-standard-{cpus}", cpus, cpus * 3840)
    for gpus, cpus in ((1, 12), (2, 24), (4, 48), (8, 96)):
        yield MachineType(f"a2-highgpu-{gpus}g", cpus, cpus * 85 * 1024 // 12, "nvidia-tesla-a100", gpus)
    yield MachineType("a2-ultragpu-1g", 12, 12 * 170 * 1024 // 12, "nvidia-a100-80gb", 1)
    for cpus, gpus in ((4, 1), (8, 1), (12, 1), (16, 1), (24, 2), (32, 1), (48, 4), (96, 8)):
        yield MachineType(f"g2-standard-{cpus}", cpus, cpus * 4096, "nvidia-l4", gpus)


TYPES = {one.name: one for one in _made()}
#: Accelerators that can be attached to N1, or come with a type, by the name that quotas give them.
ACCELERATORS = {"nvidia-tesla-t4": "NVIDIA_T4", "nvidia-l4": "NVIDIA_L4", "nvidia-tesla-a100": "NVIDIA_A100",
                "nvidia-a100-80gb": "NVIDIA_A100_80GB", "nvidia-tesla-v100": "NVIDIA_V100"}  # fmt: skip
_OWN_CPU_QUOTA = {"a2": "A2_CPUS", "c2": "C2_CPUS", "c3": "C3_CPUS", "n2": "N2_CPUS", "n2d": "N2D_CPUS",
                  "t2d": "T2D_CPUS", "t2a": "T2A_CPUS", "e2": "CPUS", "n1": "CPUS", "g2": "CPUS"}  # fmt: skip
#: What the cores of all newer families count against, each family's by themselves.
_PER_FAMILY = "CPUS_PER_VM_FAMILY"
#: What `regions.get` tells of, whatever is used.
METRICS = (
    *sorted(
        {*_OWN_CPU_QUOTA.values(), "E2_CPUS", "PREEMPTIBLE_CPUS", "INSTANCES", "IN_USE_ADDRESSES", "DISKS_TOTAL_GB"}
    ),
    *(f"{market}{name}_GPUS" for market in ("", "PREEMPTIBLE_") for name in sorted(ACCELERATORS.values())),
)
_CUSTOM = re.compile(r"(?:(e2|n2|n2d)-)?custom-(\d{1,3})-(\d{1,6})(-ext)?")


def machine_type(name: str) -> MachineType | None:
    """The type of this name, a custom one where its sizes are allowed."""
    custom = _CUSTOM.fullmatch(name)
    if custom is None:
        return TYPES.get(name)
    cpus, memory = int(custom[2]), int(custom[3])
    if memory % 256 or not 1 <= cpus <= 128 or (cpus > 1 and cpus % 2) or memory > cpus * 8192 or memory < cpus * 512:
        return None
    return MachineType(name, cpus, memory)


#: What all regions share.
EVERYWHERE = ("CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS")


def cores_of(kind: MachineType) -> str:
    """The quota of cores that it counts against on demand."""
    return _OWN_CPU_QUOTA.get(kind.family, _PER_FAMILY)


def counted(kind: MachineType, spot: bool, accelerators: dict[str, int]) -> dict[str, int]:
    """What an instance takes of each quota, disks and addresses apart."""
    cores = "PREEMPTIBLE_CPUS" if spot else cores_of(kind)
    used = {"INSTANCES": 1, "CPUS_ALL_REGIONS": kind.cpus, cores: kind.cpus}
    if accelerators:
        used["GPUS_ALL_REGIONS"] = sum(accelerators.values())
    for name, count in accelerators.items():
        used[f"{'PREEMPTIBLE_' if spot else ''}{ACCELERATORS[name]}_GPUS"] = count
    return used
