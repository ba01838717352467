"""Sync: the hot path. Owns the order of results, running set and claims within one call of an agent.

Matching is by room: of the lines (shapes, and those of payers with a limit apart) that still fit the instance the one
with the best head gives tasks as long as its head stays the best, so a task that does not fit never blocks one that
does, and the cost grows with the number of waiting lines and of claims, never with the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.domain.shape import Machine
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import Claimed, SyncCall, SyncDone
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.endings import end_claim, lose_claim
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.paying import claimable
from cloud_dispatch.statestore.seats import Seat

#: States in which an instance that speaks to us is given work, if its caller says so too.
_TAKING = frozenset({InstanceState.IDLE, InstanceState.BUSY, InstanceState.OUT_OF_CONTACT, InstanceState.UNKNOWN})
#: (-priority, id) and the line's number: the smallest is the next task.
Heads = list[tuple[tuple[int, int], int]]
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
    """Whether a task of some line has room at `seat` now, and is paid for."""
    machine = seat.instance.machine
    for number, _ in memory.queue.lines():
        if seat.room(machine, memory.shapes[number], 1) and not machine.misfit(memory.shapes[number]):
            if number > 0 or claimable(memory, seat, seat.instance, number, now) is not None:
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
            started = hold.started_ms
            if started is None and result.ran_ms is not None:
                started = max(now - result.ran_ms, hold.claimed_ms)
            end_claim(batch, hold, result.outcome, started, now)

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
        heads = _heads(batch, seat, machine)
        while want > 0 and heads:
            number = heappop(heads)[1]
            room = seat.room(machine, memory.shapes[number], want)
            if room > 0:  # else never again in this call: claims only fill
                if number < 0:
                    taken = self._take_paid(batch, seat, instance, number, heads, now)
                else:
                    taken = self._take(batch, seat, number, room, heads, now)
                want -= taken
                if want > 0 and taken:
                    _come_back(batch, number, heads)
        ahead = min(want, self._call.ahead)  # of payers with a limit none: what waits on a VM holds no part of it
        if ahead <= 0 or seat.exclusive:
            return
        shapes = memory.shapes
        heads = [
            head
            for head in _heads(batch, seat, machine)
            if head[1] > 0 and not (shapes[head[1]].exclusive or shapes[head[1]].max_per_instance)
        ]
        heapify(heads)
        while ahead > 0 and heads:
            number = heappop(heads)[1]
            ahead -= self._take(batch, seat, number, ahead, heads, now)
            if ahead > 0:
                _come_back(batch, number, heads)

    def _take(self, batch: Batch, seat: Seat, number: int, most: int, heads: Heads, now: int) -> int:
        """Claim tasks of one line, at most `most`, while its head comes before those of the other shapes."""
        claims, instance = self._claims, self._call.instance
        made = batch.memory.claim(seat, number, most, heads[0][0] if heads else None, now)
        for hold, lot in made:
            batch.task_claimed(hold, lot, instance)
            claims.append((hold.task, hold.token, lot.attempts + 1))
        return len(made)

    def _take_paid(self, batch: Batch, seat: Seat, instance: Instance, number: int, heads: Heads, now: int) -> int:
        """Claim the next task of a payer's line, if its limits admit it."""
        memory = batch.memory
        paid = claimable(memory, seat, instance, number, now)
        if paid is None:
            return 0
        taken = self._take(batch, seat, number, 1, heads, now)
        memory.pay(self._claims[-1][0], paid)
        return taken


def _heads(batch: Batch, seat: Seat, machine: Machine) -> Heads:
    """The heads of the lines that the empty machine can run, as a heap; what fits is remembered at the seat."""
    misfits, memory = seat.misfits, batch.memory
    heads: Heads = []
    for number, _ in memory.queue.lines():
        misfit = misfits.get(number)
        if misfit is None:
            misfit = misfits[number] = bool(machine.misfit(memory.shapes[number]))
        if not misfit:
            _come_back(batch, number, heads)
    return heads


def _come_back(batch: Batch, number: int, heads: Heads) -> None:
    """Put the present head of a line among the others."""
    head = batch.memory.queue.head(number)
    if head is not None:
        heappush(heads, (head, number))
