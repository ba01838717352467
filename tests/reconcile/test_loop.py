"""The loop around a cloud in memory: intents, refusals, doubt, absence, adoption, ends. All else is the real thing."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.errors import Conflict, InvalidInput
from cloud_dispatch.domain.ids import TaskId, VmId
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, EndRules, Pool, TypeFilter
from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.planner.plan import Launch
from cloud_dispatch.ports.fleet import Ended, Heard
from cloud_dispatch.ports.store import SyncCall, TaskFilter
from cloud_dispatch.provider.errors import CapacityUnavailable, Transient
from cloud_dispatch.provider.spi import Vm, VmState
from cloud_dispatch.reconcile.launch import Launcher
from cloud_dispatch.reconcile.spend import Spending
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, NAMED, POOL, Cloud, ManualClock, World, world

S = InstanceState


async def hear(w: World, said: Heard) -> None:
    """An agent's words, and whatever they make the dispatcher write."""
    news = w.fleet.heard(said)
    if news is not None:
        await news


async def test_demand_becomes_vms_with_complete_tags(tmp_path: Path) -> None:
    """The tags alone are enough to adopt the VM by."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        assert row.state is S.BOOTING
        (vm,) = w.cloud.vms.values()
        facts = tags.decode(vm.tags)
        assert facts is not None
        assert (facts.deployment, facts.store, facts.batch, facts.pool) == ("lab", w.store.id, row.batch, POOL)
        assert facts.ends_ms == row.ends_ms
        await w.passes(5)
        assert len(w.cloud.requests) == 1, "booting capacity was launched again"


async def test_a_lost_reply_is_found_by_the_listing_and_never_launched_again(tmp_path: Path) -> None:
    """The VM exists, the caller never heard: in doubt, then bound."""
    async with world(tmp_path) as w:
        w.cloud.lose_reply = True
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        assert row.state is S.LAUNCHING
        await w.passes(3)
        (row,) = w.rows
        assert (row.state, len(w.cloud.requests), len(w.cloud.vms)) == (S.BOOTING, 1, 1)


@pytest.mark.parametrize("named", [True, False])
async def test_a_lost_request_keeps_its_slot_until_absence_is_proved(tmp_path: Path, named: bool) -> None:
    """Two complete listings after the horizon and a get; only then is the slot free and the work launched again."""
    cloud = Cloud(ManualClock(), traits=replace(NAMED, named_slots=named, consistency_ms=5_000))
    async with world(tmp_path, cloud=cloud, caps=Caps(instances=1)) as w:
        cloud.lose_request = True
        await w.submit(1)
        await w.passes(2)
        cloud.lose_request = False
        await w.passes(3)
        assert [row.state for row in w.rows] == [S.LAUNCHING], "the slot was given up without proof"
        assert len(cloud.requests) == 1
        await w.passes(8)
        assert len(cloud.requests) == 2
        assert [row.state for row in w.rows] == [S.BOOTING]


async def test_a_vm_that_a_list_misses_once_is_not_declared_gone(tmp_path: Path) -> None:
    """One listing without it proves nothing; nor do many, while a get finds it."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        w.cloud.hidden.add(row.vm)
        await w.passes(6)
        assert [r.state for r in w.rows] == [S.IDLE]
        w.cloud.hidden.clear()
        del w.cloud.vms[row.vm]
        await w.passes(6)
        assert row.id not in w.store.instances()
        gone = await w.store.instance(row.id)
        assert (gone.state, gone.cause) == (S.GONE, "lost")


class Mute(Cloud):
    """It does not say of one VM whether that is there."""

    async def get(self, vm: VmId) -> Vm:
        raise Transient("no answer")


async def test_a_get_without_an_answer_proves_nothing(tmp_path: Path) -> None:
    """However often listings lack the VM."""
    async with world(tmp_path, cloud=Mute(ManualClock())) as w:
        await w.booted()
        (row,) = w.rows
        w.cloud.hidden.add(row.vm)
        await w.passes(12)
        assert [r.state for r in w.rows] == [S.IDLE]


async def test_a_vm_that_a_listing_binds_began_when_its_cloud_made_it(tmp_path: Path) -> None:
    """Not when somebody looked: what it has billed by then counts."""
    async with world(tmp_path) as w:
        w.cloud.lose_reply = True
        await w.submit(1)
        began_ms = w.clock.ms
        await w.passes(1, step_ms=60_000)
        await w.passes(1)
        (row,) = w.rows
        assert (row.state, row.launched_ms) == (S.BOOTING, began_ms)


