"""Launches that a cloud accepts first: the loop asks until each slot has a VM, a refusal, or must be doubted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.provider.errors import CapacityUnavailable, InvalidRequest, ProviderError, Transient
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Operation, Traits
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, NAMED, POOL, Cloud, ManualClock, world

S = InstanceState
TRAITS = replace(NAMED, operation_poll_ms=2_000)


@dataclass
class Accepting(Cloud):
    """Accepts every launch, an operation a slot; `outcomes` says what becomes of a type's: True is a VM."""

    traits: Traits = TRAITS
    outcomes: Mapping[str, bool | ProviderError] = field(default_factory=dict)
    accepted: dict[str, LaunchRequest] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    deaf: bool = False
    shown_early: bool = False

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        self.requests.append(request)
        for instance in request.instances:
            self.accepted[instance] = request
            if self.shown_early:
                await self._make(instance)
        operations = (Operation(f"op/{instance}", request.batch, (instance,)) for instance in request.instances)
        return LaunchResult((), pending=tuple(operations))

    async def resume(self, operation: Operation) -> LaunchResult:
        (instance,) = operation.instances
        self.asked.append(instance)
        if self.deaf:
            raise Transient("no answer")
        outcome = self.outcomes.get(self.accepted[instance].offering.type.name)
        if outcome is None:
            return LaunchResult((), pending=(operation,))
        if isinstance(outcome, ProviderError):
            name = self.traits.vm_id(instance, "z")
            assert name
            self.vms.pop(name, None)
            return LaunchResult((), outcome)
        return await self._make(instance)

    async def _make(self, instance: InstanceId) -> LaunchResult:
        request = self.accepted[instance]
        made = await Cloud.launch(self, replace(request, slots=1, instances=(instance,)))
        self.requests.pop()
        return made


async def test_an_accepted_launch_is_bound_when_its_operation_is_done(tmp_path: Path) -> None:
    """No slot is given back or launched again while its operation runs; done, its VM is bound."""
    cloud = Accepting(ManualClock())
    async with world(tmp_path, cloud=cloud) as w:
        await w.submit(1)
        await w.passes(5)
        assert [row.state for row in w.rows] == [S.LAUNCHING]
        cloud.outcomes = {"t": True}
        await w.passes(3)
        assert [(row.state, bool(row.vm)) for row in w.rows] == [(S.BOOTING, True)]
        assert len(cloud.requests) == 1


async def test_operations_are_asked_for_at_the_drivers_pace(tmp_path: Path) -> None:
    """A pass a second and a pace of two seconds: one question every other pass, however many passes there are."""
    cloud = Accepting(ManualClock())
    async with world(tmp_path, cloud=cloud) as w:
        await w.submit(1)
        await w.passes(9)
        assert len(cloud.asked) == 4


async def test_an_operation_that_fails_is_a_refusal_with_failover(tmp_path: Path) -> None:
    """Lack of capacity that arrives inside an operation sends the work to the next offering, and is remembered."""
    cloud = Accepting(ManualClock(), offers=(offering("cheap", rate=1000), offering("dear", rate=1200)))
    cloud.outcomes = {"cheap": CapacityUnavailable("pool exhausted"), "dear": True}
    async with world(tmp_path, cloud=cloud) as w:
        await w.submit(1)
        await w.passes(6)
        assert [request.offering.type.name for request in cloud.requests] == ["cheap", "dear"]
        assert [(row.type, row.state) for row in w.rows] == [("dear", S.BOOTING)]
        assert [block.type for block in w.context.failures.blocked(w.clock.now())] == ["cheap"]


async def test_operations_of_one_batch_end_one_by_one(tmp_path: Path) -> None:
    """Of two slots one is made and one fails: one instance lives and the other slot is free."""
    cloud = Accepting(ManualClock())
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=2)) as w:
        await w.passes()
        assert len(w.rows) == 2
        first = next(iter(cloud.accepted))
        cloud.accepted[first] = replace(cloud.requests[0], offering=offering("u"))
        cloud.outcomes = {"t": True, "u": CapacityUnavailable("none")}
        await w.passes(3)
        assert [row.state for row in w.rows if row.batch == cloud.requests[0].batch] == [S.BOOTING]


