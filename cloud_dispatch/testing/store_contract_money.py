"""What the port promises about money: the ledger, and limits that are checked in the transaction of the intent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.errors import InvalidInput, OverBudget
from cloud_dispatch.domain.ids import InstanceId, ProfileName, VmId
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate, charge
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.task import Cause, Outcome
from cloud_dispatch.ports.store import InstanceChange, Store
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.clocks import CLOCKS_MS
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.doubt import AGAIN_MS
from cloud_dispatch.spend.windows import Window, span_at
from cloud_dispatch.testing.store_builders import (
    START_MS,
    Agent,
    ManualClock,
    OpenStore,
    adopted,
    instance,
    intent,
    result,
    spec,
)

_S, _E = InstanceState, InstanceEvent
DOLLAR = 1_000_000
#: The builders' instances are of the profile `local`.
DRIVERS: Mapping[ProfileName, str] = {ProfileName("local"): "cloud"}
DRIVER = Key(Scope.DRIVER, "cloud")
#: What two minutes cost at a dollar an hour: an end is so much later by the clock that bills, for all that is known.
LATE = charge(Rate(1_000_000_000), CLOCKS_MS)


def slot(batch: str = "batch", *, hours: int = 1, number: int = 0, **more: Any) -> Instance:
    """One that may live so long from the start, at a dollar an hour; its intent is later by what clocks may differ."""
    rate = more.pop("rate", Rate(1_000_000_000))
    own = instance(batch, number, state=_S.INTENDED, **more)
    return replace(
        own,
        intended_ms=START_MS + CLOCKS_MS,
        rate=rate,
        max_rate=rate,
        ends_ms=START_MS + hours * HOUR_MS,
        increment_ms=1,
    )


def total(dollars: int, key: Key = EVERYTHING) -> Budget:
    return Budget(key, Window.TOTAL, Amount(dollars * DOLLAR))


async def limited(store: Store, *budgets: Budget) -> None:
    await store.set_limits(budgets, DRIVERS)


def committed(store: Store, budget: Budget) -> tuple[int, int]:
    """What is spent and what is committed, in the window of the first moment."""
    standing, span = store.standing(), span_at(budget.window, START_MS)
    return standing.spent(budget, span), standing.committed(budget, span)


class MoneyContract:
    """Tests of the ledger and of limits; see `StoreContract`."""

    async def test_what_an_instance_did_is_booked_when_it_is_gone(self, store: Store, clock: ManualClock) -> None:
        """Booted for a minute, worked for two, idled for one, and lost one."""
        own = replace(slot(), state=_S.IDLE, launched_ms=START_MS, registered_ms=START_MS + 60_000)
        await store.adopt(own)
        agent = Agent(store, own)
        first, second = await store.submit([spec("kept"), spec("lost")])
        clock.now_ms = START_MS + 60_000
        kept, lost = await agent.claim(2)
        assert {kept.task, lost.task} == {first, second}
        clock.now_ms = START_MS + 180_000
        agent.runs(lost, 0)
        await agent.sync(result(kept, ran_ms=120_000))
        clock.now_ms = START_MS + 240_000
        await agent.sync(result(lost, Outcome(Cause.PREEMPTED), ran_ms=60_000))
        clock.now_ms = START_MS + 300_000
        await store.change([InstanceChange(own.id, _E.GONE)])
        (entry,) = await store.ledger()
        assert (entry.instance, entry.pool, entry.profile) == (own.id, "default", "local")
        assert (entry.from_ms, entry.until_ms) == (START_MS, START_MS + 300_000)
        assert (entry.amount, entry.bound) == (83_334, 83_334 + LATE - 1)
        assert (entry.boot, entry.work, entry.lost, entry.idle) == (16_667, 33_333, 16_667, 16_667)

    async def test_what_was_refused_costs_nothing_and_what_was_never_seen_counts(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A VM that nobody ever saw may have existed: it counts against limits until it was proved absent, and costs
        nothing in reports."""
        await limited(store, total(10))
        for batch in ("refused", "unseen"):
            await store.intend(intent(batch), [slot(batch)])
            await store.change([InstanceChange(slot(batch).id, _E.LAUNCH)])
        await store.change([InstanceChange(slot("refused").id, _E.REFUSED)])
        clock.now_ms += HOUR_MS // 2
        await store.change([InstanceChange(slot("unseen").id, _E.ABSENT)])
        await store.change([InstanceChange(slot("unseen").id, _E.GONE)])
        (entry,) = await store.ledger()
        assert (entry.instance, entry.amount, entry.bound) == ("unseen-0", 0, DOLLAR // 2 + LATE)
        assert committed(store, total(10)) == (DOLLAR // 2 + LATE, 0)

    async def test_how_budgets_stand_is_of_one_moment(self, store: Store) -> None:
        """What is booked while somebody thinks about it must not count twice: it is committed there."""
        await limited(store, total(10))
        await store.adopt(replace(slot(), state=_S.IDLE, launched_ms=START_MS, end_lag_ms=0))
        standing, span = store.standing(), span_at(Window.TOTAL, START_MS)
        before = standing.spent(total(10), span), standing.committed(total(10), span)
        await store.change([InstanceChange(slot().id, _E.GONE)])
        assert committed(store, total(10))[0] > 0
        assert (standing.spent(total(10), span), standing.committed(total(10), span)) == before == (0, DOLLAR)

    async def test_an_intent_beyond_a_limit_is_refused_whole(self, store: Store) -> None:
        """Of two slots one would fit: neither is there, and nothing is committed."""
        await limited(store, total(3, DRIVER))
        await store.intend(intent("first"), [slot("first", hours=2)])
        with pytest.raises(OverBudget) as refused:
            await store.intend(intent("second", 2), [slot("second", number=number) for number in range(2)])
        assert "the budget driver cloud total has" in str(refused.value)
        assert set(store.instances()) == {"first-0"}
        assert committed(store, total(3, DRIVER)) == (0, 2 * DOLLAR)
        await store.intend(intent("third"), [slot("third")])

    async def test_intents_of_one_moment_share_what_is_left(self, store: Store) -> None:
        """Ten at once, room for four: the group commit lets each see what the ones before it took."""
        await limited(store, total(4))
        asked = [store.intend(intent(f"batch{n}"), [slot(f"batch{n}")]) for n in range(10)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(answer is None for answer in answers) == 4
        assert sum(isinstance(answer, OverBudget) for answer in answers) == 6
        assert len(store.instances()) == 4
        assert committed(store, total(4)) == (0, 4 * DOLLAR)

    async def test_a_price_that_is_unknown_is_refused_where_a_limit_covers_it(self, store: Store) -> None:
        """Without a limit it may be launched."""
        unpriced = slot(rate=None)
        await limited(store, total(100, Key(Scope.POOL, "other")))
        await store.intend(intent(), [unpriced])
        await limited(store, total(100))
        with pytest.raises(OverBudget):
            await store.intend(intent("more"), [slot("more", rate=None)])

    async def test_a_hard_end_moves_on_only_within_the_limits(self, store: Store) -> None:
        """Earlier is always admitted, and frees what it takes back."""
        own = slot(hours=2)
        await limited(store, total(3))
        await store.intend(intent(), [own])

        def to(hours: int) -> InstanceChange:
            return InstanceChange(own.id, None, {"ends_ms": START_MS + hours * HOUR_MS})

        with pytest.raises(OverBudget):
            await store.change([to(4)])
        assert store.instances()[own.id].ends_ms == own.ends_ms
        await store.change([to(3)])
        with pytest.raises(OverBudget):
            await store.intend(intent("more"), [slot("more")])
        await store.change([to(1)])
        await store.intend(intent("more"), [slot("more", hours=2)])
        with pytest.raises(OverBudget):
            await store.change([to(2)])

    async def test_a_tightened_limit_holds_over_restarts(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """Beside whatever the configuration says then, until it is taken back; never above the configuration."""
        await limited(store, total(3))
        with pytest.raises(InvalidInput):
            await store.set_limit(EVERYTHING, Window.TOTAL, Amount(4 * DOLLAR))
        await asyncio.gather(
            store.set_limit(EVERYTHING, Window.TOTAL, Amount(DOLLAR)), store.set_limit(DRIVER, Window.DAY, Amount(9))
        )
        with pytest.raises(OverBudget):
            await store.intend(intent(), [slot(hours=2)])
        assert [(one.key, one.limit) for one in store.limits()] == [(EVERYTHING, DOLLAR), (DRIVER, 9)]
        await store.close()
        again = await open_store(clock)
        await limited(again, total(100))
        assert [(one.key, one.limit) for one in again.limits()] == [(EVERYTHING, DOLLAR), (DRIVER, 9)]
        assert again.configured_limits() == (total(100),)
        await again.set_limit(DRIVER, Window.DAY, None)
        with pytest.raises(OverBudget):
            await again.intend(intent(), [slot(hours=2)])
        await again.set_limit(EVERYTHING, Window.TOTAL, None)
        await again.intend(intent(), [slot(hours=2)])

    async def test_a_limit_that_is_tightened_while_the_configuration_changes_holds_under_both(
        self, store: Store
    ) -> None:
        """Whichever of the two is asked for first."""
        await limited(store, total(5))
        await asyncio.gather(limited(store, total(9)), store.set_limit(EVERYTHING, Window.TOTAL, Amount(DOLLAR)))
        assert [(one.key, one.limit) for one in store.limits()] == [(EVERYTHING, DOLLAR)]
        await asyncio.gather(
            store.set_limit(EVERYTHING, Window.TOTAL, Amount(2 * DOLLAR)), limited(store, total(8), total(7, DRIVER))
        )
        assert [(one.key, one.limit) for one in store.limits()] == [(EVERYTHING, 2 * DOLLAR), (DRIVER, 7 * DOLLAR)]
        assert store.configured_limits() == (total(8), total(7, DRIVER))

    async def test_what_may_be_billed_is_told_by_instance(self, store: Store) -> None:
        """Limited or not."""
        await store.intend(intent(), [slot(hours=2)])
        (one,) = store.commitments()
        assert store.committed() == {one.name: one}
        assert (one.name, one.charge(span_at(Window.TOTAL, 0))) == (slot().id, 2 * DOLLAR)

    async def test_what_is_spent_stays_spent(self, store: Store, open_store: OpenStore, clock: ManualClock) -> None:
        """The row of one that is gone takes the place of what it was committed to, also for the next process."""
        hourly = Budget(DRIVER, Window.HOUR, Amount(DOLLAR))
        await limited(store, total(2), hourly)
        await store.intend(intent(), [replace(slot(), launched_ms=START_MS)])
        clock.now_ms += 900_000
        await store.change([InstanceChange(slot().id, _E.LAUNCH), InstanceChange(slot().id, _E.BOUND)])
        await store.change([InstanceChange(slot().id, _E.GONE)])
        before = [committed(store, budget) for budget in (total(2), hourly)]
        assert before[0] == (DOLLAR // 4 + LATE, 0)
        await store.close()
        again = await open_store(clock)
        await limited(again, total(2), hourly)
        assert [committed(again, budget) for budget in (total(2), hourly)] == before
        with pytest.raises(OverBudget):
            await again.intend(intent("more"), [slot("more", hours=2)])
        clock.now_ms = span_at(Window.HOUR, clock.now_ms).end_ms
        late = replace(slot("late"), intended_ms=clock.now_ms, ends_ms=clock.now_ms + HOUR_MS)
        await again.intend(intent("late"), [late])

    async def test_what_was_found_late_costs_no_more_than_it_was_committed_to(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Nobody looked for days: where a hand keeps hard ends it was gone by then. Where none does, it may not be."""
        await limited(store, total(100))
        kept = replace(slot("kept"), launched_ms=START_MS, end_lag_ms=HOUR_MS // 2)
        unkept = replace(slot("unkept"), launched_ms=START_MS, end_lag_ms=None)
        for own in (kept, unkept):
            await store.intend(intent(own.batch), [own])
            await store.change([InstanceChange(own.id, _E.LAUNCH)])
        assert committed(store, total(100)) == (0, DOLLAR * 5 // 2)
        clock.now_ms += 50 * HOUR_MS
        for own in (kept, unkept):
            await store.change([InstanceChange(own.id, _E.ABSENT)])
            await store.change([InstanceChange(own.id, _E.GONE)])
        assert [entry.bound for entry in await store.ledger()] == [DOLLAR * 3 // 2, 50 * DOLLAR + LATE]

    async def test_a_machine_whose_most_nobody_knows_is_refused_where_a_limit_covers_it(self, store: Store) -> None:
        """A spot machine at a price without a maximum may cost anything tomorrow."""
        await limited(store, total(100))
        with pytest.raises(OverBudget):
            await store.intend(intent(), [replace(slot(), max_rate=None)])

    async def test_what_is_adopted_counts_for_the_calls_of_its_group(self, store: Store) -> None:
        """It is there, whoever admitted it: an intent of the same moment sees it."""
        await limited(store, total(3))
        found = replace(slot("found", hours=2), state=_S.UNKNOWN)
        asked = [store.intend(intent("a"), [slot("a")]), store.adopt(found), store.intend(intent("b"), [slot("b")])]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [type(None), type(None), OverBudget]

    async def test_what_costs_more_than_was_known_counts_for_the_calls_of_its_group(self, store: Store) -> None:
        """An adopted VM whose profile says only now what it offers: room for both intents before, and for one after."""
        own = replace(slot("found"), state=_S.IDLE, launched_ms=START_MS, end_lag_ms=0)
        await store.adopt(own)
        await limited(store, total(5))
        first, _, second = await asyncio.gather(
            store.intend(intent("first"), [slot("first")]),
            store.change([InstanceChange(own.id, None, {"max_rate": Rate(4_000_000_000)})]),
            store.intend(intent("second"), [slot("second")]),
            return_exceptions=True,
        )
        assert first is None
        assert isinstance(second, OverBudget)
        assert committed(store, total(5)) == (0, 5 * DOLLAR)

    async def test_what_leaves_counts_for_the_calls_of_its_group(self, store: Store, clock: ManualClock) -> None:
        """Between its commitment and its row there is no moment at which neither counts."""
        await limited(store, total(3))
        own = replace(slot(hours=2), launched_ms=START_MS)
        await store.intend(intent(), [own])
        await store.change([InstanceChange(own.id, _E.LAUNCH), InstanceChange(own.id, _E.BOUND)])
        clock.now_ms = START_MS + 2 * HOUR_MS
        late = replace(slot("late", hours=4), intended_ms=clock.now_ms)
        answers = await asyncio.gather(
            store.change([InstanceChange(own.id, _E.GONE)]), store.intend(intent("late"), [late]),
            return_exceptions=True,
        )  # fmt: skip
        assert isinstance(answers[1], OverBudget)
        spent, may_be_billed = committed(store, total(3))
        assert spent + may_be_billed <= 3 * DOLLAR

    async def test_what_is_to_be_known_with_limits_is_known_with_them(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """Facts are set where the limits are; both hold at once, and the facts for the next process."""
        await store.set_facts({"one": "before", "two": "before"})
        await store.set_limits([total(4)], DRIVERS, facts={"one": "after", "two": None})
        assert (store.fact("one"), store.fact("two")) == ("after", None)
        assert list(store.limits()) == [total(4)]
        await store.close()
        again = await open_store(clock)
        assert (again.fact("one"), again.fact("two")) == ("after", None)

    async def test_what_nobody_can_know_counts_as_spent_until_an_operator_says_otherwise(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """As after a restore, which leaves this mark; also for the next process, as long as nothing is reconciled."""
        await store.set_fact("spend-unsure-since", str(START_MS))
        await store.close()
        again = await open_store(clock)
        hourly = Budget(DRIVER, Window.HOUR, Amount(5 * DOLLAR))
        await limited(again, total(4), hourly)
        assert again.unsure_since() == START_MS
        assert [committed(again, one)[0] for one in (total(4), hourly)] == [4 * DOLLAR, 5 * DOLLAR]
        with pytest.raises(OverBudget):
            await again.intend(intent(), [slot()])
        await again.reconcile()
        assert (again.unsure_since(), again.restored_ms()) == (None, START_MS)
        await again.intend(intent(), [slot()])
        await again.close()
        third = await open_store(clock)
        await limited(third, total(4), hourly)
        assert (third.unsure_since(), committed(third, total(4))) == (None, (0, DOLLAR))

    async def test_a_doubt_lasts_until_an_operator_says_otherwise(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """Beside that of a restore, which it leaves alone: no listing is waited for. What is said of other statestores
        is remembered for good."""
        hourly = Budget(DRIVER, Window.HOUR, Amount(5 * DOLLAR))
        await limited(store, hourly)
        await store.doubt()
        assert (store.unsure_since(), store.doubted_ms(), store.restored_ms()) == (START_MS, START_MS, None)
        assert committed(store, hourly)[0] == 5 * DOLLAR
        with pytest.raises(OverBudget):
            await store.intend(intent(), [slot()])
        clock.now_ms += AGAIN_MS  # the hour that begins within what is left of its reach counts, too
        await store.doubt()
        await store.close()
        again = await open_store(clock)
        await limited(again, hourly)
        assert again.unsure_since() == clock.now_ms
        clock.now_ms = START_MS - START_MS % HOUR_MS + HOUR_MS
        assert committed(again, hourly)[0] == 5 * DOLLAR
        await again.reconcile(["lost"])
        await again.reconcile(["lost", "another"])
        assert (again.unsure_since(), again.doubted_ms()) == (None, None)
        await again.intend(intent(), [slot()])
        await again.reconcile()
        await again.close()
        third = await open_store(clock)
        assert (third.unsure_since(), sorted(third.reckoned())) == (None, ["another", "lost"])

    async def test_the_ledger_is_asked_by_time(self, store: Store, clock: ManualClock) -> None:
        """Entries that reach into the time asked for, in order, so many at most."""
        for number in range(3):
            clock.now_ms = START_MS + number * HOUR_MS
            began = clock.now_ms
            agent = await adopted(store, f"batch{number}", launched_ms=began)
            clock.now_ms += HOUR_MS // 2
            await store.change([InstanceChange(agent.id, _E.GONE)])
        names = [InstanceId(f"batch{number}-0") for number in range(3)]
        assert [entry.instance for entry in await store.ledger()] == names
        assert [entry.instance for entry in await store.ledger(from_ms=START_MS + HOUR_MS)] == names[1:]
        assert [entry.instance for entry in await store.ledger(until_ms=START_MS + HOUR_MS)] == names[:1]
        assert [entry.instance for entry in await store.ledger(limit=1)] == names[:1]

    async def test_what_is_gone_is_remembered_as_breakers_ask(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """What it was made from, whether it served, what ended there by its own doing, and what waited when it went;
        in memory, in the ledger, and for the next process the same."""
        silent = replace(slot("silent"), state=_S.BOOTING, launched_ms=START_MS, template="agent", image="ami-1")
        idle = replace(silent, id=InstanceId("idle-0"), state=_S.IDLE, registered_ms=START_MS + 5)
        busy = replace(idle, id=InstanceId("busy-0"))
        for own in (silent, idle, busy):
            await store.adopt(own)
        agent = Agent(store, busy)
        await store.submit([spec("done"), spec("large", cpus_milli=999_000), spec("waits")])
        (done,) = await agent.claim(1)
        await agent.sync(result(done, Outcome(Cause.EXIT_CODE, exit_code=1), ran_ms=5))
        clock.now_ms += HOUR_MS
        await store.change([InstanceChange(silent.id, _E.FAIL, {"cause": "boot-deadline"})])
        for own in (silent, idle, busy):
            await store.change([InstanceChange(own.id, _E.GONE)])
        found = store.past().all()
        assert [(one.instance, one.registered_ms, one.tasks, one.waiting, one.cause) for one in found] == [
            ("silent-0", None, 0, 1, "boot-deadline"),
            ("idle-0", START_MS + 5, 0, 1, ""),
            ("busy-0", START_MS + 5, 1, 0, ""),
        ]
        assert {(one.template, one.image, one.zone, one.bound) for one in found} == {
            ("agent", "ami-1", idle.zone, DOLLAR + LATE)
        }
        entries = await store.ledger()
        assert [(one.template, one.image, one.tasks, one.waiting, one.cause) for one in entries] == [
            (one.template, one.image, one.tasks, one.waiting, one.cause) for one in found
        ]
        await store.close()
        assert (await open_store(clock)).past().all() == found

    async def test_preemptions_are_remembered_with_how_long_spot_vms_ran(
        self, store: Store, open_store: OpenStore, clock: ManualClock
    ) -> None:
        """Those that live included; in memory, and for the next process the same."""
        usual = replace(slot("taken"), state=_S.IDLE, market=Market.SPOT, vm=VmId("v-1"), intended_ms=START_MS)
        quiet = replace(usual, id=InstanceId("quiet-0"), vm=VmId("v-2"), zone="another")
        lives = replace(quiet, id=InstanceId("lives-0"), vm=VmId("v-3"))
        dear = replace(usual, id=InstanceId("dear-0"), vm=VmId("v-4"), market=Market.ON_DEMAND)
        for own in (usual, quiet, lives, dear):
            await store.adopt(own)
        clock.now_ms += 4 * 60_000
        assert store.past().spot.seen(clock.now_ms) == ()
        for own in (usual, dear):
            await store.change([InstanceChange(own.id, _E.GONE, {"cause": "preempted"})])
        await store.change([InstanceChange(quiet.id, _E.GONE, {"cause": "idle"})])
        clock.now_ms += 4 * 60_000
        found = store.past().spot.seen(clock.now_ms)
        assert [(one.profile, one.type, one.zone, round(one.preempted, -2)) for one in found] == [
            (usual.profile, usual.type, usual.zone, 1000), (quiet.profile, quiet.type, "another", 0)
        ]  # fmt: skip
        assert [round(one.ran_ms / 60_000) for one in found] == [4, 12]
        await store.close()
        assert (await open_store(clock)).past().spot.seen(clock.now_ms) == found