async def test_claims_of_a_lost_vm_go_back(tmp_path: Path) -> None:
    """An unstarted claim costs no attempt and is claimable again."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        done = await w.store.sync(SyncCall(row.id, 1, want=1))
        assert len(done.claims) == 1
        del w.cloud.vms[row.vm]
        await w.passes(6)
        task = await w.store.task(done.claims[0].task)
        assert (task.state, task.attempts) == (TaskState.QUEUED, 0)


async def test_a_provider_that_cannot_be_listed_gets_no_launches_and_no_ends(tmp_path: Path) -> None:
    """It falls silent: nothing is launched there, nothing declared missing, until it answers."""
    async with world(tmp_path) as w:
        await w.booted()
        w.cloud.silent = True
        await w.submit(100)
        await w.passes(10)
        assert len(w.cloud.requests) == 1
        assert len(w.rows) == 1
        w.cloud.silent = False
        await w.passes(3)
        assert len(w.cloud.requests) > 1


async def test_termination_is_repeated_until_the_provider_says_gone(tmp_path: Path) -> None:
    """Three ignored terminates, a fourth that works; the row is there all the while."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        w.cloud.stubborn = 3
        await w.fleet.kill(row.id, "test")
        for _ in range(3):
            await w.passes(1, step_ms=10_000)
            assert [r.state for r in w.rows if r.id == row.id] == [S.TERMINATING]
        await w.passes(2, step_ms=30_000)
        assert row.id not in w.store.instances()
        assert len([vm for vm in w.cloud.terminated if vm == row.vm]) >= 4


async def test_a_restart_finds_everything_again(tmp_path: Path) -> None:
    """Serving instances are unknown until heard, doubt is kept, intents that were never sent are withdrawn; nothing is
    launched or ended meanwhile."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        await w.restart()
        assert [r.state for r in w.rows] == [S.UNKNOWN]
        await w.passes(3)
        assert (len(w.cloud.requests), len(w.rows)) == (1, 1)
        await hear(w, Heard(row.id, "i", "idle"))
        assert [r.state for r in w.rows] == [S.IDLE]


async def test_instances_whose_pool_or_type_left_the_configuration_drain(tmp_path: Path) -> None:
    """A pool that is gone, a type that is denied now: what runs there finishes, nothing new is launched for it."""
    for change in ("pool", "type"):
        folder = tmp_path / change
        folder.mkdir()
        async with world(folder) as w:
            await w.booted()
            (row,) = w.rows
            pool = w.context.settings.pools[POOL]
            pools = {} if change == "pool" else {POOL: replace(pool, types=TypeFilter(deny=("t",)))}
            w.context.settings = replace(w.context.settings, pools=pools)
            await w.passes()
            drained = w.store.instances()[row.id]
            assert (drained.state, drained.cause) == (S.DRAINING, "stale")
            assert change in drained.reason


async def test_a_vm_whose_instance_is_gone_is_ended(tmp_path: Path) -> None:
    """A zombie: declared gone by a provider that was wrong, seen again, ended."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        vm = w.cloud.vms.pop(row.vm)
        await w.passes(6)
        w.cloud.vms[vm.id] = vm
        await w.passes(2)
        assert vm.id not in w.cloud.vms


async def test_a_stopped_vm_is_deleted(tmp_path: Path) -> None:
    """An operating system that shut down leaves a VM that still bills for its disk."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        w.cloud.vms[row.vm] = replace(w.cloud.vms[row.vm], state=VmState.STOPPED)
        await w.passes(4)
        assert row.vm not in w.cloud.vms


async def test_a_boot_that_never_registers_is_ended_and_not_repeated_at_once(tmp_path: Path) -> None:
    """The boot deadline ends the VM; the offering is left alone for a while."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), boot_deadline_ms=5_000)) as w:
        await w.submit(1)
        await w.passes(9)
        assert len(w.cloud.requests) == 1
        assert w.cloud.vms == {}
        past = await w.store.past_instances()
        assert [row.cause for row in past] == ["boot-deadline"]
        assert "no such image" in past[0].reason


