"""A cloud in memory, with the faults that the loop must survive, and a clock that the test moves.

Stands in for a provider only: store, planner, fleet and loop are the real ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cloud_dispatch import statestore
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.demand.native import NativeQueue
from cloud_dispatch.demand.targets import PoolTargets, Targets
from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName, VmId, slot_of
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.domain.task import TaskSpec
from cloud_dispatch.ports.store import Store
from cloud_dispatch.provider.errors import InDoubt, NotProven, ProviderError, VmNotFound
from cloud_dispatch.provider.lacking import bounded
from cloud_dispatch.provider.spi import (
    Challenge,
    Identity,
    LaunchRequest,
    LaunchResult,
    Listing,
    Traits,
    Vm,
    VmState,
)
from cloud_dispatch.reconcile import foreign
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.fleet import FleetService
from cloud_dispatch.reconcile.loop import Loop
from cloud_dispatch.reconcile.preview import Preview
from cloud_dispatch.reconcile.settings import Settings, Timing
from tests.migrated import migrated_store
from tests.reconcile.examples import offering

LOCAL, POOL = ProfileName("local"), PoolName("p")
NAMED = Traits(max_batch=10, named_slots=True, vm_name="vm-{instance}", identity=Identity.MADE_OUT)
#: As EC2: VMs have ids of the cloud's own.
NAMELESS = Traits(max_batch=10, identity=Identity.NAMED, max_tagged=4)


class ManualClock:
    """Time that only the test moves; both clocks together."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now(self) -> int:
        return self.ms

    def monotonic(self) -> int:
        return self.ms - 1_600_000_000_000


class Names:
    """Entropy without chance: b0000001, b0000002 ..."""

    def __init__(self) -> None:
        self.count = 0

    def name(self, purpose: str, length: int = 12) -> str:
        self.count += 1
        return f"{purpose[0]}{self.count:0{length - 1}d}"

    def secret(self, purpose: str) -> str:
        return self.name(purpose, 32)

    def fraction(self, purpose: str) -> float:
        return 0.5


@dataclass
class Cloud:
    """VMs by id; `launches` counts calls that made VMs. Faults: set the fields."""

    clock: ManualClock
    offers: tuple[Offering, ...] = (offering(),)
    traits: Traits = NAMED
    vms: dict[VmId, Vm] = field(default_factory=dict)
    refusals: dict[str, ProviderError] = field(default_factory=dict)  # by offering key
    grant_at_most: int = 1000
    lose_reply: bool = False
    lose_request: bool = False
    hidden: set[VmId] = field(default_factory=set)
    silent: bool = False
    stubborn: int = 0  # so many terminates are ignored
    requests: list[LaunchRequest] = field(default_factory=list)
    terminated: list[VmId] = field(default_factory=list)
    tagged: list[tuple[tuple[VmId, ...], dict[str, str]]] = field(default_factory=list)

    async def offerings(self) -> Sequence[Offering]:
        return self.offers

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        self.requests.append(request)
        if request.offering.key in self.refusals:
            raise self.refusals[request.offering.key]
        if self.lose_request:
            raise InDoubt("no answer")
        made = []
        for instance in request.instances[: self.grant_at_most]:
            vm = Vm(
                self.vm_name(instance), VmState.RUNNING, request.offering.type.name, request.offering.zone,
                dict(request.tags), self.clock.now(), slot_of(instance)[1] if self.traits.named_slots else -1,
            )  # fmt: skip
            self.vms.setdefault(vm.id, vm)
            made.append(self.vms[vm.id])
        if self.lose_reply:
            raise InDoubt("no answer")
        return LaunchResult(tuple(made))

    def vm_name(self, instance: InstanceId) -> VmId:
        return VmId(f"vm-{instance}")

    async def list(self, deployment: str) -> Listing:
        if self.silent:
            raise ProviderError("no answer")
        return Listing(tuple(vm for vm in self.vms.values() if vm.id not in self.hidden))

    async def get(self, vm: VmId) -> Vm:
        if vm not in self.vms:
            raise VmNotFound(vm)
        return self.vms[vm]

    async def terminate(self, vm: VmId) -> None:
        self.terminated.append(vm)
        if self.stubborn > 0:
            self.stubborn -= 1
            return
        self.vms.pop(vm, None)

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        self.tagged.append((tuple(vms), dict(tags)))
        there = [self.vms[vm] for vm in bounded(vms, self.traits) if vm in self.vms]
        self.vms.update((vm.id, replace(vm, tags={**vm.tags, **tags})) for vm in there)
        return frozenset(vms) - {vm.id for vm in there}

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        return await self.tag(vms, {ENDS_AT: str(ends_ms)})

    async def console(self, vm: VmId) -> str:
        return "line one\nno such image"

    def proof(self, vm: VmId, audience: str = "") -> str:
        """What the VM gets to show who it is."""
        return f"signed: {vm} {self.clock.now()} {audience}"

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        signed, _, said = proof.partition(": ")
        if signed != "signed":
            raise NotProven("not signed")
        vm, issued_ms, audience = said.split(" ")
        if self.traits.identity is Identity.MADE_OUT and audience != challenge.audience:
            raise NotProven("made out to another")
        if int(issued_ms) < challenge.since_ms:
            raise NotProven("too old")
        return VmId(vm)

    async def close(self) -> None:
        return None


