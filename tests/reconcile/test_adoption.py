"""VMs that the store has no row for, or another profile or statestore has: whose they are, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.errors import Denied, InvalidInput, Unavailable
from cloud_dispatch.domain.ids import BatchId, InstanceId, ProfileName, VmId, instance_id, slot_of
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.provider.errors import Transient
from cloud_dispatch.provider.spi import Traits, Vm, VmState
from cloud_dispatch.reconcile import picture, restored
from cloud_dispatch.reconcile.observe import HERITAGE_FACT, UNTOLD
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.statestore.lineage import RESTORED_FACT
from tests.reconcile.fake import LOCAL, NAMED, NAMELESS, POOL, Cloud, ManualClock, World, world

S = InstanceState


async def test_a_store_without_the_rows_adopts_by_tags(tmp_path: Path) -> None:
    """VMs of this store that it does not know (a restored backup) come back with their pool, rate and behaviour."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        facts = tags.decode(w.cloud.vms[row.vm].tags)
        assert facts is not None
        batch = BatchId("lostbatch000")
        stray = replace(facts, batch=batch, behaviour=Behaviour.HOLD)
        for n in range(2):
            name = VmId(f"stray{n}")
            w.cloud.vms[name] = replace(w.cloud.vms[row.vm], id=name, slot=-1, tags=stray.encode())
        await w.passes()
        adopted = [r for r in w.rows if r.batch == batch]
        assert [(r.state, r.behaviour, r.rate) for r in adopted] == [(S.UNKNOWN, Behaviour.HOLD, row.rate)] * 2
        assert {r.vm for r in adopted} == {"stray0", "stray1"}


async def test_what_an_adopted_vm_is_is_known_at_once_where_its_profile_has_said_what_it_offers(tmp_path: Path) -> None:
    """Its agent may register the moment after, and be told what tasks may use; one that has done so before is the one
    that counts, and the others that were listed are adopted all the same."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        facts = tags.decode(w.cloud.vms[row.vm].tags)
        assert facts is not None
        for n in range(2):
            name, lost = VmId(f"lost{n}"), replace(facts, batch=BatchId(f"lostbatch00{n}"), slot=0)
            w.cloud.vms[name] = replace(w.cloud.vms[row.vm], id=name, slot=-1, tags=lost.encode())
        adopt, rows = w.store.adopt, list[Instance]()

        async def outrun(instance: Instance) -> None:
            rows.append(instance)
            if len(rows) == 1:
                await adopt(replace(instance, state=S.IDLE, reason="registered"))
            await adopt(instance)

        w.store.adopt = outrun  # type: ignore[method-assign]
        await w.passes()
        offered = (row.machine, row.vcpus, row.max_rate, row.extra_rate)
        assert [(r.machine, r.vcpus, r.max_rate, r.extra_rate) for r in rows] == [offered] * 2
        assert {(r.vm, r.reason == "registered") for r in w.rows} == {
            (row.vm, False), (rows[0].vm, True), (rows[1].vm, False)
        }  # fmt: skip
        assert [e.instance for e in await w.store.events() if e.action == "instance.adopted"] == [rows[1].id]


@pytest.mark.parametrize("registers", [False, True])
async def test_a_vm_of_an_instance_that_has_another_is_ended_unless_its_agent_registers(
    tmp_path: Path, registers: bool
) -> None:
    """Between the decision and the call, too."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        name, ask = VmId("stray"), w.store.instance
        w.cloud.vms[name] = replace(w.cloud.vms[row.vm], id=name, slot=-1)

        async def meanwhile(instance: InstanceId) -> Instance:
            found = await ask(instance)
            if registers and w.store.by_vm(name) is None:
                await w.store.adopt(replace(row, id=instance_id(row.batch, 1), vm=name))
            return found

        w.store.instance = meanwhile  # type: ignore[method-assign]
        await w.passes(2)
        assert w.cloud.terminated == ([] if registers else [name])


