"""Everything at once, at random: whatever fails in between, memory and tables agree and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace

import pytest
from sqlalchemy.engine import Connection

from cloud_dispatch.adapters.executors import Inline, Thread
from cloud_dispatch.domain.errors import Conflict, IllegalTransition, NotFound, StoreUnavailable
from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName, TaskId
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.task import TERMINAL, Cause, Outcome, RetryRules, TaskState
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.ports.store import InstanceChange, Store, TaskFilter
from cloud_dispatch.spend.payers import ClaimTerms
from cloud_dispatch.statestore import writer
from cloud_dispatch.statestore.batch import Batch, Statements
from cloud_dispatch.testing.store_builders import (
    FAILURE,
    SUCCESS,
    Agent,
    ManualClock,
    OpenStore,
    instance,
    result,
    spec,
)
from tests.statestore.conftest import stores

#: Instances of any age up to this one are there from the start.
LIFE_MS = 1_000_000
OUTCOMES = (SUCCESS, SUCCESS, FAILURE, None, Outcome(Cause.CANNOT_START), Outcome(Cause.CANCELLED))
EVENTS = (InstanceEvent.DRAIN, InstanceEvent.FAIL, InstanceEvent.TERMINATE, InstanceEvent.GONE, InstanceEvent.MISSED)


class Traffic:
    """A few agents, a client and an operator who do what they like; what was acknowledged is noted."""

    def __init__(self, store: Store, chance: random.Random, clock: ManualClock) -> None:
        self.store, self.chance, self.clock = store, chance, clock
        self.agents: list[Agent] = []
        self.submitted: set[int] = set()
        self.succeeded: dict[int, int] = {}
        self.launched = 0
        #: Instances that an operator struck in this round: what their agents report then may come too late.
        self.disturbed: set[InstanceId] = set()

    async def submit(self) -> None:
        more = {"priority": self.chance.randrange(3), "max_per_instance": self.chance.choice([0, 0, 2])}
        specs = [
            spec(
                cpus_milli=self.chance.choice([500, 1000, 3000]),
                retry=RetryRules(2, frozenset(Cause)),
                expected_runtime_ms=self.chance.choice([0, 0, 1_000, LIFE_MS // 2]),
                **more,
            )
            for _ in range(self.chance.randrange(1, 6))
        ]
        ids = set(await self.store.submit(specs))
        assert not ids & self.submitted, "an id was given twice"
        self.submitted |= ids

    async def launch(self) -> None:
        self.launched += 1
        own = instance(f"b{self.launched}")
        own = replace(own, intended_ms=own.intended_ms - self.chance.randrange(LIFE_MS))
        await self.store.adopt(own)
        self.agents.append(Agent(self.store, own))

    async def sync(self) -> None:
        if not self.agents:
            return
        agent = self.chance.choice(self.agents)
        claims = [agent.specs[task] for task in agent.holding]
        ending = [claim for claim in claims if self.chance.random() < 0.4]
        results = [
            result(claim, outcome := self.chance.choice(OUTCOMES), self.chance.choice([None, 3]) if outcome else None)
            for claim in ending
        ]
        for claim in claims:
            if claim not in ending and self.chance.random() < 0.3:
                agent.runs(claim, 1)
            elif claim not in ending and self.chance.random() < 0.1:
                agent.forgets(claim)
        current = {claim.token for claim in ending if self.store.holds(claim.task, claim.token, agent.id)}
        done = await agent.sync(*results, want=self.chance.randrange(5), ahead=self.chance.randrange(2))
        assert set(done.settled) == {one.token for one in results}
        for one in results:
            if one.outcome is SUCCESS and one.token in current and agent.id not in self.disturbed:
                self.succeeded[one.task] = one.token

    async def cancel(self) -> None:
        if self.submitted:
            await self.store.cancel(TaskFilter(ids=(TaskId(self.chance.choice(sorted(self.submitted))),)))

    async def prioritise(self) -> None:
        if self.submitted:
            await self.store.prioritise(TaskId(self.chance.choice(sorted(self.submitted))), self.chance.randrange(4))

    async def operate(self) -> None:
        if self.agents:
            agent = self.chance.choice(self.agents)
            self.disturbed.add(agent.id)
            (changed,) = await self.store.change([InstanceChange(agent.id, self.chance.choice(EVENTS))])
            if changed.state.value in ("failed", "terminating", "gone"):
                self.agents = [one for one in self.agents if one is not agent]

    def step(self) -> Awaitable[None]:
        self.clock.now_ms += self.chance.randrange(5)
        kinds = (self.submit, self.sync, self.sync, self.sync, self.cancel, self.prioritise, self.operate, self.launch)
        return self.chance.choice(kinds)()


@pytest.fixture(params=["sqlite-inline", "sqlite-thread", "postgres-inline"])
async def opens(request: pytest.FixtureRequest) -> AsyncIterator[OpenStore]:
    kind, _, place = str(request.param).partition("-")

    def executor() -> Executor:
        return Thread("commit") if place == "thread" else Inline()

    async with stores(request.getfixturevalue(f"{kind}_url"), executor) as open_one:
        yield open_one


@pytest.mark.parametrize("seed", range(3))
async def test_random_traffic_with_failing_commits(
    opens: OpenStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Every fifth transaction breaks, before or after it landed; refused calls leave nothing, accepted ones stay."""
    chance, clock = random.Random(seed), ManualClock()
    store = await opens(clock)
    lives = ClaimTerms(lifetimes={PoolName("default"): LIFE_MS}, movable=frozenset({ProfileName("local")}))
    await store.set_limits((), {}, lives)
    traffic = Traffic(store, chance, clock)
    real = writer.perform

    def unreliable(connection: Connection, statements: Statements, batch: Batch) -> dict[int, bytes]:
        fate = chance.random()
        if fate < 0.1:
            raise OSError(5, "planted: before")
        specs = real(connection, statements, batch)
        if fate < 0.2:
            raise OSError(5, "planted: after")
        return specs

    expected = (Conflict, IllegalTransition, NotFound, StoreUnavailable)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "perform", unreliable)
        for _ in range(60):
            traffic.disturbed.clear()
            answers = await asyncio.gather(*[traffic.step() for _ in range(5)], return_exceptions=True)
            for answer in answers:
                assert answer is None or isinstance(answer, expected), repr(answer)
    assert await store.check() == []
    assert any(isinstance(own, Agent) for own in traffic.agents)
    listed = await store.tasks(TaskFilter(), limit=10_000)
    assert traffic.submitted == {task.id for task in listed}
    by_id = {task.id: task for task in listed}
    for task, token in traffic.succeeded.items():
        assert by_id[TaskId(task)].state in (TaskState.SUCCEEDED, TaskState.CANCELLED)
        assert token in [attempt.token for attempt in await store.attempts(TaskId(task))]
    for task in listed:
        successes = [a for a in await store.attempts(task.id) if a.outcome.cause is Cause.SUCCESS]
        assert len(successes) == (task.state is TaskState.SUCCEEDED)
        assert (task.ended_ms is not None) == (task.state in TERMINAL)
    counts = (store.task_counts(), {i: store.leases_of(i) for i in store.instances()})
    await store.close()
    again = await opens(clock)
    assert (again.task_counts(), {i: again.leases_of(i) for i in again.instances()}) == counts
