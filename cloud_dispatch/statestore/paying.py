"""Claims that somebody with a limit pays for. Owns what is committed for one before it is made, and when its VM's end
moves; where the sums are is in `payers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.remaining import Remaining
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.instances import highest_rate
from cloud_dispatch.spend.payers import Wanted, keys_of_payer, name_of, part_rate, place_of, wanted_at
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.payers import Paid
from cloud_dispatch.statestore.purse import RAISE
from cloud_dispatch.statestore.queue import Key, Lot
from cloud_dispatch.statestore.seats import Hold, Seat


def next_paid(
    memory: Memory, seat: Seat, instance: Instance, line: int, remaining: Remaining | None, now: int
) -> tuple[Key, Paid] | None:
    """The first task of a payer's line that `seat` can finish and that the payer's limits admit there now, and what is
    committed for it; None when there is none, which is remembered with the reason. What is longer costs more: it is
    not judged where something shorter was refused."""
    payers, head = memory.payers, memory.queue.head(line)
    if head is None:
        return None
    lot = memory.queue.lots[head[1]]
    place = place_of(instance, payers.terms)
    if isinstance(place, str):
        payers.refuse(line, lot.payer, None, f"a limit covers it, and {place}", instance.id)
        return None
    if place.last_ms <= now:
        return None  # it is being ended
    others = max([finish for finish in memory.finishes(seat, now) if finish is not None], default=now)
    refused: list[tuple[int, Wanted, str]] = []
    for key, lot in _first_of_each(memory, line, head):
        expected_ms = memory.expected_ms(lot)
        if remaining is not None and remaining.is_too_short_for(memory.likely_ms(lot)):
            continue
        if any(expected_ms >= ms > 0 for ms, _, _ in refused):
            continue
        finish_ms = max(now + expected_ms, others) if expected_ms else None
        shape, name = memory.shapes[line], name_of(key[1])
        wanted = wanted_at(place, name, lot.payer, shape, now, finish_ms, payers.terms.lease_ms)
        paid = payers.judge(lot.payer, wanted, now)
        if not isinstance(paid, str):
            payers.admit(line)
            return key, paid
        refused.append((expected_ms, wanted, paid))
    if refused:
        payers.refuse(line, lot.payer, refused[-1][1], refused[0][2], instance.id)
    return None


def _first_of_each(memory: Memory, line: int, head: Key) -> Iterator[tuple[Key, Lot]]:
    """The first tasks of a line, of those that take equally long one; who is content with the head looks no further."""
    yield head, memory.queue.lots[head[1]]
    for step in memory.queue.front(line)[1:]:
        yield step.key, step.lot


def raise_all(memory: Memory, changed: Iterable[Instance], now: int) -> None:
    """The instances get later ends: commit that for the claims that they hold. OverBudget, and nothing is committed,
    when a limit does not admit it."""
    before: dict[int, Paid] = {}
    payers = memory.payers
    try:
        for task, paid in _moved(memory, changed):
            refusal = payers.refusal(task, paid, now)
            if refusal is not None:
                raise OverBudget(f"{name_of(task)}: {refusal}", hint=RAISE)
            before.setdefault(task, payers.take(task))
            payers.put(task, paid)
    except OverBudget:
        for task, paid in before.items():
            payers.take(task)
            payers.put(task, paid)
        raise
    if before:
        memory.repaid(before)


def ease(memory: Memory, changed: Iterable[Instance]) -> None:
    """The instances end when they do, asked or not: earlier, or so much later as was seen. What is committed for their
    claims follows."""
    before: dict[int, Paid] = {}
    for task, paid in _moved(memory, changed):
        before.setdefault(task, memory.payers.take(task))
        memory.payers.put(task, paid)
    if before:
        memory.repaid(before)


def recommit(memory: Memory) -> None:
    """Count all claims of payers with a limit anew, as far as it can be known what was committed for them: the reserve
    to finish them is kept where the limits still admit it."""
    for hold in memory.holds.values():
        if hold.lot.line < 0:
            memory.payers.put(hold.task, _held(memory, hold))


def _held(memory: Memory, hold: Hold) -> Paid:
    instance, lot, since = hold.seat.instance, hold.lot, hold.claimed_ms
    shape, payers = memory.shapes[lot.shape], memory.payers
    expected_ms = memory.expected_ms(lot)
    place = place_of(instance, payers.terms)
    if not isinstance(place, str):
        finish_ms = since + expected_ms if expected_ms else None
        wanted = wanted_at(place, name_of(hold.task), lot.payer, shape, since, finish_ms, payers.terms.lease_ms)
        if wanted.whole is not None and payers.admits(wanted.whole):
            return Paid(wanted.whole, wanted.whole.until_ms, wanted.trial is not None)
    rate = part_rate(
        highest_rate(instance), shape.resources, exclusive=shape.exclusive, capacity=instance.machine.capacity
    )
    least = Commitment(name_of(hold.task), keys_of_payer(lot.payer), rate, since, since, begins_by_ms=since)
    return Paid(least, since, not expected_ms).until(instance)


def _moved(memory: Memory, changed: Iterable[Instance]) -> Iterable[tuple[int, Paid]]:
    for instance in changed:
        seat = memory.seats.get(instance.id)
        for task in seat.held if seat is not None else ():
            paid = memory.payers.of(task)
            if paid is not None:
                yield task, paid.until(instance)
