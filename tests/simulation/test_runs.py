"""Whole runs: the real dispatcher and agents on simulated clouds, the same every time, whatever goes wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.simulation.clock import VirtualClock
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.entropy import SeededEntropy, SeededStreams
from cloud_dispatch.simulation.faults import POINTS, Fault, FaultKind
from cloud_dispatch.simulation.generate import generate
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import Work, decode, encode
from cloud_dispatch.simulation.severed import (
    Cut,
    PlanExecutor,
    Severed,
    SeveredClock,
    SeveredEntropy,
    SeveredProvider,
    StoreExecutor,
)
from cloud_dispatch.simulation.world import World
from tests.simulation.scenes import scene


@pytest.mark.parametrize("cloud", Cloud)
def test_work_is_done_and_every_vm_given_back(cloud: Cloud) -> None:
    """From an empty cloud to an empty cloud: all tasks succeed and the meter stands still."""
    outcome = run(scene(cloud))
    assert outcome.ok, outcome.findings
    assert outcome.tasks[TaskState.SUCCEEDED] == 6
    assert outcome.bill
    assert all(line.amount > 0 and not line.running for line in outcome.bill if line.billed_ms)


@pytest.mark.parametrize("cloud", Cloud)
@pytest.mark.parametrize("proves", [True, False], ids=["with proofs", "without"])
def test_vms_share_a_batch_only_where_they_can_prove_who_they_are(cloud: Cloud, proves: bool) -> None:
    """Three tasks with a VM each: one launch, or three of one VM; all of them register and work either way."""
    alone = Shape(Resources(1_000, GIB), exclusive=True)
    usual = scene(cloud, work=(Work(count=3, shape=alone, conduct=Conduct(run_ms=20_000)),))
    (account,) = usual.accounts
    account = msgspec.structs.replace(account, settings=replace(account.settings, proves=proves))
    sizes: Counter[str] = Counter()

    def count(world: World) -> None:
        sizes.update(vm.batch for account in world.accounts for vm in account.inventory())

    outcome = run(msgspec.structs.replace(usual, accounts=(account,)), finish=count)
    assert outcome.ok, outcome.findings
    assert outcome.tasks[TaskState.SUCCEEDED] == 3
    assert max(sizes.values()) == (3 if proves else 1)


def test_ends_of_commands_reach_the_store() -> None:
    """A command that fails, one that must be killed, one that fails first, one that can't be killed in time."""
    work = (
        Work(conduct=Conduct(run_ms=1_000, cause=Cause.EXIT_CODE, exit_code=3)),
        Work(conduct=Conduct(run_ms=900_000, ignores_term=True), max_runtime_ms=5_000),
        Work(conduct=Conduct(run_ms=1_000, log_bytes=500), outputs=("out.txt",)),
    )
    outcome = run(scene(work=work))
    assert outcome.ok, outcome.findings
    assert (outcome.tasks[TaskState.FAILED], outcome.tasks[TaskState.SUCCEEDED]) == (2, 1)


def test_a_run_is_the_same_to_the_byte_under_any_hash_seed() -> None:
    """Two processes with other hashes of strings write the same journal."""
    code = (
        "from cloud_dispatch.simulation.generate import generate; from cloud_dispatch.simulation.run import run;"
        "print([run(generate(seed)).digest for seed in (3, 9, 10)])"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=200
        ).stdout
        for seed in ("1", "22")
    ]
    assert said[0] == said[1] != b""


def test_another_seed_is_another_run() -> None:
    """Chance in the run comes from the scenario's seed."""
    assert run(scene()).digest != run(scene(seed=2)).digest


@pytest.mark.parametrize("point", POINTS)
def test_the_dispatcher_may_die_anywhere(point: str) -> None:
    """At any await, and around every effect: the next incarnation brings all work to its end."""
    faults = tuple(
        Fault(FaultKind.CRASH, at_ms, amount=1_000, which=which, point=point)
        for at_ms, which in ((0, 1), (3_000, 1), (62_000, 2))
    )
    outcome = run(scene(Cloud.EC2, faults=faults))
    assert outcome.ok, outcome.findings
    assert outcome.deaths >= 1
    assert outcome.tasks[TaskState.SUCCEEDED] == 6


