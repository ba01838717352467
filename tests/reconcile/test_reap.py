"""When a VM that is to go counts as gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import TaskFilter
from cloud_dispatch.provider.errors import VmNotFound
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult
from cloud_dispatch.reconcile.reap import LONGEST_DELAY_MS
from tests.reconcile.fake import Cloud, ManualClock, World, world

S = InstanceState
HORIZON_MS = 30_000


def shy() -> Cloud:
    """One that may not show a VM for half a minute after it was made."""
    return Cloud(ManualClock(), traits=replace(Cloud.traits, consistency_ms=HORIZON_MS))


async def test_who_is_gone_is_forgotten(tmp_path: Path) -> None:
    """What is kept of instances is kept of those that there are."""
    async with world(tmp_path) as w:
        await w.submit(2)
        await w.passes(2)
        reaper = w.loop._reaper
        assert reaper._known_ms.keys() == {row.id for row in w.rows}
        for row in w.rows:
            await w.fleet.kill(row.id, "a test")
        await w.store.cancel(TaskFilter(states=frozenset({TaskState.QUEUED})))
        await w.passes(10)
        assert (w.rows, reaper._known_ms, reaper._tries) == ([], {}, {})


async def killed_at_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A VM that was just launched shall go, and its provider says that there is none."""
    await w.submit(1)
    await w.passes()
    (row,) = w.rows

    async def unknown(vm: str) -> None:
        raise VmNotFound(vm)

    monkeypatch.setattr(w.cloud, "terminate", unknown)
    await w.fleet.kill(row.id, "a test")


@pytest.mark.parametrize("jump_ms", [0, 120_000], ids=["clocks agree", "the wall clock jumps ahead"])
async def test_a_vm_that_is_too_new_to_be_shown_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_ms: int
) -> None:
    """Found by the simulator: the cloud's clock was two minutes behind, its word about the VM's start was believed, and
    the slot of a VM that lived was given to another one, past the cap."""
    async with world(tmp_path, cloud=shy(), caps=Caps(instances=1)) as w:
        await killed_at_once(w, monkeypatch)
        (killed,) = w.rows
        now = w.clock.now
        monkeypatch.setattr(w.clock, "now", lambda: now() + jump_ms)
        await w.passes(HORIZON_MS // 1_000 - 1)
        assert [(row.id, row.state) for row in w.rows] == [(killed.id, S.TERMINATING)]
        await w.passes(LONGEST_DELAY_MS // 1_000 + 1)
        assert killed.id not in {row.id for row in w.rows}


async def test_a_launch_that_waited_long_for_its_turn_makes_no_old_vm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches are paced: what was decided minutes ago may have become a VM just now."""
    async with world(tmp_path, cloud=shy(), caps=Caps(instances=1)) as w:
        launch = w.cloud.launch

        async def in_its_turn(request: LaunchRequest) -> LaunchResult:
            w.clock.ms += 10 * w.timing.call_timeout_ms
            return await launch(request)

        monkeypatch.setattr(w.cloud, "launch", in_its_turn)
        await killed_at_once(w, monkeypatch)
        (killed,) = w.rows
        await w.passes(HORIZON_MS // 1_000 - 1)
        assert [(row.id, row.state) for row in w.rows] == [(killed.id, S.TERMINATING)]


async def test_one_that_has_long_been_there_is_gone_once_it_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or each VM's slot and money would be kept for a horizon longer than need be."""
    async with world(tmp_path, cloud=shy()) as w:
        await w.submit(1)
        await w.passes(2, step_ms=w.timing.call_timeout_ms + HORIZON_MS)
        (row,) = w.rows
        await w.fleet.kill(row.id, "a test")
        w.cloud.vms.clear()
        await w.passes(2)
        assert row.id not in {one.id for one in w.rows}
