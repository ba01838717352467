"""Machines on which tasks fail that would not elsewhere. Owns which failures say something of the machine. Pure but for
what it holds.

A machine that has gone bad takes no time for what it fails, so that it soon has all of the queue, unless its pool has a
health check that sees it. Two things give it away: new tasks that it can't even start, and failures in a row of a kind
of work (`api.kinds`) that seldom fails on the others. How probable such a row is, were it like them, is reckoned from
their last results by the rule of succession: each failure of the row makes the next one more probable, since what the
others say is a sample. A row that all others have as well is the work's own fault; each machine that is let go for one
makes the next such row more probable, so that few go for work that just turned bad.

What one machine says never displaces what the others do, or a bad one, which has a result a second, would soon be all
that is known. And whatever they say, no more than a dozen go within an hour: where a share fails under fifty kinds of
work, each kind has to be learnt anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.ports.fleet import Ended

#: So many tasks in a row that can't be started say more of the machine than of the tasks.
UNFIT_AFTER = 3
#: So many that fail, where a row like it is so improbable. Neighbours in an array may well fail together: the bound is
#: lower than the three at which an agent asks its health checks again, which costs nothing.
FAILED_AFTER, IMPROBABLE = 5, 1e-4
#: Results of other machines that are compared with: the last of each kind, and how many there have to be. Who
#: has more than so many of them makes room for the others'.
MOST_RESULTS, LEAST_RESULTS, MOST_OF_ONE = 64, 10, 8
#: So many failed tasks, and kinds of work, are remembered.
MOST_TASKS, MOST_KINDS = 10_000, 1_000
#: So many machines are let go within so long for what succeeds elsewhere.
MOST_LET_GO, WITHIN_MS = 12, 60 * 60_000
_TASKS_FAIL = "tasks-fail"

_FAILED = frozenset({Cause.EXIT_CODE, Cause.SIGNAL, Cause.CANNOT_START, Cause.OUTPUT_FAILED})


@dataclass(slots=True)
class Row:
    """What failed in a row on one machine. `unstartable`: since a task was started there. `failed`: since one
    succeeded, of what seldom fails elsewhere; `chance` of that, were the machine as the others. `kept`: whether it was
    told that it would be let go, were it not for those that just were."""

    unstartable: int = 0
    failed: int = 0
    chance: float = 1.0
    kept: bool = False


class Results:
    """The last results of one kind of work, whether they were good. Kept up with each result there is."""

    __slots__ = ("_many", "_times", "last")

    def __init__(self) -> None:
        self.last: deque[tuple[InstanceId, bool]] = deque()
        self._times: dict[InstanceId, int] = {}
        self._many: dict[InstanceId, None] = {}  # who has more than its part of them

    def add(self, instance: InstanceId, *, good: bool) -> None:
        if len(self.last) >= MOST_RESULTS:
            self._make_room()
        self.last.append((instance, good))
        times = self._times[instance] = self._times.get(instance, 0) + 1
        if times > MOST_OF_ONE:
            self._many[instance] = None

    def _make_room(self) -> None:
        most = max(self._many, key=self._times.__getitem__, default=None)
        at = 0 if most is None else next(at for at, (where, _) in enumerate(self.last) if where == most)
        gone, _ = self.last[at]
        del self.last[at]
        self._times[gone] -= 1
        if self._times[gone] <= MOST_OF_ONE:
            self._many.pop(gone, None)
        if not self._times[gone]:
            del self._times[gone]


class Unfit(NamedTuple):
    """Why a machine is let go: a cause of an instance's end, and the reason in words."""

    cause: str
    reason: str


@dataclass
class Fitness:
    """Of all machines; what a process remembers, and a new one learns anew."""

    #: Tasks that failed somewhere, the oldest first: that one fails again says nothing of the machine.
    failed: dict[TaskId, None] = field(default_factory=dict)
    #: By kind of work, that of which something ended last is last.
    _results: dict[str, Results] = field(default_factory=dict)
    #: When machines were let go for what succeeds elsewhere, monotonic milliseconds.
    _let_go: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_LET_GO))

    def judge(self, instance: InstanceId, row: Row, ended: Sequence[Ended]) -> Unfit | None:
        """What `ended` on `instance`, whose row is `row` and is brought up to date; why it is unfit, if it is."""
        unfit = None
        for one in ended:
            if one.cause is not Cause.CANNOT_START:
                row.unstartable = 0
            if one.cause is Cause.SUCCESS:
                row.failed, row.chance, row.kept = 0, 1.0, False
                self._note(instance, one.kind, good=True)
            elif one.cause in _FAILED:
                unfit = self._failed(instance, row, one) or unfit
                self._note(instance, one.kind, good=False)
        return unfit

    def let_go(self, unfit: Unfit, now_ms: int) -> Callable[[], object] | None:
        """Have a machine go for `unfit`; what takes that back, or None where so many went that it may not."""
        went = self._let_go
        if unfit.cause != _TASKS_FAIL:
            return _nothing
        if len(went) == went.maxlen and now_ms - went[0] < WITHIN_MS:
            return None
        went.append(now_ms)
        return partial(went.remove, now_ms)

    def _failed(self, instance: InstanceId, row: Row, one: Ended) -> Unfit | None:
        if not self._is_new(one.task):
            return None
        if one.cause is Cause.CANNOT_START:
            row.unstartable += 1
        if row.unstartable >= UNFIT_AFTER:
            return Unfit("cannot-start", f"{row.unstartable} tasks in a row could not be started here")
        bad, all_ = self._elsewhere(instance, one.kind)
        if all_ < LEAST_RESULTS or 2 * bad >= all_:
            return None
        row.chance *= (bad + 1 + row.failed) / (all_ + 2 + row.failed)
        row.failed += 1
        if row.failed >= FAILED_AFTER and row.chance <= IMPROBABLE:
            words = f"{row.failed} tasks in a row failed here; of the last {all_} of {one.kind} elsewhere {bad} did"
            return Unfit(_TASKS_FAIL, words)
        return None

    def _is_new(self, task: TaskId) -> bool:
        """Whether `task` failed for the first time. One that is tried again, here or elsewhere, is wrong itself: it
        would drain one machine after the other."""
        if task in self.failed:
            return False
        while len(self.failed) >= MOST_TASKS:
            del self.failed[next(iter(self.failed))]
        self.failed[task] = None
        return True

    def _elsewhere(self, instance: InstanceId, kind: str) -> tuple[int, int]:
        """How many of the last results of this kind on other machines were failures, and how many there are."""
        known = self._results.get(kind)
        good = [good for where, good in known.last if where != instance] if known is not None else []
        return good.count(False), len(good)

    def _note(self, instance: InstanceId, kind: str, *, good: bool) -> None:
        if not kind:
            return
        known = self._results.pop(kind, None)
        if known is None:
            known = Results()
            while len(self._results) >= MOST_KINDS:
                del self._results[next(iter(self._results))]
        self._results[kind] = known
        known.add(instance, good=good)


def _nothing() -> None:
    """Take nothing back."""
