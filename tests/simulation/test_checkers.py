"""Checkers can fail: for each promise a part is broken on purpose, and its checker must find that in a whole run."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.ids import InstanceId, instance_id
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.pool import TypeFilter
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.plan import Drain, Launch, Plan, Terminate
from cloud_dispatch.planner.replay import decode_plan, encode_plan, encode_snapshot
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.ports.fleet import Directive
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.reconcile.fleet import FleetService
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.simulation.checkers import ALL
from cloud_dispatch.simulation.checkers.plans import Plans
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.generate import of_theme
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.simulation.world import World
from cloud_dispatch.statestore import SqlStore, claims
from cloud_dispatch.statestore.batch import Batch
from tests.simulation.scenes import scene

Plant = Callable[[Any], None]


def with_bug(plant: Plant, scenario: Scenario | None = None) -> Outcome:
    """A run in which `plant` breaks each incarnation once it is assembled."""

    def prepare(world: World) -> None:
        world.plants.append(plant)

    return run(scenario or scene(horizon_ms=900_000), prepare=prepare, keep=200)


def found(outcome: Outcome, checker: str, text: str) -> None:
    """The checker said so, among whatever else was found."""
    said = [str(finding) for finding in outcome.findings]
    assert any(finding.checker == checker and text in finding.text for finding in outcome.findings), said


def test_without_a_bug_nothing_is_found() -> None:
    """The scene that the bugs are planted into keeps every promise."""
    assert with_bug(lambda living: None).ok


def test_p1_finds_a_task_that_is_lost() -> None:
    """The queue in memory forgets a task: it never ends."""

    def plant(living: Incarnation) -> None:
        store: Any = living.store

        def forget(shape: object, count: int) -> None:
            if 1 in store._memory.queue:
                store._memory.dequeue(1)
                store._memory.keep()

        store.subscribe(forget)

    found(with_bug(plant), "P1 tasks", "the store counts 5 tasks, 6 are known")


def test_work_that_stands_still_is_found() -> None:
    """Nothing is ever launched: the run does not come to its end."""

    def plant(living: Any) -> None:
        living.parts.context.stops["operator"] = Stop(StopLevel.LAUNCHES)

    outcome = with_bug(plant)
    found(outcome, "progress", "not over after 900000 ms")
    found(outcome, "P1 tasks", "task 1 never ended")


def test_p1_finds_a_second_result_under_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store keeps an attempt although its token had its result already."""
    ended = Batch.task_ended

    def again(self: Batch, task: int, *more: Any) -> None:
        ended(self, task, *more)
        if self.attempts:
            self.effects.append(lambda row=self.attempts[-1]: seen.append(row))

    seen: list[Any] = []
    monkeypatch.setattr(Batch, "task_ended", again)

    def prepare(world: World) -> None:
        commit = world.committed

        def twice(batch: Batch) -> None:
            if seen and batch.attempts:
                batch.attempts.append(seen[0])
            commit(batch)

        world.committed = twice  # type: ignore[method-assign]

    outcome = run(scene(work=(Work(count=12, conduct=Conduct(run_ms=5_000)),)), prepare=prepare, keep=200)
    found(outcome, "P1 tasks", "a second result of task")


def test_p1_finds_two_attempts_that_run_at_once() -> None:
    """The dispatcher gives an instance up before its lease has ended: the task runs twice."""

    class Hasty(Timing):
        @property
        def silence_ms(self) -> int:
            return 12_000

    def plant(living: Any) -> None:
        context = living.parts.context
        timing = context.settings.timing
        hasty = Hasty(**{name: getattr(timing, name) for name in Timing.__dataclass_fields__})
        context.settings = replace(context.settings, timing=hasty)

    def prepare(world: World) -> None:
        def cut() -> None:
            vm = next(iter(world.processes.values())).vm
            vm.cut_off_until_ms = world.clock.now() + 17_000

        world.plants.append(plant)
        world.at(100_000, cut)

    work = (Work(count=6, conduct=Conduct(run_ms=200_000, ignores_term=True), max_attempts=9),)
    usual = scene(work=work, horizon_ms=200_000)
    spare = replace(usual.pools[0], minimum=3, types=TypeFilter(allow=("e2-standard-4",)))
    outcome = run(msgspec.structs.replace(usual, pools=(spare,)), prepare=prepare, keep=200)
    found(outcome, "P1 tasks", "whose lease was to have ended it")


def test_p2_finds_a_vm_that_nobody_ends() -> None:
    """The reaper does nothing, and guests do not power their VMs off."""

    def plant(living: Any) -> None:
        living.parts.loop._reaper.reap = lambda: None

    def prepare(world: World) -> None:
        world.plants.append(plant)
        world.powered_off = lambda vm: None  # type: ignore[method-assign]

    outcome = run(scene(horizon_ms=900_000), prepare=prepare, keep=200)
    found(outcome, "P2 orphans", "terminating since")