async def test_a_boot_whose_time_ran_out_while_no_dispatcher_lived_may_still_register(tmp_path: Path) -> None:
    """Its agent asks every few seconds, and could not register with nobody: to end it at the start, before it can,
    would rent another for what is there. Who does not ask then is ended all the same."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), boot_deadline_ms=60_000, minimum=2)) as w:
        await w.passes()
        first, second = w.rows
        w.clock.ms += 600_000
        await w.restart()
        await w.passes(10)
        assert [row.state for row in w.rows] == [S.BOOTING, S.BOOTING]
        await w.register(first)
        await w.passes(14)
        rows = w.store.instances()
        assert (rows[first.id].state, second.id in rows) == (S.IDLE, False)
        assert [row.cause for row in await w.store.past_instances()] == ["boot-deadline"]


async def test_nor_is_one_late_whose_launch_was_not_answered_when_the_dispatcher_died(tmp_path: Path) -> None:
    """It is bound by the listing that finds it, long after its time to boot, and registers in a moment."""
    cloud = Cloud(ManualClock(), lose_reply=True)
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), boot_deadline_ms=60_000)) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        assert row.state is S.LAUNCHING
        w.clock.ms += 100_000
        await w.restart()
        await w.passes(3)
        assert w.store.instances()[row.id].state is S.BOOTING


async def test_a_vm_that_stops_while_booting_is_no_reason_to_try_again_at_once(tmp_path: Path) -> None:
    """A template that can't work would otherwise launch and pay for VMs as fast as they end."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        w.cloud.vms[row.vm] = replace(w.cloud.vms[row.vm], state=VmState.STOPPED)
        await w.passes(20)
        assert len(w.cloud.requests) == 1
        gone = await w.store.instance(row.id)
        assert (gone.state, gone.cause) == (S.GONE, "powered-off")
        assert "no such image" in gone.reason
        assert any(e.action == "instance.console" for e in await w.store.events(instance=row.id))


@pytest.mark.parametrize(
    ("end", "cause"), [(None, "lost"), (VmState.GONE, "vanished")], ids=["missing", "shown as gone"]
)
async def test_nor_is_one_that_is_gone_while_it_boots(tmp_path: Path, end: VmState | None, cause: str) -> None:
    """A boot script that switches off a VM which the provider deletes then, or somebody who deletes each of ours."""
    async with world(tmp_path) as w:
        await w.submit(1)
        launched = []
        for _ in range(200):
            await w.passes(1)
            for vm in list(w.cloud.vms.values()):
                if vm.state is not VmState.GONE:
                    launched.append(w.clock.ms)
                    if end is None:
                        del w.cloud.vms[vm.id]
                    else:
                        w.cloud.vms[vm.id] = replace(vm, state=end)
        assert {row.cause for row in await w.store.past_instances()} == {cause}
        waits = [later - earlier for earlier, later in itertools.pairwise(launched)]
        assert waits[0] >= 30_000
        assert waits[1] >= 60_000


async def test_silence_fails_an_instance_after_its_lease(tmp_path: Path) -> None:
    """Out of contact first, failed and ended later."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        await w.passes(5, step_ms=10_000)
        assert [r.state for r in w.rows if r.id == row.id] == [S.OUT_OF_CONTACT]
        await w.passes(8, step_ms=10_000)
        gone = await w.store.instance(row.id)
        assert gone.cause == "out-of-contact"
        assert row.vm not in w.cloud.vms


async def test_idle_instances_are_drained_fenced_and_ended(tmp_path: Path) -> None:
    """Drain is asked with a token, confirmed with the same token, then the VM is deleted."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), end=EndRules(idle_ms=2_000))) as w:
        await w.booted()
        (row,) = w.rows
        await w.store.cancel(TaskFilter(states=frozenset({TaskState.QUEUED})))
        await w.passes(4)
        directive = w.fleet.directive(row.id)
        assert directive.drain
        assert not directive.claiming
        await hear(w, Heard(row.id, "i", "drained", drain_token=directive.drain_token - 1))
        assert w.store.instances()[row.id].state is S.DRAINING
        await hear(w, Heard(row.id, "i", "drained", drain_token=directive.drain_token))
        await w.passes(3)
        assert row.vm not in w.cloud.vms
        assert (await w.store.instance(row.id)).cause == "idle"


async def test_what_an_operator_holds_is_given_no_work(tmp_path: Path) -> None:
    """Its agent is told so, also where a drain was taken back before; let go, it works on."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        for _ in range(2):
            await w.fleet.hold(row.id, "to look at it")
            directive = w.fleet.directive(row.id)
            assert (directive.claiming, directive.hold, directive.end) == (False, True, False)
            await w.fleet.resume(row.id, "")
            directive = w.fleet.directive(row.id)
            assert (directive.claiming, directive.hold) == (True, False)
            await w.fleet.drain(row.id, "")
            assert not w.fleet.directive(row.id).claiming
            await w.fleet.resume(row.id, "")


async def test_a_drain_can_be_taken_back_until_it_is_confirmed(tmp_path: Path) -> None:
    """Drained, then wanted again."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        await w.fleet.drain(row.id, "")
        assert (await w.fleet.resume(row.id, "")).reason == "resumed by an operator"  # not why it left any more
        assert w.fleet.directive(row.id).claiming
        await w.fleet.drain(row.id, "")
        token = w.fleet.directive(row.id).drain_token
        await hear(w, Heard(row.id, "i", "drained", drain_token=token))
        with pytest.raises(Conflict):
            await w.fleet.resume(row.id, "")