@dataclass
class World:
    """A dispatcher's inside around one cloud. `restart` throws away all that is not in the store or the cloud."""

    clock: ManualClock
    cloud: Cloud
    store: Store
    pool: Pool
    caps: Caps = Caps(instances=10)
    targets: Sequence[PoolTargets] = ()
    timing: Timing = Timing(list_interval_ms=0)

    def __post_init__(self) -> None:
        self._wire()

    def _wire(self) -> None:
        self.context = Context(
            store=self.store,
            clock=self.clock,
            entropy=getattr(self, "names", Names()),
            planning=Inline(),
            settings=Settings(
                deployment="lab",
                pools={self.pool.name: self.pool},
                caps=self.caps,
                profile_caps={},
                providers={LOCAL: self.cloud},
                user_data=lambda pool, batch, slots, profile, ends_ms, spot: f"user data of {batch}",
                timing=self.timing,
            ),
            foreign=foreign.remembered(self.store),
        )
        self.names = self.context.entropy
        sources = (NativeQueue(self.store), Targets(self.targets, self.store))
        self.loop = Loop(self.context, sources)
        self.fleet = FleetService(self.context, Preview(self.context, sources))

    async def restart(self) -> None:
        await self.context.calls.cancel()
        self._wire()
        await self.loop.agree()
        await self.loop.restore()

    async def passes(self, count: int = 1, step_ms: int = 1_000) -> None:
        """So many passes, each with its calls brought to an end, the clock moved after each."""
        for _ in range(count):
            await self.loop.one_pass()
            await self.context.calls.settle()
            self.clock.ms += step_ms

    async def submit(self, count: int, **more: object) -> Sequence[int]:
        return await self.store.submit([TaskSpec(argv=("true",), **more)] * count)  # type: ignore[arg-type]

    @property
    def rows(self) -> list[Instance]:
        return list(self.store.instances().values())

    async def booted(self, tasks: int = 1) -> None:
        """One instance that serves, and its tasks in the queue."""
        await self.submit(tasks)
        await self.passes()
        for row in self.rows:
            await self.register(row)

    async def register(self, row: Instance) -> Instance:
        vm = row.vm or self.cloud.vm_name(row.id)
        return await self.fleet.admit(row.batch, vm, "i", self.proof(row, vm))

    def proof(self, row: Instance, vm: VmId) -> str:
        """The proof that `vm` has, made out to the batch of `row`."""
        return self.cloud.proof(vm, Challenge(row.batch, 0).audience)


@asynccontextmanager
async def world(folder: Path, **more: object) -> AsyncIterator[World]:
    clock = more.pop("clock", None) or ManualClock()
    cloud = more.pop("cloud", None) or Cloud(clock)
    pool = more.pop("pool", None) or Pool(POOL, (LOCAL,), target_drain_ms=60_000)
    store = await statestore.open_store(
        migrated_store(folder / "store.sqlite"), clock=clock, entropy=Names(), executor=Inline()
    )
    try:
        made = World(clock, cloud, store, pool, **more)  # type: ignore[arg-type]
        cloud.clock = clock  # type: ignore[attr-defined]
        yield made
    finally:
        await store.close()