@pytest.mark.parametrize("deaf", [True, False])
async def test_an_operation_without_an_end_is_doubted(tmp_path: Path, deaf: bool) -> None:
    """Asked for as long as a boot may take and no longer; then its slot is looked for like that of a lost answer."""
    cloud = Accepting(ManualClock(), deaf=deaf)
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), boot_deadline_ms=20_000, minimum=1)) as w:
        await w.passes(12)
        assert not w.context.in_doubt
        (first,) = w.rows
        await w.passes(15)
        asked = cloud.asked.count(first.id)
        assert 8 <= asked <= 11
        assert first.id not in {row.id for row in w.rows}, "absence was not proved"
        await w.passes(10)
        assert cloud.asked.count(first.id) == asked


async def test_a_vm_that_was_seen_and_then_refused_is_ended_with_what_the_cloud_said(tmp_path: Path) -> None:
    """A listing may show a VM whose operation fails later: nothing is waited for, the next offering serves, and the
    instance tells why; what it was made from is not held against."""
    cloud = Accepting(
        ManualClock(), offers=(offering("cheap", rate=1000), offering("dear", rate=1200)), shown_early=True
    )
    async with world(tmp_path, cloud=cloud) as w:
        await w.submit(1)
        await w.passes(2)
        assert [(row.type, row.state) for row in w.rows] == [("cheap", S.BOOTING)]
        (seen,) = w.rows
        cloud.outcomes = {"cheap": CapacityUnavailable("pool exhausted")}
        await w.passes(3)
        assert [block.type for block in w.context.failures.blocked(w.clock.now())] == ["cheap"]
        assert [request.offering.type.name for request in cloud.requests] == ["cheap", "dear"]
        refused = await w.store.instance(seen.id)
        assert (refused.state, refused.cause) == (S.GONE, "refused")
        assert refused.reason.endswith("cheap/z/on-demand refused: CapacityUnavailable: pool exhausted")
        assert not w.store.past().failing


@pytest.mark.parametrize(
    ("error", "cause", "counts"),
    [
        (CapacityUnavailable("none"), "refused", False),
        (InvalidRequest("OSProvisioningClientError"), "launch-failed", True),
    ],
)
async def test_a_launch_that_failed_by_what_it_was_made_from_counts_against_that(
    tmp_path: Path, error: ProviderError, cause: str, counts: bool
) -> None:
    """Azure says within the operation that an image does not come up: the VM has run for minutes then."""
    cloud = Accepting(ManualClock(), shown_early=True)
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=1)) as w:
        await w.passes(2)
        (seen,) = w.rows
        cloud.outcomes = {"t": error}
        await w.passes(4)
        assert (await w.store.instance(seen.id)).cause == cause
        assert bool(w.store.past().failing) is counts


async def test_of_those_seen_only_the_refused_ones_are_ended(tmp_path: Path) -> None:
    """Both are seen; one is made and one fails: the other boots on, and one whose agent speaks is not believed away."""
    cloud = Accepting(ManualClock(), shown_early=True)
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=3)) as w:
        await w.passes(2)
        made, failed, spoke = (row.id for row in w.rows)
        assert {row.state for row in w.rows} == {S.BOOTING}
        await w.register(w.store.instances()[spoke])
        for one in (failed, spoke):
            cloud.accepted[one] = replace(cloud.requests[0], offering=offering("u"))
        cloud.outcomes = {"t": True, "u": CapacityUnavailable("none")}
        await w.passes(1)
        rows = w.store.instances()
        assert (rows[made].state, rows[spoke].state) == (S.BOOTING, S.IDLE)
        assert failed not in rows or rows[failed].cause == "refused"
