"""Whole runs: the real dispatcher and agents on simulated clouds, the same every time, whatever goes wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.simulation.faults import POINTS, Fault, FaultKind
from cloud_dispatch.simulation.generate import generate
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import Work, decode, encode
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
    """After a cut the old incarnation commits, launches and answers nothing, `finally` blocks included."""
    late: list[str] = []

    def watch(world: World) -> None:
        def assembled(living: object) -> None:
            context = living.parts.context  # type: ignore[attr-defined]
            apply = context.apply

            async def tidying(*args: object, **more: object) -> object:
                try:
                    return await apply(*args, **more)
                finally:
                    if living.dead():  # type: ignore[attr-defined]
                        late.append("finally ran")
                        await context.store.set_fact("written by the dead", "yes")

            context.apply = tidying

        world.plants.append(assembled)

    faults = (Fault(FaultKind.CRASH, 100, amount=500, which=3, point="commit"),)
    seen: list[str | None] = []
    outcome = run(
        scene(faults=faults), prepare=watch, finish=lambda world: seen.append(world.store.fact("written by the dead"))
    )
    assert outcome.ok, outcome.findings
    assert outcome.deaths == 1
    assert seen == [None]


def test_leaving_a_fault_out_moves_no_other_chance() -> None:
    """Until its moment, a run with a fault is the run without it, to the byte."""
    at_ms = 50_000
    fault = Fault(FaultKind.LOSS, at_ms, at_ms + 20_000, amount=90)
    with_it, without = run(scene(faults=(fault,))), run(scene(faults=(Fault(FaultKind.LOSS, 10**6),)))
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
