"""Checkers can fail, continued: fencing, rows, drains, what outlives VMs, and who speaks as whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.ids import ProfileName, instance_id
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.reconcile.matching import Stranger
from cloud_dispatch.reconcile.observe import Observer
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.facts import Commit, LiveTask
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import CloudAccount, Work, read
from cloud_dispatch.simulation.world import World
from cloud_dispatch.statestore.batch import ATTEMPT_ORDER, Batch
from cloud_dispatch.statestore.loading import tokens_by
from tests.simulation.scenes import scene
from tests.simulation.test_checkers import commit_again, found, with_bug

REGRESSIONS = Path(__file__).parent / "regressions"
_TOKEN = ATTEMPT_ORDER.index("token")


def rewritten(change: Callable[[World, Batch], None]) -> Callable[[World], None]:
    """A store that writes what `change` makes of each of its transactions."""

    def prepare(world: World) -> None:
        commit = world.committed

        def written(batch: Batch) -> None:
            change(world, batch)
            commit(batch)

        world.committed = written  # type: ignore[method-assign]

    return prepare


def test_p1_finds_a_result_under_a_stale_token() -> None:
    """An attempt is written under a token that is not the one of the task's claim."""

    def stale(world: World, batch: Batch) -> None:
        for at, row in enumerate(batch.attempts):
            batch.attempts[at] = (*row[:_TOKEN], row[_TOKEN] + 1_000, *row[_TOKEN + 1 :])

    outcome = run(scene(), prepare=rewritten(stale), keep=50)
    first = tokens_by(EPOCH_MS) + 1
    found(outcome, "P1 tasks", f"took a result under token {first + 1000}, not {first}")
    found(outcome, "P1 results", f"ended by success under token {first + 1000}, but no command ended under that token")


def test_p1_finds_a_task_that_comes_back_from_its_end() -> None:
    """After its end a task is queued again, and ends once more."""

    def prepare(world: World) -> None:
        write = world._write_commit

        def revive(commit: Commit) -> None:
            write(commit)
            for task, state in commit.ended:
                changed = msgspec.structs.replace
                nothing = changed(commit, new_tasks=(), live=(), ended=(), attempts=(), instances=(), plans=())
                lives = (LiveTask(task, "queued", 1, None, None),)
                world.at(world.now_ms + 1, partial(commit_again, world, changed(nothing, live=lives)))
                world.at(world.now_ms + 2, partial(commit_again, world, changed(nothing, ended=((task, state),))))

        world._write_commit = revive  # type: ignore[method-assign]

    outcome = run(scene(), prepare=prepare, keep=100)
    found(outcome, "P1 tasks", "ended again as succeeded")
    found(outcome, "P1 tasks", "was succeeded and is queued again")


class Deaf(Wrapper):
    """A driver whose terminations do nothing, and which says that all is well."""

    async def call(self, name: Call, *args: Any) -> Any:
        return None if name is Call.TERMINATE else await self.pass_on(name, *args)


def test_p2_finds_a_vm_that_has_no_row() -> None:
    """Each row is declared gone once its VM has registered: the row goes, the VM does not."""

    def plant(living: Any) -> None:
        fleet_service, context = living.parts.fleet, living.parts.context
        admit = fleet_service.admit

        async def forgetting(*words: Any) -> Any:
            row = await admit(*words)
            await context.apply(row.id, InstanceEvent.GONE, cause="planted", reason="planted", ended_ms=1)
            return row

        fleet_service.admit = forgetting

    def prepare(world: World) -> None:
        world.plants.append(plant)
        world.powered_off = lambda vm: None  # type: ignore[method-assign]
        for account in world.accounts:
            account.driver = lambda profile, make=account.driver: Deaf(make(profile))  # type: ignore[method-assign]

    outcome = run(scene(horizon_ms=500_000), prepare=prepare, keep=100)
    found(outcome, "P2 orphans", "no row for it")


def test_p2_finds_a_disk_that_nobody_deletes() -> None:
    """The loop does not look for what outlives its VM."""

    def plant(living: Any) -> None:
        living.parts.loop._leftovers.look = lambda: None

    usual = scene(Cloud.ARM)
    account = usual.accounts[0]
    left = CloudFault(CloudFaultKind.LEFTOVER, until_ms=400_000)
    littered = (CloudAccount(account.profile, account.settings, (left,)),)
    for horizon_ms, text in ((2_000_000, "belongs to no VM and is there for"), (700_000, "is left at the end")):
        scenario = scene(horizon_ms=horizon_ms, accounts=littered, pools=usual.pools)
        found(with_bug(plant, scenario), "P2 leftovers", text)


def test_a_drain_that_is_believed_too_early_is_found() -> None:
    """An instance counts as drained as soon as it is told to drain, while its task still runs on it."""

    def plant(living: Any) -> None:
        apply = living.parts.context.apply

        async def drained(instance: Any, reason: str) -> None:
            await apply(instance, InstanceEvent.DRAIN, cause="planted", reason="planted", drain_token=1)
            await apply(instance, InstanceEvent.DRAINED, cause="planted", reason="planted")

        living.parts.fleet.drain = drained

    drains = tuple(Fault(FaultKind.DRAIN, 64_000 + 3_000 * at, which=at) for at in range(20))
    busy = scene(work=(Work(count=60, conduct=Conduct(run_ms=9_000)),), faults=drains, horizon_ms=400_000)
    found(with_bug(plant, busy), "drain", "still runs on it")


def test_work_that_starts_after_a_drain_is_found() -> None:
    """The store says that an instance is drained just before an order reaches it."""

    def prepare(world: World) -> None:
        started, seen = world.process_started, []

        def late(vm: Any, attempt: Any) -> None:
            row = world.store.by_vm(vm.id) if world.store is not None else None
            if row is not None and not seen:
                seen.append(row)
                drained = replace(row, state=InstanceState.DRAINED, cause="planted")
                commit_again(world, Commit((), (), (), (), (drained,), frozenset()))
            started(vm, attempt)

        world.process_started = late  # type: ignore[method-assign]

    found(run(scene(), prepare=prepare, keep=50), "drain", "which is drained")


def test_p7_finds_work_that_runs_elsewhere_than_it_was_handed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tag says which slot a VM without a name is, and it is guessed: after a restore agents speak for each other."""
    decode = tags.decode

    def forgetful(found_tags: Any) -> Any:
        facts = decode(found_tags)
        return None if facts is None else replace(facts, slot=-1)

    async def guess(self: Any, stranger: Stranger, profile: ProfileName, provider: Any) -> None:
        for slot in range(0 if not self._held(stranger.vm) else 100, 100):
            name = instance_id(stranger.facts.batch, slot)
            try:
                await self._c.store.instance(name)
            except NotFound:
                await self._adopt(name, stranger, profile)
                return

    monkeypatch.setattr(tags, "decode", forgetful)
    monkeypatch.setattr(Observer, "_stranger", guess)
    outcome = run(read(REGRESSIONS / "adopted-as-another-slot.json"), keep=50)
    found(outcome, "P7 identities", "was handed to")
