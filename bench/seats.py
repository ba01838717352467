"""A provider driver for the ``claims`` benchmark: its VMs are seats that the load client registers from.

A third party's driver like any other, by entry point and on the public SPI, so that intents, launches, join tokens and
registrations of the benchmark are the dispatcher's real ones. Launching writes each seat's user data to a file; nothing
boots. Owns no real machine, so it must never be named in a configuration that is meant to do work.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from cloud_dispatch.domain.ids import InstanceId, VmId, slot_of
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.provider.errors import VmNotFound
from cloud_dispatch.provider.spi import (
    Challenge,
    Identity,
    LaunchRequest,
    LaunchResult,
    Listing,
    ProfileContext,
    Traits,
    Vm,
    VmState,
)

MAX_BATCH = 1_000
RATE = Rate(10_000_000)
ENTRY_POINT = "[cloud_dispatch.providers]\nseats = bench.seats:plugin\n"


class SeatSettings(BaseModel):
    """Keys of a profile: where the user data of launched seats go; offerings are ``types`` x ``zones``.

    The types have ``cpus``, twice, three times ... as many. A launch takes at most ``batch`` seats.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path
    cpus: int = 1
    types: int = 1
    zones: int = 1
    batch: int = MAX_BATCH


class Seats:
    """The driver: VMs that are nothing but a row in memory and a file of user data."""

    def __init__(self, context: ProfileContext) -> None:
        self._context = context
        self._settings: SeatSettings = context.settings
        self.traits = Traits(
            max_batch=self._settings.batch,
            max_user_data=1_000_000,
            max_tagged=1_000,
            named_slots=True,
            vm_name="seat-{instance}",
            identity=Identity.NAMED,
        )
        self._vms: dict[VmId, Vm] = {}

    async def offerings(self) -> Sequence[Offering]:
        """All types in the first zone, then in the next, each zone a little dearer than the one before."""
        settings = self._settings
        return [
            self._offering(settings.cpus * number, zone)
            for zone in range(settings.zones)
            for number in range(1, settings.types + 1)
        ]

    def _offering(self, cpus: int, zone: int) -> Offering:
        capacity = Resources(cpus_milli=cpus * 1000, memory=cpus * 4 * GIB, disk=cpus * 100 * GIB)
        kind = InstanceType(name=f"seat-{cpus}", capacity=capacity)
        rate = Rate(RATE * cpus * (100 + zone) // 100)
        return Offering(self._context.profile, kind, f"zone-{zone}", Market.ON_DEMAND, rate, rate)

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        """Make the seats that are not there yet."""
        made = []
        for instance in request.instances:
            name = self.vm_name(instance)
            if name not in self._vms:
                self._vms[name] = Vm(
                    name,
                    VmState.RUNNING,
                    request.offering.type.name,
                    request.offering.zone,
                    dict(request.tags),
                    0,
                    slot_of(instance)[1],
                )
                seat = json.dumps({"vm": name, "user_data": request.user_data})
                (self._settings.folder / f"{name}.json").write_text(seat)
            made.append(self._vms[name])
        return LaunchResult(tuple(made))

    async def list(self, deployment: str) -> Listing:
        """All seats of the deployment; it has no other."""
        return Listing(tuple(self._vms.values()) if deployment else ())

    def vm_name(self, instance: InstanceId) -> VmId:
        """The seat's name."""
        return VmId(f"seat-{instance}")

    async def get(self, vm: VmId) -> Vm:
        """One seat."""
        if vm not in self._vms:
            raise VmNotFound(f"no seat {vm}")
        return self._vms[vm]

    async def terminate(self, vm: VmId) -> None:
        """Gone at once."""
        self._vms.pop(vm, None)

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        """Add to seats' tags."""
        for seat in (self._vms[vm] for vm in vms if vm in self._vms):
            assert isinstance(seat.tags, dict)
            seat.tags.update(tags)
        return frozenset(vms) - self._vms.keys()

    async def console(self, vm: VmId) -> str:
        """A seat says nothing."""
        return ""

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        """Seats are believed: that many share a batch is what the benchmark is about."""
        return VmId(proof)

    async def close(self) -> None:
        """Nothing is held."""


class SeatsPlugin:
    """What the entry point names."""

    name = "seats"
    bills = False
    settings = SeatSettings

    def create(self, context: ProfileContext) -> Seats:
        """A driver for one profile."""
        return Seats(context)

    def template_variables(self) -> Mapping[str, str]:
        """Nothing boots, so no template needs anything. What plays the VMs is on this host."""
        return {"whole_machine": ""}


plugin = SeatsPlugin()


def write_entry_point(folder: Path) -> Path:
    """Make ``folder`` a place that, on PYTHONPATH, installs this driver; returns it."""
    metadata = folder / "bench_seats-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-seats\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINT)
    return folder
