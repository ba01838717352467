"""What the port promises about the money of projects and users: claims that their limits admit, and what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.domain.task import Cause, Outcome, RetryRules, TaskSpec
from cloud_dispatch.ports.store import InstanceChange, Retention, Store, TaskFilter
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.payers import ClaimTerms
from cloud_dispatch.spend.windows import DAY_MS, Window, span_at
from cloud_dispatch.testing.store_builders import (
    START_MS,
    Agent,
    ManualClock,
    OpenStore,
    instance,
    result,
    spec,
)

DOLLAR = 1_000_000
#: Leases of nothing: a claim is committed until its task is done, or its VM ends.
TERMS = ClaimTerms(lease_ms=0)
POOR, ANN = Key(Scope.PROJECT, "poor"), Key(Scope.USER, "ann")
_NO_DRIVERS: Mapping[ProfileName, str] = {}


def quarter(project: str = "poor", *, hours: int = 1, **more: Any) -> TaskSpec:
    """A task that holds a quarter of a machine, for a quarter of a dollar an hour; 0 hours: it does not say."""
    return spec(memory=4 * GIB, project=project, expected_runtime_ms=hours * HOUR_MS, **more)


async def machine(store: Store, batch: str = "batch", *, hours: int = 1, **more: Any) -> Agent:
    """An instance at a dollar an hour that ends then, at once."""
    own = instance(batch, **{"max_rate": Rate(1_000_000_000), "end_lag_ms": 0, **more})
    own = replace(own, ends_ms=START_MS + hours * HOUR_MS)
    await store.adopt(own)
    return Agent(store, own)


def of(key: Key, dollars: float, window: Window = Window.TOTAL) -> Budget:
    return Budget(key, window, Amount(round(dollars * DOLLAR)))


async def limited(store: Store, *budgets: Budget, terms: ClaimTerms = TERMS) -> None:
    await store.set_limits(budgets, _NO_DRIVERS, terms)


def stands(store: Store, budget: Budget) -> tuple[int, int]:
    """What is spent and what is committed, in the window of the first moment."""
    standing, span = store.standing(), span_at(budget.window, START_MS)
    return standing.spent(budget, span), standing.committed(budget, span)


def waits(store: Store) -> Mapping[str, tuple[int, str]]:
    """By payer, how much waits and why nothing of it is begun."""
    return {str(demand.payer): (demand.count, demand.withheld) for demand in store.waiting()}


async def sound(store: Store) -> None:
    """Nothing contradicts anything."""
    assert list(await store.check()) == []


class PayersContract:
    """Tests of the limits of projects and users; see `StoreContract`."""

    async def test_who_has_no_limit_is_not_told_apart(self, store: Store) -> None:
        """Everything of a shape waits together."""
        await limited(store, of(Key(Scope.PROJECT, "other"), 1))
        await store.submit([quarter("poor"), quarter("rich"), quarter("")])
        (demand,) = store.waiting()
        assert (demand.count, demand.payer, demand.withheld) == (3, NOBODY, "")
        assert store.payer_of(quarter("poor")) == NOBODY
        assert store.payer_of(quarter("other", user="ann")) == Payer("other", "ann")

    async def test_a_limit_bounds_claims_and_leaves_others_working(self, store: Store) -> None:
        """Fifty cents pay for two of four tasks; the other project has the rest of the machine."""
        await limited(store, of(POOR, 0.6))
        await store.submit([quarter() for _ in range(4)] + [quarter("rich") for _ in range(4)])
        agent = await machine(store)
        claimed = await agent.claim(4)
        assert [claim.task for claim in claimed] == [1, 2, 5, 6]
        assert stands(store, of(POOR, 0.6)) == (0, DOLLAR // 2)
        count, withheld = waits(store)["project poor"]
        assert count == 2
        assert "the budget project poor total has $0.10 left of $0.60" in withheld
        assert waits(store)[""] == (2, "")
        assert not await agent.claim(4)
        await sound(store)

    async def test_both_limits_of_a_payer_hold(self, store: Store) -> None:
        """The project's for whoever asks, the user's in whatever project."""
        await limited(store, of(POOR, 0.6), of(ANN, 0.3))
        await store.submit([quarter(user="ann"), quarter(user="ann"), quarter("rich", user="ann"), quarter(user="bob")])
        agent = await machine(store)
        assert [claim.task for claim in await agent.claim(4)] == [1, 4]
        assert set(waits(store)) == {"project poor, user ann", "project rich, user ann"}

    async def test_claims_of_one_moment_share_what_is_left(self, store: Store) -> None:
        """Ten instances at once, money for three tasks."""
        await limited(store, of(POOR, 0.75))
        await store.submit([quarter() for _ in range(10)])
        agents = [await machine(store, f"b{n}") for n in range(10)]
        answers = await asyncio.gather(*(agent.claim(4) for agent in agents))
        assert sum(map(len, answers)) == 3
        assert stands(store, of(POOR, 0.75)) == (0, 750_000)
        await sound(store)

    async def test_what_a_claim_has_cost_is_booked_for_good(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """Whatever its outcome; over restarts, and when tasks are pruned."""
        total, hourly = of(POOR, 0.6), of(POOR, 0.6, Window.HOUR)
        await limited(store, total, hourly)
        rules = RetryRules(max_attempts=1)
        await store.submit([quarter(retry=rules), quarter(retry=rules), quarter()])
        agent = await machine(store)
        done, failed = await agent.claim(2)
        before = stands(store, hourly)[1]
        clock.now_ms += HOUR_MS // 4
        await agent.sync(result(done), result(failed, Outcome(Cause.EXIT_CODE, exit_code=1)))
        assert stands(store, total) == (DOLLAR // 8, 0)
        assert stands(store, hourly)[0] <= before
        await sound(store)
        await store.change([InstanceChange(agent.id, InstanceEvent.GONE)])
        await store.prune(clock.now_ms + 1, Retention(tasks_ms=0, instances_ms=0))
        known = [stands(store, one) for one in (total, hourly)]
        await store.close()
        again = await open_store(clock)
        await limited(again, total, hourly)
        assert [stands(again, one) for one in (total, hourly)] == known
        clock.now_ms += 400 * 24 * HOUR_MS
        await limited(again, total, hourly)
        assert stands(again, total) == known[0]

    async def test_charges_that_no_window_holds_any_more_are_added_up(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """A few at a time, by payer, and later ones to those; a limit in total counts them as before, now and after a
        restart. What ended within two months before the newest is kept as it is: its windows may be open."""
        poor, ann = of(POOR, 1.2), of(ANN, 100)
        await limited(store, poor, ann)

        async def spend(*wanted: TaskSpec) -> list[tuple[int, int]]:
            await store.submit(wanted)
            agent = await machine(store, f"at-{clock.now_ms}", hours=(clock.now_ms - START_MS) // HOUR_MS + 1)
            claims = await agent.claim(len(wanted))
            clock.now_ms += HOUR_MS // 2
            await agent.sync(*map(result, claims))
            await store.change([InstanceChange(agent.id, InstanceEvent.GONE)])
            return [stands(store, one) for one in (poor, ann)]

        async def added() -> list[int]:
            found = [(await store.prune(clock.now_ms, Retention(), batch=2))["charges"] for _ in range(4)]
            assert [stands(store, one) for one in (poor, ann)] == spent
            await limited(store, poor, ann)
            assert [stands(store, one) for one in (poor, ann)] == spent, "as the tables have it"
            return found

        spent = await spend(*[quarter() for _ in range(3)], quarter("rich", user="ann"))
        assert spent == [(375_000, 0), (125_000, 0)]
        clock.now_ms += 61 * DAY_MS
        spent = await spend(quarter(), quarter("rich", user="ann"))
        assert await added() == [0, 0, 0, 0]
        clock.now_ms += 2 * DAY_MS
        assert await added() == [0, 0, 0, 0], "by the newest"
        spent = await spend(quarter("rich", user="ann"))
        assert await added() == [2, 2, 0, 0]
        clock.now_ms += 61 * DAY_MS
        spent = await spend(quarter("rich", user="ann"))
        assert await added() == [2, 0, 0, 0]
        assert spent == [(500_000, 0), (500_000, 0)]
        assert await asyncio.gather(*(store.prune(clock.now_ms, Retention()) for _ in range(2))) == [{"charges": 0}] * 2
        await store.close()
        store = await open_store(clock)
        await limited(store, poor, ann)
        assert [stands(store, one) for one in (poor, ann)] == spent
        assert await spend(*[quarter() for _ in range(3)]) == [(750_000, 0), (500_000, 0)], "two of the three"
        await sound(store)

    async def test_charges_that_are_added_up_twice_at_once_count_once(self, store: Store, clock: ManualClock) -> None:
        """All of them, and a part of the same."""
        await limited(store, of(POOR, 1))
        await store.submit([quarter() for _ in range(5)])
        for name, tasks, days in (("old", 4, 0), ("new", 1, 100)):
            clock.now_ms += days * DAY_MS
            agent = await machine(store, name, hours=days * 24 + 1)
            claims = await agent.claim(tasks)
            clock.now_ms += HOUR_MS // 2
            await agent.sync(*map(result, claims))
        answers = await asyncio.gather(*(store.prune(clock.now_ms, Retention(), batch=most) for most in (2, 10, 2)))
        assert sum(answer["charges"] for answer in answers) >= 2
        await limited(store, of(POOR, 1))
        assert stands(store, of(POOR, 1)) == (5 * DOLLAR // 8, 0)

    async def test_what_is_given_back_frees_what_it_did_not_use(self, store: Store, clock: ManualClock) -> None:
        """The next claim of the very same call has it."""
        await limited(store, of(POOR, 0.3))
        await store.submit([quarter(hours=1) for _ in range(3)])
        agent = await machine(store)
        (first,) = await agent.claim(4)
        clock.now_ms += 60_000
        (second,) = (await agent.sync(result(first), want=4)).claims
        assert second.task == 2
        assert stands(store, of(POOR, 0.3)) == (4_167, 250_000 + 0)
        await sound(store)

    async def test_what_was_found_late_costs_no_more_than_its_vm_could(self, store: Store, clock: ManualClock) -> None:
        """Nobody looked for a day."""
        await limited(store, of(POOR, 1))
        await store.submit([quarter()])
        agent = await machine(store, end_lag_ms=HOUR_MS)
        await agent.claim()
        assert stands(store, of(POOR, 1)) == (0, DOLLAR // 2)
        clock.now_ms += 24 * HOUR_MS
        await store.change([InstanceChange(agent.id, InstanceEvent.GONE)])
        assert stands(store, of(POOR, 1)) == (DOLLAR // 2, 0)
        await sound(store)

    async def test_a_later_end_is_refused_beyond_what_its_claims_may_cost(self, store: Store) -> None:
        """Both claims pay for it; an earlier one frees what it takes back. Of others nobody asks."""
        await limited(store, of(POOR, 1))
        await store.submit([quarter(), quarter(), quarter("rich")])
        agent = await machine(store)
        await agent.claim(3)

        def to(hours: int) -> InstanceChange:
            return InstanceChange(agent.id, None, {"ends_ms": START_MS + hours * HOUR_MS})

        with pytest.raises(OverBudget) as refused:
            await store.change([to(3)])
        assert "the budget project poor total" in str(refused.value)
        assert store.instances()[agent.id].ends_ms == START_MS + HOUR_MS
        assert stands(store, of(POOR, 1)) == (0, DOLLAR // 2)
        await store.change([to(2)])
        assert stands(store, of(POOR, 1)) == (0, DOLLAR)
        await sound(store)
        await store.change([to(1)])
        assert stands(store, of(POOR, 1)) == (0, DOLLAR // 2)
        await sound(store)

    async def test_what_was_begun_can_be_finished(self, store: Store) -> None:
        """Three hours of work on a VM that ends in one: the rest is kept for it, and its VM's end can be moved on."""
        await limited(store, of(POOR, 1))
        await store.submit([quarter(hours=3), quarter(hours=3)])
        agent = await machine(store)
        assert len(await agent.claim(2)) == 1
        assert stands(store, of(POOR, 1)) == (0, 750_000)
        await store.change([InstanceChange(agent.id, None, {"ends_ms": START_MS + 3 * HOUR_MS})])
        assert stands(store, of(POOR, 1)) == (0, 750_000)
        await sound(store)

    async def test_what_is_too_dear_holds_up_nothing_behind_it(self, store: Store) -> None:
        """Two of an hour are paid for; the one of ten hours is not, nor is the third."""
        await limited(store, of(POOR, 0.6))
        await store.submit([quarter(hours=10), quarter(hours=1), quarter("rich"), quarter(hours=1), quarter(hours=1)])
        assert waits(store)["project poor"] == (4, "")
        (front,) = [demand.front for demand in store.waiting() if demand.payer != NOBODY]
        assert front == ((10 * HOUR_MS, 1), (HOUR_MS, 3))
        agent = await machine(store)
        assert [claim.task for claim in await agent.claim(4)] == [2, 3, 4]
        assert waits(store)["project poor"][0] == 2
        assert "the budget project poor total has $0.10 left" in waits(store)["project poor"][1]
        await sound(store)

    async def test_what_is_passed_over_keeps_its_priority_among_what_can_be_paid_for(self, store: Store) -> None:
        """Others' better tasks come before what is claimed in place of one that is too dear."""
        await limited(store, of(POOR, 0.6))
        tasks = [quarter(hours=10, priority=2), quarter(hours=1), quarter("rich", priority=1), quarter(hours=1)]
        await store.submit(tasks)
        agent = await machine(store)
        assert [claim.task for claim in await agent.claim(2)] == [3, 2]
        await sound(store)

    async def test_of_a_payer_so_many_tasks_are_looked_at(self, store: Store) -> None:
        """What is behind sixty-four that are too dear waits; of what is in reach the first is taken that is not."""
        await limited(store, of(POOR, 0.6))
        await store.submit([quarter(hours=10)] * 63 + [quarter(hours=2), quarter(hours=1)])
        agent = await machine(store)
        assert [claim.task for claim in await agent.claim(1)] == [64]
        await store.submit([quarter("rich")])
        assert [claim.task for claim in await agent.claim(4)] == [66]
        await sound(store)

    async def test_a_refusal_holds_for_what_takes_no_less(self, store: Store) -> None:
        """Of an hour, and of ten when that is cancelled; what is shorter waits for nothing but a VM."""
        await limited(store, of(POOR, 0.5))
        _, short = await store.submit([quarter(hours=10), quarter(hours=1)])
        dear = await machine(store, max_rate=Rate(8_000_000_000))
        assert not await dear.claim(4)
        assert "$2.00 wanted" in waits(store)["project poor"][1]
        await store.cancel(TaskFilter(ids=(short,)))
        assert "$2.00 wanted" in waits(store)["project poor"][1]
        await store.submit([replace(quarter(), expected_runtime_ms=60_000)])
        assert waits(store)["project poor"] == (2, "")
        assert [ms for _, ms in store.coming(10)] == [60_000]  # the other one is begun by nobody
        assert store.declined() == {}
        await sound(store)

    async def test_who_was_refused_is_told_for_how_much_and_where(self, store: Store) -> None:
        """At eight dollars an hour: that VM declines, one of a dollar takes it. The cheapest refusal counts."""
        await limited(store, of(POOR, 0.5))
        await store.submit([quarter(), quarter()])
        dear, dearer = [await machine(store, name, max_rate=Rate(rate * 10**9)) for name, rate in (("d", 8), ("e", 16))]
        for agent in (dear, dearer):
            assert not await agent.claim(4)
        ((refused,),) = [demand.refused for demand in store.waiting()]
        assert (refused.expected_ms, refused.cost) == (HOUR_MS, 2_000_000_000 * HOUR_MS)
        assert set(store.declined()) == {dear.id, dearer.id}
        assert len(await (await machine(store)).claim(1)) == 1
        assert [demand.refused for demand in store.waiting()] == [()]
        assert set(store.declined()) == {dear.id, dearer.id}
        await sound(store)

    async def test_who_is_long_in_use_declines_what_another_one_like_it_would_take(
        self, store: Store, clock: ManualClock
    ) -> None:
        """What runs there besides is to be finished, and would be paid for as long."""
        await limited(store, of(POOR, 0.5))
        await store.submit([quarter("rich", hours=10), quarter(hours=1)])
        agent = await machine(store)
        assert [claim.task for claim in await agent.claim(4)] == [1]
        (refused,) = next(demand.refused for demand in store.waiting() if demand.payer != NOBODY)
        assert refused.cost == 250_000_000 * 10 * HOUR_MS
        assert list(store.declined()) == [agent.id]
        await sound(store)

    async def test_who_knows_neither_end_nor_price_gets_no_task_of_a_payer_with_a_limit(self, store: Store) -> None:
        """The other project's it gets."""
        await limited(store, of(POOR, 100))
        await store.submit([quarter(), quarter("rich"), quarter("rich")])
        unpriced = await machine(store, "unpriced", max_rate=None)
        assert [claim.task for claim in await unpriced.claim(1)] == [2]
        assert store.declined() == {unpriced.id: ((quarter().shape, Payer("poor")),)}
        endless = await machine(store, "endless", end_lag_ms=None)
        assert [claim.task for claim in await endless.claim(2)] == [3]
        assert set(store.declined()) == {unpriced.id, endless.id}
        assert waits(store)["project poor"][1] == ""  # another one may do
        assert [claim.task for claim in await (await machine(store)).claim(2)] == [1]
        assert store.declined() == {}
        await sound(store)

    async def test_an_end_that_was_seen_later_counts_for_the_claims_there(self, store: Store) -> None:
        """Nobody was asked, since it is so; but nothing more is claimed at its cost."""
        await limited(store, of(POOR, 0.6))
        await store.submit([quarter(hours=1), quarter(hours=1)])
        agent = await machine(store)
        assert len(await agent.claim(1)) == 1
        own = next(iter(store.instances().values()))
        await store.change([InstanceChange(own.id, None, {"end_lag_ms": 24 * HOUR_MS})])
        (held,) = store.claim_commitments()
        assert held.until_ms >= own.ends_ms + 24 * HOUR_MS
        assert not await agent.claim(2)
        await sound(store)

    async def test_what_takes_unknown_time_is_tried_once_until_one_has_succeeded(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Its VM's lifetime is too dear, its end as it is not."""
        lifetime = ClaimTerms(lease_ms=0, lifetimes={PoolName("default"): 24 * HOUR_MS})
        await limited(store, of(POOR, 2), terms=lifetime)
        await store.submit([quarter(hours=0) for _ in range(4)])
        agent = await machine(store)
        (tried,) = await agent.claim(4)
        assert store.trying(Payer("poor"))
        assert "another one of them is being tried" in waits(store)["project poor"][1]
        clock.now_ms += 60_000
        assert len((await agent.sync(result(tried, ran_ms=60_000), want=4)).claims) == 3
        await sound(store)

    async def test_what_takes_unknown_time_is_not_tried_where_its_vms_lifetime_is_paid_for(self, store: Store) -> None:
        """Six dollars each."""
        lifetime = ClaimTerms(lease_ms=0, lifetimes={PoolName("default"): 24 * HOUR_MS})
        await limited(store, of(POOR, 20), terms=lifetime)
        await store.submit([quarter(hours=0) for _ in range(4)])
        assert len(await (await machine(store)).claim(4)) == 3
        assert stands(store, of(POOR, 20)) == (0, 18 * DOLLAR)
        await sound(store)

    async def test_limits_that_come_and_go_sort_what_waits_and_what_is_held(
        self, store: Store, clock: ManualClock
    ) -> None:
        """In order of priority and id all the while; what comes back comes back to where it waits then."""
        await store.submit([quarter(priority=1), quarter("rich"), quarter(), quarter("rich")])
        agent = await machine(store, cpus=2, memory=8 * GIB)
        first, second = await agent.claim(2)
        assert [first.task, second.task] == [1, 2]
        await limited(store, of(POOR, 100))
        assert stands(store, of(POOR, 100)) == (0, DOLLAR // 2)
        assert set(waits(store)) == {"project poor", ""}
        await sound(store)
        await agent.sync(result(first, None, None), result(second, None, None))
        assert {payer: count for payer, (count, _) in waits(store).items()} == {"project poor": 2, "": 2}
        await store.set_limit(POOR, Window.DAY, Amount(0))
        assert [claim.task for claim in await agent.claim(2)] == [2, 4]
        await store.set_limit(POOR, Window.DAY, None)
        await limited(store)
        assert set(waits(store)) == {""}
        await sound(store)
        other = await machine(store, "other")
        assert [claim.task for claim in await other.claim(4)] == [1, 3]

    async def test_who_was_refused_waits_until_that_claim_would_be_admitted(
        self, store: Store, clock: ManualClock
    ) -> None:
        """By a claim that ends, or a new window."""
        hourly = of(POOR, 0.125, Window.HOUR)
        clock.now_ms = span_at(Window.HOUR, START_MS).end_ms
        await limited(store, hourly)
        await store.submit([quarter(hours=0) for _ in range(2)])
        agent = await machine(store, hours=0)
        await store.change([InstanceChange(agent.id, None, {"ends_ms": clock.now_ms + HOUR_MS // 2})])
        assert waits(store)["project poor"] == (2, "")
        (claim,) = await agent.claim(2)
        assert waits(store)["project poor"][1]
        clock.now_ms += HOUR_MS // 2
        await agent.sync(result(claim, Outcome(Cause.INSTANCE_LOST)))
        assert waits(store)["project poor"][1]
        clock.now_ms += HOUR_MS // 2
        assert waits(store)["project poor"][1] == ""

    async def test_what_is_withheld_is_begun_by_nobody(self, store: Store) -> None:
        """A soft threshold, say; until that is taken back."""
        await limited(store, of(POOR, 100))
        await store.submit([quarter(), quarter("rich")])
        store.withhold({POOR: "nearly spent"})
        agent = await machine(store)
        assert [claim.task for claim in await agent.claim(2)] == [2]
        assert waits(store) == {"project poor": (1, "nearly spent")}
        store.withhold({})
        assert waits(store) == {"project poor": (1, "")}
        assert [claim.task for claim in await agent.claim(2)] == [1]

    async def test_how_long_what_comes_next_takes(self, store: Store) -> None:
        """In the order of claims: the urgent one first, and nothing that is begun by nobody."""
        await limited(store, of(POOR, 100))
        tasks = [
            replace(quarter("rich"), expected_runtime_ms=0), replace(quarter("rich"), expected_runtime_ms=2),
            replace(quarter(), expected_runtime_ms=3), replace(quarter("rich"), expected_runtime_ms=4, priority=1),
        ]  # fmt: skip
        await store.submit(tasks)
        assert [ms for _, ms in store.coming(10)] == [4, 0, 2, 3]
        assert [ms for _, ms in store.coming(2)] == [4, 0, 3]  # of each line
        assert {shape for shape, _ in store.coming(10)} == {tasks[0].shape}
        store.withhold({POOR: "nearly spent"})
        assert [ms for _, ms in store.coming(10)] == [4, 0, 2]

    async def test_nothing_of_a_payer_with_a_limit_is_claimed_ahead(self, store: Store) -> None:
        """What waits on a VM holds no part of it, and would be paid for."""
        await limited(store, of(POOR, 100))
        await store.submit([quarter() for _ in range(8)] + [quarter("rich") for _ in range(8)])
        agent = await machine(store)
        claims: Sequence[int] = [claim.task for claim in await agent.claim(8, ahead=4)]
        assert claims[:4] == [1, 2, 3, 4]
        assert set(claims[4:]) <= set(range(9, 17))
        await sound(store)

    async def test_what_claims_may_cost_is_told_by_task(self, store: Store) -> None:
        await limited(store, of(POOR, 100))
        await store.submit([quarter(), quarter("rich")])
        agent = await machine(store)
        await agent.claim(2)
        (one,) = store.claim_commitments()
        assert (one.name, one.keys, one.charge(span_at(Window.TOTAL, 0))) == ("task 1", (POOR,), DOLLAR // 4)
        assert [store.holder_of(each) for each in store.commitments()] == [agent.id, agent.id]

    async def test_what_nobody_can_know_counts_as_spent_for_payers_too(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """As after a restore."""
        await store.set_fact("spend-unsure-since", str(START_MS))
        await store.close()
        again = await open_store(clock)
        await limited(again, of(POOR, 100))
        await again.submit([quarter()])
        agent = await machine(again)
        assert not await agent.claim()
        await again.reconcile()
        assert len(await agent.claim()) == 1
