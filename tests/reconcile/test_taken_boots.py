"""A VM that is taken back while it boots has been preempted; only one that ends otherwise says anything of its boot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.reconcile.breakers import recipe_of
from cloud_dispatch.spend.breaker import Kind
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, POOL, Cloud, ManualClock, World, world

SPOT = Pool(POOL, (LOCAL,), target_drain_ms=60_000, markets=(Market.SPOT,), template="usual")


def of_spot() -> Cloud:
    return Cloud(ManualClock(), offers=(offering(market=Market.SPOT),))


async def boots_until(w: World, state: VmState, *, preempted: bool) -> None:
    """One VM boots, and its provider says that it is in `state`; after a while it does not list it any more."""
    await w.submit(1)
    await w.passes()
    (vm,) = w.cloud.vms.values()
    w.cloud.vms[vm.id] = replace(vm, state=state, preempted=preempted)
    await w.passes()
    w.cloud.vms.pop(vm.id, None)


@pytest.mark.parametrize("state", [VmState.STOPPING, VmState.STOPPED, VmState.GONE])
async def test_a_boot_whose_vm_is_taken_back_is_a_preemption(tmp_path: Path, state: VmState) -> None:
    """Whether it is shown as stopped by then, as on its way, or as gone: it counts among preemptions, nothing that
    failed is remembered of its offering or of what it boots, and another is launched at once."""
    async with world(tmp_path, cloud=of_spot(), pool=SPOT) as w:
        await boots_until(w, state, preempted=True)
        await w.passes(5)
        (past,) = await w.store.past_instances()
        assert past.cause == "preempted"
        assert "spot interruption" in past.reason
        assert w.context.failures.blocked(w.clock.now()) == ()
        assert w.store.past().of(recipe_of(past, Kind.BOOT)).failures == []
        assert [one.preempted for one in w.store.past().spot.seen(w.clock.now())] != []
        assert len(w.cloud.requests) == 2


@pytest.mark.parametrize(
    ("state", "cause"), [(VmState.STOPPED, "powered-off"), (VmState.GONE, "vanished"), (VmState.STOPPING, "lost")]
)
async def test_a_boot_that_ends_otherwise_has_failed(tmp_path: Path, state: VmState, cause: str) -> None:
    """Its guest has shut down, or somebody has ended it: nobody knows of a preemption."""
    async with world(tmp_path, cloud=of_spot(), pool=SPOT) as w:
        await boots_until(w, state, preempted=False)
        await w.passes(5)
        (past,) = await w.store.past_instances()
        assert past.cause == cause
        assert [block.type for block in w.context.failures.blocked(w.clock.now())] == [past.type]
        assert len(w.store.past().of(recipe_of(past, Kind.BOOT)).failures) == 1
        assert w.store.past().spot.seen(w.clock.now()) == ()
        assert len(w.cloud.requests) == 1


async def test_notice_is_left_to_an_agent_that_has_registered(tmp_path: Path) -> None:
    """It ends what runs, and says when it is done; what is shown of its VM meanwhile ends nothing."""
    async with world(tmp_path, cloud=of_spot(), pool=SPOT) as w:
        await w.booted()
        w.cloud.vms.update({vm.id: replace(vm, state=VmState.STOPPING, preempted=True) for vm in w.cloud.vms.values()})
        await w.passes(2)
        assert w.rows[0].state is InstanceState.IDLE