def test_the_dead_change_nothing() -> None:
    """After a cut the old incarnation commits, terminates and answers nothing, `finally` blocks included."""
    tasks: list[asyncio.Task[None]] = []
    late: list[str] = []
    calls: list[str] = []
    seen: list[str | None] = []

    def watch(world: World) -> None:
        gate = world.accounts[0].gate  # type: ignore[attr-defined]
        send = gate.send

        def sending(operation: str, *args: Any, **more: Any) -> Any:
            if world.incarnation is not None and world.incarnation.dead():
                calls.append(operation)
            return send(operation, *args, **more)

        async def tidying(living: Incarnation, tidy: Callable[[Context], Coroutine[Any, Any, object]]) -> None:
            assert living.parts is not None
            try:
                await asyncio.sleep(10**6)
            finally:
                late.append(tidy.__name__)
                assert living.dead()
                await tidy(living.parts.context)

        async def write(context: Context) -> None:
            await context.store.set_fact("written by the dead", "yes")

        async def terminate(context: Context) -> None:
            row = next(row for row in context.store.instances().values() if row.vm)
            await context.settings.providers[row.profile].terminate(row.vm)

        def assembled(living: Incarnation) -> None:
            if living.number == 1:
                tasks.extend(world.loop.start(tidying(living, tidy), living.group) for tidy in (write, terminate))

        gate.send = sending
        world.plants.append(assembled)

    outcome = run(
        scene(faults=(Fault(FaultKind.CRASH, 75_000, amount=500),)),
        prepare=watch,
        finish=lambda world: seen.append(world.store.fact("written by the dead")),  # type: ignore[union-attr]
    )
    assert outcome.ok, outcome.findings
    assert outcome.deaths == 1
    assert sorted(late) == ["terminate", "write"]
    assert (calls, seen) == ([], [None])


async def test_every_port_of_the_dead_is_severed() -> None:
    """Time, names, secrets, chance, store, plans and drivers: what the living use does nothing after the cut."""
    cut, done = Cut(), list[str]()

    async def terminate(vm: VmId) -> None:
        done.append(vm)

    async def use(port: Callable[[], Any]) -> None:
        said = port()
        if asyncio.iscoroutine(said):
            await said

    well: dict[str, Any] = {"store_delay_ms": lambda: 0, "store_fails": lambda: False, "store_is_cut": lambda: False}
    world: Any = SimpleNamespace(point=done.append, **well)
    clock = SeveredClock(cut, VirtualClock(SimpleNamespace(now_ms=7)))
    entropy = SeveredEntropy(cut, SeededEntropy(SeededStreams(1)))
    driver: Any = SimpleNamespace(traits=None, terminate=terminate)
    ports: tuple[Callable[[], Any], ...] = (
        clock.now,
        clock.monotonic,
        lambda: entropy.name("batch"),
        lambda: entropy.secret("key"),
        lambda: entropy.fraction("jitter"),
        lambda: StoreExecutor(cut, world, world).run(done.append, "written"),
        lambda: PlanExecutor(cut, 0).run(done.append, "planned"),
        lambda: SeveredProvider(driver, cut, world).terminate(VmId("v")),
    )
    for port in ports:
        await use(port)
    assert done == ["written", "planned", "terminate asked", "v", "terminate answered"]
    done.clear()
    cut.severed = True
    for port in ports:
        with pytest.raises(Severed):
            await use(port)
    assert done == []


def test_leaving_a_fault_out_moves_no_other_chance() -> None:
    """Until its moment, a run with a fault is the run without it, to the byte; then things are lost."""
    at_ms = 50_000
    fault = Fault(FaultKind.LOSS, at_ms, at_ms + 20_000, amount=90)
    lost: list[int] = []

    def count(world: World) -> None:
        passes = world.network.passes

        def passing(vm: TrueVm) -> bool:
            got_through = passes(vm)
            if not got_through:
                lost.append(world.now_ms)
            return got_through

        world.network.passes = passing  # type: ignore[method-assign]

    with_it = run(scene(faults=(fault,)), prepare=count)
    assert lost
    assert at_ms <= min(lost) <= max(lost) < fault.until_ms
    lost.clear()
    without = run(scene(faults=(Fault(FaultKind.LOSS, 10**6),)), prepare=count)
    assert not lost
    before = [[line for line in outcome.journal if int(line[:9]) < at_ms] for outcome in (with_it, without)]
    assert before[0] == before[1]
    assert with_it.digest != without.digest


def test_a_scenario_is_data() -> None:
    """Its JSON is the same scenario, and the same run."""
    scenario = generate(10)
    again = decode(encode(scenario))
    assert again == scenario
    assert run(again).digest == run(scenario).digest
    with pytest.raises(InvalidInput, match="not a scenario"):
        decode(b'{"name": 3}')


def test_a_store_from_a_backup_never_reuses_a_token() -> None:
    """The dispatcher comes back on an older store: work is done once more rather than lost, under new tokens."""
    faults = (Fault(FaultKind.RESTORE, 75_000, amount=20_000),)
    outcome = run(scene(faults=faults))
    assert outcome.ok, outcome.findings
    assert outcome.deaths == 1


def test_streams_of_a_run_are_keyed_by_purpose() -> None:
    """What a VM draws depends on the seed and on the VM."""
    one, two = SeededStreams(4), SeededStreams(4)
    two.stream("network", "delay").fraction()
    assert one.stream("guest", "b", "v").fraction() == two.stream("guest", "b", "v").fraction()
