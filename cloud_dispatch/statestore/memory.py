"""What the store keeps in memory: the queue, who holds what, instances that are not gone, counts, targets, facts.

Owns the moves between them, each recorded in a journal until the commit that makes it durable: `keep` forgets the
journal, `undo` takes every move back. Must not know SQL, nor why anything moves. `statestore.loading` builds one from
the tables; the two must always agree (the store's `check` compares them).

Instances, targets and facts are replaced only after the commit (by `statestore.commit`), since others act on what they
read of them. Moves of tasks are made while a group is planned, so that the calls of a group see each other's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import accumulate, islice

from cloud_dispatch.domain.ids import BatchId, FencingToken, InstanceId, TaskId, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.payer import Payer, Refused
from cloud_dispatch.domain.shape import Load, Shape
from cloud_dispatch.domain.task import TERMINAL, TaskState
from cloud_dispatch.ports.store import NEVER_MS, Outlook, ShapeDemand, Target
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.ends import finish_of
from cloud_dispatch.spend.past import Past
from cloud_dispatch.statestore.payers import Paid, Payers
from cloud_dispatch.statestore.purse import Charge, Purse
from cloud_dispatch.statestore.queue import Key, Lot, ReadyQueue
from cloud_dispatch.statestore.seats import Hold, Seat

#: So many lines, each at so many machines: 20 ms where each of these knows of each of those.
FORGOTTEN_AT_ONCE = 50_000


class Memory:
    """See the module. Single-threaded: touched on the event loop only, or by whoever loads it."""

    def __init__(self) -> None:
        self.queue = ReadyQueue()
        #: By number, and by the (negative) numbers of lines of payers with a limit: those are of this memory alone.
        self.shapes: dict[int, Shape] = {}
        self.shape_numbers: dict[Shape, int] = {}
        self.holds: dict[int, Hold] = {}
        #: How often in a row claims of a task were lost before it started, by task.
        self.lost: dict[int, int] = {}
        self.seats: dict[InstanceId, Seat] = {}
        self.vms: dict[VmId, Seat] = {}
        self.counts: dict[TaskState, int] = dict.fromkeys(TaskState, 0)
        self.last_task = 0
        self.last_token = 0
        self.last_plan = 0
        self.commits = 0  # the number of the last transaction
        self.facts: dict[str, str] = {}
        self.targets: dict[tuple[str, str], Target] = {}
        #: By task, leases whose start is known here and not in the tables yet; the next commit brings it there.
        self.unwritten: dict[int, Hold] = {}
        self.purse = Purse()
        self._living: Counter[BatchId] = Counter()  # how many instances of each launch have a seat
        #: By launch, the VMs of its instances that are gone, while others of it live.
        self.parted: dict[BatchId, set[VmId]] = {}
        self.past = Past()
        self.payers = Payers()
        self._lines: dict[tuple[int, Payer], int] = {}
        self._last_line = 0
        #: Of all that were ever numbered, those that were never written too: their lines, and what machines were found
        #: to make of them, are remembered by their numbers.
        self.last_shape = 0
        self._ran: dict[int, tuple[int, int]] = {}  # by shape: milliseconds, and tasks that succeeded in them
        self._longest_ran_ms = 0
        self._told: dict[int, tuple[int, int]] = {}  # of those that said how long they take: what they said, and took
        self._journal: list[Callable[[], object]] = []
        self._kept = self._numbers()
        self._shown: dict[InstanceId, Instance] = {}
        self._unshown: dict[InstanceId, None] = {}  # whose entry there may be out of date, in order
        self._loads: dict[InstanceId, Load] = {}
        self._unweighed: dict[InstanceId, None] = {}  # the same of these

    # -- moves of tasks
    def enqueue(self, task: int, lot: Lot) -> None:
        self.queue.add(task, lot)
        self.counts[TaskState.QUEUED] += 1
        self._journal.append(lambda: self.queue.remove(task))

    def enqueue_all(self, tasks: Sequence[tuple[int, Lot]]) -> None:
        """As `enqueue`, with one entry of the journal."""
        for task, lot in tasks:
            self.queue.add(task, lot)
        self.counts[TaskState.QUEUED] += len(tasks)
        self._journal.append(lambda: [self.queue.remove(task) for task, _ in tasks])

    def dequeue(self, task: int) -> Lot:
        lot = self.queue.remove(task)
        self.counts[TaskState.QUEUED] -= 1
        self._journal.append(lambda: self.queue.add(task, lot))
        return lot

    def reprioritise(self, task: int, priority: int) -> None:
        before = self.queue.lots[task].priority
        self.queue.reprioritise(task, priority)
        self._journal.append(lambda: self.queue.reprioritise(task, before))

    def claim(self, seat: Seat, line: int, taken: Sequence[tuple[int, Lot]], now: int) -> Sequence[tuple[Hold, Lot]]:
        """Give `taken`, which were taken out of `line` just now, to `seat`, each under a new token."""
        holds, held, token = self.holds, seat.held, self.last_token
        if not held:
            self._unshown[seat.instance.id] = None
        made = []
        for task, lot in taken:
            token += 1
            hold = Hold(task, token, seat, now, None, lot)
            holds[task] = held[task] = hold
            made.append((hold, lot))
        seat.weigh(self.shapes[line], len(made))
        self._unweighed[seat.instance.id] = None
        self.last_token = token
        self.counts[TaskState.QUEUED] -= len(taken)
        self.counts[TaskState.CLAIMED] += len(taken)
        self._journal.append(lambda: self._unclaim(made))
        return made

    def _unclaim(self, made: Sequence[tuple[Hold, Lot]]) -> None:
        for hold, lot in made:
            self._unseat(hold)
            self.queue.add(hold.task, lot)

    def drop(self, hold: Hold) -> None:
        """End a lease; where the task goes is the caller's next move."""
        self.counts[hold.state] -= 1
        self._unseat(hold)
        self._journal.append(lambda: self.seat(hold))

    def mark_started(self, hold: Hold, started_ms: int) -> None:
        self.counts[hold.state] -= 1
        hold.started_ms = started_ms
        self.counts[hold.state] += 1
        self._journal.append(lambda: setattr(hold, "started_ms", None))

    def note_started(self, hold: Hold, started_ms: int) -> None:
        """`mark_started` between two groups, for the next one to write: not to be taken back if that fails."""
        if self._journal:
            raise RuntimeError("a group of calls is being committed")
        self.mark_started(hold, started_ms)
        self.keep()
        self.unwritten[hold.task] = hold

    def mark_cancelling(self, hold: Hold) -> None:
        self.counts[hold.state] -= 1
        hold.cancelling = True
        self.counts[TaskState.CANCELLING] += 1
        self._journal.append(lambda: setattr(hold, "cancelling", False))

    def relot(self, hold: Hold, lot: Lot) -> None:
        """A held task's new priority, for when it comes back."""
        before, hold.lot = hold.lot, lot
        self._journal.append(lambda: setattr(hold, "lot", before))

    def add_shape(self, number: int, shape: Shape) -> None:
        self.last_shape = max(self.last_shape, number)
        self.shapes[number] = shape
        self.shape_numbers[shape] = number
        self._journal.append(lambda: (self.shapes.pop(number), self.shape_numbers.pop(shape)))

    def forget_shapes(self, numbers: Sequence[int]) -> set[int]:
        """No task has one of these, nor will: their numbers and those of their lines are not given again. What was
        learnt of them goes, too; that is not taken back. Every machine may know of all of them: only so many go, from
        the first one on, as that takes no long turn of the loop, and the answer says which."""
        lines: dict[int, list[tuple[tuple[int, Payer], int]]] = {number: [] for number in numbers}
        for key, line in self._lines.items():
            if key[0] in lines:
                lines[key[0]].append((key, line))
        at_once = accumulate(1 + len(lines[number]) for number in numbers)
        most = max(bisect_right(list(at_once), FORGOTTEN_AT_ONCE // max(len(self.seats), 1)), 1)
        gone = set(numbers[:most])
        of_them = [one for number in gone for one in lines[number]]
        lost = {number: self.shapes.pop(number) for number in (*gone, *(line for _, line in of_them))}
        for key, _ in of_them:
            del self._lines[key]
        for number in gone:
            del self.shape_numbers[lost[number]]
            self._ran.pop(number, None)
            self._told.pop(number, None)
        forgotten = set(lost)
        for seat in self.seats.values():
            seat.forget(forgotten)
        self.payers.forget(forgotten)

        def take_back() -> None:
            self.shapes.update(lost)
            self.shape_numbers.update({lost[number]: number for number in gone})
            self._lines.update(of_them)

        self._journal.append(take_back)
        return gone

    def seat(self, hold: Hold) -> None:
        """Put a hold in its place, counts apart: for loading and for taking back."""
        self.holds[hold.task] = hold.seat.held[hold.task] = hold
        self._unshown[hold.seat.instance.id] = self._unweighed[hold.seat.instance.id] = None
        hold.seat.weigh(self.shapes[hold.lot.shape], 1)

    def _unseat(self, hold: Hold) -> None:
        del self.holds[hold.task]
        del hold.seat.held[hold.task]
        if not hold.seat.held:
            self._unshown[hold.seat.instance.id] = None
        hold.seat.weigh(self.shapes[hold.lot.shape], -1)
        self._unweighed[hold.seat.instance.id] = None

    # -- payers with a limit
    def line_of(self, shape: int, payer: Payer) -> int:
        """Where tasks of `shape` wait that are done for `payer`."""
        if not self.payers.keys or not self.payers.covers(payer):
            return shape
        number = self._lines.get((shape, payer))
        if number is None:
            self._last_line -= 1
            number = self._lines[shape, payer] = self._last_line
            self.shapes[number] = self.shapes[shape]
        return number

    def knows_its_shapes(self) -> bool:
        """Whether what is remembered by a shape's number, at machines and of lines, is so. For checks: slow."""
        known = self.shapes
        return all(known[line] == known.get(shape, known[line]) for (shape, _), line in self._lines.items()) and all(
            bool(seat.instance.machine.misfit(known[number])) == misfit
            for seat in self.seats.values()
            for number, misfit in seat.misfits.items()
            if number in known
        )

    def pay(self, task: int, paid: Paid) -> None:
        """The claim of `task` counts for its payer from here on."""
        self.payers.put(task, paid)
        self._journal.append(lambda: self.payers.take(task))

    def repaid(self, before: Mapping[int, Paid]) -> None:
        """What is committed for these claims was this, and has become something else."""
        self._journal.append(lambda: self._repay_back(before))

    def _repay_back(self, before: Mapping[int, Paid]) -> None:
        for task, paid in before.items():
            self.payers.take(task)
            self.payers.put(task, paid)

    def settle(self, task: int, token: int, charged: Commitment) -> None:
        """The claim has ended: what it came to counts instead of what it might have."""
        paid = self.payers.take(task)
        self.payers.settle(token, charged)
        self._journal.append(lambda: self.payers.put(task, paid))
        self._journal.append(lambda: self.payers.unsettle(token))

    def charge(self, row: Charge) -> None:
        """The row of a claim that has ended is durable."""
        self.payers.unsettle(row.token)
        self.purse.charge(row)

    def take_purse(self, purse: Purse, now: int) -> None:
        """These are the limits now. What waits and what is held is sorted anew where other payers have one: once, at a
        cost that grows with the queue."""
        before, self.purse = self.payers, purse
        self.payers = Payers(purse, now)
        self.payers.stopped = before.stopped
        for seat in self.seats.values():
            seat.refused.clear()  # by other limits
        if self.payers.keys != before.keys:
            self.queue = self.queue.relined(lambda lot: self.line_of(lot.shape, lot.payer))
            for hold in self.holds.values():
                hold.lot = hold.lot._replace(line=self.line_of(hold.lot.shape, hold.lot.payer))

    # -- the journal
    @property
    def moved(self) -> int:
        """How many moves await their commit."""
        return len(self._journal)

    def keep(self) -> None:
        """The moves so far are durable."""
        self._journal.clear()
        self._kept = self._numbers()

    def undo(self) -> None:
        """Take back every move since the last `keep`."""
        while self._journal:
            self._journal.pop()()
        self.last_task, self.last_token, self.last_plan, counts = self._kept
        self.counts = dict(counts)

    def become(self, other: Memory) -> None:
        """Take over everything of `other`, which is given up; what the tables do not know stays."""
        other.payers.stopped = self.payers.stopped
        self.__dict__.update(other.__dict__)

    def _numbers(self) -> tuple[int, int, int, dict[TaskState, int]]:
        return self.last_task, self.last_token, self.last_plan, dict(self.counts)

    def counters(self) -> dict[str, tuple[int, int]]:
        """The numbers that the tables keep, where they differ from those last kept; with those."""
        task, token, plan, counts = self._kept
        numbers = (("task", self.last_task, task), ("token", self.last_token, token), ("plan", self.last_plan, plan))
        ended = {
            state.value: (self.counts[state], counts[state])
            for state in TERMINAL
            if self.counts[state] != counts[state]
        }
        return ended | {name: (number, kept) for name, number, kept in numbers if number != kept}

    # -- how long tasks run
    def succeeded(self, shape: int, ran_ms: int, expected_ms: int = 0) -> None:
        """A task of `shape` ran so long; it had said `expected_ms`. Not taken back if its commit fails: it did."""
        total, count = self._ran.get(shape, (0, 0))
        self._ran[shape] = (total + max(ran_ms, 1), count + 1)
        self._longest_ran_ms = max(self._longest_ran_ms, ran_ms)
        if expected_ms:
            told, took = self._told.get(shape, (0, 0))
            self._told[shape] = (told + expected_ms, took + max(ran_ms, 1))

    @property
    def longest_ms(self) -> int:
        """Nothing that waits is likely to take longer."""
        return max(self.queue.longest_ms, self._longest_ran_ms)

    def likely_ms(self, lot: Lot) -> int:
        """How long a task of this lot is likely to take: as it says, or less where others of its shape have taken less
        than they said. Never more: hard ends are set by what is said, and what these allow for is not to be declined.
        0 unknown."""
        if not lot.expected_ms:
            return self.typical_ms(lot.shape)
        told, took = self._told.get(lot.shape, (1, 1))
        return lot.expected_ms if told <= took else max(lot.expected_ms * took // told, 1)

    def expected_ms(self, lot: Lot) -> int:
        """As it says, else as others of its shape have taken; 0 unknown."""
        return lot.expected_ms or self.typical_ms(lot.shape)

    def typical_ms(self, shape: int) -> int:
        """The mean of those; 0 before the first."""
        total, count = self._ran.get(shape, (0, 0))
        return total // count if count else 0

    def finishes(self, seat: Seat, now: int) -> list[int | None]:
        """When each task that `seat` holds is expected to be done; None where that is not known."""
        return [finish_of(now, hold.since_ms, self.expected_ms(hold.lot)) for hold in seat.held.values()]

    def outlook(self, instance: InstanceId, now: int, within_ms: int) -> Outlook:
        """What `instance` holds, as work is planned for `within_ms`."""
        seat = self.seats.get(instance)
        if seat is None:
            return Outlook(Load(), now, NEVER_MS, 0)
        staying: list[Hold] = []
        free_ms, until_ms = now, NEVER_MS
        work_ms = max((self.expected_ms(hold.lot) for hold in seat.held.values()), default=0)
        for hold, finish in zip(seat.held.values(), self.finishes(seat, now), strict=True):
            longer = finish is None or finish - now > within_ms
            if finish is None or longer:
                staying.append(hold)
            else:
                free_ms = max(free_ms, finish)
            said = hold.since_ms + hold.lot.expected_ms
            if finish == said and hold.started_ms is not None:
                until_ms = min(until_ms, said - within_ms if longer else said)
            elif not (hold.started_ms is not None and hold.lot.expected_ms and longer):
                # When it starts, and what others take, may be learnt at any time; what is late is ever later.
                until_ms = now
        if len(staying) == len(seat.held):
            return Outlook(seat.load(), now, until_ms, work_ms)
        stays = Load()
        for hold in staying:
            stays = stays.plus(self.shapes[hold.lot.shape])
        return Outlook(stays, free_ms, until_ms, work_ms)

    # -- instances, after the commit
    def put_instance(self, instance: Instance) -> None:
        """Insert or replace; one that is gone leaves."""
        self._unshown[instance.id] = self._unweighed[instance.id] = None
        seat = self.seats.get(instance.id)
        self.past.spot.see(None if seat is None else seat.instance, instance)
        if seat is not None and seat.instance.vm and self.vms.get(seat.instance.vm) is seat:
            del self.vms[seat.instance.vm]
        if instance.state is InstanceState.GONE:
            if self.seats.pop(instance.id, None) is not None:
                self._part(instance)
            return
        if seat is None:
            seat = self.seats[instance.id] = Seat(instance)
            self._living[instance.batch] += 1
        else:
            seat.put(instance)
        if instance.vm:
            self.vms[instance.vm] = seat

    def open_batches(self) -> set[BatchId]:
        """The launches some of whose instances have no VM yet: of the others nobody asks what has parted."""
        return {seat.instance.batch for seat in self.seats.values() if not seat.instance.vm}

    def _part(self, instance: Instance) -> None:
        """It lives no more: others of its launch may still look for their VMs."""
        self._living[instance.batch] -= 1
        if not self._living[instance.batch]:
            del self._living[instance.batch]
            self.parted.pop(instance.batch, None)
        elif instance.vm:
            self.parted.setdefault(instance.batch, set()).add(instance.vm)

    # -- what others read
    def shown(self) -> dict[InstanceId, Instance]:
        """The instances as others see them; a new dict when one changed or began or ceased to
        hold claims, in which only those were looked at. Must not be changed."""
        if self._unshown:
            shown = dict(self._shown)
            for instance in self._unshown:
                seat = self.seats.get(instance)
                if seat is None:
                    shown.pop(instance, None)
                else:
                    shown[instance] = seat.shown
            self._shown = shown
            self._unshown.clear()
        return self._shown

    def loads(self) -> dict[InstanceId, Load]:
        """What runs on each instance, kept as `shown` is."""
        if self._unweighed:
            loads = dict(self._loads)
            for instance in self._unweighed:
                seat = self.seats.get(instance)
                if seat is None:
                    loads.pop(instance, None)
                else:
                    loads[instance] = seat.load()
            self._loads = loads
            self._unweighed.clear()
        return self._loads

    def waiting(self, now: int) -> list[ShapeDemand]:
        demand = []
        for number, line in self.queue.lines():
            head = self.queue.head(number)
            if head is not None:
                lot = self.queue.lots[head[1]]
                lengths = tuple([line.lengths[digits] for digits in sorted(line.lengths)])
                found = ShapeDemand(
                    self.shapes[number], line.count, lengths, -head[0], lot.submitted_ms, lot.expected_ms
                )
                if number < 0:
                    refused, withheld = self._withheld(number, lot.payer, now)
                    front = tuple((step.lot.expected_ms, step.tasks) for step in self.queue.front(number))
                    found = replace(found, payer=lot.payer, withheld=withheld, front=front, refused=refused)
                demand.append(found)
        return demand

    def coming(self, most: int, now: int) -> list[tuple[Shape, int]]:
        """The next tasks of each line, at most `most` of it, in the order of claims: shape, and how long they are
        expected to run, or others of their shape have; 0 unknown."""
        lines = [
            islice(self.queue.coming(number), most) if number >= 0 else self._paid_for(number, most, now)
            for number, _ in self.queue.lines()
        ]
        lots = (self.queue.lots[task] for _, task in merge(*lines))
        return [(self.shapes[lot.shape], self.expected_ms(lot)) for lot in lots]

    def _withheld(self, line: int, payer: Payer, now: int) -> tuple[tuple[Refused, ...], str]:
        """What of a payer's line would be refused as it was, and why that is all that can be begun; "" when it is
        not."""
        stopped = self.payers.stops(payer)
        if stopped:
            return (), stopped
        refused = self.payers.refused(line, now)
        if not refused:
            return (), ""
        lengths = [self.expected_ms(step.lot) for step in self.queue.front(line)]
        whys = [next((one.why for one in refused if one.covers(length)), "") for length in lengths]
        return refused, whys[0] if all(whys) else ""

    def _paid_for(self, line: int, most: int, now: int) -> Iterable[Key]:
        """What comes next of a payer's line, without what would be refused as it was."""
        lots = self.queue.lots
        refused, withheld = self._withheld(line, self.queue.front(line)[0].lot.payer, now)
        if withheld:
            return ()
        keys = islice(self.queue.coming(line), most)
        return [key for key in keys if not any(one.covers(self.expected_ms(lots[key[1]])) for one in refused)]

    def shapes_of(self, instance: InstanceId) -> tuple[Shape, ...]:
        seat = self.seats.get(instance)
        numbers = {hold.lot.shape for hold in seat.held.values()} if seat else ()
        return tuple(self.shapes[number] for number in sorted(numbers))

    def leases(self, instance: InstanceId) -> dict[TaskId, FencingToken]:
        seat = self.seats.get(instance)
        return {TaskId(t): FencingToken(h.token) for t, h in seat.held.items()} if seat else {}