async def test_what_an_adopted_vm_is_is_known_when_its_profile_says_what_it_offers(tmp_path: Path) -> None:
    """It may be found before: then no task fits it yet, and nobody knows what it costs at most. Of the offerings of its
    type, that of its market and zone tells."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        told = replace(w.cloud.offers[0], minimum_ms=60_000, increment_ms=HOUR_MS)
        facts = tags.decode(w.cloud.vms[row.vm].tags)
        assert facts is not None
        lost = replace(facts, batch=BatchId("lostbatch000"), slot=0)
    offers = (replace(told, market=Market.SPOT, rate=Rate(1)), replace(told, zone="far", rate=Rate(2)), told)
    cloud = Cloud(ManualClock(), offers=offers)
    cloud.vms[VmId("late")] = Vm(VmId("late"), VmState.RUNNING, told.type.name, told.zone, lost.encode(), 1)
    answers = cloud.offerings

    async def mute() -> Sequence[Offering]:
        raise Transient("not now")

    cloud.offerings = mute  # type: ignore[method-assign]
    (tmp_path / "again").mkdir()
    async with world(tmp_path / "again", cloud=cloud) as w:
        await w.store.set_fact(HERITAGE_FACT, facts.store)
        await w.store.set_limits([Budget(EVERYTHING, Window.TOTAL, Amount(1 << 60))], {})
        await w.passes(2)
        (row,) = w.rows
        assert (row.vm, row.machine.capacity, row.max_rate) == ("late", Resources(), None)
        cloud.offerings = answers  # type: ignore[method-assign]
        await w.passes(4)
        (row,) = w.rows
        offered = told.machine(POOL, w.pool.labels, reserve=w.pool.reserve, max_tasks=0)
        assert (row.machine, row.vcpus) == (offered, told.type.vcpus)
        assert (row.max_rate, row.extra_rate) == (told.highest_rate, told.extra_rate)
        assert (row.minimum_ms, row.increment_ms) == (told.minimum_ms, told.increment_ms)
        (committed,) = w.store.commitments()
        assert (committed.minimum_ms, committed.increment_ms) == (told.minimum_ms, told.increment_ms)


def stray(w: World) -> Instance:
    """The VM `other` is there, of the same deployment and of the statestore `lost`; the one instance of ours."""
    (row,) = w.rows
    facts = tags.decode(w.cloud.vms[row.vm].tags)
    assert facts is not None
    lost = replace(facts, store="lost", batch=BatchId("lostbatch000"))
    w.cloud.vms[VmId("other")] = replace(w.cloud.vms[row.vm], id=VmId("other"), tags=lost.encode())
    return row


async def test_another_stores_vms_are_reported_and_left_alone(tmp_path: Path) -> None:
    """A copied control VM must not end the original's machines."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        facts = tags.decode(w.cloud.vms[row.vm].tags)
        assert facts is not None
        w.cloud.vms[VmId("other")] = replace(
            w.cloud.vms[row.vm], id=VmId("other"), tags=replace(facts, store="another").encode()
        )
        await w.passes(5)
        assert w.cloud.terminated == []
        assert any(e.action == "instance.foreign" for e in await w.store.events())


async def test_another_stores_vms_count_against_caps(tmp_path: Path) -> None:
    """Also where one listing does not show them, as long as the provider's may be behind; not once they are gone, or
    taken over."""
    cloud = Cloud(ManualClock(), traits=replace(NAMED, consistency_ms=10_000))
    async with world(tmp_path, cloud=cloud, caps=Caps(instances=2)) as w:
        await w.booted()
        stray(w)
        await w.passes()

        def counted() -> list[int]:
            return [one.count for one in picture.take(w.context, w.loop._sources).foreign]

        assert counted() == [1]
        w.cloud.hidden.add(VmId("other"))
        await w.passes()
        assert counted() == [1]
        await w.submit(1, shape=Shape(Resources(4_000, 1)))
        await w.passes()
        assert len(w.rows) == 1
        w.clock.ms += 10_000
        await w.passes()
        assert counted() == []
        w.cloud.hidden.clear()
        await w.passes()
        assert counted() == [1]
        await w.fleet.adopt("lost")
        await w.passes(2)
        assert (len(w.rows), counted()) == (2, [])


def waits(w: World) -> str:
    """Why nothing is launched at the one profile, by what the store does not know."""
    return "; ".join(block.reason for block in restored.blocked(w.context, w.clock.now()))


