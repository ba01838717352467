"""Claims that somebody with a limit pays for. Owns what is committed for one before it is made, and when its VM's end
moves; where the sums are is in `payers`."""

from __future__ import annotations

from collections.abc import Iterable

from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.instances import highest_rate
from cloud_dispatch.spend.payers import keys_of_payer, name_of, part_rate, place_of, wanted_at
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.payers import Paid
from cloud_dispatch.statestore.purse import RAISE
from cloud_dispatch.statestore.seats import Hold, Seat


def claimable(memory: Memory, seat: Seat, instance: Instance, line: int, task: int, now: int) -> Paid | None:
    """What is committed for `task`, the next one of a payer's line, if it is claimed at `seat` now; None when its
    limits do not admit that, which is remembered with the reason."""
    payers, lot = memory.payers, memory.queue.lots[task]
    place = place_of(instance, payers.terms)
    if isinstance(place, str):
        payers.refuse(line, lot.payer, None, f"a limit covers it, and {place}", instance.id)
        return None
    if place.last_ms <= now:
        return None  # it is being ended
    expected_ms, finish_ms = lot.expected_ms or memory.typical_ms(lot.shape), None
    if expected_ms:
        others = [finish for finish in memory.finishes(seat, now) if finish is not None]
        finish_ms = max([now + expected_ms, *others])
    shape = memory.shapes[line]
    wanted = wanted_at(place, name_of(task), lot.payer, shape, now, finish_ms, payers.terms.lease_ms)
    paid = payers.judge(lot.payer, wanted, now)
    if isinstance(paid, str):
        payers.refuse(line, lot.payer, wanted, paid, instance.id)
        return None
    payers.admit(line)
    return paid


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
    expected_ms = lot.expected_ms or memory.typical_ms(lot.shape)
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
