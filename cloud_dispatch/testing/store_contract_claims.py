"""What the port promises about sync: results, the running set, claims, leases and loads."""

from __future__ import annotations

import msgspec
import pytest

from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.shape import Load
from cloud_dispatch.domain.task import Cause, Lease, Outcome, RetryRules, TaskSpec, TaskState
from cloud_dispatch.ports.store import ClaimResult, HeldClaim, InstanceChange, Store, SyncCall, SyncDone, TaskFilter
from cloud_dispatch.testing.store_builders import (
    FAILURE,
    START_MS,
    SUCCESS,
    ManualClock,
    OpenStore,
    adopted,
    result,
    spec,
)

RETRY = RetryRules(max_attempts=2, causes=frozenset(Cause))


class ClaimsContract:
    """Tests of the claims' side; see `StoreContract`."""

    async def test_a_claim_is_a_lease_under_a_rising_token(self, store: Store) -> None:
        """A claim carries the stored specification, its attempt and a token; the task shows the lease."""
        await store.submit([spec("a"), spec("b")])
        agent = await adopted(store)
        one, two = await agent.claim(2)
        assert (one.task, one.attempt, two.task, two.attempt) == (1, 1, 2, 1)
        assert one.token < two.token
        assert msgspec.json.decode(one.spec, type=TaskSpec) == spec("a")
        task = await store.task(one.task)
        assert (task.state, task.lease) == (TaskState.CLAIMED, Lease(one.token, agent.id, START_MS))
        assert store.leases_of(agent.id) == {1: one.token, 2: two.token}
        assert store.holds(one.task, one.token, agent.id)
        assert not store.holds(one.task, two.token, agent.id)
        assert not store.holds(one.task, one.token, InstanceId("other-0"))

    async def test_an_unknown_instance_is_not_found(self, store: Store) -> None:
        """A sync of an instance that the store does not have is refused."""
        with pytest.raises(NotFound):
            await store.sync(SyncCall(InstanceId("nobody-0"), 1, want=1))
        assert (store.leases_of(InstanceId("nobody-0")), store.load_of(InstanceId("nobody-0"))) == ({}, Load())

    async def test_a_result_ends_the_attempt_and_the_task(self, store: Store, clock: ManualClock) -> None:
        """An accepted result is the task's outcome and an attempt; the lease is gone."""
        await store.submit([spec()])
        agent = await adopted(store)
        (claim,) = await agent.claim()
        clock.now_ms += 100
        done = await agent.sync(result(claim, Outcome(Cause.SUCCESS, 0, None, "fine", (), 7, 8), ran_ms=60))
        assert done.settled == (claim.token,)
        task = await store.task(claim.task)
        assert (task.state, task.attempts, task.lease) == (TaskState.SUCCEEDED, 1, None)
        assert (task.ended_ms, task.outcome) == (START_MS + 100, Outcome(Cause.SUCCESS, 0, None, "fine", (), 7, 8))
        (attempt,) = await store.attempts(claim.task)
        assert (attempt.number, attempt.token, attempt.instance) == (1, claim.token, agent.id)
        assert (attempt.claimed_ms, attempt.started_ms, attempt.ended_ms) == (START_MS, START_MS + 40, START_MS + 100)
        assert list(await store.attempts_of(agent.id)) == [attempt]
        assert [listed.last for listed in await store.tasks(TaskFilter(), limit=10)] == [task.last] == [attempt]
        assert store.leases_of(agent.id) == {}

    @pytest.mark.parametrize(
        ("start_told", "ran_ms", "ago_ms", "expected"),
        [
            (True, 300, 600, (100, 400)),
            (False, 300, 600, (100, 400)),
            (True, 300, 5_000, (100, 100)),  # says that it ended before it had begun
            (False, 5_000, 5_000, (0, 0)),
            (False, None, 600, (None, 400)),
            (False, None, 5_000, (None, 0)),
        ],
    )
    async def test_an_end_that_is_told_late_is_when_it_was(
        self, store: Store, clock: ManualClock, start_told: bool, ran_ms: int | None, ago_ms: int,
        expected: tuple[int | None, int],
    ) -> None:  # fmt: skip
        """An attempt of which is heard only after a silence ended when its command did: not before it began, nor before
        it was claimed, whatever its agent says. When it was told is known too."""
        await store.submit([spec()])
        agent = await adopted(store)
        (claim,) = await agent.claim()
        if start_told:
            clock.now_ms += 100
            agent.runs(claim)
            await agent.sync()
        clock.now_ms = START_MS + 1_000
        await agent.sync(result(claim, Outcome(Cause.EXIT_CODE, 3), ran_ms, ago_ms))
        (attempt,) = await store.attempts(claim.task)
        began_ms = None if attempt.started_ms is None else attempt.started_ms - START_MS
        assert (began_ms, attempt.ended_ms - START_MS) == expected
        assert attempt.told_ms == START_MS + 1_000
        assert (await store.task(claim.task)).ended_ms == attempt.ended_ms
        assert await store.check() == []

    async def test_a_result_is_accepted_once(self, store: Store) -> None:
        """The same result sent again is settled and changes nothing."""
        await store.submit([spec()])
        agent = await adopted(store)
        (claim,) = await agent.claim()
        await agent.sync(result(claim))
        assert (await agent.sync(result(claim, FAILURE))).settled == (claim.token,)
        assert (await store.task(claim.task)).outcome == SUCCESS
        assert len(await store.attempts(claim.task)) == 1

    async def test_a_stale_or_foreign_result_has_no_effect(self, store: Store) -> None:
        """Only the current token from the instance that holds it counts; anything else is settled as stale."""
        await store.submit([spec()])
        old, new = await adopted(store, "old"), await adopted(store, "new")
        (first,) = await old.claim()
        await old.sync(result(first, None, None))
        (second,) = await new.claim()
        assert (await old.sync(result(first))).settled == (first.token,)
        assert (await old.sync(ClaimResult(second.task, second.token, 5, SUCCESS))).settled == (second.token,)
        assert (await store.task(second.task)).state is TaskState.CLAIMED
        assert store.holds(second.task, second.token, new.id)

    async def test_a_claim_handed_back_costs_no_attempt_and_keeps_its_place(self, store: Store) -> None:
        """Outcome None: the task is queued again before later ones, without an attempt."""
        await store.submit([spec(), spec()])
        agent = await adopted(store)
        (claim,) = await agent.claim()
        await agent.sync(result(claim, None, None))
        task = await store.task(claim.task)
        assert (task.state, task.attempts, task.outcome) == (TaskState.QUEUED, 0, None)
        assert list(await store.attempts(claim.task)) == []
        (again, _) = await agent.claim(2)
        assert (again.task, again.attempt) == (1, 1)
        assert again.token > claim.token

    async def test_a_failed_attempt_is_retried_by_the_rules_of_its_task(self, store: Store) -> None:
        """A retried task is queued with its place; the last allowed attempt fails it."""
        await store.submit([spec(retry=RETRY), spec()])
        agent = await adopted(store)
        (first,) = await agent.claim()
        await agent.sync(result(first, FAILURE))
        assert (await store.task(first.task)).state is TaskState.QUEUED
        (second,) = await agent.claim()
        assert (second.task, second.attempt) == (1, 2)
        await agent.sync(result(second, FAILURE))
        task = await store.task(second.task)
        assert (task.state, task.attempts, task.outcome) == (TaskState.FAILED, 2, FAILURE)
        assert [attempt.number for attempt in await store.attempts(second.task)] == [1, 2]

    async def test_a_failure_outside_the_rules_ends_the_task(self, store: Store) -> None:
        """By default a command's own failure is final."""
        await store.submit([spec()])
        agent = await adopted(store)
        (claim,) = await agent.claim()
        await agent.sync(result(claim, FAILURE))
        assert (await store.task(claim.task)).state is TaskState.FAILED

    async def test_what_cannot_start_costs_an_attempt(self, store: Store) -> None:
        """A claim that could not be started is an attempt without a start, bounded by the rules."""
        await store.submit([spec()])
        agent = await adopted(store)
        for number in (1, 2, 3):
            (claim,) = await agent.claim()
            assert claim.attempt == number
            await agent.sync(result(claim, Outcome(Cause.CANNOT_START, detail="no such file"), None))
        task = await store.task(TaskId(1))
        assert (task.state, task.attempts) == (TaskState.FAILED, 3)
        assert [attempt.started_ms for attempt in await store.attempts(TaskId(1))] == [None] * 3

    async def test_an_unstarted_claim_that_its_agent_gave_up_goes_back(self, store: Store) -> None:
        """An end that says nothing of the task (the agent was drained by force) costs no attempt if nothing ran."""
        await store.submit([spec()])
        agent = await adopted(store)
        (claim,) = await agent.claim()
        await agent.sync(result(claim, Outcome(Cause.CANCELLED), None))
        task = await store.task(claim.task)
        assert (task.state, task.attempts) == (TaskState.QUEUED, 0)

    async def test_a_start_is_told_by_the_running_set(self, store: Store, clock: ManualClock) -> None:
        """A held claim that runs makes its task running since then, never before its claim."""
        await store.submit([spec(), spec()])
        agent = await adopted(store)
        one, two = await agent.claim(2)
        clock.now_ms += 100
        agent.runs(one, 30)
        agent.runs(two, 999_999)
        assert await agent.sync() == SyncDone()
        first, second = await store.tasks(TaskFilter())
        assert (first.state, first.lease) == (TaskState.RUNNING, Lease(one.token, agent.id, START_MS, START_MS + 70))
        assert second.lease is not None
        assert second.lease.started_ms == START_MS
        clock.now_ms += 100
        await agent.sync(result(one, ran_ms=130))
        (attempt,) = await store.attempts(one.task)
        assert attempt.started_ms == START_MS + 70

    async def test_a_start_that_comes_with_a_result_is_told_as_well(self, store: Store, clock: ManualClock) -> None:
        """Since the same moments as without one, which is never before the claim."""
        await store.submit([spec(), spec(), spec()])
        agent = await adopted(store)
        one, two, three = await agent.claim(3)
        clock.now_ms += 100
        agent.runs(one, 30)
        agent.runs(two, 999_999)
        await agent.sync(result(three))
        began = {task.id: task.lease.started_ms for task in await store.tasks(TaskFilter()) if task.lease is not None}
        assert began == {one.task: START_MS + 70, two.task: START_MS}

    async def test_how_long_tasks_take_is_learnt_from_those_that_succeed(
        self, store: Store, clock: ManualClock
    ) -> None:
        """The mean of their times, for tasks of their shape that do not say; what fails says nothing of it."""
        await store.submit([spec() for _ in range(9)])
        agent = await adopted(store)
        assert [ms for _, ms in store.coming(1)] == [0]
        learnt = []
        for outcome, seconds in ((FAILURE, 60), (SUCCESS, 10), (SUCCESS, 30), (FAILURE, 90), (SUCCESS, 20)):
            (claim,) = await agent.claim()
            clock.now_ms += 100_000
            await agent.sync(result(claim, outcome, ran_ms=seconds * 1_000))
            learnt += [ms for _, ms in store.coming(1)]
        assert learnt == [0, 10_000, 20_000, 20_000, 20_000]

    async def test_unstarted_claims_that_the_agent_lacks_go_back(self, store: Store) -> None:
        """A claim whose answer was lost is released: queued in its place, no attempt."""
        await store.submit([spec(), spec()])
        agent = await adopted(store)
        one, two = await agent.claim(2)
        agent.forgets(one)
        done = await agent.sync(want=1)
        assert [claim.task for claim in done.claims] == [1]
        assert done.claims[0].token > two.token
        assert (await store.task(one.task)).attempts == 0

    async def test_what_may_be_what_its_machines_are_lost_by_is_not_tried_for_ever(self, store: Store) -> None:
        """A claim that is lost with its machine before its command starts costs no attempt; five in a row do. One that
        starts begins the row anew; what its agent has forgotten, or what waited beside others, does not count."""
        (task,) = await store.submit([spec(retry=RetryRules(max_attempts=2))])

        async def lose(batch: str, *, starts: bool = False) -> int:
            agent = await adopted(store, batch)
            (claim,) = await agent.claim(1)
            if starts:
                agent.runs(claim)
                await agent.sync()
            await store.change([InstanceChange(agent.id, InstanceEvent.FAIL)])
            return (await store.task(task)).attempts

        assert [await lose(f"early{n}") for n in range(4)] == [0] * 4
        forgetful = await adopted(store, "forgetful")
        (claim,) = await forgetful.claim(1)
        forgetful.forgets(claim)
        await forgetful.sync()
        assert (await store.task(task)).attempts == 0
        assert await lose("started", starts=True) == 1
        assert [await lose(f"late{n}") for n in range(5)] == [1] * 4 + [2]
        failed = await store.task(task)
        assert failed.outcome is not None
        assert (failed.state, failed.outcome.cause) == (TaskState.FAILED, Cause.INSTANCE_LOST)
        assert failed.outcome.detail == "lost with its instance 5 times before it could start; its instance is failed"

    async def test_started_claims_that_the_agent_lacks_are_lost(self, store: Store, clock: ManualClock) -> None:
        """A started claim that the agent no longer has ends instance-lost and is retried only by its rules."""
        await store.submit([spec(), spec(retry=RetryRules(causes=frozenset()))])
        agent = await adopted(store)
        for claim in await agent.claim(2):
            agent.runs(claim)
        await agent.sync()
        clock.now_ms += 50
        agent.holding.clear()
        await agent.sync()
        retried, failed = await store.tasks(TaskFilter())
        assert (retried.state, retried.attempts) == (TaskState.QUEUED, 1)
        assert (failed.state, failed.attempts) == (TaskState.FAILED, 1)
        assert {task.outcome.cause for task in (retried, failed) if task.outcome} == {Cause.INSTANCE_LOST}
        (attempt,) = await store.attempts(failed.id)
        assert (attempt.started_ms, attempt.ended_ms) == (START_MS, START_MS + 50)

    async def test_claims_that_are_not_current_are_killed(self, store: Store) -> None:
        """What an agent holds without the current token is to be ended, and the holder is not disturbed."""
        await store.submit([spec()])
        old, new = await adopted(store, "old"), await adopted(store, "new")
        (claim,) = await old.claim()
        await old.sync(result(claim, None, None))
        (current,) = await new.claim()
        old.runs(claim)
        assert (await old.sync()).kill == (claim.token,)
        assert store.holds(current.task, current.token, new.id)

    async def test_a_token_of_before_is_stale_on_the_instance_that_has_the_task_again(self, store: Store) -> None:
        """As after a restore, when one agent runs both: what runs under the older token is to be ended, and what comes
        of it counts for nothing, nor does that it runs say that the newer one does."""
        await store.submit([spec()])
        agent = await adopted(store)
        (stale,) = await agent.claim()
        agent.forgets(stale)
        (current,) = await agent.claim()
        assert (current.task, current.token > stale.token) == (stale.task, True)
        both = (HeldClaim(stale.task, stale.token, 10), HeldClaim(current.task, current.token, None))
        done = await store.sync(SyncCall(agent.id, agent.order + 1, both))
        assert done.kill == (stale.token,)
        assert (await store.task(current.task)).state is TaskState.CLAIMED
        assert store.leases_of(agent.id) == {current.task: current.token}
        done = await store.sync(SyncCall(agent.id, agent.order + 2, both[1:], (result(stale),)))
        assert done.settled == (stale.token,)
        assert (await store.task(current.task)).state is TaskState.CLAIMED

    @pytest.mark.parametrize("reported", [SUCCESS, FAILURE, Outcome(Cause.CANCELLED, signal=15)])
    async def test_a_cancelled_task_ends_cancelled_whatever_is_reported(self, store: Store, reported: Outcome) -> None:
        """Cancelling is final: neither a success nor a retry can undo it."""
        await store.submit([spec(retry=RETRY)])
        agent = await adopted(store)
        (claim,) = await agent.claim()
        agent.runs(claim)
        await agent.sync()
        await store.cancel(TaskFilter(ids=(claim.task,)))
        await agent.sync(result(claim, reported))
        task = await store.task(claim.task)
        assert (task.state, task.attempts) == (TaskState.CANCELLED, 1)
        assert task.outcome is not None
        assert (task.outcome.cause, task.outcome.signal) == (Cause.CANCELLED, reported.signal)

    async def test_a_cancelled_claim_that_never_started_leaves_no_attempt(self, store: Store) -> None:
        """Handing it back, or not having it any more, ends the task cancelled."""
        await store.submit([spec(), spec()])
        agent = await adopted(store)
        one, two = await agent.claim(2)
        await store.cancel(TaskFilter(ids=(one.task, two.task)))
        agent.forgets(two)
        await agent.sync(result(one, None, None))
        for task in await store.tasks(TaskFilter()):
            assert (task.state, task.attempts, task.lease) == (TaskState.CANCELLED, 0, None)

    async def test_an_overtaken_sync_claims_and_ends_nothing(self, store: Store) -> None:
        """An older sync that comes to its turn late gets no claims, and its running set is history."""
        await store.submit([spec(), spec()])
        agent = await adopted(store)
        (claim,) = (await agent.sync(want=1, order=7)).claims
        late = await store.sync(SyncCall(agent.id, 6, want=1))
        assert late == SyncDone()
        assert store.leases_of(agent.id) == {claim.task: claim.token}
        late = await store.sync(SyncCall(agent.id, 5, results=(result(claim),)))
        assert late.settled == (claim.token,)
        assert (await store.task(claim.task)).state is TaskState.SUCCEEDED

    @pytest.mark.parametrize("state", [InstanceState.BOOTING, InstanceState.DRAINING, InstanceState.FAILED])
    async def test_an_instance_that_does_not_serve_gets_no_work(self, store: Store, state: InstanceState) -> None:
        """Whatever its agent asks for."""
        await store.submit([spec()])
        agent = await adopted(store, state=state)
        assert await agent.claim(1) == ()

    async def test_leases_survive_a_restart(self, open_store: OpenStore, clock: ManualClock) -> None:
        """After a restart the same tokens are current, the load is the same, and tokens go on rising."""
        first = await open_store(clock)
        await first.submit([spec(), spec(), spec(), spec()])
        agent = await adopted(first)
        one, two, three = await agent.claim(3)
        agent.runs(one)
        await agent.sync(result(three, None, None))
        await first.cancel(TaskFilter(ids=(two.task,)))
        load = first.load_of(agent.id)
        await first.close()
        agent.store = again = await open_store(clock)
        assert again.leases_of(agent.id) == {one.task: one.token, two.task: two.token}
        assert again.load_of(agent.id) == load
        assert again.task_counts()[TaskState.RUNNING] == 1
        done = await agent.sync(result(one), want=1)
        assert (done.settled, done.kill) == ((one.token,), (two.token,))
        assert done.claims[0].task == three.task
        assert done.claims[0].token > three.token
        assert await again.check() == []

    async def test_a_token_is_never_used_again(self, open_store: OpenStore, clock: ManualClock) -> None:
        """Even that of a claim that went back, which leaves no other trace."""
        first = await open_store(clock)
        await first.submit([spec()])
        agent = await adopted(first)
        (claim,) = await agent.claim()
        await agent.sync(result(claim, None, None))
        await first.close()
        agent.store = await open_store(clock)
        (again,) = await agent.claim()
        assert again.token == FencingToken(claim.token + 1)
