"""What the port promises about costs: whose money it was, to the micro-dollar, of instances that are gone or live."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.errors import InvalidInput, NotFound
from cloud_dispatch.domain.ids import InstanceId, ProfileName, TaskId
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.money import HOUR_MS, Rate
from cloud_dispatch.domain.task import Cause, Outcome, RetryRules
from cloud_dispatch.ports.store import InstanceChange, Retention, Store, TaskFilter
from cloud_dispatch.spend.costs import AttemptCost, Cost, CostKey, CostQuery, Costs, KeyValue, total_of
from cloud_dispatch.spend.windows import DAY_MS
from cloud_dispatch.testing.store_builders import (
    FAILURE,
    START_MS,
    Agent,
    ManualClock,
    instance,
    intent,
    result,
    spec,
)

_S, _E = InstanceState, InstanceEvent
DOLLAR = 1_000_000
TODAY = START_MS - START_MS % DAY_MS
_BY_TASK = CostQuery((CostKey.TASK,))


async def rented(store: Store, batch: str = "batch", **more: Any) -> Agent:
    """The agent of a machine of 4 cpus at a dollar an hour, billed and serving from the first moment on."""
    own = replace(
        instance(batch, launched_ms=START_MS, registered_ms=START_MS, **more), rate=Rate(1_000_000_000), increment_ms=1
    )
    await store.adopt(own)
    return Agent(store, own)


async def leaves(store: Store, *agents: Agent) -> None:
    await store.change([InstanceChange(agent.id, _E.GONE) for agent in agents])


async def paid(store: Store, *by: CostKey, **where: Any) -> dict[KeyValue | tuple[KeyValue, ...], Cost]:
    """By the key, or the keys."""
    found = await store.costs(CostQuery(by, **where))
    return {row.keys if len(by) > 1 else row.keys[0]: row.cost for row in found.rows}


async def paid_by_task(store: Store, query: CostQuery = _BY_TASK, limit: int = 1000) -> dict[KeyValue, Cost]:
    """Added up over all pages; the first key of a row is its task."""
    summed: dict[KeyValue, Cost] = {}
    page = await store.costs_by_task(query, limit=limit)
    for _ in range(1000):
        assert len(page.rows) <= limit
        for row in page.rows:
            summed[row.keys[0]] = summed.get(row.keys[0], Cost()).plus(row.cost)
        if page.next is None:
            break
        page = await store.costs_by_task(query, after=page.next, limit=limit)
    return summed


def whole(costs: Costs) -> int:
    return total_of(row.cost for row in costs.rows).whole


async def played(store: Store, clock: ManualClock) -> tuple[Agent, list[TaskId]]:
    """An hour of a machine: ada has half of it for half an hour, of which a quarter is in vain; ben a quarter of it for
    the next quarter of an hour; then it idles."""
    retry = RetryRules(causes=frozenset({Cause.EXIT_CODE}))
    half: dict[str, Any] = {"cpus_milli": 2000, "memory": 8 * 2**30}
    ids = await store.submit(
        [
            spec("again", project="genes", user="ada", retry=retry, **half),
            spec("once", project="stars", user="ben", cpus_milli=1000, memory=4 * 2**30),
        ]
    )
    agent = await rented(store)
    for at, outcome in ((0, FAILURE), (HOUR_MS // 4, None), (HOUR_MS // 2, None)):
        clock.now_ms = START_MS + at
        (claimed,) = await agent.claim()
        clock.now_ms += HOUR_MS // 4 - 1  # an attempt counts a millisecond more than it took
        ran_ms = HOUR_MS // 4 - 1
        done = result(claimed, ran_ms=ran_ms) if outcome is None else result(claimed, outcome, ran_ms)
        await agent.sync(done)
    clock.now_ms = START_MS + HOUR_MS
    return agent, list(ids)


class CostContract:
    """Tests of costs; see `StoreContract`."""

    async def test_whose_money_it_was(self, store: Store, clock: ManualClock) -> None:
        """Work and retries by time and part of the machine, idle after them: and the same before and after it left."""
        agent, (again, once) = await played(store, clock)
        expected = {
            "genes": Cost(125_000, 125_000, 550_000),
            "stars": Cost(62_500, 0, 137_500),
        }
        living = await store.costs(CostQuery())
        assert {row.keys[0]: row.cost for row in living.rows} == expected
        assert (living.running, living.unpriced) == (1, 0)
        assert await paid_by_task(store) == {again: expected["genes"], once: expected["stars"]}
        await leaves(store, agent)
        gone = await store.costs(CostQuery())
        assert gone.rows == living.rows
        assert (gone.running, gone.unpriced) == (0, 0)
        assert await paid_by_task(store) == {again: expected["genes"], once: expected["stars"]}
        (entry,) = await store.ledger()
        assert whole(gone) == entry.amount == DOLLAR
        assert await store.check() == []

    async def test_a_silence_after_its_end_is_nobodys_work(self, store: Store, clock: ManualClock) -> None:
        """What ended long before it could be told has cost until then; the rest of the whole is idle, and as large."""
        (task,) = await store.submit([spec("x", cpus_milli=1000, memory=4 * 2**30)])
        agent = await rented(store)
        (claimed,) = await agent.claim()
        agent.runs(claimed)
        await agent.sync()
        clock.now_ms += HOUR_MS
        await agent.sync(result(claimed, ran_ms=HOUR_MS // 4 - 1, ago_ms=HOUR_MS // 4 * 3 + 1))
        expected = {task: Cost(DOLLAR // 16, 0, DOLLAR // 16 * 15)}  # a quarter of the time, of the machine too
        assert await paid_by_task(store) == expected
        await leaves(store, agent)
        assert await paid_by_task(store) == expected
        (entry,) = await store.ledger()
        assert (entry.amount, entry.work) == (DOLLAR, DOLLAR // 4)

    async def test_it_is_added_up_by_whatever_is_asked_for(self, store: Store, clock: ManualClock) -> None:
        await store.set_limits((), {ProfileName("local"): "cloud"})
        agent, _ = await played(store, clock)
        for _ in range(2):
            found = await paid(store, CostKey.USER, CostKey.PROVIDER, CostKey.PROFILE, CostKey.POOL)
            assert {keys: cost.whole for keys, cost in found.items()} == {
                ("ada", "cloud", "local", "default"): 800_000,
                ("ben", "cloud", "local", "default"): 200_000,
            }
            assert {key: cost.whole for key, cost in (await paid(store, CostKey.DAY)).items()} == {TODAY: DOLLAR}
            assert list(await paid(store, CostKey.PROJECT, user="ben")) == ["stars"]
            assert list(await paid(store, CostKey.USER, project="genes")) == ["ada"]
            assert list(await paid(store, CostKey.PROJECT, pool="default")) == ["genes", "stars"]
            for nothing in ({"pool": "other"}, {"since_ms": TODAY + DAY_MS}, {"until_ms": TODAY}, {"user": "cyd"}):
                found = await paid(store, CostKey.PROJECT, **nothing)
                assert found == {}, nothing
                asked = CostQuery((CostKey.TASK,), **nothing)
                assert await paid_by_task(store, asked) == {}
            everything = (await store.costs(CostQuery(()))).rows
            assert [(row.keys, row.cost.whole) for row in everything] == [((), DOLLAR)]
            if agent.id in store.instances():
                await leaves(store, agent)
        with pytest.raises(InvalidInput):
            await store.costs(_BY_TASK)

    async def test_days_have_their_own_costs(self, store: Store, clock: ManualClock) -> None:
        """A machine that lives over two midnights, with one task on the second day."""
        (task,) = await store.submit([spec("x", project="genes")])
        agent = await rented(store)
        clock.now_ms = TODAY + DAY_MS + HOUR_MS
        (claimed,) = await agent.claim()
        clock.now_ms += HOUR_MS
        await agent.sync(result(claimed, ran_ms=HOUR_MS))
        clock.now_ms = TODAY + 2 * DAY_MS + HOUR_MS
        before = await paid(store, CostKey.DAY, CostKey.PROJECT)
        await leaves(store, agent)
        after = await paid(store, CostKey.DAY, CostKey.PROJECT)
        assert after == before
        hours = {day: cost.whole * 3600 // DOLLAR for day, cost in (await paid(store, CostKey.DAY)).items()}
        assert hours == {
            TODAY: (TODAY + DAY_MS - START_MS) // 1000, TODAY + DAY_MS: 24 * 3600, TODAY + 2 * DAY_MS: 3600,
        }  # fmt: skip
        second = await paid(store, CostKey.PROJECT, since_ms=TODAY + DAY_MS, until_ms=TODAY + 2 * DAY_MS)
        assert second["genes"].whole == 24 * DOLLAR
        asked = CostQuery((CostKey.TASK, CostKey.DAY), since_ms=TODAY + 2 * DAY_MS)
        assert await paid_by_task(store, asked) == {task: Cost(idle=DOLLAR)}

    async def test_what_is_lost_with_its_instance_is_a_retry(self, store: Store, clock: ManualClock) -> None:
        """It ends in the transaction in which the instance leaves, and is in its shares."""
        (task,) = await store.submit([spec("x", project="genes", user="ada")])
        agent = await rented(store)
        (claimed,) = await agent.claim()
        agent.runs(claimed)
        await agent.sync()
        clock.now_ms += HOUR_MS
        assert (await paid(store, CostKey.PROJECT))["genes"].retry == 0, "what runs counts as long as it runs"
        (runs,) = await store.cost_of_task(task)
        assert (runs.ended_ms, runs.cause, runs.cost) == (None, None, (await paid(store, CostKey.PROJECT))["genes"])
        await leaves(store, agent)
        (cost,) = (await paid(store, CostKey.PROJECT)).values()
        assert (cost.work, cost.whole) == (0, DOLLAR)
        assert cost.retry > 0
        (lost,) = await store.cost_of_task(task)
        assert (lost.cause, lost.cost, lost.rate) == (Cause.INSTANCE_LOST, cost, Rate(1_000_000_000))
        assert await store.check() == []

    async def test_a_task_that_gives_up_has_worked_and_one_that_is_lost_has_not(
        self, store: Store, clock: ManualClock
    ) -> None:
        """The last failure is the outcome that the user gets, unless it is the machine's; cancelling is one too."""
        names = ("failed", "lost", "cancelled", "unqueued")
        specs = [
            spec(name, project=name, cpus_milli=500, retry=RetryRules(2 if name == "unqueued" else 1)) for name in names
        ]  # fmt: skip
        failed, lost, cancelled, unqueued = await store.submit(specs)
        agent = await rented(store)
        claims = {claimed.task: claimed for claimed in await agent.claim(4)}
        for claimed in claims.values():
            agent.runs(claimed)
        await agent.sync()
        clock.now_ms += 60_000
        await store.cancel(TaskFilter(ids=(cancelled,)))
        outcomes = {
            failed: FAILURE, lost: Outcome(Cause.PREEMPTED), cancelled: Outcome(Cause.CANCELLED),
            unqueued: Outcome(Cause.PREEMPTED),
        }  # fmt: skip
        await agent.sync(*(result(claims[task], outcome, 60_000) for task, outcome in outcomes.items()))
        await store.cancel(TaskFilter(ids=(unqueued,)))
        for _ in range(2):
            found = await paid(store, CostKey.PROJECT)
            kinds = {name: ("work" if cost.work else "retry") for name, cost in found.items()}
            assert kinds == {"failed": "work", "lost": "retry", "cancelled": "work", "unqueued": "retry"}
            assert all(not cost.work or not cost.retry for cost in found.values())
            if agent.id in store.instances():
                await leaves(store, agent)

    async def test_nobody_pays_for_what_nobody_used(self, store: Store, clock: ManualClock) -> None:
        """Only its pool is known. One that was never seen costs nothing; without a price it is said so."""
        idle = await rented(store, "idle")
        await store.adopt(replace(instance("free", launched_ms=START_MS), rate=None))
        unseen = replace(instance("unseen", state=_S.INTENDED))
        await store.intend(intent("unseen"), [unseen])
        clock.now_ms += HOUR_MS
        found = await store.costs(CostQuery((CostKey.POOL, CostKey.PROJECT, CostKey.USER)))
        assert [(row.keys, row.cost) for row in found.rows] == [(("default", "", ""), Cost(idle=DOLLAR))]
        assert (found.running, found.unpriced) == (2, 1)
        await store.change([InstanceChange(unseen.id, _E.LAUNCH), InstanceChange(unseen.id, _E.ABSENT)])
        await store.change([InstanceChange(InstanceId(name), _E.GONE) for name in (idle.id, "free-0", unseen.id)])
        found = await store.costs(CostQuery((CostKey.POOL,)))
        assert [(row.keys, row.cost) for row in found.rows] == [(("default",), Cost(idle=DOLLAR))]
        assert (found.running, found.unpriced) == (0, 1)
        assert await paid_by_task(store) == {None: Cost(idle=DOLLAR)}
        assert await store.check() == []

    async def test_tasks_pay_the_same_however_the_pages_fall(self, store: Store, clock: ManualClock) -> None:
        """Five machines, of which two live, with tasks of different lengths; a page of three rows ends within one."""
        ids = await store.submit([spec(str(n), project=f"p{n % 2}", cpus_milli=500) for n in range(20)])
        agents = [await rented(store, f"b{n}") for n in range(5)]
        for agent in agents:
            claims = await agent.claim(4)
            for number, claimed in enumerate(claims):
                clock.now_ms += 7_001
                await agent.sync(result(claimed, ran_ms=1_000 * number + 13))
        await leaves(store, *agents[1:4])
        found = await paid_by_task(store)
        assert set(found) == set(ids)
        assert await paid_by_task(store, limit=3) == found
        assert total_of(found.values()).whole == whole(await store.costs(CostQuery()))
        mine = await paid_by_task(store, CostQuery((CostKey.TASK,), project="p1"), limit=2)
        assert mine == {task: cost for task, cost in found.items() if task in ids[1::2]}
        for task in ids:
            assert total_of(one.cost or Cost() for one in await store.cost_of_task(task)) == found[task]

    async def test_what_is_pruned_leaves_its_costs(self, store: Store, clock: ManualClock) -> None:
        """Projects pay as before. What the pruned tasks used is that of no task, and their neighbours pay no more."""
        ids = await store.submit([spec(str(n), project="genes", cpus_milli=1000) for n in range(4)])
        agent = await rented(store)
        for number, claimed in enumerate(await agent.claim(4)):
            clock.now_ms += HOUR_MS
            await agent.sync(result(claimed, ran_ms=HOUR_MS // 2))
            if number == 1:
                middle = clock.now_ms
        await leaves(store, agent)
        projects, found = await paid(store, CostKey.PROJECT), await paid_by_task(store)
        clock.now_ms += DAY_MS
        assert (await store.prune(clock.now_ms, Retention(tasks_ms=clock.now_ms - middle - 1)))["tasks"] == 2
        assert await paid(store, CostKey.PROJECT) == projects
        left = await paid_by_task(store)
        assert {task: left[task] for task in ids[2:]} == {task: found[task] for task in ids[2:]}
        assert left[None] == total_of(found[task] for task in ids[:2])
        assert (await store.prune(clock.now_ms, Retention(instances_ms=0)))["instances"] == 1
        assert await paid(store, CostKey.PROJECT) == projects
        assert await paid_by_task(store) == {None: projects["genes"]}
        (unknown,) = await store.cost_of_task(ids[3])
        assert (unknown.cost, unknown.rate) == (None, Rate(1_000_000_000))

    async def test_tasks_are_kept_as_long_as_an_instance_lives_that_they_ran_on(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Past their retention, so that their project pays its part of it, and no neighbour pays for them."""
        retry = RetryRules(causes=frozenset({Cause.EXIT_CODE}))
        wanted = [spec("old", project="genes"), spec("again", project="genes", retry=retry)]
        _, again, young = await store.submit([*wanted, spec("young", project="stars")])
        agent, other = await rented(store), await rented(store, "other")
        claims = await agent.claim(2)
        clock.now_ms += HOUR_MS
        await agent.sync(result(claims[0], ran_ms=HOUR_MS), result(claims[1], FAILURE, ran_ms=HOUR_MS))
        (claimed,) = await other.claim()
        assert claimed.task == again
        await other.sync(result(claimed))
        await leaves(store, other)
        clock.now_ms += HOUR_MS
        (claimed,) = await agent.claim()
        clock.now_ms += HOUR_MS // 2
        await agent.sync(result(claimed, ran_ms=HOUR_MS // 2))
        before = await paid(store, CostKey.PROJECT)
        assert before["genes"].whole > before["stars"].whole > 0
        keep = Retention(tasks_ms=HOUR_MS)
        assert (await store.prune(clock.now_ms, keep))["tasks"] == 0
        await leaves(store, agent)
        assert await paid(store, CostKey.PROJECT) == before
        assert (await store.prune(clock.now_ms, keep))["tasks"] == 2
        assert [task.id for task in await store.tasks(TaskFilter())] == [young]
        assert await paid(store, CostKey.PROJECT) == before
        assert await store.check() == []

    async def test_the_attempts_of_a_task_each_with_its_price(self, store: Store, clock: ManualClock) -> None:
        agent, (again, _) = await played(store, clock)
        await leaves(store, agent)
        first, second = await store.cost_of_task(again)
        assert isinstance(first, AttemptCost)
        assert (first.number, first.cause, first.cost) == (1, "exit-code", Cost(0, 125_000, 275_000))
        assert (second.number, second.cause, second.cost) == (2, "success", Cost(125_000, 0, 275_000))
        assert (first.started_ms, first.ended_ms) == (START_MS, START_MS + HOUR_MS // 4 - 1)
        with pytest.raises(NotFound):
            await store.cost_of_task(TaskId(99))
