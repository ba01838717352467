"""What takes an instance that is told to drain, and works yet, is why it ended; not what it was to drain for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.stop import StopLevel
from cloud_dispatch.provider.spi import HardEnd, VmState
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window
from tests.reconcile.fake import NAMED, Cloud, ManualClock, World, world


async def drains(w: World) -> None:
    """One instance whose operator wants it drained; its agent is never heard of again."""
    await w.booted()
    await w.fleet.drain(w.rows[0].id, "for its kernel")
    assert (w.rows[0].state, w.rows[0].cause) == (InstanceState.DRAINING, "operator")


async def ended(w: World, passes: int = 4) -> tuple[str, str]:
    """Why it is, in the row and to people."""
    (row,) = w.rows
    await w.passes(passes)
    gone = await w.store.instance(row.id)
    (told,) = {event.detail for event in await w.store.events() if event.action == "instance.terminating"} or {""}
    return gone.cause, told or gone.reason


async def test_the_kill_switch_is_named(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await drains(w)
        await w.fleet.stop(StopLevel.TERMINATE, "all of it")
        cause, reason = await ended(w)
        assert cause == "stopped"
        assert reason.startswith("everything is ended: an operator")


async def test_its_hard_end_is_named(tmp_path: Path) -> None:
    cloud = Cloud(ManualClock(), traits=replace(NAMED, hard_end=HardEnd.FIXED))
    async with world(tmp_path, cloud=cloud) as w:
        await w.fleet.set_limit(Key(Scope.DEPLOYMENT), Window.TOTAL, Amount(10**12), "")
        await drains(w)
        last_ms = w.rows[0].last_ms
        assert last_ms is not None
        w.clock.ms = last_ms + 1
        assert await ended(w) == ("hard-end", "its hard end has come")


def _taken(w: World) -> None:
    w.cloud.vms.update({vm.id: replace(vm, state=VmState.GONE, preempted=True) for vm in w.cloud.vms.values()})


def _vanished(w: World) -> None:
    w.cloud.vms.update({vm.id: replace(vm, state=VmState.GONE) for vm in w.cloud.vms.values()})


@pytest.mark.parametrize(
    ("how", "cause", "reason"),
    [
        (_taken, "preempted", "the provider says that the VM is gone"),
        (_vanished, "vanished", "the provider says that the VM is gone"),
        (lambda w: w.cloud.vms.clear(), "lost", "no VM: missing from two complete listings"),
    ],
    ids=["taken", "vanished", "lost"],
)
async def test_who_took_its_vm_is_named(tmp_path: Path, how: Callable[[World], None], cause: str, reason: str) -> None:
    async with world(tmp_path) as w:
        await drains(w)
        how(w)
        said = await ended(w, 6)
        assert said[0] == cause
        assert said[1].startswith(reason)
