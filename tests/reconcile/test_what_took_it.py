"""A task that was lost with its instance says by what, as far as anything was seen: in its attempt and in `explain`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.task import Cause
from cloud_dispatch.ports.fleet import Heard
from cloud_dispatch.ports.store import HeldClaim, SyncCall
from cloud_dispatch.provider.spi import VmState
from tests.reconcile.fake import World, world

CHECK = "health check test -w /data failed 3 times in a row: exit code 1"


async def _taken(w: World) -> None:
    w.cloud.vms.update({vm.id: replace(vm, state=VmState.GONE, preempted=True) for vm in w.cloud.vms.values()})


async def _ended(w: World) -> None:
    w.cloud.vms.update({vm.id: replace(vm, state=VmState.GONE) for vm in w.cloud.vms.values()})


async def _stopped(w: World) -> None:
    w.cloud.vms.update({vm.id: replace(vm, state=VmState.STOPPED) for vm in w.cloud.vms.values()})


async def _unlisted(w: World) -> None:
    w.cloud.vms.clear()


async def _silent(w: World) -> None:
    w.clock.ms += w.timing.silence_ms + 1


async def _failed(w: World) -> None:
    news = w.fleet.heard(Heard(w.rows[0].id, "i", "failed", ending="health", detail=CHECK))
    assert news is not None
    await news


async def _killed(w: World) -> None:
    await w.fleet.kill(w.rows[0].id, "it smokes")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (_taken, ("(preempted)", "spot interruption")),
        (_ended, ("(vanished)", "ended from outside")),
        (_stopped, ("(powered-off)", "stopped", "from outside")),
        (_unlisted, ("is lost: no VM: missing from two complete listings",)),
        (_silent, ("is failed (out-of-contact): not heard for",)),
        (_failed, ("is failed (health)", CHECK)),
        (_killed, ("(killed): killed by an operator: it smokes",)),
    ],
    ids=["taken", "ended", "stopped", "unlisted", "silent", "failed", "killed"],
)
async def test_what_took_the_instance_is_told_of_its_task(
    tmp_path: Path, how: Callable[[World], Awaitable[None]], words: tuple[str, ...]
) -> None:
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        (claim,) = (await w.store.sync(SyncCall(row.id, 1, want=1))).claims
        await w.store.sync(SyncCall(row.id, 2, held=(HeldClaim(claim.task, claim.token, 10),)))
        await how(w)
        await w.passes(4)
        (attempt,) = await w.store.attempts(claim.task)
        assert attempt.outcome.cause is Cause.INSTANCE_LOST
        reasons = (await w.fleet.explain_task(claim.task))["reasons"]
        (told,) = [reason for reason in reasons if reason.startswith(f"attempt 1 on {row.id} ended: instance-lost")]
        for text in ("its instance is", *words):
            assert text in attempt.outcome.detail
            assert text in told
