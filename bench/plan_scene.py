"""The scene of the ``plan`` benchmark: ``python -m bench.plan_scene FOLDER TASKS``, in a process of its own.

A real store on disk with so many queued tasks of 50 shapes, 1,000 instances that are full, 500 offerings. A pass is the
decision itself, by the product's own parts: the snapshot from the store's memory, the plan, and each launch intent
committed with its slots. What follows (the providers' calls) runs beside the loop and is not in it.

Prints ``ready`` once filled, then for each line on standard input makes one pass and prints its milliseconds. Ends with
its standard input. A process a scene, so that the small queue does not pay for the large one's memory.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.processes import BenchmarkFailed
from bench.seats import Seats, SeatSettings
from cloud_dispatch import statestore
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.demand.native import NativeQueue
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, VmId, instance_id
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState, LaunchIntent
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Caps, EndRules, Pool
from cloud_dispatch.domain.resources import MIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskSpec
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.plan import Launch
from cloud_dispatch.ports.store import HeldClaim, InstanceChange, Store, SyncCall
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, ProfileContext
from cloud_dispatch.reconcile import picture
from cloud_dispatch.reconcile.context import Context, ProfileView
from cloud_dispatch.reconcile.launch import Launcher
from cloud_dispatch.reconcile.settings import Settings
from cloud_dispatch.reconcile.spend import Spending
from cloud_dispatch.telemetry import log

SHAPES, INSTANCES = 50, 1_000
TYPES, ZONES = 50, 10
OFFERINGS = TYPES * ZONES
SMALLEST_CPUS = 2
#: How many instances a pass may add: it must find something to do, and the cap must bind.
ROOM = 100
#: At most so many VMs a launch, so that every scene commits about as many intents (ROOM / BATCH, a few more or less).
BATCH = 10
#: What the instances are: 16 cpus.
FLEET_TYPE = 7
FLEET_TASKS = 10_000
BULK = 50_000
CLAIMS_A_SYNC = 64
POOL, PROFILE = PoolName("bench"), ProfileName("seats")


class GatedSeats(Seats):
    """Seats whose launches are answered when the gate opens: after the pass, whose time they must not take."""

    def __init__(self, context: ProfileContext) -> None:
        super().__init__(context)
        self.gate = asyncio.Event()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        """Wait for the gate, then as ever."""
        await self.gate.wait()
        return await super().launch(request)


@dataclass
class Scene:
    """A context over a filled store, ready for passes."""

    context: Context
    queue: NativeQueue
    provider: GatedSeats

    async def one_pass(self) -> float:
        """Seconds of snapshot, plan and intents; what was launched is taken back afterwards, outside the time."""
        launcher = Launcher(self.context, Spending(self.context))
        self.provider.gate.clear()
        before = set(self.context.store.instances())
        started = time.perf_counter()
        snapshot = picture.take(self.context, [self.queue])
        decided = plan(snapshot)
        launches = [action for action in decided.actions if isinstance(action, Launch)]
        await launcher.launch(launches)
        taken = time.perf_counter() - started
        self.provider.gate.set()
        await self.context.calls.settle()
        new = [row for name, row in self.context.store.instances().items() if name not in before]
        if not launches or len(new) != ROOM:
            raise BenchmarkFailed(f"the plan should launch {ROOM} instances and launched {len(new)}")
        taken_back = {"cause": "operator"}  # else each pass would see more VMs that were launched and brought nothing
        await self.context.store.change([InstanceChange(row.id, InstanceEvent.GONE, taken_back) for row in new])
        return taken


def shapes() -> list[Shape]:
    """SHAPES distinct requests from a quarter of a cpu to 8 cpus, with various ratios of memory."""
    return [
        Shape(Resources(cpus_milli=250 + (number % 10) * 750, memory=(256 + 512 * (number // 10 + number % 3)) * MIB))
        for number in range(SHAPES)
    ]


async def fill_queue(store: Store, tasks: int) -> None:
    """Queue ``tasks`` tasks, the shapes in turn."""
    specs = [TaskSpec(argv=("true",), shape=shape) for shape in shapes()]
    for start in range(0, tasks, BULK):
        count = min(BULK, tasks - start)
        await store.submit([specs[number % SHAPES] for number in range(start, start + count)])


async def fill_fleet(store: Store, pool: Pool, offering: Offering, now: int) -> None:
    """INSTANCES serving instances, each claiming tasks until nothing more fits."""
    batch = BatchId("benchbatch00")
    machine = offering.machine(pool.name, reserve=pool.reserve, max_tasks=0)
    instances = [
        Instance(
            id=instance_id(batch, slot),
            batch=batch,
            pool=pool.name,
            profile=PROFILE,
            type=offering.type.name,
            zone=offering.zone,
            market=offering.market,
            machine=machine,
            vcpus=offering.type.vcpus,
            rate=offering.rate,
            state=InstanceState.INTENDED,
            intended_ms=now,
            ends_ms=now + pool.end.lifetime_ms,
            boot_deadline_ms=now + pool.boot_deadline_ms,
        )
        for slot in range(INSTANCES)
    ]
    await store.intend(LaunchIntent(batch, pool.name, offering.key, INSTANCES, now, "benchmark"), instances)
    await store.change([InstanceChange(row.id, InstanceEvent.LAUNCH) for row in instances])
    bound = [InstanceChange(row.id, InstanceEvent.BOUND, {"vm": VmId(f"seat-{row.id}")}) for row in instances]
    await store.change(bound)
    await store.change([InstanceChange(row.id, InstanceEvent.REGISTERED) for row in instances])
    await asyncio.gather(*(fill_instance(store, row.id) for row in instances))


async def fill_instance(store: Store, instance: InstanceId) -> None:
    """Claim until a claim brings nothing."""
    held: list[HeldClaim] = []
    for order in range(1, 1_000):
        done = await store.sync(SyncCall(instance, order, held=tuple(held), want=CLAIMS_A_SYNC))
        if not done.claims:
            return
        held += [HeldClaim(claim.task, claim.token, ran_ms=0) for claim in done.claims]
    raise BenchmarkFailed(f"instance {instance} takes task after task and is never full")


def waiting(store: Store) -> int:
    """Tasks in the queue."""
    return sum(shape.count for shape in store.waiting())


async def scene(folder: Path, tasks: int) -> Scene:
    """A new store in ``folder``, filled."""
    folder.mkdir()
    clock, entropy = SystemClock(), SystemEntropy()
    store = await statestore.open_store(
        f"sqlite:///{folder / 'store.sqlite'}", clock=clock, entropy=entropy, executor=Inline()
    )
    settings = SeatSettings(folder=folder, cpus=SMALLEST_CPUS, types=TYPES, zones=ZONES, batch=BATCH)
    provider = GatedSeats(ProfileContext(PROFILE, settings, folder, now=clock.now))
    offerings = tuple(await provider.offerings())
    pool = Pool(POOL, (PROFILE,), caps=Caps(instances=INSTANCES + ROOM), end=EndRules(idle_ms=3_600_000))
    context = Context(
        store=store,
        clock=clock,
        entropy=entropy,
        planning=Inline(),
        settings=Settings(
            deployment="bench",
            pools={POOL: pool},
            caps=Caps(),
            profile_caps={},
            providers={PROFILE: provider},
            user_data=lambda *_: "",
        ),
    )
    context.profiles[PROFILE] = ProfileView(listed_ms=0, offerings=offerings, offered_ms=0)
    await fill_queue(store, FLEET_TASKS)
    await fill_fleet(store, pool, offerings[FLEET_TYPE], clock.now())
    await fill_queue(store, tasks - waiting(store))
    return Scene(context, NativeQueue(store), provider)


async def main(folder: Path, tasks: int) -> None:
    """Fill, then a pass a line."""
    log.configure("info", "text")  # the defaults of `up`: launches are logged within a pass
    filled = await scene(folder, tasks)
    loop = asyncio.get_running_loop()
    try:
        await filled.one_pass()  # warm
        print("ready", flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(await filled.one_pass() * 1e3, flush=True)
    finally:
        await filled.context.store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
