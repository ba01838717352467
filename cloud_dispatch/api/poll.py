"""Syncs that are held back until there is something to say. Owns who waits, in which order, and who is woken when.

New work wakes only as many polls as it can keep busy, and only those whose machine has room for its shape: the cheapest
first, of these one in use before one that idles, then the oldest. In turns, each VM of a fleet that is larger than its
work needs would get some now and then, and none would idle for long enough to end. Must not know HTTP nor what a woken
sync does.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Iterable
from enum import StrEnum
from operator import attrgetter

from msgspec import Struct

from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.shape import Machine, Shape, room_for
from cloud_dispatch.ports.store import Store


class Wake(StrEnum):
    """Why a poll was woken. All but `work` are for good."""

    WORK = "work"
    NEWS = "news"  # its directive changed, or something that it holds was cancelled
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    GONE = "gone"  # the client closed the connection
    CLOSED = "closed"  # the dispatcher ends


#: Sorts polls, the one that is woken first in front: vain, failing, rate, idle, when its instance was intended, its
#: instance, and a number that no other one has.
Rank = tuple[bool, bool, int, bool, int, str, int]
#: Dearer than whatever has a price.
_UNKNOWN = 1 << 62
#: A member of an enum is found through its metaclass, ten times as slowly as a name.
_WORK, _GONE = Wake.WORK, Wake.GONE
_RANK = attrgetter("rank")


class Poll(Struct, eq=False):
    """One held sync of one instance: wants at most `want` claims, `ahead` of them beyond what is free."""

    instance: InstanceId
    machine: Machine | None
    want: int
    ahead: int
    offered: int = 0  # tasks that it was woken for and has not answered for yet
    dry: bool = False  # the last offer brought nothing: only news of new work is worth another look
    vain: bool = False  # an offer has brought nothing: others are asked first (who is old is given only short work)
    failing: bool = False  # what ended there last has failed: others are asked first, it may be the machine
    rank: Rank | None = None  # among those that want work, while it is one of them
    final: Wake | None = None
    left: bool = False  # the client closed the connection, whatever woke the poll before
    _work: bool = False
    _future: asyncio.Future[None] | None = None

    def wake(self, reason: Wake) -> None:
        """Wake it; the first reason other than work stays."""
        if reason is _WORK:
            self._work = True
        elif self.final is None:
            self.final = reason
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def leave(self) -> None:
        """The client closed the connection."""
        self.left = True
        self.wake(_GONE)

    async def woken(self) -> Wake:
        """Wait until it is woken, or say at once why it already is. A final reason outranks work."""
        if self.final is None and not self._work:
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            finally:
                self._future = None
        if self.final is not None:
            return self.final
        self._work = False
        return _WORK


class Polls:
    """All held syncs. `arrivals` rises whenever work arrived: a caller that saw it rise while it looked in vain looks
    again before it waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[Poll, None] = {}  # in order of arrival
        self._hungry: list[Poll] = []  # of them those that want work, by rank: in a busy fleet the fewest
        self._looking: set[Poll] = set()  # woken for work, asking the store now
        self._added = 0
        self.arrivals = 0
        store.subscribe(self._arrived, early=True)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._looking)

    def add(self, poll: Poll) -> None:
        """`poll` waits. What its instance holds, and so its rank, stays as it is meanwhile: syncs alone change that."""
        self._looking.discard(poll)
        self._sate(poll)
        self._waiting[poll] = None
        if poll.want > 0 and poll.machine is not None:
            poll.rank = self._rank(poll)
            insort(self._hungry, poll, key=_RANK)

    def remove(self, poll: Poll) -> None:
        """`poll` waits no more; work that it was woken for and did not take is offered to the others."""
        self._waiting.pop(poll, None)
        self._sate(poll)
        self._looking.discard(poll)
        if poll.offered:
            poll.offered = 0
            self._offer_queue()

    def looked(self, poll: Poll, claims: int) -> None:
        """`poll` asked the store for what it was woken for and got `claims` tasks; offers the rest to the others."""
        missed, poll.offered = poll.offered - claims, 0
        poll.dry = poll.vain = claims == 0
        if missed > 0:
            self._offer_queue()

    def cancelled(self, tasks: Iterable[TaskId]) -> None:
        """Wake every poll whose instance holds one of `tasks`: it has something to kill."""
        ended = frozenset(tasks)
        for poll in (*self._waiting, *self._looking):
            if not ended.isdisjoint(self._store.leases_of(poll.instance)):
                poll.wake(Wake.NEWS)

    def close(self) -> None:
        """Answer everything that waits: the dispatcher ends."""
        for poll in (*self._waiting, *self._looking):
            poll.wake(Wake.CLOSED)

    def _arrived(self, shape: Shape, count: int) -> None:
        self.arrivals += 1
        for poll in self._hungry:
            poll.dry = False
        left = self._offer(shape, count)
        if left:  # whoever is asking just now may have asked a moment too early
            for poll in self._looking:
                poll.wake(Wake.WORK)

    def _offer_queue(self) -> None:
        if self._hungry:
            for demand in self._store.waiting():
                if not demand.withheld:
                    self._offer(demand.shape, demand.count)

    def _offer(self, shape: Shape, count: int) -> int:
        """Wake polls for `count` tasks of `shape`; returns how many tasks are left over."""
        for beyond in (False, True):  # what can start now comes before what would wait on its VM
            for poll in self._hungry.copy():
                if count <= 0:
                    return 0
                takes = 0 if poll.dry else self._takes(poll, shape, count, beyond=beyond)
                if takes:
                    count -= takes
                    poll.offered += takes
                    del self._waiting[poll]
                    self._sate(poll)
                    self._looking.add(poll)
                    poll.wake(Wake.WORK)
        return count

    def _rank(self, poll: Poll) -> Rank:
        row = self._store.living(poll.instance)
        rate, since_ms = (None, 0) if row is None else (row.rate, row.intended_ms)
        idle = not self._store.held_by(poll.instance)
        self._added += 1
        return (
            poll.vain, poll.failing, _UNKNOWN if rate is None else rate, idle, since_ms, poll.instance, self._added,
        )  # fmt: skip

    def _sate(self, poll: Poll) -> None:
        """It is none of those that want work any more."""
        if poll.rank is not None:
            del self._hungry[bisect_left(self._hungry, poll.rank, key=_RANK)]
            poll.rank = None

    def _takes(self, poll: Poll, shape: Shape, count: int, *, beyond: bool) -> int:
        if poll.machine is None or poll.final is not None:
            return 0
        bound = min(poll.want, count)
        if beyond:
            return 0 if poll.machine.misfit(shape) else min(bound, poll.ahead)
        return room_for(poll.machine, self._store.load_of(poll.instance), shape, bound)