async def test_behaviour_is_kept_as_a_tag(tmp_path: Path) -> None:
    """So that a store that lost its rows knows it; the row beats the tag."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        await w.fleet.hold(row.id, "look")
        await w.passes(2)
        facts = tags.decode(w.cloud.vms[row.vm].tags)
        assert facts is not None
        assert facts.behaviour is Behaviour.HOLD


async def test_a_hold_of_what_is_over_can_be_taken_back(tmp_path: Path) -> None:
    """Its agent ended while it was held: it stays to be looked at, and goes once it is let go."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        await w.fleet.hold(row.id, "look")
        await hear(w, Heard(row.id, "i", "drained", ending="lifetime"))
        await w.passes(3)
        assert [r.state for r in w.rows if r.id == row.id] == [S.DRAINED]
        await w.fleet.resume(row.id, "seen")
        await w.passes(3)
        assert not [r for r in w.rows if r.id == row.id]


async def test_caps_hold_whatever_is_in_flight(tmp_path: Path) -> None:
    """Live, pending and doubtful ones all count (P4)."""
    async with world(tmp_path, caps=Caps(instances=3)) as w:
        w.cloud.lose_reply = True
        await w.submit(1_000)
        for _ in range(10):
            await w.passes()
            assert len(w.rows) <= 3
            assert len(w.cloud.vms) <= 3


async def test_every_action_has_a_reason_and_a_stored_plan(tmp_path: Path) -> None:
    """P6: explain answers from the record."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        why = await w.fleet.explain_instance(row.id)
        assert any("launched" in reason for reason in why["reasons"])
        assert len(await w.store.plans()) == 1


async def test_a_machine_that_can_start_nothing_is_drained(tmp_path: Path) -> None:
    """Three in a row, with no success between; it would fail the whole queue otherwise."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        one, two, three, four, five = map(TaskId, range(1, 6))
        cannot = Cause.CANNOT_START
        for ended in (((one, cannot), (two, cannot)), ((one, Cause.EXIT_CODE),), ((three, cannot), (four, cannot))):
            await hear(w, Heard(row.id, "i", "idle", ended=tuple(Ended(*one) for one in ended)))
            assert w.fleet.directive(row.id).claiming
        await hear(w, Heard(row.id, "i", "idle", ended=(Ended(five, cannot),)))
        assert w.fleet.directive(row.id).drain
        assert w.store.instances()[row.id].cause == "cannot-start"


async def test_a_launch_that_cannot_be_prepared_gives_its_slots_back(tmp_path: Path) -> None:
    """A template that does not render: no call was made, so nothing is in doubt, and it is not tried at once again."""
    async with world(tmp_path) as w:

        def broken(*_: object) -> str:
            raise InvalidInput("no such variable", place="agent.yaml.j2:3")

        w.context.settings = replace(w.context.settings, user_data=broken)
        await w.submit(1)
        await w.passes(5)
        assert w.rows == []
        past = await w.store.past_instances()
        assert len(past) == 1
        assert "agent.yaml.j2:3" in past[0].reason


async def test_launches_prepared_at_the_same_moment_do_not_share_their_room(tmp_path: Path) -> None:
    """As when several refusals fail over at once, each while the others' commits are under way: the cap holds."""
    async with world(tmp_path, caps=Caps(instances=1)) as w:
        await w.passes()
        launcher = Launcher(w.context, Spending(w.context))
        await asyncio.gather(*(launcher.launch([Launch(POOL, offering(), 1, "test")]) for _ in range(4)))
        assert len(w.rows) == 1


@pytest.mark.parametrize("market", Market)
async def test_user_data_are_made_for_the_market_of_the_launch(tmp_path: Path, market: Market) -> None:
    """A spot VM listens for notices; one market's refusal may lead to the other."""
    other = next(each for each in Market if each is not market)
    refused, taken = offering(market=other), offering("z", 2000, market=market)
    cloud = Cloud(ManualClock(), offers=(refused, taken), refusals={refused.key: CapacityUnavailable("none left")})
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), markets=tuple(Market))) as w:
        w.context.settings = replace(w.context.settings, user_data=lambda *said: str(said[-1]))
        await w.submit(1)
        await w.passes(2)
        assert [request.user_data for request in cloud.requests] == [str(r is Market.SPOT) for r in (other, market)]
