"""When a VM that is to go counts as gone."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_dispatch.assembly import _problems
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import TaskFilter
from cloud_dispatch.provider.errors import CredentialsRejected, InDoubt, InvalidRequest, RateLimited, VmNotFound
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult
from cloud_dispatch.reconcile.reap import LONGEST_DELAY_MS
from cloud_dispatch.reconcile.unended import LASTING_MS, Unended
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


REFUSALS = (CredentialsRejected("no"), InvalidRequest("no"), RateLimited("no"), InDoubt("no"), TimeoutError("no"))


def refusing(refusal: Exception) -> Callable[[str], Coroutine[Any, Any, Any]]:
    """A `terminate` that does nothing but say so."""

    async def terminate(vm: str) -> None:
        raise refusal

    return terminate


async def killed_later(w: World, monkeypatch: pytest.MonkeyPatch, refusal: Exception) -> Instance:
    """A VM that has long been there shall go, and every order to end it is refused."""
    await w.submit(1)
    await w.passes(2, step_ms=w.timing.call_timeout_ms + HORIZON_MS)
    (row,) = w.rows
    monkeypatch.setattr(w.cloud, "terminate", refusing(refusal))
    await w.fleet.kill(row.id, "a test")
    return row


async def told(w: World) -> list[str]:
    """What was said of ends that failed."""
    return [event.detail for event in await w.store.events() if event.action == "instance.terminate_failed"]


@pytest.mark.parametrize("refusal", REFUSALS, ids=repr)
async def test_one_that_is_gone_goes_though_its_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """EC2 answers that a right is lacking where it hangs on the tags of what is no more: without a look its slot and
    its money were kept for ever."""
    async with world(tmp_path, cloud=shy()) as w:
        row = await killed_later(w, monkeypatch, refusal)
        w.cloud.vms.clear()
        await w.passes(2)
        assert row.id not in {one.id for one in w.rows}
        assert await told(w) == []


@pytest.mark.parametrize("refusal", REFUSALS, ids=repr)
async def test_one_that_is_there_stays_and_its_refusal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """What is told is why it does not end, whatever a look says, and also where there is none."""
    async with world(tmp_path, cloud=shy()) as w:
        row = await killed_later(w, monkeypatch, refusal)
        await w.passes(2)
        assert set(await told(w)) == {repr(refusal)}
        monkeypatch.setattr(w.cloud, "get", refusing(InDoubt("nor this")))
        w.cloud.vms.clear()
        await w.passes(LONGEST_DELAY_MS // 1_000)
        assert [(one.id, one.state) for one in w.rows if one.id == row.id] == [(row.id, S.TERMINATING)]
        assert set(await told(w)) == {repr(refusal)}


async def test_one_that_is_too_new_to_be_shown_is_not_gone_by_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tags may be as new as it is."""
    async with world(tmp_path, cloud=shy(), caps=Caps(instances=1)) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        monkeypatch.setattr(w.cloud, "terminate", refusing(REFUSALS[0]))
        monkeypatch.setattr(w.cloud, "get", refusing(VmNotFound(row.vm)))
        await w.fleet.kill(row.id, "a test")
        await w.passes(HORIZON_MS // 1_000 - 1)
        assert [(one.id, one.state) for one in w.rows] == [(row.id, S.TERMINATING)]
        assert set(await told(w)) == {repr(REFUSALS[0])}


def health(w: World) -> list[str]:
    in_force: Any = SimpleNamespace(refused="")
    return _problems(w.context, in_force)


async def test_whose_end_is_refused_for_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials were taken away: health names the VM, that it is billed, and the provider's reason, once it is more
    than a lost answer. It is over as soon as the order is taken."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        terminate, refusal = w.cloud.terminate, CredentialsRejected("terminate: ExpiredToken: it expired")
        refusal_words = "CredentialsRejected: terminate: ExpiredToken: it expired"

        async def refused(vm: str) -> None:
            raise refusal

        monkeypatch.setattr(w.cloud, "terminate", refused)
        await w.fleet.kill(row.id, "a test")
        await w.passes(20)
        assert health(w) == []
        await w.passes(LASTING_MS // 1_000 + LONGEST_DELAY_MS // 1_000)
        (told,) = health(w)
        for words in (
            "profile local has not ended VMs for 1",
            f"billed on: {refusal_words}",
            f"{row.id} (VM {row.vm})",
        ):
            assert words in told
        monkeypatch.setattr(w.cloud, "terminate", terminate)
        w.cloud.stubborn = 1
        await w.passes(LONGEST_DELAY_MS // 1_000 + 1)
        assert (health(w), row.id in w.store.instances()) == ([], True)
        await w.passes(LONGEST_DELAY_MS // 1_000 + 1)
        assert row.id not in w.store.instances()
        assert (health(w), w.context.unended) == ([], Unended())
