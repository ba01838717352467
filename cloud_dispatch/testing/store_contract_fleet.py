"""What the port promises about instances, plans, events, targets, facts and the care of a store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict, IllegalTransition, InvalidInput, NotFound, StoreUnavailable
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, TaskId, VmId
from cloud_dispatch.domain.instance import Behaviour, InstanceEvent, InstanceState
from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.ports.store import InstanceChange, PlanEntry, Retention, Store, StoredPlan, Target, TaskFilter
from cloud_dispatch.testing.store_builders import (
    START_MS,
    Agent,
    ManualClock,
    OpenStore,
    instance,
    intent,
    result,
    spec,
)

_S, _E = InstanceState, InstanceEvent
BATCH = InstanceId("batch-0")


class FleetContract:
    """Tests of everything but tasks and claims; see `StoreContract`."""

    async def test_an_intent_is_kept_with_its_slots(self, store: Store) -> None:
        """Slots are instances from the intent on, before any VM; the same batch is not intended twice."""
        slots = [instance(slot=slot, state=_S.INTENDED) for slot in range(2)]
        await store.intend(intent(slots=2), slots)
        assert store.instances() == {slot.id: slot for slot in slots}
        with pytest.raises(Conflict):
            await store.intend(intent(slots=2), slots)

    async def test_an_intent_has_exactly_its_slots(self, store: Store) -> None:
        """A wrong number, another batch's slot or one that is further on: refused, and nothing is kept."""
        good = instance(state=_S.INTENDED)
        for slots in ([], [good, good], [instance("other", state=_S.INTENDED)], [instance(state=_S.LAUNCHING)]):
            with pytest.raises(InvalidInput):
                await store.intend(intent(), slots)
        assert store.instances() == {}

    async def test_vms_of_a_launch_are_known_when_their_instances_are_gone(
        self, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """As long as others of it live, also after a start where one of those has no VM yet."""
        store = await open_store(clock)
        one, two, three = slots = [instance(slot=slot, state=_S.INTENDED) for slot in range(3)]
        await store.intend(intent(slots=3), slots)
        await store.change([InstanceChange(slot.id, _E.LAUNCH) for slot in slots])
        await store.change([InstanceChange(one.id, _E.BOUND, {"vm": VmId("vm-1")})])
        assert not store.parted(one.batch)
        await store.change([InstanceChange(one.id, _E.GONE), InstanceChange(two.id, _E.REFUSED)])
        assert set(store.parted(one.batch)) == {"vm-1"}
        assert await store.check() == []
        await store.close()
        store = await open_store(clock)
        assert set(store.parted(one.batch)) == {"vm-1"}
        assert not store.parted(BatchId("other"))
        await store.change([InstanceChange(three.id, _E.REFUSED)])
        assert not store.parted(one.batch)

    async def test_a_change_is_refused_where_an_operator_holds_the_instance(self, store: Store) -> None:
        """By then, whatever was known when it was decided; unless it says nothing of that."""
        await store.adopt(own := instance())
        await store.change([InstanceChange(own.id, fields={"behaviour": Behaviour.HOLD})])
        with pytest.raises(Conflict, match="is held"):
            await store.change([InstanceChange(own.id, _E.TERMINATE, unless_held=True)])
        assert store.instances()[own.id].state is _S.IDLE
        (ended,) = await store.change([InstanceChange(own.id, _E.TERMINATE)])
        assert ended.state is _S.TERMINATING

    async def test_a_life_goes_through_the_table(self, store: Store, clock: ManualClock) -> None:
        """Events move an instance, fields go with them, and a gone one is among the past."""
        await store.intend(intent(), [instance(state=_S.INTENDED)])
        await store.change([InstanceChange(BATCH, _E.LAUNCH)])
        (booting,) = await store.change(
            [InstanceChange(BATCH, _E.BOUND, {"vm": VmId("vm-1"), "launched_ms": START_MS})]
        )
        assert (booting.state, booting.vm, booting.launched_ms) == (_S.BOOTING, "vm-1", START_MS)
        assert store.by_vm(VmId("vm-1")) == booting
        (idle,) = await store.change([InstanceChange(BATCH, _E.REGISTERED, {"registered_ms": START_MS + 1})])
        assert await store.instance(BATCH) == idle == store.instances()[BATCH] == store.living(BATCH)
        clock.now_ms += 50
        both = await store.change(
            [InstanceChange(BATCH, _E.TERMINATE, {"cause": "idle"}), InstanceChange(BATCH, _E.GONE)]
        )
        assert [own.state for own in both] == [_S.GONE, _S.GONE]
        assert store.instances() == {}
        assert store.by_vm(VmId("vm-1")) is None
        assert store.living(BATCH) is None
        (gone,) = await store.past_instances()
        assert (gone.state, gone.cause, gone.ended_ms) == (_S.GONE, "idle", START_MS + 50)
        assert await store.instance(BATCH) == gone

    async def test_an_arrow_that_the_table_lacks_is_refused(self, store: Store) -> None:
        """IllegalTransition for a wrong event, also on what is gone; nothing is changed."""
        await store.adopt(instance())
        with pytest.raises(IllegalTransition):
            await store.change([InstanceChange(BATCH, _E.BOUND, {"reason": "x"})])
        assert store.instances()[BATCH].reason == ""
        await store.change([InstanceChange(BATCH, _E.GONE)])
        with pytest.raises(IllegalTransition):
            await store.change([InstanceChange(BATCH, _E.TERMINATE)])

    async def test_changes_are_made_all_or_none(self, store: Store) -> None:
        """One refused change takes the others with it."""
        await store.adopt(instance())
        await store.adopt(instance("other"))
        before = store.instances()
        with pytest.raises(NotFound):
            await store.change([InstanceChange(BATCH, _E.DRAIN), InstanceChange(InstanceId("none-0"), _E.DRAIN)])
        with pytest.raises(IllegalTransition):
            await store.change([InstanceChange(BATCH, _E.DRAIN), InstanceChange(InstanceId("other-0"), _E.BOUND)])
        with pytest.raises(InvalidInput):
            await store.change([InstanceChange(BATCH, _E.DRAIN), InstanceChange(BATCH, None, {"colour": "red"})])
        assert store.instances() == before

    async def test_a_late_observation_is_refused(self, store: Store) -> None:
        """`expect` names the states in which the change still makes sense; busy and idle are told apart."""
        await store.submit([spec()])
        await store.adopt(own := instance())
        await Agent(store, own).claim()
        with pytest.raises(Conflict):
            await store.change([InstanceChange(BATCH, _E.TERMINATE, expect=frozenset({"idle"}))])
        (changed,) = await store.change([InstanceChange(BATCH, _E.DRAIN, expect=frozenset({"idle", "busy"}))])
        assert changed.state is _S.DRAINING

    async def test_what_is_to_be_known_with_a_change_is_known_with_it(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """Facts are set where the change is made, and not where it is refused; both outlast the process."""
        await store.adopt(own := instance())
        await store.set_fact("one", "before")
        wrong = InstanceChange(own.id, _E.TERMINATE, expect=frozenset({"busy"}))
        with pytest.raises(Conflict):
            await store.change([wrong], facts={"one": "after", "two": "new"})
        assert (store.fact("one"), store.fact("two")) == ("before", None)
        await store.change([InstanceChange(own.id, _E.DRAIN)], facts={"one": "after", "two": "new"})
        assert (store.fact("one"), store.fact("two")) == ("after", "new")
        await store.close()
        again = await open_store(clock)
        assert (again.fact("one"), again.fact("two")) == ("after", "new")
        assert again.instances()[own.id].state is _S.DRAINING

    async def test_a_vm_is_one_instance(self, store: Store) -> None:
        """Whoever binds it first: later ones are refused, at once or in one commit, until the first is gone."""
        await store.intend(intent(slots=3), [instance(slot=slot, state=_S.INTENDED) for slot in range(3)])
        slots = [InstanceId(f"batch-{slot}") for slot in range(3)]
        await store.change([InstanceChange(slot, _E.LAUNCH) for slot in slots])

        def binds(slot: InstanceId, vm: str, event: InstanceEvent = _E.BOUND) -> InstanceChange:
            return InstanceChange(slot, event, {"vm": VmId(vm)})

        with pytest.raises(Conflict, match="VM a is instance batch-0"):
            await store.change([binds(slots[0], "a"), binds(slots[1], "a")])
        found, refused, again = await asyncio.gather(
            store.change([binds(slots[0], "a")]),
            store.change([binds(slots[1], "a", _E.REGISTERED)]),
            store.change([binds(slots[0], "b", _E.REGISTERED)]),
            return_exceptions=True,
        )
        assert isinstance(found, list)
        assert (type(refused), type(again)) == (Conflict, Conflict)
        with pytest.raises(Conflict, match="VM a is instance batch-0"):
            await store.change([binds(slots[1], "a")])
        with pytest.raises(Conflict, match="batch-0 is VM a, and not b"):
            await store.change([binds(slots[0], "b", _E.REGISTERED)])
        with pytest.raises(Conflict, match="VM a is instance batch-0"):
            await store.adopt(instance("other", vm="a"))
        (same,) = await store.change([binds(slots[0], "a", _E.REGISTERED)])
        assert store.by_vm(VmId("a")) == same
        assert await store.check() == []
        await store.change([InstanceChange(slots[0], _E.TERMINATE)])
        await store.change([InstanceChange(slots[0], _E.GONE)])
        (late,) = await store.change([binds(slots[1], "a")])
        assert store.by_vm(VmId("a")) == late

    async def test_fields_change_without_an_event(self, store: Store) -> None:
        """A behaviour or an end can be set by itself."""
        await store.adopt(own := instance())
        (changed,) = await store.change([InstanceChange(BATCH, None, {"behaviour": Behaviour.HOLD, "ends_ms": 5})])
        assert changed == replace(own, behaviour=Behaviour.HOLD, ends_ms=5) == store.instances()[BATCH]

    async def test_busy_is_shown_where_claims_are_held(self, store: Store) -> None:
        """A serving instance is busy with claims and idle without, with no event of its own."""
        await store.submit([spec()])
        await store.adopt(own := instance())
        agent = Agent(store, own)
        (claim,) = await agent.claim()
        assert store.instances()[own.id].state is _S.BUSY
        assert (await store.instance(own.id)).state is _S.BUSY
        found = store.by_vm(own.vm)
        assert found is not None
        assert found.state is _S.BUSY
        (missed,) = await store.change([InstanceChange(own.id, _E.MISSED)])
        assert missed.state is _S.OUT_OF_CONTACT
        (heard,) = await store.change([InstanceChange(own.id, _E.HEARD_BUSY)])
        assert heard.state is _S.BUSY
        await agent.sync(result(claim))
        assert store.instances()[own.id].state is _S.IDLE

    @pytest.mark.parametrize("ends", [[_E.FAIL], [_E.ABSENT], [_E.TERMINATE], [_E.GONE]])
    async def test_an_ended_instance_loses_its_claims(
        self, store: Store, clock: ManualClock, ends: list[InstanceEvent]
    ) -> None:
        """In the same commit: unstarted ones go back, started ones end instance-lost, cancelling ones cancelled."""
        await store.submit([spec(), spec(), spec()])
        await store.adopt(own := instance())
        agent = Agent(store, own)
        unstarted, started, cancelled = await agent.claim(3)
        agent.runs(started)
        agent.runs(cancelled)
        await agent.sync()
        await store.cancel(TaskFilter(ids=(cancelled.task,)))
        clock.now_ms += 10
        (changed,) = await store.change([InstanceChange(own.id, event) for event in ends])
        assert store.leases_of(own.id) == {}
        first, second, third = await store.tasks(TaskFilter())
        assert (first.id, first.state, first.attempts) == (unstarted.task, TaskState.QUEUED, 0)
        assert (second.state, second.attempts, second.outcome and second.outcome.cause) == (
            TaskState.QUEUED, 1, Cause.INSTANCE_LOST,
        )  # fmt: skip
        assert (third.state, third.attempts) == (TaskState.CANCELLED, 1)
        assert changed.busy_ms == (10 if changed.state is _S.GONE else 0)

    async def test_busy_time_is_the_union_of_its_attempts(self, store: Store, clock: ManualClock) -> None:
        """Tasks that ran at the same time count once; waiting claims don't count."""
        await store.submit([spec() for _ in range(4)])
        await store.adopt(own := instance())
        agent = Agent(store, own)
        one, two, three, four = await agent.claim(4)
        clock.now_ms += 100
        await agent.sync(result(one, ran_ms=100))
        clock.now_ms += 100
        await agent.sync(result(two, ran_ms=150))  # 50-200 overlaps 0-100
        clock.now_ms += 100
        await agent.sync(result(three, ran_ms=30))  # 270-300
        clock.now_ms += 100
        await agent.sync(result(four, None, None))
        (gone,) = await store.change([InstanceChange(own.id, _E.GONE)])
        assert gone.busy_ms == 230
        assert (await store.instance(own.id)).busy_ms == 230

    async def test_an_adopted_instance_is_kept_once(self, store: Store) -> None:
        """Adopting an id that is known, gone or not, is a conflict."""
        await store.adopt(own := instance(state=_S.UNKNOWN))
        assert store.by_vm(own.vm) == own
        with pytest.raises(Conflict):
            await store.adopt(own)
        await store.change([InstanceChange(own.id, _E.GONE)])
        with pytest.raises(Conflict):
            await store.adopt(own)

    async def test_instances_survive_a_restart(self, open_store: OpenStore, clock: ManualClock) -> None:
        """Every field of every instance that is not gone is the same after closing and opening."""
        first = await open_store(clock)
        await first.adopt(instance("a", launched_ms=5, drain_token=3, behaviour=Behaviour.DRAIN))
        await first.intend(intent("b"), [instance("b", state=_S.INTENDED)])
        before = first.instances()
        await first.close()
        assert (await open_store(clock)).instances() == before

    async def test_plans_are_kept_with_their_snapshot(self, store: Store) -> None:
        """Newest first, walked by `before`, found by number."""
        big = b'{"snapshot":"' + b"x" * 100_000 + b'"}'
        numbers = [await store.record_plan(START_MS + n, big, b'{"plan":%d}' % n) for n in range(3)]
        assert numbers == sorted(set(numbers))
        assert await store.plan(numbers[1]) == StoredPlan(numbers[1], START_MS + 1, big, b'{"plan":1}')
        newest = [PlanEntry(n, START_MS + at, b'{"plan":%d}' % at) for at, n in ((2, numbers[2]), (1, numbers[1]))]
        assert list(await store.plans(limit=2)) == newest
        assert [plan.id for plan in await store.plans(before=numbers[1])] == [numbers[0]]
        await store.amend_plan(numbers[1], b"{}")
        assert await store.plan(numbers[1]) == StoredPlan(numbers[1], START_MS + 1, big, b"{}")
        assert await store.record_plan(START_MS, b"{}", b"{}") == numbers[2] + 1
        with pytest.raises(NotFound):
            await store.plan(99)

    async def test_events_are_read_newest_first(self, store: Store) -> None:
        """By instance, by task, or all; at most `limit`."""
        events = [
            Event(1, "a", instance=BATCH, detail="d", plan=4), Event(2, "b", task=TaskId(7)), Event(3, "c", BATCH),
        ]  # fmt: skip
        await store.record(events)
        await store.record([])
        assert list(await store.events()) == events[::-1]
        assert list(await store.events(instance=BATCH)) == [events[2], events[0]]
        assert list(await store.events(task=TaskId(7))) == [events[1]]
        assert list(await store.events(limit=1)) == [events[2]]
        ids = [event.id or 0 for event in await store.events()]
        assert ids == sorted(set(ids), reverse=True)
        assert list(await store.events(before=ids[0], limit=1)) == [events[1]]
        assert list(await store.events(after=0, limit=2)) == [events[1], events[0]]
        assert list(await store.events(after=ids[1])) == [events[2]]
        assert list(await store.events(after=ids[2], before=ids[0])) == [events[1]]
        assert list(await store.events(instance=BATCH, after=ids[2])) == [events[2]]

    async def test_targets_replace_and_drop(self, store: Store) -> None:
        """One target a pool and source; the last one set counts; dropping what is not there is nothing."""
        pool = PoolName("p")
        await store.set_target(Target(pool, "rest", 3))
        await store.set_target(Target(pool, "rest", 5, expires_ms=9))
        await store.set_target(Target(pool, "rule", 1))
        assert set(store.targets()) == {Target(pool, "rest", 5, 9), Target(pool, "rule", 1)}
        await store.drop_target(pool, "rest")
        await store.drop_target(pool, "rest")
        assert store.targets() == [Target(pool, "rule", 1)]

    async def test_facts_and_targets_survive_a_restart(self, open_store: OpenStore, clock: ManualClock) -> None:
        """Small facts are text by name; the identity of the store is not one that can be set."""
        first = await open_store(clock)
        assert first.fact("deployment") is None
        await first.set_fact("deployment", "a")
        await first.set_fact("deployment", "b")
        await first.set_target(Target(PoolName("p"), "rest", 3))
        with pytest.raises(InvalidInput):
            await first.set_fact("store-id", "x")
        await first.close()
        again = await open_store(clock)
        assert again.fact("deployment") == "b"
        assert again.targets() == [Target(PoolName("p"), "rest", 3)]

    async def test_prune_deletes_what_is_past_retention(self, store: Store, clock: ManualClock) -> None:
        """Only ended things, only older ones, at most `batch` of a kind a call; counts follow."""
        await store.submit([spec() for _ in range(4)])
        await store.adopt(own := instance())
        agent = Agent(store, own)
        claims = await agent.claim(3)
        await agent.sync(*[result(claim) for claim in claims[:2]])
        await store.record([Event(START_MS, "old"), Event(START_MS + 900, "new")])
        await store.record_plan(START_MS, b"{}", b"{}")
        await store.change([InstanceChange(own.id, _E.GONE)])
        await store.cancel(TaskFilter(ids=(TaskId(4),)))
        clock.now_ms += 1000
        await store.cancel(TaskFilter(ids=(TaskId(3),)))
        keep = Retention(tasks_ms=500, events_ms=500, plans_ms=500, instances_ms=500)
        assert await store.prune(clock.now_ms, Retention()) == {"charges": 0}
        gone = {"tasks": 2, "events": 1, "plans": 1, "instances": 1, "ledger": 0, "shapes": 0, "charges": 0}
        assert (await store.prune(clock.now_ms, keep, batch=2)) == gone
        assert (await store.prune(clock.now_ms, keep))["tasks"] == 1
        assert [task.id for task in await store.tasks(TaskFilter())] == [3]
        assert sum(store.task_counts().values()) == 1
        assert list(await store.attempts(TaskId(1))) == []
        for number, hint in ((1, "it ended longer ago than tasks are kept (`store.retain_tasks`)"), (5, "")):
            with pytest.raises(NotFound) as missing:
                await store.task(TaskId(number))
            assert (missing.value.message, missing.value.hint) == (f"there is no task {number}", hint)
        assert [event.action for event in await store.events()] == ["new"]
        assert await store.submit([spec()]) == [5]
        assert await store.check() == []

    async def test_shapes_that_no_task_has_any_more_are_forgotten(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """Those of tasks that wait, run or are kept stay; one that is forgotten may be asked for again at once."""
        keep = Retention(tasks_ms=500)
        first, _, third = await store.submit([spec(cpus_milli=cpus) for cpus in (1000, 2000, 3000)])
        await store.adopt(own := instance())
        await Agent(store, own).claim(1)
        await store.cancel(TaskFilter(ids=(third,)))
        assert (await store.prune(clock.now_ms, keep))["shapes"] == 0
        clock.now_ms += 1000
        found = [await store.prune(clock.now_ms, keep) for _ in range(3)]
        assert [(one["tasks"], one["shapes"]) for one in found] == [(1, 0), (0, 1), (0, 0)]
        assert store.held_by(own.id) == 1
        assert [one.shape for one in store.waiting()] == [spec(cpus_milli=2000).shape]
        assert await store.check() == []
        (again,) = await store.submit([spec(cpus_milli=3000)])
        await store.cancel(TaskFilter(ids=(again,)))
        clock.now_ms += 1000
        await store.prune(clock.now_ms, keep)
        pruned, (last,) = await asyncio.gather(
            store.prune(clock.now_ms, keep), store.submit([spec(cpus_milli=3000, idempotency_key="k")])
        )
        assert pruned["shapes"] in (0, 1)
        assert await store.check() == []
        await store.close()
        opened = await open_store(clock)
        assert [(await opened.task(task)).spec.shape for task in (first, last)] == [
            spec().shape,
            spec(cpus_milli=3000).shape,
        ]
        assert await opened.check() == []

    async def test_targets_go_a_day_after_they_have_expired(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """Whoever names his run as their source leaves one a run; one that is set anew meanwhile stays."""
        pool, day_ms = PoolName("p"), 86_400_000
        for source, expires_ms in (("run-1", START_MS), ("run-2", START_MS), ("later", START_MS + 2), ("ever", None)):
            await store.set_target(Target(pool, source, 1, expires_ms))
        clock.now_ms = START_MS + day_ms
        await store.prune(clock.now_ms, Retention())
        assert len(store.targets()) == 4
        clock.now_ms += 1
        again = Target(pool, "run-2", 2, clock.now_ms + day_ms)
        await asyncio.gather(store.prune(clock.now_ms, Retention()), store.set_target(again))
        await store.prune(clock.now_ms, Retention())
        left = {Target(pool, "later", 1, START_MS + 2), Target(pool, "ever", 1), again}
        assert set(store.targets()) == left
        assert await store.check() == []
        await store.close()
        assert set((await open_store(clock)).targets()) == left

    async def test_an_events_id_is_never_given_again(self, store: Store, clock: ManualClock) -> None:
        """Also where nothing happened for so long that all are past retention: who follows them has seen the last."""
        await store.record([Event(START_MS, "first"), Event(START_MS, "last")])
        (last,) = await store.events(limit=1)
        clock.now_ms += 1000
        await store.prune(clock.now_ms, Retention(events_ms=500))
        await store.record([Event(clock.now_ms, "new")])
        assert last.id
        assert [event.action for event in await store.events(after=last.id)] == ["new"]

    async def test_backup_refuses_to_replace(self, store: Store, tmp_path: Path) -> None:
        """A file with the target's name is kept, whatever it is."""
        target = tmp_path / "copy.db"
        target.write_text("mine")
        with pytest.raises(Conflict):
            await store.backup(target)
        assert target.read_text() == "mine"

    async def test_concurrent_calls_are_all_answered(self, store: Store) -> None:
        """Good and bad calls at once: each gets its own answer or its own error, and nothing is lost or doubled."""
        await store.submit([spec() for _ in range(40)])
        agents = [Agent(store, instance(f"b{n}")) for n in range(10)]
        await asyncio.gather(*[store.adopt(instance(f"b{n}")) for n in range(10)])
        bad = [store.change([InstanceChange(InstanceId("b0-0"), _E.BOUND)]) for _ in range(5)]
        claimed = asyncio.gather(*[agent.claim(4) for agent in agents])
        refused = await asyncio.gather(*bad, return_exceptions=True)
        assert {type(error) for error in refused} == {IllegalTransition}
        tasks = [claim.task for claims in await claimed for claim in claims]
        assert sorted(tasks) == list(range(1, 41))
        assert await store.check() == []

    async def test_a_closed_store_refuses_calls(self, store: Store) -> None:
        """Calls after `close` are refused; closing again is nothing."""
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.submit([spec()])
        with pytest.raises(StoreUnavailable):
            await store.tasks(TaskFilter())
