"""Sync: the hot path. Owns the order of results, running set and claims within one call of an agent.

Matching is by room: of the shapes that still fit the instance the one with the best head gives tasks as long as its
head stays the best, so a task that does not fit never blocks one that does, and the cost grows with the number of
waiting shapes and of claims, never with the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.shape import Machine, room_for
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import Claimed, SyncCall, SyncDone
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.endings import end_claim, lose_claim
from cloud_dispatch.statestore.memory import Hold, Seat

#: States in which an instance that speaks to us is given work, if its caller says so too.
_TAKING = frozenset({InstanceState.IDLE, InstanceState.BUSY, InstanceState.OUT_OF_CONTACT, InstanceState.UNKNOWN})
#: At most this many claims a call, whatever it asks for.
MAX_CLAIMS = 10_000


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
            if instance is not None and instance.state in _TAKING:
                self._claim(batch, seat, instance.machine, now)

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

    def _claim(self, batch: Batch, seat: Seat, machine: Machine, now: int) -> None:
        memory, queue = batch.memory, batch.memory.queue
        want = min(self._call.want, MAX_CLAIMS)
        fitting = list(_fitting(batch, seat, machine))
        heads = [(head, number) for number in fitting if (head := queue.head(number)) is not None]
        heapify(heads)
        while want > 0 and heads:
            _, number = heappop(heads)
            room = room_for(machine, seat.load(), memory.shapes[number], want)
            if room > 0:  # else never again in this call: claims only fill
                want -= self._take(batch, seat, number, room, heads, now)
        ahead = min(want, self._call.ahead)
        if ahead <= 0 or seat.exclusive:
            return
        heads = [
            (head, number)
            for number in fitting
            if not (memory.shapes[number].exclusive or memory.shapes[number].max_per_instance)
            and (head := queue.head(number)) is not None
        ]
        heapify(heads)
        while ahead > 0 and heads:
            _, number = heappop(heads)
            ahead -= self._take(batch, seat, number, ahead, heads, now)

    def _take(
        self, batch: Batch, seat: Seat, number: int, most: int, heads: list[tuple[tuple[int, int], int]], now: int
    ) -> int:
        """Claim tasks of one shape while its head comes before the other shapes'; puts its next head among them."""
        made = batch.memory.claim(seat, number, most, heads[0][0] if heads else None, now)
        for hold, lot in made:
            self._hand_out(batch, hold)
            self._claims.append((hold.task, hold.token, lot.attempts + 1))
        following = batch.memory.queue.head(number)
        if following is not None:
            heappush(heads, (following, number))
        return len(made)

    @staticmethod
    def _hand_out(batch: Batch, hold: Hold) -> None:
        batch.task_held(hold)
        batch.read_specs.append(hold.task)


def _fitting(batch: Batch, seat: Seat, machine: Machine) -> Iterator[int]:
    """Shapes with waiting tasks that the empty machine can run; the answer is remembered at the seat."""
    misfits, shapes = seat.misfits, batch.memory.shapes
    for number, _ in batch.memory.queue.shapes():
        misfit = misfits.get(number)
        if misfit is None:
            misfit = misfits[number] = bool(machine.misfit(shapes[number]))
        if not misfit:
            yield number
