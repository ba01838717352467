"""Claims that somebody with a limit pays for. Owns what is committed for one before it is made, and when its VM's end
moves; where the sums are is in `payers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.remaining import Remaining
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.instances import highest_rate
from cloud_dispatch.spend.payers import keys_of_payer, name_of, part_rate, place_of, wanted_at
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.payers import Paid
from cloud_dispatch.statestore.purse import RAISE
from cloud_dispatch.statestore.queue import Key, Lot
from cloud_dispatch.statestore.seats import Hold, Seat


def next_paid(
    memory: Memory, seat: Seat, instance: Instance, line: int, remaining: Remaining | None, now: int
) -> tuple[Key, Paid] | None:
    """The first task of a payer's line that `seat` can finish and that the payer's limits admit there now, and what is
    committed for it; None when there is none, which is remembered."""
    payers, head = memory.payers, memory.queue.head(line)
    if head is None:
        return None
    place = place_of(instance, payers.terms)
    if isinstance(place, str):
        seat.refused[line] = 0
        return None
    if place.last_ms <= now:
        return None  # it is being ended
    others = max([finish for finish in memory.finishes(seat, now) if finish is not None], default=now)
    refused: list[int] = []  # how long they take, 0 unknown

    def judged(key: Key, lot: Lot) -> Paid | None:
        expected_ms = memory.expected_ms(lot)
        finish_ms = max(now + expected_ms, others) if expected_ms else None
        shape, name = memory.shapes[line], name_of(key[1])
        wanted = wanted_at(place, name, lot.payer, shape, now, finish_ms, payers.terms.lease_ms)
        paid = payers.judge(lot.payer, wanted, now)
        if not isinstance(paid, str):
            return paid
        payers.refuse(line, lot.payer, expected_ms, wanted)
        refused.append(expected_ms)
        return None

    found = _first_admitted(memory, _fitting(memory, line, head, remaining), judged)
    if found is not None:
        key, lot, paid = found
        payers.admit(line, memory.expected_ms(lot))
        seat.refused.pop(line, None)
        return key, paid
    if refused:
        seat.refused[line] = min(refused)
    return None


def _first_admitted(
    memory: Memory, fitting: Iterator[tuple[Key, Lot]], judged: Callable[[Key, Lot], Paid | None]
) -> tuple[Key, Lot, Paid] | None:
    """The first of them that is. What takes longer than one that was not is not judged. Once the very first was not,
    the shortest of the others is judged before them: where that is refused, so is whatever says how long it takes."""
    least_ms = 0
    for key, lot in islice(fitting, 1):
        paid = judged(key, lot)
        if paid is not None:
            return key, lot, paid
        least_ms = memory.expected_ms(lot)
    others = [(memory.expected_ms(lot), key, lot) for key, lot in fitting]
    known = [one for one in others if one[0] > 0 and not one[0] >= least_ms > 0]
    if known and judged(*min(known)[1:]) is None:
        least_ms = min(known)[0]
    for expected_ms, key, lot in others:
        if not expected_ms >= least_ms > 0:
            paid = judged(key, lot)
            if paid is not None:
                return key, lot, paid
            least_ms = expected_ms or least_ms
    return None


def _fitting(memory: Memory, line: int, head: Key, remaining: Remaining | None) -> Iterator[tuple[Key, Lot]]:
    """Those of the first tasks of a line that can be finished."""
    for key, lot in _first_of_each(memory, line, head):
        if remaining is None or not remaining.is_too_short_for(memory.likely_ms(lot)):
            yield key, lot


def _first_of_each(memory: Memory, line: int, head: Key) -> Iterator[tuple[Key, Lot]]:
    """The first tasks of a line, of those that take equally long one; who is content with the head looks no further."""
    yield head, memory.queue.lots[head[1]]
    for step in memory.queue.front(line)[1:]:
        yield step.key, step.lot


def refusing(memory: Memory) -> dict[InstanceId, tuple[tuple[Shape, Payer], ...]]:
    """By instance, the lines of which the payers' limits admitted nothing when it last asked, as long as nothing
    shorter waits there since. Equal answers are one object."""
    if not memory.payers.keys:
        return {}
    answers: dict[tuple[int, ...], tuple[tuple[Shape, Payer], ...]] = {}
    found = {}
    for seat in memory.seats.values():
        lines = refused_at(memory, seat) if seat.refused else ()
        if lines:
            if lines not in answers:
                answers[lines] = lines_of(memory, lines)
            found[seat.instance.id] = answers[lines]
    return found


def lines_of(memory: Memory, numbers: Iterable[int]) -> tuple[tuple[Shape, Payer], ...]:
    """The lines of these numbers, in which something waits."""
    return tuple((memory.shapes[line], memory.queue.front(line)[0].lot.payer) for line in numbers)


def refused_at(memory: Memory, seat: Seat) -> tuple[int, ...]:
    """The numbers of these lines at one instance."""
    fronts = ((line, least_ms, memory.queue.front(line)) for line, least_ms in sorted(seat.refused.items()))
    return tuple(
        line
        for line, least_ms, front in fronts
        if front and min(memory.expected_ms(step.lot) for step in front) >= least_ms
    )


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
