"""The `local` driver's own keys of a profile. Owns their names, defaults and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from cloud_dispatch.provider.fields import Cpus, Duration, HourlyPrice, Size

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class LocalType(BaseModel):
    """An instance type of the host. Its price is invented: nobody bills a local VM, but the accounts must add up.

    cpus and memory are what the agent hands out to tasks, not something that the host sets aside. `capacity` is the
    largest number of VMs of the type at once.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpus: Cpus
    memory: Size
    price: HourlyPrice
    disk: Size = 10 * 2**30
    boot_delay: Duration | None = None
    capacity: int | None = Field(default=None, ge=0)
    gpus: int = Field(default=0, ge=0, le=64)
    gpu_type: str = ""
    gpu_memory: Size = 0


def _fictional(cpus: int, price: str) -> LocalType:
    return LocalType.model_validate({"cpus": cpus, "memory": f"{2 * cpus}GiB", "price": price})


#: Fictional types at fictional prices, for a profile that names none.
DEFAULT_CATALOGUE: dict[str, LocalType] = {
    "local.1": _fictional(1, "0.02"),
    "local.2": _fictional(2, "0.04"),
    "local.4": _fictional(4, "0.08"),
}


class LocalSettings(BaseModel):
    """`[profiles.NAME]` with `driver = "local"`.

    `root`: folder of the VMs (default: the profile's own folder below the dispatcher's state). `catalogue`: the
    instance types by name (`types` of a profile is its allow and deny list). `boot_delay`: from power-on to the first
    boot command, unless the type says otherwise. `max_vms`: the account's quota. `spot_discount`: percent off; without
    it there is no spot market. `shutdown_grace`: from SIGTERM to SIGKILL. `faults`: a file of faults to inject
    (default: `faults.json` below the root). `isolate_tasks`: agents and each attempt are users of their own; for a
    dispatcher that is root.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: Path | None = None
    catalogue: dict[_Name, LocalType] = Field(default_factory=lambda: dict(DEFAULT_CATALOGUE), min_length=1)
    zone: _Name = "local"
    max_vms: int = Field(default=32, ge=0, le=1000)
    boot_delay: Duration = 0
    spot_discount: int | None = Field(default=None, ge=0, le=99)
    shutdown_grace: Duration = 10_000
    faults: Path | None = None
    isolate_tasks: bool = False
