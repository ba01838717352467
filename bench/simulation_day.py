"""The day of the ``simulation`` benchmark: ``python -m bench.simulation_day [--quick]``, in a process of its own.

A thousand VMs of three clouds for 24 hours, 200,000 tasks, all checkers at work, the intervals of a large fleet. It is
a scenario as any other: what runs is the real dispatcher and real agents. Prints one line of JSON.

A tenth of it (``--quick``) is a tenth of the VMs and of the tasks.
"""

import argparse
import json
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, EndRules, Pool, TypeFilter
from cloud_dispatch.domain.resources import MIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Cloud, Mishaps, Quota
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import AgentTiming, CloudAccount, Scenario, Work
from cloud_dispatch.simulation.world import World

VMS, TASKS = 1_000, 200_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SEED = 1
#: Of the event log: all of it is counted and digested, the end is kept.
KEPT_LINES = 1_000
#: What docs/how-to/run-a-large-fleet.md recommends, and why.
INTERVALS = Timing(
    heartbeat_ms=180_000,
    poll_ms=180_000,
    lease_ms=900_000,
    pass_interval_ms=20_000,
    list_interval_ms=60_000,
)
#: Work comes so often, and the last of it so long before the day ends.
WAVE_MS = 60_000
LAST_WAVE_MS = DAY_MS - HOUR_MS
#: vCPUs a task, and how many tasks of ten ask for so many.
SIZES = ((1, 3), (2, 3), (4, 3), (8, 1))
VCPUS_A_VM = 8
#: Half of the tasks run for less, few for much longer.
MEDIAN_RUN_MS = 900_000
SIGMA = 0.7
LONGEST_RUN_MS = 4 * HOUR_MS
#: Tasks of one array: they are submitted together and run for as long.
ARRAY = 20
#: The types that the pool may rent: the 8-vCPU ones.
TYPES = ("c7i.2xlarge", "m7i.2xlarge", "n2-standard-8", "Standard_D8s_v5")