async def test_nothing_is_launched_before_the_others_are_known(tmp_path: Path) -> None:
    """By a store that has made nothing: another one's VMs may be there. An incomplete listing is waited for a minute,
    and who does not answer for a few seconds."""
    async with world(tmp_path) as w:
        assert "the statestore is new" in waits(w)
        w.cloud.silent = True
        await w.loop.one_pass()
        await w.context.calls.settle()
        w.clock.ms += 59_999
        assert "the statestore is new" in waits(w)
        w.clock.ms += 1
        assert waits(w) == ""
    async with world(tmp_path / "other") as w:
        await w.submit(1)
        await w.passes()
        assert (len(w.rows), waits(w)) == (1, "")
        await w.restart()
        w.context.profiles.clear()
        assert "it is not known yet whether" in waits(w)
        w.clock.ms += 4_000
        assert waits(w) == ""


async def test_who_is_seen_may_not_be_alone(tmp_path: Path) -> None:
    """Where another statestore has VMs, a provider's listings have the time that they may be behind to show all."""
    cloud = Cloud(ManualClock(), traits=replace(NAMED, consistency_ms=30_000))
    async with world(tmp_path, cloud=cloud) as w:
        await w.booted()
        stray(w)
        await w.passes()
        said = "VMs of another statestore are or were there, and local may show more only after 30s"
        assert waits(w) == said
        await w.fleet.adopt("lost")
        await w.passes(2)
        assert (w.context.foreign, waits(w)) == ({}, said)
        w.clock.ms += 30_000
        await w.passes()
        assert waits(w) == ""


async def test_an_operator_can_take_over_another_stores_vms(tmp_path: Path) -> None:
    """After a lost database: adopted, and tagged as this store's, whatever became of the first calls."""
    async with world(tmp_path) as w:
        await w.booted()
        row = stray(w)
        await w.passes(2)
        assert len(w.rows) == 1
        assert await w.fleet.adopt("typo") == {"lost": 1}
        assert await w.fleet.adopt("lost") == {"lost": 1}
        answers = w.cloud.tag

        async def deaf(vms: Sequence[VmId], wanted: Mapping[str, str]) -> frozenset[VmId]:
            raise Transient("not now")

        w.cloud.tag = deaf  # type: ignore[method-assign]
        await w.passes(3)
        w.cloud.tag = answers  # type: ignore[method-assign]
        await w.passes(2)
        assert {r.vm for r in w.rows} == {row.vm, "other"}
        now = tags.decode(w.cloud.vms[VmId("other")].tags)
        assert now is not None
        assert now.store == w.store.id
        with pytest.raises(InvalidInput):
            await w.fleet.adopt("not an id")


@pytest.mark.parametrize("traits", [NAMED, NAMELESS])
async def test_profiles_that_list_the_same_vms_leave_each_others_alone(tmp_path: Path, traits: Traits) -> None:
    """Two profiles of one account and region, for other subnets or rights, say: what one has launched, or is about to,
    the other sees too. What neither knows is adopted once."""
    other = ProfileName("other")
    cloud = Cloud(ManualClock(), traits=traits)
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=3)) as w:
        w.context.settings = replace(w.context.settings, providers={LOCAL: cloud, other: cloud})
        w.cloud.lose_reply = True  # found by a listing: whose comes first?
        await w.passes(1)
        w.cloud.lose_reply = False
        await w.passes(6)
        assert (len(w.rows), len(cloud.vms), cloud.terminated) == (3, 3, [])
        assert {row.profile for row in w.rows} == {LOCAL}
        facts = tags.decode(cloud.vms[w.rows[0].vm].tags)
        assert facts is not None
        lost = replace(facts, batch=BatchId("lostbatch000"), slot=0)
        cloud.vms[VmId("vm-lost")] = replace(cloud.vms[w.rows[0].vm], id=VmId("vm-lost"), slot=-1, tags=lost.encode())
        await w.passes(4)
        assert sum(row.vm == "vm-lost" for row in w.rows) == 1
        assert cloud.terminated == []


