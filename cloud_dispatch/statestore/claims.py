"""Sync: the hot path. Owns the order of results, running set and claims within one call of an agent.

Matching is by room: of the lines (shapes, and those of payers with a limit apart) that still fit the instance the one
with the best head (`heads`) gives tasks as long as its head stays the best, so a task that does not fit never blocks
one that does, and the cost grows with the number of waiting lines and of claims, never with the queue. What an old
instance could not finish does not fit it (`timely`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import Claimed, SyncCall, SyncDone
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.endings import Ran, end_claim, lose_claim
from cloud_dispatch.statestore.heads import Heads, heads_for
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.paying import next_paid
from cloud_dispatch.statestore.queue import Lot
from cloud_dispatch.statestore.seats import Seat
from cloud_dispatch.statestore.timely import next_for, remaining_of

#: States in which an instance that speaks to us is given work, if its caller says so too.
_TAKING = frozenset({InstanceState.IDLE, InstanceState.BUSY, InstanceState.OUT_OF_CONTACT, InstanceState.UNKNOWN})
#: At most this many claims a call, whatever it asks for.
MAX_CLAIMS = 10_000


def without_commit(call: SyncCall, memory: Memory, now: int) -> bool:
    """Whether `call` is answered from memory: its running set is what the memory has, and nothing that waits fits. Most
    syncs of a large fleet are such heartbeats.

    Starts that it tells are noted, and go into the tables with the next commit: nobody's claim hangs on them, and an
    agent tells them again in each running set, also to a dispatcher that has lost them. Only between groups."""
    seat = memory.seats.get(call.instance)
    if seat is None or call.results or call.order < seat.order or len(call.held) != len(seat.held):
        return False
    for claim in call.held:
        hold = seat.held.get(claim.task)
        if hold is None or hold.token != claim.token or hold.cancelling:
            return False
    if call.want > 0 and call.claiming and (call.ahead > 0 or _fits(seat, memory, now)):
        return False
    seat.order = call.order
    for claim in call.held:
        hold = seat.held[claim.task]
        if claim.ran_ms is not None and hold.started_ms is None:
            memory.note_started(hold, max(now - claim.ran_ms, hold.claimed_ms))
    return True


def _fits(seat: Seat, memory: Memory, now: int) -> bool:
    """Whether a task of some line has room at `seat` now, can be finished there, and is paid for."""
    machine = seat.instance.machine
    remaining = remaining_of(memory, seat.instance, now)
    for number, _ in memory.queue.lines():
        if seat.room(machine, memory.shapes[number], 1) and not machine.misfit(memory.shapes[number]):
            if number > 0:
                if next_for(memory, number, remaining) is not None:
                    return True
            elif next_paid(memory, seat, seat.instance, number, remaining, now) is not None:
                return True
    return False


class Sync:
    """One sync of an agent as an operation of the group commit."""

    reads = False

    def __init__(self, call: SyncCall, clock: Clock) -> None:
        self._call = call
        self._clock = clock
        self._claims: list[tuple[int, int, int]] = []
        self._kill: list[FencingToken] = []

    def prepare(self, connection: Connection) -> None:
        """Reads nothing."""

    def plan(self, batch: Batch) -> None:
        call = self._call
        seat = batch.memory.seats.get(call.instance)
        if seat is None:
            raise NotFound(f"there is no instance {call.instance}", hint="it is gone, or was never launched from here")
        self._claims, self._kill = [], []
        now = self._clock.now()
        self._take_results(batch, seat, now)
        if call.order < seat.order:
            return  # overtaken: its running set is history, and its claims would reach nobody
        seat.order = call.order
        self._compare(batch, seat, now)
        if call.want > 0 and call.claiming:
            instance = batch.instance(call.instance)
            # Whoever said that it claims may not have known: a hold that was in doubt comes back with the tables.
            if instance is not None and instance.state in _TAKING and instance.behaviour is not Behaviour.HOLD:
                self._claim(batch, seat, instance, now)

    def answer(self, specs: Mapping[int, bytes]) -> SyncDone:
        return SyncDone(
            claims=tuple(
                [
                    Claimed(TaskId(task), FencingToken(token), number, specs[task])
                    for task, token, number in self._claims
                ]
            ),
            settled=tuple([result.token for result in self._call.results]),
            kill=tuple(self._kill),
        )

    def _take_results(self, batch: Batch, seat: Seat, now: int) -> None:
        """Accept each result whose token is the current one of a claim of this instance; the rest are stale."""
        holds = batch.memory.holds
        for result in self._call.results:
            hold = holds.get(result.task)
            if hold is None or hold.token != result.token or hold.seat is not seat:
                continue
            started, ended = hold.started_ms, now - result.ago_ms
            if started is None and result.ran_ms is not None:
                started = max(ended - result.ran_ms, hold.claimed_ms)
            end_claim(batch, hold, result.outcome, started, now, Ran(ended, result.ran_ms))

    def _compare(self, batch: Batch, seat: Seat, now: int) -> None:
        """The running set against the leases: what is to be killed, what has started, what the agent lacks."""
        memory, held = batch.memory, self._call.held
        for claim in held:
            hold = memory.holds.get(claim.task)
            if hold is None or hold.token != claim.token or hold.seat is not seat:
                self._kill.append(claim.token)
                continue
            if hold.cancelling:
                self._kill.append(claim.token)
            if claim.ran_ms is not None and hold.started_ms is None:
                memory.mark_started(hold, max(now - claim.ran_ms, hold.claimed_ms))
                batch.task_held(hold)
        if seat.held:
            listed = {claim.token for claim in held}
            for hold in [hold for hold in seat.held.values() if hold.token not in listed]:
                lose_claim(batch, hold, now)

    def _claim(self, batch: Batch, seat: Seat, instance: Instance, now: int) -> None:
        memory, machine = batch.memory, instance.machine
        want = min(self._call.want, MAX_CLAIMS)
        remaining = remaining_of(memory, instance, now)
        heads = heads_for(memory, seat, machine, remaining, now)
        while want > 0 and (head := heads.pop()) is not None:
            number, task = head
            room = seat.room(machine, memory.shapes[number], want)
            if room > 0:  # else never again in this call: claims only fill
                if number < 0:
                    taken = self._take_paid(batch, seat, instance, number, heads, now)
                else:
                    taken = self._take(batch, seat, number, heads.take(number, task, room), now)
                want -= taken
                if want > 0 and taken:
                    heads.come_back(number)
        ahead = min(want, self._call.ahead)  # of payers with a limit none: what waits on a VM holds no part of it
        if ahead > 0 and not seat.exclusive:
            self._claim_ahead(batch, seat, instance, ahead, now)

    def _claim_ahead(self, batch: Batch, seat: Seat, instance: Instance, ahead: int, now: int) -> None:
        """Claim what begins when others have ended, `ahead` tasks at most."""
        memory = batch.memory
        remaining = remaining_of(memory, instance, now, count=ahead + 1)  # what they wait for is one more
        if remaining is not None:
            known = [finish for finish in memory.finishes(seat, now) if finish is not None]
            remaining = remaining.after(min(known, default=now) - now)
        heads = heads_for(memory, seat, instance.machine, remaining, now, ahead=ahead)
        while ahead > 0 and (head := heads.pop()) is not None:
            number, task = head
            ahead -= self._take(batch, seat, number, heads.take(number, task, ahead), now)
            if ahead > 0:
                heads.come_back(number)

    def _take(self, batch: Batch, seat: Seat, number: int, taken: Sequence[tuple[int, Lot]], now: int) -> int:
        """Claim `taken`, just taken out of one line; how many these are."""
        claims, instance = self._claims, self._call.instance
        for hold, lot in batch.memory.claim(seat, number, taken, now):
            batch.task_claimed(hold, lot, instance)
            claims.append((hold.task, hold.token, lot.attempts + 1))
        return len(taken)

    def _take_paid(self, batch: Batch, seat: Seat, instance: Instance, number: int, heads: Heads, now: int) -> int:
        """Claim a task of a payer's line: the first that its limits admit, once no other line has a better one."""
        memory = batch.memory
        found = next_paid(memory, seat, instance, number, heads.remaining, now)
        if found is None:
            return 0
        key, paid = found
        if heads.is_behind(number, key):
            heads.put(number, key)
            return 0
        task = key[1]
        taken = self._take(batch, seat, number, [(task, memory.queue.pick(task))], now)
        memory.pay(task, paid)
        return taken
