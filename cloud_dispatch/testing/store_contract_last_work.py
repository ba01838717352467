"""What the port promises about instances that will not live for ever: what they are given, and what no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloud_dispatch.domain.ids import PoolName, ProfileName, TaskId
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.domain.shape import Load, Shape
from cloud_dispatch.domain.task import Cause, Outcome, TaskSpec
from cloud_dispatch.ports.store import NEVER_MS, InstanceChange, Store
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.payers import ClaimTerms
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.testing.store_builders import (
    START_MS,
    Agent,
    ManualClock,
    OpenStore,
    adopted,
    instance,
    result,
    spec,
)

_LIFE = ClaimTerms(
    lease_ms=0, lifetimes={PoolName("default"): 10 * HOUR_MS}, leave_ms=0, movable=frozenset({ProfileName("local")})
)
_SMALL = {"memory": 2 * GIB}
_NO_DRIVERS: Mapping[ProfileName, str] = {}


def takes(hours: float, **more: Any) -> TaskSpec:
    """A task that is expected to run for so long; 0: nobody knows."""
    return spec(expected_runtime_ms=round(hours * HOUR_MS), **more)


async def aged(store: Store, hours: float, batch: str = "batch", **more: Any) -> Agent:
    """An instance that has lived for so many of its ten hours."""
    own = instance(batch, **{"max_rate": Rate(1_000_000_000), "end_lag_ms": 0, **more})
    await store.adopt(replace(own, intended_ms=own.intended_ms - round(hours * HOUR_MS)))
    return Agent(store, own)


def _told(store: Store) -> Mapping[str, set[tuple[Shape, Payer]]]:
    return {name: set(lines) for name, lines in store.declined().items()}


class LastWorkContract:
    """Tests of old instances; see `StoreContract`."""

    async def test_an_old_instance_is_given_what_it_can_finish(self, store: Store) -> None:
        """What is too long waits, and nothing waits behind it; a young one takes it. What nobody knows is tried, and
        what would be too long for any."""
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(3, priority=9), takes(1), takes(0), takes(2), takes(11), takes(2.5)])
        old = await aged(store, 8)
        assert [claim.task for claim in await old.claim(1)] == [2]
        assert [claim.task for claim in await old.claim(9)] == [3, 4, 5]
        assert [claim.task for claim in await (await aged(store, 0, "young")).claim(9)] == [1, 6]

    async def test_another_shape_is_not_kept_by_what_is_too_long(self, store: Store) -> None:
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(3, priority=9), takes(1, cpus_milli=500), takes(1, cpus_milli=500)])
        assert [claim.task for claim in await (await aged(store, 8)).claim(9)] == [2, 3]

    async def test_what_stays_is_told_from_what_is_done_in_time(self, store: Store, clock: ManualClock) -> None:
        """What is of unknown length stays, until others of its shape have shown it; what takes longer than it said is
        expected to take as long again."""
        said = [takes(1), takes(2, cpus_milli=500), takes(0, cpus_milli=250), takes(5)]
        one, two, unknown, five = (each.shape.resources for each in said)
        await store.submit(said)
        agent = await adopted(store)
        assert store.outlook(agent.id, START_MS, HOUR_MS) == (Load(), START_MS, NEVER_MS, 0)
        assert store.shapes_of(agent.id) == ()
        claims = {claim.task: claim for claim in await agent.claim(9)}
        assert store.outlook(agent.id, START_MS, HOUR_MS // 2)[:2] == (store.load_of(agent.id), START_MS)
        assert store.shapes_of(agent.id) == tuple(dict.fromkeys(each.shape for each in said))
        stays, free_ms, _, work_ms = store.outlook(agent.id, START_MS, 2 * HOUR_MS)
        assert (stays.used, stays.tasks, free_ms) == (unknown + five, 2, START_MS + 2 * HOUR_MS)
        assert work_ms == store.outlook(agent.id, START_MS, HOUR_MS // 2).work_ms == 5 * HOUR_MS
        clock.now_ms += 3 * HOUR_MS
        await agent.sync(result(claims[TaskId(3)]))
        await store.submit([takes(0, cpus_milli=250)])
        await agent.claim()
        stays, free_ms, _, work_ms = store.outlook(agent.id, clock.now(), 2 * HOUR_MS)
        assert (stays.used, stays.tasks, free_ms) == (one + two, 2, clock.now() + 2 * HOUR_MS)
        assert work_ms == 5 * HOUR_MS, "however little is left of it"

    async def test_it_is_known_until_when_the_outlook_holds(self, store: Store, clock: ManualClock) -> None:
        """Nothing changes about it before that moment, and something does at it. What is late, or has only others to go
        by, may be expected at another time with every moment."""
        await store.submit([takes(5)])
        agent = await adopted(store)
        (claim,) = await agent.claim()
        assert store.outlook(agent.id, START_MS, 2 * HOUR_MS).until_ms == START_MS, "it starts later than it is claimed"
        agent.runs(claim)
        await agent.sync()
        for hours, until in ((0, 3), (1, 3), (3, 5), (4, 5)):
            clock.now_ms = START_MS + hours * HOUR_MS
            told = store.outlook(agent.id, clock.now(), 2 * HOUR_MS)
            assert told.until_ms == START_MS + until * HOUR_MS
            last, next_ = (store.outlook(agent.id, told.until_ms + ms, 2 * HOUR_MS) for ms in (-1, 0))
            assert last.stays == told.stays
            assert told.stays.tasks or last.free_ms == told.free_ms
            assert next_[:2] != (told.stays, told.free_ms)
        clock.now_ms = START_MS + 6 * HOUR_MS
        assert store.outlook(agent.id, clock.now(), 9 * HOUR_MS).until_ms == clock.now()
        assert store.outlook(agent.id, clock.now(), 2 * HOUR_MS).until_ms == NEVER_MS
        await store.submit([takes(0, cpus_milli=250)])
        other = await adopted(store, "other")
        await other.claim()
        assert store.outlook(other.id, clock.now(), 2 * HOUR_MS).until_ms == clock.now()

    async def test_what_like_tasks_took_is_what_is_expected(self, store: Store, clock: ManualClock) -> None:
        """Where a task does not say how long it takes."""
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(0), takes(0)])
        young = await aged(store, 0, "young")
        (claim,) = await young.claim(1)
        clock.now_ms += 3 * HOUR_MS
        await young.sync(result(claim, ran_ms=3 * HOUR_MS))
        assert await (await aged(store, 5)).claim(1) == ()  # eight hours old by now
        assert len(await young.claim(1)) == 1

    async def test_what_ended_long_before_it_was_told_took_no_longer(self, store: Store, clock: ManualClock) -> None:
        """The dispatcher was away meanwhile."""
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(0), takes(0)])
        young = await aged(store, 0, "young")
        (claim,) = await young.claim(1)
        young.runs(claim)
        await young.sync()
        clock.now_ms += 5 * HOUR_MS
        await young.sync(result(claim, ran_ms=3 * HOUR_MS))
        assert len(await (await aged(store, 1)).claim(1)) == 1  # six hours old by now

    async def test_who_declines_is_told(self, store: Store, clock: ManualClock) -> None:
        """As long as nothing that comes next can be finished there; not for what its machine can't run anyway."""
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(3), takes(4), takes(3, cpus_milli=64_000), takes(2, cpus_milli=500)])
        old, young = await aged(store, 6), await aged(store, 0, "young")
        assert store.declined() == {}
        clock.now_ms += 3 * HOUR_MS // 2
        long, short = (takes(3).shape, NOBODY), (takes(2, cpus_milli=500).shape, NOBODY)
        assert _told(store) == {old.id: {long}}
        clock.now_ms += HOUR_MS
        assert _told(store) == {old.id: {long, short}}
        await store.submit([takes(1), takes(0, cpus_milli=500)])
        assert store.declined() == {}
        assert [claim.task for claim in await old.claim(9)] == [5, 6]
        assert [claim.task for claim in await young.claim(9)] == [1, 2, 4]

    async def test_an_end_that_stays_is_the_last_word(self, store: Store) -> None:
        """Where a hard end can't be moved on, and whatever the lifetime is; where it can, it may well be near."""
        await store.set_limits((), _NO_DRIVERS, replace(_LIFE, movable=frozenset()))
        await store.submit([takes(3)])
        own = replace(instance(), ends_ms=START_MS + 2 * HOUR_MS)
        await store.adopt(own)
        assert list(store.declined()) == [own.id]
        assert await Agent(store, own).claim(1) == ()
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        assert store.declined() == {}
        assert len(await Agent(store, own).claim(1)) == 1

    async def test_nothing_is_known_of_pools_that_left(self, store: Store) -> None:
        """Nor without terms: then nothing is declined."""
        await store.submit([takes(3) for _ in range(3)])
        old = await aged(store, 9)
        assert len(await old.claim(1)) == 1
        await store.set_limits((), _NO_DRIVERS, replace(_LIFE, lifetimes={PoolName("other"): HOUR_MS}))
        assert len(await old.claim(1)) == 1
        assert store.declined() == {}

    async def test_what_begins_later_has_less_left(self, store: Store) -> None:
        """What is claimed ahead begins when others have ended: of two hours, one is there for what comes after the
        first; and each that waits leaves less for the next."""
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(1) for _ in range(6)])
        assert len(await (await aged(store, 7.9, cpus=1)).claim(6, ahead=5)) == 2
        assert len(await (await aged(store, 7.1, "other", cpus=1)).claim(6, ahead=5)) == 2
        await store.submit([takes(0) for _ in range(4)])
        assert len(await (await aged(store, 0, "young", cpus=1)).claim(6, ahead=5)) == 6

    async def test_what_waits_in_other_lines_has_less_left_too(self, store: Store) -> None:
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(1, cpus_milli=990 + n) for n in range(6)])
        assert len(await (await aged(store, 7.9, cpus=1)).claim(6, ahead=5)) == 2

    async def test_who_boots_declines_nothing(self, store: Store) -> None:
        """It was launched for something, and asks for nothing yet: whoever launches would do so again and again."""
        await store.set_limits((), _NO_DRIVERS, replace(_LIFE, movable=frozenset()))
        await store.submit([takes(3)])
        for number, state in enumerate((InstanceState.INTENDED, InstanceState.LAUNCHING, InstanceState.BOOTING)):
            own = instance(f"b{number}", state=state)
            await store.adopt(replace(own, ends_ms=START_MS + HOUR_MS))
        assert store.declined() == {}

    async def test_who_has_just_booted_declines_nothing(self, store: Store, clock: ManualClock) -> None:
        """Whatever fits in a life with time to come and to go, and whatever does not: none will live as long."""
        terms = replace(_LIFE, leave_ms=HOUR_MS // 4, ready_ms={PoolName("default"): HOUR_MS // 2})
        await store.set_limits((), _NO_DRIVERS, terms)
        clock.now_ms += HOUR_MS // 2
        own = replace(instance(), registered_ms=clock.now_ms)
        await store.adopt(own)
        clock.now_ms += 7 * HOUR_MS // 10  # until its health checks have passed, and it asks
        await store.submit([takes(quarters / 4) for quarters in range(1, 44)])
        agent = Agent(store, own)
        for task in range(1, 44):
            assert store.declined() == {}
            (claim,) = await agent.claim(1)
            assert claim.task == task
            await agent.sync(result(claim, ran_ms=None))

    async def test_how_far_like_tasks_keep_to_what_they_say_counts(self, store: Store, clock: ManualClock) -> None:
        """Some say three hours and take half of one: they are begun by who has an hour left. Others say an hour and a
        half, and take two: they are begun by who has as long as they say, for which its end may have been set."""
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        careful, hasty = {"memory": 2 * GIB}, {"memory": 3 * GIB}
        await store.submit([takes(3, **careful), takes(1.5, **hasty)])
        first = await aged(store, 5, "first", cpus=1)
        (one,) = await first.claim(1)
        clock.now_ms += HOUR_MS // 2
        await first.sync(result(one, ran_ms=HOUR_MS // 2))
        (two,) = await first.claim(1)
        clock.now_ms += 2 * HOUR_MS
        await first.sync(result(two, ran_ms=2 * HOUR_MS))
        await store.submit([takes(3, **careful), takes(1.5, **hasty)])
        old = await aged(store, 6.5, "old")  # nine hours by now
        assert _told(store)[old.id] == {(takes(1.5, **hasty).shape, NOBODY)}
        assert [claim.task for claim in await old.claim(4)] == [3]
        assert [claim.task for claim in await (await aged(store, 5.9, "other")).claim(4)] == [4]

    async def test_what_was_cut_off_is_expected_to_take_longer(self, open_store: OpenStore, clock: ManualClock) -> None:
        """Twice what it had run, where that was more than it said, or than like tasks took; and the next process knows.
        Where nobody knows how long it takes, it stays so, and of what was lost nobody knows how long it ran."""
        store = await open_store(clock)
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(1, **_SMALL), takes(3, **_SMALL), takes(0, memory=GIB), takes(0, memory=3 * GIB)])
        await store.submit([takes(0, memory=3 * GIB)])
        lost = await aged(store, 0, "lost")
        one, two, three, four = await lost.claim(4)
        clock.now_ms += HOUR_MS // 2
        await lost.sync(result(four, ran_ms=HOUR_MS // 2), want=1)
        (five,) = [claim for claim in lost.specs.values() if claim.task == 5]
        for claim in (one, two, three, five):
            lost.runs(claim)
        await lost.sync()
        clock.now_ms += 2 * HOUR_MS
        taken = Outcome(Cause.PREEMPTED)
        await lost.sync(*(result(claim, taken, ran_ms=2 * HOUR_MS) for claim in (one, two, three, five)))
        await store.submit([takes(1, memory=4 * GIB, priority=9)])
        other = await aged(store, 0, "other", memory=4 * GIB)
        (six,) = [claim for claim in await other.claim(4) if claim.task == 6]
        other.runs(six)
        await other.sync()
        clock.now_ms += 2 * HOUR_MS
        await store.change([InstanceChange(other.id, InstanceEvent.FAIL)])
        expected = {demand.shape: demand.lengths for demand in store.waiting()}
        assert expected == {
            takes(1, **_SMALL).shape: (((4 + 3) * HOUR_MS, 2),),
            takes(0, memory=GIB).shape: (),
            takes(0, memory=3 * GIB).shape: ((4 * HOUR_MS, 1),),
            takes(1, memory=4 * GIB).shape: ((HOUR_MS, 1),),
        }
        assert list(await store.check()) == []
        await store.close()
        again = await open_store(clock)
        assert {demand.shape: demand.lengths for demand in again.waiting()} == expected

    async def test_what_outlasts_a_machine_is_given_to_one_with_a_whole_life(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Twice as long as it ran might be longer than any lives, and then whoever is about to end would begin it."""
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(4)])
        one = await aged(store, 4, "one")
        (claim,) = await one.claim(1)
        clock.now_ms += 6 * HOUR_MS
        await one.sync(result(claim, Outcome(Cause.PREEMPTED), ran_ms=6 * HOUR_MS))
        old, young = await aged(store, 3.5, "old"), await aged(store, -6, "young")  # six hours have gone by
        assert await old.claim(1) == ()
        assert old.id in store.declined()
        (claim,) = await young.claim(1)
        clock.now_ms += 10 * HOUR_MS
        await young.sync(result(claim, Outcome(Cause.PREEMPTED), ran_ms=10 * HOUR_MS))
        assert await (await aged(store, -7, "other")).claim(1) == ()
        assert len(await (await aged(store, -16, "new")).claim(1)) == 1

    async def test_payers_with_a_limit_wait_apart(self, store: Store) -> None:
        """Of theirs too what can be finished is taken; one of them declines and the other one not."""
        poor, rich = Payer("poor", ""), Payer("rich", "")
        budgets = [Budget(Key(Scope.PROJECT, p.project), Window.TOTAL, Amount(10**12)) for p in (poor, rich)]
        await store.set_limits(budgets, _NO_DRIVERS, _LIFE)
        await store.submit([takes(3, project="poor"), takes(4, project="rich"), takes(1, project="rich")])
        old = await aged(store, 8)
        assert _told(store) == {old.id: {(takes(3).shape, poor)}}
        assert [claim.task for claim in await old.claim(9)] == [3]
        assert _told(store) == {old.id: {(takes(3).shape, poor), (takes(3).shape, rich)}}
        assert [claim.task for claim in await (await aged(store, 0, "young")).claim(9)] == [1, 2]
        assert list(await store.check()) == []

    async def test_a_line_is_not_looked_through_without_end(self, store: Store) -> None:
        """What is far behind others that are too long waits for a young one, and the instance declines: whoever
        launches knows it."""
        await store.set_limits((), _NO_DRIVERS, _LIFE)
        await store.submit([takes(3) for _ in range(300)])
        await store.submit([takes(1)])
        old = await adopted(store, "none")
        assert store.declined() == {}
        old = await aged(store, 8)
        assert list(store.declined()) == [old.id]
        assert await old.claim(1) == ()
