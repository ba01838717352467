"""Stolen join tokens against a cloud in memory: who has one and is not the VM gets nothing, the VM gets its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Denied, Unavailable
from cloud_dispatch.domain.ids import BatchId, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.tags import BATCH
from cloud_dispatch.planner.plan import Launch
from cloud_dispatch.provider.errors import CredentialsRejected, RateLimited, Transient
from cloud_dispatch.provider.spi import Challenge, Identity, Traits
from cloud_dispatch.reconcile import identity
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, NAMED, NAMELESS, POOL, Cloud, ManualClock, World, world

THREE = Pool(POOL, (LOCAL,), minimum=3)
UNPROVED = Traits(max_batch=10, named_slots=True, vm_name="vm-{instance}")


@asynccontextmanager
async def launched(folder: Path, traits: Traits = NAMED) -> AsyncIterator[tuple[World, list[Instance]]]:
    """A batch of three VMs that have not registered."""
    async with world(folder, cloud=Cloud(ManualClock(), traits=traits), pool=THREE) as w:
        await w.passes()
        assert len({row.batch for row in w.rows}) == 1
        yield w, w.rows


def registered(w: World) -> list[Instance]:
    return [row for row in w.rows if row.registered_ms is not None]


def refusals(w: World) -> list[str]:
    return [event.detail for event in w.context.pending_events if event.action == "registration.refused"]


@pytest.mark.parametrize("traits", [NAMED, NAMELESS], ids=["named", "nameless"])
async def test_a_thief_who_is_quicker_than_the_vm_gets_nothing(tmp_path: Path, traits: Traits) -> None:
    """Without a proof, with one that it made, with that of another VM: the slot stays free for the VM itself."""
    async with launched(tmp_path, traits) as (w, (victim, other, _)):
        old = w.proof(victim, victim.vm).replace(str(w.clock.now()), str(victim.intended_ms - identity.CLOCKS_MS - 1))
        for stolen in ("", "made up", f"signed by me: {victim.vm} 1 x", w.proof(other, other.vm), old):
            with pytest.raises(Denied):
                await w.fleet.admit(victim.batch, victim.vm, "thief", stolen)
        assert registered(w) == []
        mine = await w.register(victim)
        assert (mine.id, mine.state, registered(w)) == (victim.id, InstanceState.IDLE, [mine])


async def test_a_proof_made_out_to_another_batch_is_none_of_this_one(tmp_path: Path) -> None:
    """What the VM's metadata service gave somebody else, who shows it here."""
    async with launched(tmp_path) as (w, (victim, *_)):
        theirs = w.cloud.proof(victim.vm, Challenge(BatchId("theirs"), 0).audience)
        with pytest.raises(Denied, match="made out to another"):
            await w.fleet.admit(victim.batch, victim.vm, "thief", theirs)


async def test_the_proof_of_a_vm_that_is_gone_is_worth_nothing(tmp_path: Path) -> None:
    """It was valid; whose it was lives no more, and nobody else's place is had with it."""
    async with launched(tmp_path) as (w, (gone, victim, _)):
        replayed = w.proof(gone, gone.vm)
        await w.fleet.kill(gone.id, "test")
        await w.passes(4)
        assert gone.id not in [row.id for row in w.rows]
        for vm in (gone.vm, victim.vm):
            with pytest.raises(Denied):
                await w.fleet.admit(victim.batch, vm, "thief", replayed)
        assert registered(w) == []
        await w.register(victim)


async def test_a_vm_that_is_itself_and_none_of_the_batch_is_refused(tmp_path: Path) -> None:
    """Before the provider has said which VMs a launch made, a slot is free: for those whose tags say the batch."""
    async with world(tmp_path, cloud=Cloud(ManualClock(), traits=NAMELESS)) as w:
        w.cloud.lose_reply = True
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        assert not row.vm
        mine, ours, strange = w.cloud.vm_name(row.id), VmId("vm-ours"), VmId("vm-strange")
        facts = w.cloud.vms[mine]
        w.cloud.vms[ours] = replace(facts, id=ours, tags={**facts.tags, BATCH: "another"})
        w.cloud.vms[strange] = replace(facts, id=strange, tags={})
        for vm in (ours, strange):
            with pytest.raises(Denied, match="none of batch"):
                await w.fleet.admit(row.batch, vm, "thief", w.proof(row, vm))
        shown = w.cloud.vms.pop(mine)
        with pytest.raises(Unavailable, match="does not show"):
            await w.fleet.admit(row.batch, mine, "i", w.proof(row, mine))
        w.cloud.vms[mine] = shown
        assert (await w.fleet.admit(row.batch, mine, "i", w.proof(row, mine))).vm == mine