@dataclass
class Stopwatch:
    """Seconds of CPU in the steps of a coroutine, and how often it was run."""

    seconds: float = 0.0
    count: int = 0

    def timed(self, work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """`work`, its own steps timed; what it waits for is not."""

        def timed(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            self.count += 1
            return _Timed(self, work(*args, **kwargs))

        return timed


class _Timed:
    def __init__(self, watch: Stopwatch, work: Awaitable[Any]) -> None:
        self._watch, self._work = watch, work

    def __await__(self) -> Generator[Any, Any, Any]:
        work: Any = self._work.__await__()
        step = partial(work.send, None)
        while True:
            started = time.perf_counter()
            try:
                waits = step()
            except StopIteration as over:
                return over.value
            finally:
                self._watch.seconds += time.perf_counter() - started
            try:
                step = partial(work.send, (yield waits))
            except BaseException as error:
                step = partial(work.throw, error)


@dataclass(frozen=True)
class Day:
    """What came of it. Seconds are real ones, of this process; `vm_hours` and `most_vms` by the clouds' own account."""

    seconds: float
    pass_seconds: float
    passes: int
    syncs: int
    steps: int
    commits: int
    events: int
    virtual_hours: float
    vm_hours: float
    asked_vms: int
    most_vms: int
    vms: int
    succeeded: int
    tasks: int
    findings: tuple[str, ...]
    digest: str
    intervals: dict[str, int]

    @property
    def sync_us(self) -> float:
        """Microseconds of everything but the passes, a sync: both ends of it, network, store, clouds and checkers."""
        return (self.seconds - self.pass_seconds) / max(self.syncs, 1) * 1e6

    @property
    def pass_us(self) -> float:
        """Microseconds of a pass, its share of the listings included."""
        return self.pass_seconds / max(self.passes, 1) * 1e6


def scenario(vms: int = VMS, tasks: int = TASKS) -> Scenario:
    """So much work that `vms` VMs are busy all day."""
    accounts = tuple(CloudAccount(ProfileName(str(cloud)), _account(cloud, vms)) for cloud in Cloud)
    pool = Pool(
        PoolName("fleet"),
        tuple(account.profile for account in accounts),
        types=TypeFilter(allow=TYPES),
        markets=(Market.ON_DEMAND, Market.SPOT),
        end=EndRules(idle_ms=300_000, lifetime_ms=7 * DAY_MS),
    )
    return Scenario(
        name="day",
        seed=SEED,
        accounts=accounts,
        pools=(pool,),
        work=work(tasks),
        caps=Caps(instances=vms),
        timing=INTERVALS,
        agents=AgentTiming(silence_ms=1_800_000),
        horizon_ms=DAY_MS + 6 * HOUR_MS,
    )


def _account(cloud: Cloud, vms: int) -> AccountSettings:
    """Room for half of the fleet; now and then a VM that does not start, never boots, dies or is preempted."""
    usual = defaults(cloud)
    return replace(
        usual,
        quotas=(Quota(vms * VCPUS_A_VM // 2),),
        spot=replace(usual.spot, reclaim_mean_ms=48 * HOUR_MS),
        mishaps=Mishaps(never_starts=0.002, never_boots=0.002, late=0.01, death_mean_ms=30 * DAY_MS),
    )


def work(tasks: int) -> tuple[Work, ...]:
    """`tasks` tasks in arrays, a wave every `WAVE_MS`; the first wave is worth some hours, so that the fleet fills."""
    chance = SeededStreams(SEED).stream("work")
    sizes = [vcpus for vcpus, often in SIZES for _ in range(often)]
    waves = range(0, LAST_WAVE_MS, WAVE_MS)
    arrays, found = max(tasks // ARRAY, 1), []
    for number in range(arrays):
        vcpus = chance.pick(sizes)
        run_ms = min(round(chance.lognormal(MEDIAN_RUN_MS, SIGMA)), LONGEST_RUN_MS)
        first = number < arrays // 8
        found.append(
            Work(
                submit_ms=0 if first else waves[number % len(waves)],
                count=ARRAY,
                shape=Shape(Resources(vcpus * 1000, vcpus * 1536 * MIB), preemptible=chance.chance(0.5)),
                conduct=Conduct(run_ms),
                expected_ms=run_ms,
            )
        )
    return tuple(found)


def day(asked: Scenario) -> Day:
    """Run it, and watch."""
    passes, listings = Stopwatch(), Stopwatch()
    counts = {"most": 0, "syncs": 0}

    def plant(living: Incarnation) -> None:
        parts: Any = living.parts
        parts.loop.one_pass = passes.timed(parts.loop.one_pass)
        observer = parts.loop._observer
        observer._match = listings.timed(observer._match)
        answer = parts.app.worker.sync_answer

        def counted(*args: Any) -> Any:
            counts["syncs"] += 1
            return answer(*args)

        parts.app.worker.sync_answer = counted

    def prepare(world: World) -> None:
        world.plants.append(plant)
        tell = world.on_change

        def count(vm: TrueVm) -> None:
            tell(vm)
            counts["most"] = max(counts["most"], len(world.alive))

        world.on_change = count  # type: ignore[method-assign]

    rented: list[TrueVm] = []

    def finish(world: World) -> None:
        rented.extend(vm for account in world.accounts for vm in account.inventory())

    started = time.perf_counter()
    outcome = run(asked, keep=KEPT_LINES, prepare=prepare, finish=finish)
    seconds = time.perf_counter() - started
    timing = asked.timing
    return Day(
        seconds=seconds,
        pass_seconds=passes.seconds + listings.seconds,
        passes=passes.count,
        syncs=counts["syncs"],
        steps=outcome.steps,
        commits=outcome.commits,
        events=outcome.journal.count,
        virtual_hours=outcome.virtual_ms / HOUR_MS,
        vm_hours=_lived_ms(rented, EPOCH_MS + outcome.virtual_ms) / HOUR_MS,
        asked_vms=asked.caps.instances or 0,
        most_vms=counts["most"],
        vms=len(rented),
        succeeded=outcome.tasks.get(TaskState.SUCCEEDED, 0),
        tasks=asked.tasks,
        findings=tuple(map(str, outcome.findings)),
        digest=outcome.digest,
        intervals={
            "heartbeat": timing.heartbeat_ms,
            "poll": timing.poll_ms,
            "lease": timing.lease_ms,
            "pass": timing.pass_interval_ms,
            "list": timing.list_interval_ms,
        },
    )


def _lived_ms(rented: list[TrueVm], now_ms: int) -> int:
    return sum((vm.ended_ms or now_ms) - vm.created_ms for vm in rented)


def main(arguments: list[str]) -> None:
    """One day, or a tenth of one."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulation_day")
    parser.add_argument("--quick", action="store_true")
    part = 10 if parser.parse_args(arguments).quick else 1
    told = day(scenario(VMS // part, TASKS // part))
    print(json.dumps({**asdict(told), "sync_us": told.sync_us, "pass_us": told.pass_us}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