async def test_a_named_vm_is_adopted_as_what_its_name_says(tmp_path: Path) -> None:
    """Its agent knows itself by that name: the batch's VMs may be listed in any order, the first may be gone."""
    cloud = Cloud(ManualClock(), traits=NAMED)
    async with world(tmp_path / "old", cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=3)) as w:
        await w.passes(2)
        names = {row.vm: row.id for row in w.rows}
        store = w.store.id
    first = min(cloud.vms)
    cloud.vms = dict(reversed([item for item in cloud.vms.items() if item[0] != first]))
    async with world(tmp_path / "new", cloud=cloud) as w:
        await w.fleet.adopt(store)
        await w.passes(2)
        assert {row.vm: row.id for row in w.rows} == {vm: own for vm, own in names.items() if vm != first}
        assert len(w.rows) == 2


async def test_a_vm_without_a_name_is_tagged_with_its_slot_and_adopted_by_it(tmp_path: Path) -> None:
    """Its agent speaks as the slot that it was bound to: a store that knows nothing must not take it for another."""
    cloud = Cloud(ManualClock(), traits=NAMELESS)
    async with world(tmp_path / "old", cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=3)) as w:
        await w.passes(3)
        names = {row.vm: row.id for row in w.rows}
        store = w.store.id
    first = min(cloud.vms)
    cloud.vms = dict(reversed([item for item in cloud.vms.items() if item[0] != first]))
    untagged = next(iter(cloud.vms))
    facts = {key: value for key, value in cloud.vms[untagged].tags.items() if key != tags.SLOT}
    cloud.vms[untagged] = replace(cloud.vms[untagged], tags=facts)
    async with world(tmp_path / "new", cloud=cloud) as w:
        await w.fleet.adopt(store)
        await w.passes(2)
        (known,) = (vm for vm in names if vm not in (first, untagged))
        assert {row.vm: row.id for row in w.rows}[known] == names[known]
        assert {row.vm for row in w.rows} == {known, untagged}


async def test_a_vm_without_a_name_is_tagged_with_its_slot_before_anybody_lists_it(tmp_path: Path) -> None:
    """Its agent may register, and the statestore come back as it was before the launch, before the next listing."""
    cloud = Cloud(ManualClock(), traits=NAMELESS)
    async with world(tmp_path, cloud=cloud, **UNLISTED) as w:
        await w.passes(5)
        assert slots_worn(cloud) == {row.vm: str(slot_of(row.id)[1]) for row in w.rows}
        assert len(cloud.tagged) == 3, "once"


async def test_after_a_start_none_is_told_anew(tmp_path: Path) -> None:
    """A listing would show it if they did not know: a fleet of thousands is not tagged at each start."""
    cloud = Cloud(ManualClock(), traits=NAMELESS)
    async with world(tmp_path, cloud=cloud, **UNLISTED) as w:
        await w.passes(2)
        await w.restart()
        await w.passes(3)
        assert (len(w.rows), len(slots_worn(cloud)), len(cloud.tagged)) == (3, 3, 3)


async def test_what_was_in_doubt_at_a_start_is_tagged_once_it_is_found(tmp_path: Path) -> None:
    """The listing that finds it shows a VM without a slot: the next one would tell, in an hour."""
    cloud = Cloud(ManualClock(), traits=NAMELESS, lose_reply=True)
    async with world(tmp_path, cloud=cloud, **UNLISTED) as w:
        await w.passes(1)
        await w.restart()
        await w.passes(2)
        assert (len(w.rows), len(slots_worn(cloud)), len(cloud.tagged)) == (3, 3, 3)


#: Three VMs, and one listing an hour: before they are launched, and after a start.
UNLISTED: Mapping[str, object] = {
    "pool": Pool(POOL, (LOCAL,), minimum=3),
    "timing": Timing(list_interval_ms=3_600_000),
}


def slots_worn(cloud: Cloud) -> dict[VmId, str]:
    return {vm.id: vm.tags[tags.SLOT] for vm in cloud.vms.values() if tags.SLOT in vm.tags}