def test_p4_finds_a_launch_past_a_cap() -> None:
    """Planner and launcher believe in a cap that is not the operator's."""

    def plant(living: Any) -> None:
        context = living.parts.context
        context.settings = replace(context.settings, caps=replace(context.settings.caps, instances=50))

    work = (Work(count=30, conduct=Conduct(run_ms=60_000), expected_ms=60_000),)
    found(with_bug(plant, scene(work=work)), "P4 caps", "the cap of everything is 3")


class Generous(Wrapper):
    """A driver that makes one VM more than it was asked for, in each launch."""

    async def call(self, name: Call, *args: Any) -> Any:
        if name is Call.LAUNCH:
            request = args[0]
            more = (*request.instances, instance_id(request.batch, request.slots))
            args = (replace(request, slots=request.slots + 1, instances=more),)
        return await self.pass_on(name, *args)


class Belated(Wrapper):
    """A driver that sends a launch once more, a minute after one of its VMs was ended."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self._sent: list[Any] = []
        self._again: list[asyncio.Task[Any]] = []

    async def call(self, name: Call, *args: Any) -> Any:
        if name is Call.LAUNCH:
            self._sent.append(args[0])
        answer = await self.pass_on(name, *args)
        if name is Call.TERMINATE and self._sent:
            self._again.append(asyncio.create_task(self._repeat(self._sent.pop(0))))
        return answer

    async def _repeat(self, request: Any) -> None:
        await asyncio.sleep(60)
        await self.pass_on(Call.LAUNCH, request)


def driven_by(wrapper: Callable[[Provider], Provider]) -> Callable[[World], None]:
    """For `run`: every driver is inside such a wrapper."""

    def prepare(world: World) -> None:
        for account in world.accounts:
            make = account.driver

            def wrapped(profile: Any, make: Callable[..., Provider] = make) -> Provider:
                return wrapper(make(profile))

            account.driver = wrapped  # type: ignore[method-assign]

    return prepare


def test_p5_finds_a_batch_with_too_many_vms() -> None:
    """The driver makes a VM for a slot that was never committed."""
    outcome = run(scene(horizon_ms=900_000), prepare=driven_by(Generous), keep=200)
    found(outcome, "P5 batches", "slots and made")


@pytest.mark.parametrize("cloud", [Cloud.GCE, Cloud.ARM])
def test_p5_finds_a_vm_made_again_under_its_name(cloud: Cloud) -> None:
    """Where slots are names a cloud makes a VM again once the first is gone: a driver that repeats a launch later."""
    work = tuple(Work(submit_ms=at_ms, count=3, conduct=Conduct(run_ms=20_000)) for at_ms in (0, 500_000))
    outcome = run(scene(cloud, horizon_ms=1_500_000, work=work), prepare=driven_by(Belated), keep=200)
    found(outcome, "P5 batches", "slots and made")


def test_drain_finds_work_for_what_an_operator_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the dispatcher nor its statestore heeds a hold. Not in every run is something held while work waits: in
    this one it is."""
    heeds = FleetService.directive

    def careless(fleet: FleetService, instance: InstanceId) -> Directive:
        row = fleet._c.store.living(instance)
        return Directive() if row is not None and row.behaviour is Behaviour.HOLD else heeds(fleet, instance)

    monkeypatch.setattr(FleetService, "directive", careless)
    monkeypatch.setattr(claims, "Behaviour", SimpleNamespace(HOLD="never"))
    found(run(of_theme("operators", 5), keep=50), "drain", "which is held")


def test_ends_finds_what_is_ended_while_it_serves() -> None:
    """Where a drain was decided the VM is deleted at once."""

    def plant(living: Incarnation) -> None:
        assert living.parts is not None
        loop: Any = living.parts.loop

        async def end(action: Drain) -> None:
            await loop._terminate(Terminate(action.instance, action.cause, action.reason))

        loop._drain = end

    found(with_bug(plant), "ends", "is ended at once: idle")


