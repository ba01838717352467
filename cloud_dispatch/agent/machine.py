"""The agent's state machine: events in, commands out. Owns every decision of the agent; pure, no I/O and no clock.

Its states are idle, busy, draining, drained and failed. Its concerns are one file each: the claims, the kills and
leases (`enforce`), the conversation (`courier`, `pace`), the limits (`ending`), the health checks, and the program that
takes its place (`succession`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional  # noqa: UP035

from cloud_dispatch.agent import events
from cloud_dispatch.agent.baggage import take_over
from cloud_dispatch.agent.claims import MOST_CLAIMS, Attempt, Claims, misfit
from cloud_dispatch.agent.courier import Courier, Standing
from cloud_dispatch.agent.ending import LAST_WORDS_MS, NEVER_MS, Ending, Life, Reason
from cloud_dispatch.agent.enforce import UNKILLABLE_MS, Enforcer, final_cause, killed_by
from cloud_dispatch.agent.health import Health
from cloud_dispatch.agent.pace import Outstanding, beat_ms, tempo
from cloud_dispatch.agent.succession import AGAIN_MS, Succession
from cloud_dispatch.agent.timer import GuestTimer, Renewal
from cloud_dispatch.wire.messages import ADVISED, FULL, PREEMPTED, Policy, Result, SyncReply

#: A claim taken ahead that has not started after so long goes back, so that an idle instance may have it.
AHEAD_PATIENCE_MS = 2_000
_DETAIL_CHARS = 2_000


class Machine:
    """One incarnation of the agent. `cpus_milli` is what the VM has where the policy does not say; `timer` the guest
    timer, where there is one; `program` what runs this, and may be told to become another; `most` how many claims it
    may hold."""

    def __init__(
        self, incarnation: str, policy: Policy, cpus_milli: int = 1000, timer: Optional[GuestTimer] = None,
        program: Optional[Succession] = None, most: int = MOST_CLAIMS,
    ) -> None:  # fmt: skip
        self.cpus_milli = cpus_milli
        self._adopt(policy)
        self.claims = Claims(most=most)
        self.renewal = None if timer is None else Renewal(timer)
        self.succession = program or Succession()
        self.courier = Courier(incarnation, self.renewal, self.succession.own)
        self.health = Health()
        self.life = Life()
        self.end: Optional[Ending] = None
        self.over = False
        self.draining = False
        self.drain_token = 0
        self.hold = False
        self._out: List[events.Command] = []
        self._wake_ms = 0  # the next moment that is waited for; each event ends with finding it anew
        self.enforcer = Enforcer(self.claims, self._out)

    def handle(self, event: events.Event, now_ms: int) -> List[events.Command]:
        """What to do now that `event` happened at `now_ms`. Nothing after `End`."""
        if self.over:
            return []
        _HANDLERS[type(event)](self, event, now_ms)
        self._advance(event, now_ms)
        out = list(self._out)
        self._out.clear()
        return out

    def wake_at(self, now_ms: int) -> Optional[int]:
        """When to send `Timer` at the latest, if no other event comes before; None once the agent is over."""
        return None if self.over else max(self._wake_ms, now_ms + 1)

    def answers_by(self, now_ms: int) -> Optional[int]:
        """The moment after which a supervisor that has heard nothing more must take this agent for hung and end what it
        runs: the lease's end, with time for the sign of life that would say otherwise (promise P1); past that, while
        something does not die yet, the next sign of life. None while nothing lives that a lease bounds."""
        if all(attempt.vacant or attempt.stuck for attempt in self.claims.running.values()):
            return None
        return max(self.enforcer.lease_end_ms, now_ms) + beat_ms(self.policy) * 3 // 2

    @property
    def in_contact(self) -> bool:
        """Whether the last request that is over was answered."""
        return self.courier.pace.failures == 0

    @property
    def state(self) -> str:
        """idle, busy, draining, drained or failed, as told to the dispatcher."""
        holds = self.claims.holds
        if self.end is not None and self.end.failure:
            stuck = any(attempt.stuck for attempt in self.claims.running.values())
            if stuck or not holds:
                return "failed"
        if self.end is not None or self._leaves:
            return "draining" if holds else "drained"
        return "busy" if holds else "idle"

    # What happened

    def _boot(self, event: events.Boot, now_ms: int) -> None:
        self.life.born_ms = now_ms - event.age_ms
        self.life.heard_ms = self.life.idle_since_ms = now_ms
        self.health.adopt(self.policy.health_checks, now_ms)
        if event.carried is not None:
            take_over(self, event.carried, now_ms)
        if self.renewal is not None:
            self.renewal.begin(now_ms, event.age_ms, event.wall_left_ms)
            self._plan_to_leave()

    def _replied(self, event: events.Replied, now_ms: int) -> None:
        reply = event.reply
        sent = self.courier.answered(event.seq, self._is_news(reply), now_ms)
        if sent is None:
            return
        self.life.heard_ms = now_ms
        if reply.token:
            self._out.append(events.TokenRenewed(reply.token))
        if reply.program is not None:
            self.succession.named(reply.program)
        if reply.timer and self.renewal is not None and self.renewal.heard(reply.timer):
            self._out.append(events.TimerWord(reply.timer))
            self._plan_to_leave()
        for token in reply.settled:
            if self.claims.results.pop(token, None) is not None:
                self.courier.settled(token)
                self._out.append(events.Forget(token))
        if reply.policy is not None:
            self._adopt(reply.policy)
            self.health.adopt(self.policy.health_checks, now_ms)
            self._out.append(events.PolicyChanged(self.policy))
            self._plan_to_leave()
        for token in reply.kill:  # before the renewal: it is not for them
            self._cancel(token, now_ms)
        self.enforcer.renew(sent.sent_ms + reply.lease_ms, self.policy)
        self._take(reply, sent, now_ms)
        self._obey(reply, sent, now_ms)

    def _plan_to_leave(self) -> None:
        if self.renewal is not None:
            self.life.timer_leave_ms = self.renewal.leave_ms(self.policy)

    def _is_news(self, reply: SyncReply) -> bool:
        said = reply.claims or reply.settled or reply.kill or reply.end or reply.policy
        return bool(said) or reply.drain_token > self.drain_token or reply.hold != self.hold

    def _take(self, reply: SyncReply, sent: Outstanding, now_ms: int) -> None:
        for order in reply.claims:
            if self.claims.knows(order.token):
                continue
            self.claims.accept(order, now_ms)
            why = misfit(order.spec.shape, self.policy)
            if why:
                self._finish(Result(order.task, order.token, "cannot-start", detail=why), now_ms)
        if reply.claims:
            self.life.empty_claims = 0
        elif sent.patient and sent.want and now_ms - sent.sent_ms >= sent.wait_ms * 9 // 10:
            self.life.empty_claims += 1

    def _obey(self, reply: SyncReply, sent: Outstanding, now_ms: int) -> None:
        self.hold = reply.hold
        if reply.drain_token > self.drain_token:
            self.drain_token = reply.drain_token
            self.draining = reply.drain
            self.life.confirmed_ms = None
            if not self.draining:
                self.life.idle_since_ms = now_ms
        elif self.draining and sent.said[:2] == ("drained", self.drain_token):
            self.life.confirmed_ms = self.life.confirmed_ms or now_ms
        if self.end is not None:
            self.end.told = self.end.told or (bool(sent.ending) and not self.claims.results)
        elif reply.end:
            drained = "drained" if self.state == "drained" else "told"
            self._begin_end(Reason(self._asks(now_ms) or drained), now_ms)

    def _failed(self, event: events.Failed, now_ms: int) -> None:
        self.courier.failed(event.seq, event.fraction, self.tempo, now_ms)

    def _started(self, event: events.Started, now_ms: int) -> None:
        attempt = self.claims.running.get(event.token)
        if attempt is not None and attempt.started_ms is None:
            attempt.started_ms = now_ms

    def _vacated(self, event: events.Vacated, now_ms: int) -> None:
        attempt = self.claims.running.get(event.token)
        if attempt is not None and not attempt.vacant:
            self.claims.vacate(attempt)
            self._note_run(attempt, now_ms)

    def _ended(self, event: events.Ended, now_ms: int) -> None:
        result = event.result
        attempt = self.claims.running.get(result.token)
        if attempt is None:
            return
        self._note_run(attempt, now_ms)
        result.cause, result.ran_ms = final_cause(attempt, result.cause), attempt.ran_ms
        if not result.detail and result.cause == attempt.kill_cause:
            result.detail = killed_by(result.cause, self.end)
        result.detail = result.detail[:_DETAIL_CHARS]
        self.health.attempt_ended(result.cause, now_ms)
        self._finish(result, now_ms)

    def _stuck(self, event: events.Stuck, now_ms: int) -> None:
        attempt = self.claims.running.get(event.token)
        if attempt is not None:
            attempt.stuck = True
            self._give_up(attempt, now_ms)

    def _filled(self, event: events.Filled, now_ms: int) -> None:
        """What runs goes on; then the VM goes, as it is of no use to others."""
        self.life.full = self.life.full or event.why

    def _signalled(self, event: events.Signalled, now_ms: int) -> None:
        word = event.reason if self.life.taken_ms is None else "preempted"
        self._begin_end(Reason(word, "preempted"), now_ms)

    def _noticed(self, event: events.Noticed, now_ms: int) -> None:
        """What can't be expected to end in time ends now, so that its task is put back, and another instance asked for,
        while this one still lives. What wants a signal has the rest of the time to write down how far it is, and what
        has succeeded to bring its outputs away."""
        self.life.advised = True
        if event.in_ms is None:
            return
        taken_ms = now_ms + event.in_ms
        self.life.taken_ms = min(self.life.taken_ms or taken_ms, taken_ms)
        median_ms, leave_ms = self.courier.pace.median_ms, self.life.leave_ms(self.policy)
        for attempt in (attempt for attempt in self.claims.running.values() if not attempt.vacant):
            began_ms = now_ms if attempt.started_ms is None else attempt.started_ms
            if not self.enforcer.warn(attempt) and (median_ms is None or began_ms + median_ms > leave_ms):
                self.enforcer.kill(attempt, "preempted", now_ms + self.policy.kill_grace_ms)

    @property
    def _leaves(self) -> bool:
        """Whether it takes no more work for good: it is told to drain, its disk is full, or the provider says that it
        takes the VM back, or may."""
        return self.draining or self.life.advised or bool(self.life.full)

    def _health_checked(self, event: events.HealthChecked, now_ms: int) -> None:
        self.health.checked(event.index, event.passed, event.detail, now_ms)

    def _brought(self, event: events.Brought, now_ms: int) -> None:
        self.succession.brought(event.sha256, event.failure, event.fraction, now_ms)

    def _hindered(self, event: events.Hindered, now_ms: int) -> None:
        if event.failure:
            self.succession.failed()
        else:
            self.succession.hindered(now_ms)

    def _timer(self, event: events.Timer, now_ms: int) -> None:
        """Everything that time alone brings about is in `_advance`."""

    # What follows from it

    def _advance(self, event: events.Event, now_ms: int) -> None:
        sent = self.courier.outstanding
        if sent is not None and now_ms >= sent.overdue_ms:
            fraction = event.fraction if isinstance(event, events.Timer) else 0.5
            self.courier.failed(sent.seq, fraction, self.tempo, now_ms)
        unkillable = self.enforcer.enforce(self.policy, now_ms)
        if unkillable is not None:
            self._give_up(unkillable, now_ms)
        claims = self.claims
        reason = self.life.due_end(self.policy, claims.holds, self.health.condemned, now_ms)
        if reason is not None:
            self._begin_end(reason, now_ms)
        if claims.waiting:
            self._place_waiting(now_ms)
        if self.end is None:
            for index in self.health.due(now_ms):
                self._out.append(events.RunHealthCheck(index, self.health.checks[index].check))
        else:
            dead = all(attempt.stuck for attempt in claims.running.values())
            self.end.settle(dead, now_ms)
            if self.end.over(now_ms):
                self.over = True
                self._out.append(events.End(self.end.word))
                return
        if self.succession.heir is not None and self._succeeds(now_ms):
            self._wake_ms = now_ms + AGAIN_MS
        else:
            self._wake_ms = self._next_ms(self._speak(now_ms), now_ms)

    def _succeeds(self, now_ms: int) -> bool:
        """Whether another program takes over now. One that is about to go needs no heir."""
        if self.end is not None or self._leaves:
            return False
        command = self.succession.step(self.claims, self.policy.replace_ms, now_ms)
        if command is not None:
            self._out.append(command)
        return isinstance(command, events.Become)

    def _place_waiting(self, now_ms: int) -> None:
        """Start what fits; hand back what must not or will not start soon."""
        why, patience = "", AHEAD_PATIENCE_MS
        if self.end is not None or self._leaves:
            why, patience = "the instance drains", 0
        elif now_ms >= self.enforcer.lease_end_ms:
            why, patience = "its lease ended", 0
        elif not self.health.ready:
            why = "the health checks have not passed"
        else:
            self._start_waiting(now_ms)
        late = [token for token, waiting in self.claims.waiting.items() if now_ms - waiting.since_ms >= patience]
        for token in late:
            self.courier.pace.forget_runtimes()
            self.claims.release(token, why or "no room for it within %d ms" % patience)
            self._after_result(token, now_ms, now_ms)
        if late and not why:
            self._start_waiting(now_ms)  # what stood behind one that wants the instance to itself

    def _start_waiting(self, now_ms: int) -> None:
        for attempt in self.claims.admit(self.policy):
            self.life.taken += 1
            self._out.append(events.Start(attempt.order, attempt.gpus))
            self.courier.starts(now_ms)

    def _speak(self, now_ms: int) -> Optional[int]:
        """Send the request that is due, or say when the next one is; None while an answer comes before."""
        if self.courier.awaits:
            return None
        standing = self._stand(now_ms)
        due_ms = self.courier.due_ms(standing, self.claims, self.tempo, now_ms)
        if due_ms is None or due_ms > now_ms:
            return due_ms
        self._out.append(events.Sync(self.courier.compose(standing, self.claims, self.tempo, now_ms)))
        # That said it all: what is due next is the answer, unless it is so long in coming that the timer would end.
        return None if self.renewal is None else self.renewal.must_ms

    def _next_ms(self, due_ms: Optional[int], now_ms: int) -> int:
        """The next moment at which time alone brings something about. What is due by `now_ms` was dealt with."""
        following, bound_ms = self.life.next_ms(self.policy, now_ms), self.enforcer.next_ms(now_ms)
        if bound_ms < following:
            following = bound_ms
        sent = self.courier.outstanding
        if sent is not None and now_ms < sent.overdue_ms < following:
            following = sent.overdue_ms
        if due_ms is not None and now_ms < due_ms < following:
            following = due_ms
        if self.end is not None:
            following = min(following, self.end.deadline_ms)  # which lies ahead: it is not over
        elif self.health.checks:
            following = min(following, self.health.next_ms(now_ms))
        for waiting in self.claims.waiting.values():
            following = min(following, waiting.since_ms + AHEAD_PATIENCE_MS)  # else it would wait no more
        if self.succession.heir is not None:
            following = min(following, self.succession.next_ms(self.policy.replace_ms, now_ms))
        return following if following < NEVER_MS else now_ms + 1000

    def _stand(self, now_ms: int) -> Standing:
        """What there is to say of this agent now."""
        state, token, end = self.state, self.drain_token, self.end
        if end is not None:
            ending = end.word if end.quiet else ""
            return Standing(state, token, ending=ending, detail=end.failure[:_DETAIL_CHARS])
        slots, ahead = self._wanted()
        asks = bool(self._asks(now_ms))
        detail = ADVISED if self.life.advised else FULL if self.life.full else ""
        detail = PREEMPTED if self.life.taken_ms is not None else detail
        return Standing(state, token, slots + ahead, ahead, slots > 0, asks, "", detail)

    def _wanted(self) -> tuple[int, int]:
        """How many claims could start now, and how many more to take ahead."""
        if self._leaves or self.hold or not self.health.ready or self.health.condemned:
            return 0, 0
        policy, claims = self.policy, self.claims
        slots = claims.open_slots(policy)
        ahead = self.courier.pace.ahead(policy, slots + len(claims.running))
        if ahead:
            ahead = max(ahead - len(claims.waiting), 0)
        if policy.max_tasks:
            left = max(policy.max_tasks - self.life.taken - len(claims.waiting), 0)
            slots = min(slots, left)
            ahead = min(ahead, left - slots)
        return slots, ahead

    def _asks(self, now_ms: int) -> str:
        if self.claims.holds or self.draining or self.hold or not self.health.ready:
            return ""
        return self.life.asks(self.policy, now_ms)

    # Small steps

    def _cancel(self, token: int, now_ms: int) -> None:
        waiting = self.claims.waiting.get(token)
        if waiting is not None:
            self._finish(Result(waiting.order.task, token, "cancelled", detail="cancelled before it started"), now_ms)
        attempt = self.claims.running.get(token)
        if attempt is not None:
            self.enforcer.kill(attempt, "cancelled", now_ms + (0 if attempt.vacant else self.policy.kill_grace_ms))

    def _give_up(self, attempt: Attempt, now_ms: int) -> None:
        """Something of `attempt` can't be killed: no other task may share a machine with it."""
        detail = "task %d token %d is still alive after SIGKILL" % (attempt.order.task, attempt.order.token)
        self._begin_end(Reason("unkillable", failure=detail), now_ms)

    def _begin_end(self, reason: Reason, now_ms: int) -> None:
        if self.end is not None:
            if reason.failure and not self.end.failure:
                self.end.word, self.end.failure = reason.word, reason.failure
            return
        kill_at = now_ms + self.policy.kill_grace_ms
        self.end = Ending(reason.word, reason.failure, kill_at + 2 * UNKILLABLE_MS)
        last_ms = min((self.life.taken_ms or 0) - LAST_WORDS_MS, kill_at + UNKILLABLE_MS)
        self.enforcer.kill_all(reason.cause, kill_at, max(kill_at, last_ms))

    def _note_run(self, attempt: Attempt, now_ms: int) -> None:
        if attempt.started_ms is not None and attempt.ran_ms < 0:
            attempt.ran_ms = max(now_ms - attempt.started_ms, 0)
            self.courier.pace.ran(attempt.ran_ms)

    def _finish(self, result: Result, now_ms: int) -> None:
        attempt, ended_ms = self.claims.running.get(result.token), now_ms
        if attempt is not None and attempt.started_ms is not None:
            ended_ms = attempt.started_ms + attempt.ran_ms  # its outputs and its log may have taken longer
        self.claims.finish(result)
        self._after_result(result.token, ended_ms, now_ms)

    def _after_result(self, token: int, ended_ms: int, now_ms: int) -> None:
        self.courier.result_came(token, ended_ms, now_ms)
        if not self.claims.holds:
            self.life.idle_since_ms = now_ms

    def _adopt(self, policy: Policy) -> None:
        self.policy = policy if policy.cpus_milli else replace(policy, cpus_milli=self.cpus_milli)
        self.tempo = tempo(self.policy)


_HANDLERS: Dict[type, Callable[[Machine, Any, int], None]] = {
    events.Boot: Machine._boot,
    events.Replied: Machine._replied,
    events.Failed: Machine._failed,
    events.Started: Machine._started,
    events.Vacated: Machine._vacated,
    events.Ended: Machine._ended,
    events.Stuck: Machine._stuck,
    events.Filled: Machine._filled,
    events.Signalled: Machine._signalled,
    events.Noticed: Machine._noticed,
    events.HealthChecked: Machine._health_checked,
    events.Brought: Machine._brought,
    events.Hindered: Machine._hindered,
    events.Timer: Machine._timer,
}
