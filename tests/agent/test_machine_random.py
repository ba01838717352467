"""Random events against the agent's machine: what must hold after each, whatever came before."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cloud_dispatch.agent import events
from cloud_dispatch.agent.claims import Taken
from cloud_dispatch.agent.machine import AHEAD_PATIENCE_MS, Machine
from cloud_dispatch.wire.messages import HealthCheck, Order, Policy, Result, SyncReply
from tests.agent.virtual import KILL, VirtualAgent, order

CAPACITY = 4000
GPUS = 4
sizes = st.sampled_from([250, 500, 1000, 2000, 4000, 8000])


class AgentUnderChance(RuleBasedStateMachine):
    """A dispatcher and processes that do anything the contract allows, at any moment."""

    agent: VirtualAgent
    given: dict[int, Order]
    settled: dict[int, str]
    tokens = 0

    @initialize(checks=st.booleans(), max_tasks=st.sampled_from([0, 0, 5]), idle_ms=st.sampled_from([0, 3_000]))
    def begin(self, checks: bool, max_tasks: int, idle_ms: int) -> None:
        policy = Policy(
            cpus_milli=CAPACITY,
            gpus=GPUS,
            lease_ms=20_000,
            kill_grace_ms=2_000,
            idle_ms=idle_ms,
            max_tasks=max_tasks,
            silence_ms=90_000,
            lifetime_ms=600_000,
            health_checks=[HealthCheck(["check"], 5_000, 1_000, 2)] if checks else [],
        )
        self.agent = VirtualAgent(policy)
        self.given = {}  # every claim that reached the agent in an answer that it may use
        self.settled = {}
        self.drain_token = 0
        self.lease_ends = 0
        self.seen = 0
        self.unused: set[int] = set()  # tokens in answers that came too late
        self.checked = 0

    def waiting(self) -> bool:
        """Whether a request is on its way."""
        return self.agent.machine.courier.outstanding is not None and not self.agent.machine.over

    def new_order(self, cpus_milli: int, exclusive: bool) -> Order:
        self.tokens += 1
        wish = "SIGUSR1" if self.tokens % 3 == 0 else ""
        limit_ms = 30_000 * (self.tokens % 2)
        fields = {
            "exclusive": exclusive,
            "gpus": self.tokens % 4,
            "max_runtime_ms": limit_ms,
            "checkpoint_signal": wish,
        }
        return order(self.tokens, cpus_milli, **fields)

    @precondition(waiting)
    @rule(
        claims=st.lists(st.tuples(sizes, st.integers(0, 9)), max_size=4),
        late_ms=st.integers(0, 3_000),
        kill=st.booleans(),
        drain=st.sampled_from([None, None, None, True, False]),
        end=st.integers(0, 30),
        settle=st.booleans(),
        hold=st.integers(0, 9),
    )
    def answer(
        self,
        claims: list[tuple[int, int]],
        late_ms: int,
        kill: bool,
        drain: bool | None,
        end: int,
        settle: bool,
        hold: int,
    ) -> None:
        self.agent.now += late_ms
        request = self.agent.request
        orders = [self.new_order(size, chance == 0) for size, chance in claims][: request.want]
        self.given.update((claim.token, claim) for claim in orders)
        if drain is not None:
            self.drain_token += 1
        results = request.results if settle else request.results[:1]
        for result in results:
            assert result.token not in self.settled
            self.settled[result.token] = result.cause
        reply = SyncReply(
            request.seq,
            orders,
            [result.token for result in results],
            [claim.token for claim in request.held[:1]] if kill else [],
            self.agent.policy.lease_ms,
            self.drain_token,
            bool(drain),
            hold == 0,
            end == 0,
        )
        self.lease_ends = self.agent.sent_ms[request.seq] + self.agent.policy.lease_ms
        self.agent.feed(events.Replied(request.seq, reply))

    @precondition(lambda self: len(self.agent.requests) > 1)
    @rule(size=sizes)
    def late_answer(self, size: int) -> None:
        """An answer to an abandoned request: nothing of it may be used."""
        old = self.agent.requests[-2].seq
        claim = self.new_order(size, False)
        self.unused.add(claim.token)
        out = self.agent.feed(events.Replied(old, SyncReply(old, [claim], end=True, kill=list(self.agent.running))))
        assert not any(isinstance(command, (events.Start, events.End)) for command in out)

    @precondition(waiting)
    @rule(fraction=st.floats(0, 0.999))
    def lose(self, fraction: float) -> None:
        self.agent.fail(fraction)

    @rule(milliseconds=st.sampled_from([1, 20, 60, 500, 3_000, 12_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.agent.pass_ms(milliseconds)

    @precondition(lambda self: self.agent.running)
    @rule(chance=st.randoms(use_true_random=False), what=st.sampled_from(["start", "start", "end", "end", "vacate"]))
    def process(self, chance: Any, what: str) -> None:
        token = chance.choice(sorted(self.agent.running))
        if what == "start":
            self.agent.started(token)
        elif what == "vacate":
            self.agent.feed(events.Vacated(token))
        else:
            task = self.agent.running.pop(token).task
            self.agent.feed(events.Ended(Result(task, token, "success")))

    @rule(passed=st.booleans())
    def health(self, passed: bool) -> None:
        self.agent.feed(events.HealthChecked(0, passed))

    @precondition(lambda self: len(self.given) > 8)
    @rule()
    def signal(self) -> None:
        self.agent.feed(events.Signalled())

    @precondition(lambda self: len(self.given) > 6)
    @rule(in_ms=st.sampled_from([5_000, 13_000, 60_000, None]))
    def notice(self, in_ms: int | None) -> None:
        self.agent.feed(events.Noticed(in_ms))

    @invariant()
    def never_more_than_the_room_there_is(self) -> None:
        """What runs fits, an exclusive task runs alone."""
        shapes = [attempt.order.spec.shape for attempt in self.agent.machine.claims.active()]
        assert sum(shape.resources.cpus_milli for shape in shapes) <= CAPACITY
        assert not any(shape.exclusive for shape in shapes) or len(shapes) == 1

    @invariant()
    def no_gpu_is_lent_twice(self) -> None:
        """Each attempt that takes room has as many as it asked for, of those there are, to itself."""
        active = self.agent.machine.claims.active()
        lent = [index for attempt in active for index in attempt.gpus]
        assert len(lent) == len(set(lent))
        assert set(lent) <= set(range(GPUS))
        assert all(len(attempt.gpus) == attempt.order.spec.shape.resources.gpus for attempt in active)

    @invariant()
    def every_claim_is_held_or_has_one_result(self) -> None:
        """None vanishes, none is in two places, none of an unused answer is anywhere."""
        claims = self.agent.machine.claims
        held = [*claims.running, *claims.waiting, *claims.results]
        assert len(held) == len(set(held))
        assert set(held) | set(self.settled) == set(self.given)
        assert not set(claims.running) & set(self.settled)
        assert not set(held) & self.unused

    @invariant()
    def what_it_says_is_true(self) -> None:
        """Every request names the whole running set; drained and the last words only when nothing is held."""
        for request in self.agent.requests[self.seen :]:
            tokens = [claim.token for claim in request.held]
            if request.state in ("drained", "idle"):
                assert tokens == []
            if request.ending and request.ending not in ("unkillable", "health"):
                assert tokens == []
            assert request.ahead <= request.want
            assert not {result.token for result in request.results} & set(tokens)
        self.seen = len(self.agent.requests)

    @invariant()
    def nothing_runs_past_its_lease(self) -> None:
        """By the end of the lease SIGKILL was sent to everything of which more than a log is left (P1)."""
        if self.agent.now >= self.lease_ends and not self.agent.machine.over:
            self.agent.feed(events.Timer())
            for token, attempt in self.agent.machine.claims.running.items():
                assert attempt.vacant or KILL in self.agent.kills(token)
            assert not self.agent.machine.claims.waiting

    @invariant()
    def the_end_is_last(self) -> None:
        ends = [i for i, command in enumerate(self.agent.commands) if isinstance(command, events.End)]
        assert ends in ([], [len(self.agent.commands) - 1])

    @invariant()
    def it_never_sleeps_for_ever(self) -> None:
        """As long as it lives the machine names the moment of its next step, and that lies ahead."""
        wake = self.agent.machine.wake_at(self.agent.now)
        assert self.agent.machine.over or (wake is not None and self.agent.now < wake <= self.agent.now + 600_000)

    @invariant()
    def what_it_keeps_is_what_it_would_find(self) -> None:
        """When to wake is kept from the event to the timer's setting, and what is taken and what is bounded from claim
        to claim: all are what working them out anew gives."""
        machine = self.agent.machine
        if machine.over:
            return
        ahead = [moment for moment in moments(machine, self.agent.now) if moment > self.agent.now]
        assert machine.wake_at(self.agent.now) == min(ahead)
        claims = machine.claims
        taken = Taken()
        for attempt in claims.active():
            taken.count(attempt.order.spec.shape, 1)
        assert claims.taken == taken
        assert {token for token, attempt in claims.running.items() if attempt.started_ms is None} <= set(
            claims.untold
        ) <= set(claims.running)  # fmt: skip
        bounded = {t for t, a in claims.running.items() if a.kill_cause or a.order.spec.max_runtime_ms}
        assert claims.bounded == bounded


def moments(machine: Machine, now_ms: int) -> list[int]:
    """All moments at which time alone brings something about, those that are past included: a plain list."""
    policy, life, claims = machine.policy, machine.life, machine.claims
    found = [life.born_ms + policy.lifetime_ms, life.heard_ms + policy.silence_ms]
    if policy.idle_ms:
        found.append(life.idle_since_ms + policy.idle_ms)
    if life.taken_ms is not None:
        found.append(life.leave_ms(policy))
    if life.confirmed_ms is not None:
        found.append(life.confirmed_ms + policy.heartbeat_ms)
    if claims.running or claims.waiting:
        found.append(machine.enforcer.lease_end_ms)
    for attempt in claims.running.values():
        steps = [attempt.stuck_at if attempt.kill_at is None else attempt.kill_at]
        if not attempt.kill_cause:
            steps = [machine.enforcer.lease_end_ms - min(policy.kill_grace_ms, policy.lease_ms // 4)]
            limit_ms = attempt.order.spec.max_runtime_ms
            if limit_ms and attempt.started_ms is not None and not attempt.vacant:
                steps.append(attempt.started_ms + limit_ms)
        found += [step for step in steps if step is not None]
    found += [waiting.since_ms + AHEAD_PATIENCE_MS for waiting in claims.waiting.values()]
    if machine.end is not None:
        found.append(machine.end.deadline_ms)
    else:
        found += [check.next_ms for check in machine.health.checks if not check.running]
    if machine.courier.outstanding is not None:
        found.append(machine.courier.outstanding.overdue_ms)
    if not machine.courier.awaits:
        due_ms = machine.courier.due_ms(machine._stand(now_ms), claims, machine.tempo, now_ms)
        found += [] if due_ms is None else [due_ms]
    return found


AgentUnderChance.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestAgentUnderChance = AgentUnderChance.TestCase