async def test_who_can_not_be_told_apart_becomes_one_that_no_agent_is(tmp_path: Path) -> None:
    """Found by the simulator: a store came back from before a launch, and two of its VMs changed places. An agent that
    had registered as one of them is none of the adopted, and ends itself."""
    cloud = Cloud(ManualClock(), traits=NAMELESS)
    async with world(tmp_path / "old", cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=3)) as w:
        await w.passes(1)
        names, store = {row.vm for row in w.rows}, w.store.id
    async with world(tmp_path / "new", cloud=cloud) as w:
        await w.fleet.adopt(store)
        await w.passes(4)
        assert {row.vm for row in w.rows} == names
        assert sorted(slot_of(row.id)[1] for row in w.rows) == [UNTOLD, UNTOLD + 1, UNTOLD + 2]
        assert slots_worn(cloud) == {row.vm: str(slot_of(row.id)[1]) for row in w.rows}
        assert cloud.terminated == []


async def test_who_was_adopted_without_a_slot_is_adopted_once_more(tmp_path: Path) -> None:
    """Found by the simulator: the store was lost twice. The slots that their tags have by now are beyond those of any
    launch."""
    cloud = Cloud(ManualClock(), traits=NAMELESS)
    async with world(tmp_path / "old", cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=3)) as w:
        await w.passes(1)
        store, names = w.store.id, {row.vm for row in w.rows}
    for folder in ("new", "newer"):
        async with world(tmp_path / folder, cloud=cloud) as w:
            await w.store.set_fact(HERITAGE_FACT, store)
            await w.passes(4)
            assert {row.vm for row in w.rows} == names
            assert slots_worn(cloud) == {row.vm: str(slot_of(row.id)[1]) for row in w.rows}
    assert cloud.terminated == []


async def test_a_slot_of_the_copy_is_not_given_to_whoever_comes_first(tmp_path: Path) -> None:
    """Neither by a listing nor to an agent that registers, unless the launch had this one alone. The slots are given
    up, the VMs are adopted, and register as what they are now."""
    cloud = Cloud(ManualClock(), traits=NAMELESS, lose_reply=True)
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=2), caps=Caps(instances=2)) as w:
        await w.passes(1)
        before = w.rows
        w.clock.ms += 1
        await w.store.set_fact(RESTORED_FACT, str(w.clock.now()))
        await w.restart()
        with pytest.raises(Unavailable, match="restored"):
            await w.register(before[0])
        await w.passes(1)
        assert {row.id for row in w.rows if row.vm} == {
            instance_id(before[0].batch, UNTOLD), instance_id(before[0].batch, UNTOLD + 1)
        }  # fmt: skip
        await w.passes(30)
        assert len(w.rows) == 2
        assert {(await w.register(row)).vm for row in w.rows} == set(cloud.vms)
        assert cloud.terminated == []


async def test_a_stranger_is_denied_after_a_restore_where_names_tell(tmp_path: Path) -> None:
    """A name that is none of the launch's will never be: an operator hears of it."""
    cloud = Cloud(ManualClock(), traits=NAMED, lose_reply=True)
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=2), caps=Caps(instances=2)) as w:
        await w.passes(1)
        w.clock.ms += 1
        await w.store.set_fact(RESTORED_FACT, str(w.clock.now()))
        await w.restart()
        with pytest.raises(Denied, match="none of them"):
            await w.fleet.admit(w.rows[0].batch, VmId("stranger"), "i", "signed: stranger 0 ")


async def test_the_one_vm_of_a_launch_can_be_told(tmp_path: Path) -> None:
    """It wears its slot from the start, and is bound to it whatever copy comes back."""
    cloud = Cloud(ManualClock(), traits=NAMELESS, lose_reply=True)
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=1), caps=Caps(instances=1)) as w:
        await w.passes(1)
        (row,) = w.rows
        assert slots_worn(cloud) == {cloud.vm_name(row.id): "0"}
        w.clock.ms += 1
        await w.store.set_fact(RESTORED_FACT, str(w.clock.now()))
        await w.restart()
        assert (await w.register(row)).id == row.id
        await w.passes(2)
        assert [(one.id, one.vm) for one in w.rows] == [(row.id, cloud.vm_name(row.id))]
        assert cloud.tagged == []