@pytest.mark.parametrize("error", [Transient, RateLimited, CredentialsRejected], ids=lambda error: error.__name__)
async def test_a_proof_that_can_not_be_checked_now_admits_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The VM is told to come again, which is no refusal."""
    async with launched(tmp_path) as (w, (row, *_)):

        async def fail(proof: str, challenge: Challenge) -> VmId:
            raise error("no key")

        monkeypatch.setattr(w.cloud, "identify", fail, raising=False)
        with pytest.raises(Unavailable, match="can't be checked now"):
            await w.register(row)
        assert registered(w) == refusals(w) == []
        monkeypatch.undo()
        await w.register(row)


async def test_a_profile_that_left_the_configuration_admits_nobody(tmp_path: Path) -> None:
    """Nobody is there who could tell its VMs apart, and none is believed for that."""
    async with launched(tmp_path) as (w, (row, *_)):
        w.context.settings = replace(w.context.settings, providers={})
        with pytest.raises(Unavailable, match="not configured"):
            await w.fleet.admit(row.batch, row.vm, "thief", "")
        assert registered(w) == []


async def test_a_driver_that_thinks_holds_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations wait for their drivers side by side, and each no longer than its time."""
    async with launched(tmp_path) as (w, (slow, quick, _)):
        answers = w.cloud.identify
        monkeypatch.setattr(identity, "TIMEOUT_S", 0.3)

        async def think(proof: str, challenge: Challenge) -> VmId:
            if slow.vm in proof:
                await asyncio.Event().wait()
            return await answers(proof, challenge)

        monkeypatch.setattr(w.cloud, "identify", think, raising=False)
        waiting = asyncio.create_task(w.register(slow))
        await asyncio.sleep(0)
        await w.register(quick)
        assert not waiting.done()
        with pytest.raises(Unavailable):
            await waiting
        assert [row.id for row in registered(w)] == [quick.id]


async def test_an_operator_hears_of_refusals_and_is_not_flooded(tmp_path: Path) -> None:
    """One event a minute for a batch, with the number of those in between."""
    async with launched(tmp_path) as (w, (victim, *_)):
        for _ in range(2):
            for _ in range(50):
                with pytest.raises(Denied):
                    await w.fleet.admit(victim.batch, victim.vm, "thief", "")
            w.clock.ms += identity.TELL_MS
        told = refusals(w)
        assert len(told) == 2
        assert "brought no proof" in told[0]
        assert "49 more" in told[1]


async def test_an_operator_hears_of_refusals_of_every_kind(tmp_path: Path) -> None:
    """Not those of proofs alone: who comes a second time, comes to a batch that is full or that is another's, or when
    its instance is over. Each batch's are told by themselves."""
    async with world(tmp_path, cloud=Cloud(ManualClock(), traits=UNPROVED), pool=THREE) as w:
        await w.passes()
        first, second, third = w.rows
        await w.fleet.admit(first.batch, first.vm, "i", "")
        await w.fleet.kill(third.id, "test")
        cases = {
            "the VM of instance": (first.batch, first.vm),
            "all 1 instances": (first.batch, VmId("vm-thief")),
            "belongs to batch": (second.batch, first.vm),
            "is terminating": (third.batch, third.vm),
            "no instance that lives": (BatchId("b00000000000"), VmId("vm-late")),
            "names no VM": (first.batch, VmId("")),
        }
        for said, (batch, vm) in cases.items():
            w.clock.ms += identity.TELL_MS
            with pytest.raises(Denied, match=said):
                await w.fleet.admit(batch, vm, "thief", "")
            assert said in refusals(w)[-1]
        assert len(refusals(w)) == len(cases)
        told = [event.instance for event in w.context.pending_events if event.action == "registration.refused"]
        assert told == [first.id, None, None, third.id, None, None]


async def test_without_proofs_a_launch_makes_one_vm_and_the_first_to_come_has_it(tmp_path: Path) -> None:
    """Whatever its driver could launch at once: a join token that is stolen is worth one place, not the batch."""
    async with world(tmp_path, cloud=Cloud(ManualClock(), traits=UNPROVED), pool=THREE) as w:
        await w.passes()
        assert [len(request.instances) for request in w.cloud.requests] == [1, 1, 1]
        assert len({row.batch for row in w.rows}) == 3
        first = w.rows[0]
        await w.fleet.admit(first.batch, first.vm, "i", "")
        with pytest.raises(Denied, match="has registered already"):
            await w.fleet.admit(first.batch, first.vm, "thief", "")


async def test_a_plan_for_more_than_can_be_told_apart_is_cut(tmp_path: Path) -> None:
    """A plan that was made for a driver with proofs, carried out by one without."""
    async with world(tmp_path, cloud=Cloud(ManualClock(), traits=UNPROVED)) as w:
        await w.passes()
        await w.loop._launcher.launch([Launch(POOL, offering(), 3, "test", ())])
        await w.context.calls.settle()
        assert [len(request.instances) for request in w.cloud.requests] == [1]


def test_the_traits_without_a_word_of_it_share_no_join_token() -> None:
    """A third party's driver from before the hook goes on, with one VM a launch."""
    assert Traits(max_batch=100).most_slots == 1
    assert Traits(max_batch=100, identity=Identity.NAMED).most_slots == 100