def test_p6_finds_a_drain_without_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only plans that launch something are stored."""
    keeps = SqlStore.record_plan

    async def forgets(store: SqlStore, now_ms: int, snapshot: bytes, stored: bytes) -> Any:
        launches = any(isinstance(action, Launch) for action in decode_plan(stored).actions)
        return await keeps(store, now_ms, snapshot, stored) if launches else None

    monkeypatch.setattr(SqlStore, "record_plan", forgets)
    found(with_bug(lambda living: None), "P6 plans", "no plan says so")


def test_p6_finds_a_plan_that_its_snapshot_does_not_explain() -> None:
    """What is executed and stored is not what the planner says of the stored snapshot."""

    def plant(living: Any) -> None:
        context = living.parts.context
        run_inside = context.planning.run

        async def other(work: Any, *args: Any) -> Any:
            decided: Plan = await run_inside(work, *args)
            launches = [replace(a, slots=1) if isinstance(a, Launch) else a for a in decided.actions]
            return replace(decided, actions=tuple(launches[:1]))

        context.planning.run = other

    work = (Work(count=30, conduct=Conduct(run_ms=60_000), expected_ms=60_000),)
    found(with_bug(plant, scene(Cloud.EC2, work=work)), "P6 plans", "when replayed")


@pytest.mark.parametrize(("vms", "replayed"), [(200, 40), (201, 2)])
def test_p6_replays_every_plan_but_in_a_large_fleet_one_in_twenty(vms: int, replayed: int) -> None:
    """A plan that its snapshot does not explain is found in both, and an action without a reason always."""
    snapshot = Snapshot(0, (), (), (), (), ())
    wrong = replace(plan(snapshot), actions=(Drain(InstanceId("i"), "idle", ""),))
    stored = zlib.compress(encode_snapshot(snapshot)), encode_plan(wrong)
    said: list[str] = []
    view: Any = SimpleNamespace(report=lambda name, text: said.append(text), alive=range(vms))
    checker = Plans(view)
    for _ in range(40):
        checker.committed(Commit((), (), (), (), (), frozenset(), (stored,)))
    assert sum("without a reason" in text for text in said) == 40
    assert sum("when replayed" in text for text in said) == replayed


def test_p6_finds_an_end_without_a_cause() -> None:
    """Drains that do not say why."""

    def plant(living: Any) -> None:
        context = living.parts.context
        apply = context.apply

        async def silent(instance: Any, event: Any, **more: Any) -> Any:
            return await apply(instance, event, **{**more, "cause": "", "reason": ""})

        context.apply = silent

    found(with_bug(plant), "P6 plans", "without a cause")


def test_p7_finds_two_vms_that_are_one_instance() -> None:
    """Registration takes any VM for the first instance that it knows."""

    def plant(living: Any) -> None:
        fleet, store = living.parts.fleet, living.store

        async def anybody(batch: Any, vm: Any, *words: str) -> Any:
            row = next(iter(store.instances().values()))
            return row if row.registered_ms is not None else await admit(row.batch, row.vm or vm, *words)

        admit = fleet.admit
        fleet.admit = anybody

    work = (Work(count=12, conduct=Conduct(run_ms=60_000), expected_ms=60_000),)
    found(with_bug(plant, scene(Cloud.EC2, work=work, horizon_ms=300_000)), "P7 identities", "admitted as")


def test_work_after_a_drain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are handed to instances that drain."""

    monkeypatch.setattr(claims, "_TAKING", frozenset(InstanceState))

    def plant(living: Any) -> None:
        fleet = living.parts.fleet
        directive = fleet.directive

        def deaf(instance: Any) -> Any:
            return msgspec.structs.replace(directive(instance), claiming=True, drain=False, drain_token=0)

        fleet.directive = deaf

    drains = tuple(Fault(FaultKind.DRAIN, 66_000 + 300 * i, which=i) for i in range(3))
    work = (Work(count=60, conduct=Conduct(run_ms=9_000)),)
    found(with_bug(plant, scene(work=work, faults=drains, horizon_ms=300_000)), "drain", "was handed to")


def test_starvation_is_found() -> None:
    """Every other sync claims nothing, whatever waits: who has room gets no work."""

    def plant(living: Any) -> None:
        sync = living.store.sync

        async def stingy(call: Any) -> Any:
            return await sync(msgspec.structs.replace(call, claiming=False))

        living.store.sync = stingy

    found(with_bug(plant, scene(horizon_ms=200_000)), "starvation", "has room for")


def commit_again(world: World, commit: Commit) -> None:
    for checker in world.checkers:
        checker.committed(commit)


def test_what_is_gone_stays_gone() -> None:
    """A row that comes back from `gone` is found when it is committed."""

    def prepare(world: World) -> None:
        write = world._write_commit

        def revive(commit: Commit) -> None:
            write(commit)
            for instance in commit.instances:
                if instance.state is InstanceState.GONE:
                    back = replace(instance, state=InstanceState.IDLE)
                    again = msgspec.structs.replace(
                        commit, new_tasks=(), live=(), ended=(), attempts=(), instances=(back,), plans=()
                    )
                    world.at(world.now_ms + 1, partial(commit_again, world, again))

        world._write_commit = revive  # type: ignore[method-assign]

    found(run(scene(), prepare=prepare, keep=100), "drain", "was gone and is idle")


def test_a_store_that_contradicts_itself_is_found() -> None:
    """The store's own check is part of every run's end."""

    async def spoil(world: World) -> None:
        await asyncio.sleep(30)
        store: Any = world.store
        store._memory.facts["planted"] = "in memory alone"

    def prepare(world: World) -> None:
        world.go(spoil(world))

    found(run(scene(), prepare=prepare, keep=100), "store", "differ in facts")


def test_names_are_what_findings_are_shrunk_by() -> None:
    """Every checker has a name of its own."""
    names = [checker.name for checker in ALL]
    assert len(set(names)) == len(names)
    assert all(names)
