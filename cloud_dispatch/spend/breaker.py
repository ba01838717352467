"""Breakers: what was made from one recipe again and again, and brought nothing, is not launched for a while.

Two of them, of one machinery. The *boot* breaker looks at VMs that ended without a registered service, the *futility*
breaker at services that ended without having done a task though there was work for them. What such failures cost since
the last success of the same recipe may come to its allowance; then the breaker opens for a back-off. After that one VM
is tried: a success closes it and all is forgotten, a failure opens it for twice as long.

Of services also the number is bounded (`most_of`): one whose health check can't pass is gone in a minute, and cheap
ones could come and go thousands of times for an allowance. Boots take as long as their deadline to fail.

An allowance would bound nothing if a hundred VMs could boot before the first one has failed. So what boots counts as
if it were going to fail (`admitted`): as long as nothing of a recipe has registered, its failures together cost at most
the allowance and one VM's boot until its deadline. What has registered since the breaker last opened may be repeated on
the same scale: then it is the allowance and the boots of as many VMs. And one VM's boot for each time that it opens.

Which ends count:
- Not what an operator, a stop, a budget or the market ended, nor a launch that never made a VM: it says nothing of the
  recipe.
- Of boots everything else: no service registered, whatever the reason.
- Of services what broke (failed its health check, fell silent, could start nothing), and what ended of itself or for
  want of work while tasks waited that would have fitted it. The ordinary idle VM, whose work others have done, ends
  when nothing that it could run waits: it is no failure, however many there are. Nor is a VM that was lost in the
  middle of its first task: tasks bound by their attempts how often that happens.

Pure. Must not know where the facts come from, nor what is done about an open breaker.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.money import HOUR_MS, Amount, format_amount
from cloud_dispatch.spend import clocks

MINUTE_MS = 60_000
FIRST_MS = 5 * MINUTE_MS
LONGEST_MS = 4 * HOUR_MS
#: What is older says nothing any more; a recipe that fails for ever burns its allowance once in so long.
HISTORY_MS = 7 * 24 * HOUR_MS
#: Of VMs that cost nothing, as far as is known, so many failures are what an allowance is of others.
UNPRICED = 20
#: So many services may end without a task in a row, whatever they cost: more than break by chance where some work.
MOST_FUTILE = 50
#: From a boot's deadline until its VM bills no more: the pass that sees it, its console, its deletion.
ENDING_MS = 2 * MINUTE_MS

#: Causes of an end that say nothing of what the VM was made from.
NEUTRAL = frozenset({
    "killed", "operator", "behaviour", "stopped", "shutdown", "stale", "surplus", "turn", "oversized", "overpriced",
    "budget", "preempted", "advised", "not-launched", "refused",
})  # fmt: skip
#: Ends of a service that broke, whether or not there was work for it.
BROKEN = frozenset({
    "health", "unkillable", "failed", "out-of-contact", "cannot-start", "powered-off", "lost", "vanished",
})  # fmt: skip


class Kind(StrEnum):
    BOOT = "boot"
    FUTILITY = "futility"


class Recipe(NamedTuple):
    """What VMs are made from, and where: what a breaker is of. `pool`: only for services, "" for boots."""

    kind: Kind
    profile: ProfileName
    template: str
    image: str
    zone: str
    pool: PoolName = PoolName("")

    @property
    def name(self) -> str:
        """For people and the REST API."""
        parts = (self.kind, self.pool, self.profile, self.template, self.zone, self.image)
        return "/".join(filter(None, map(str, parts)))

    def __str__(self) -> str:
        image = f" with image {self.image}" if self.image else ""
        zone = f" in zone {self.zone}" if self.zone else ""
        pool = f" of pool {self.pool}" if self.pool else ""
        return f"template {self.template}{image}{pool}{zone}"


class Departed(NamedTuple):
    """A VM that is gone, as breakers see it. `bound`: the most that it has cost, micro-dollars. `tasks` ended on it by
    their own doing; `lost`: what was spent on tasks that did not. `waiting`: tasks that it could have run waited when
    it went. `cause`: the word for its end. Times are epoch milliseconds."""

    instance: InstanceId
    pool: PoolName
    profile: ProfileName
    template: str
    image: str
    zone: str
    intended_ms: int
    registered_ms: int | None
    gone_ms: int
    bound: int
    lost: int
    tasks: int
    waiting: int
    cause: str

    def recipe(self, kind: Kind) -> Recipe:
        pool = self.pool if kind is Kind.FUTILITY else PoolName("")
        return Recipe(kind, self.profile, self.template, self.image, self.zone, pool)


class News(NamedTuple):
    """A success, or a failure of what was begun at `began_ms`, with what it has cost."""

    at_ms: int
    began_ms: int
    amount: int
    success: bool
    instance: InstanceId


def news_of(gone: Departed) -> Iterator[tuple[Kind, News]]:
    """What the end of a VM tells each breaker. Of one that was adopted it is not known what it was made from."""
    if not gone.template:
        return
    if gone.registered_ms is not None:
        yield Kind.BOOT, News(gone.registered_ms, gone.intended_ms, 0, True, gone.instance)
    elif gone.cause not in NEUTRAL:
        yield Kind.BOOT, News(gone.gone_ms, gone.intended_ms, gone.bound, False, gone.instance)
    if gone.tasks:
        yield Kind.FUTILITY, News(gone.gone_ms, gone.intended_ms, 0, True, gone.instance)
    elif gone.registered_ms is not None and not gone.lost and gone.cause not in NEUTRAL:
        if gone.waiting or gone.cause in BROKEN:
            yield Kind.FUTILITY, News(gone.gone_ms, gone.intended_ms, gone.bound, False, gone.instance)


def known_by(now_ms: int) -> int:
    """The latest moment of which there can be news. What is later was noted while the clock was ahead: it would hold a
    breaker open until then, or closed, and a reset would not reach it."""
    return now_ms + clocks.CLOCKS_MS


#: What news are ordered by.
moment = attrgetter("at_ms")


class History(NamedTuple):
    """What has become of a recipe: its failures in order, and the moments of its successes, ascending."""

    failures: Sequence[News] = ()
    successes: Sequence[int] = ()

    @classmethod
    def of(cls, news: Iterable[News]) -> History:
        """All of `news`, in whatever order."""
        ordered = sorted(news, key=moment)
        return cls([one for one in ordered if not one.success], [one.at_ms for one in ordered if one.success])

    def besides(self, successes: Iterable[int]) -> History:
        """With these as well, in whatever order."""
        return History(self.failures, sorted([*self.successes, *successes]))


@dataclass(frozen=True, slots=True)
class Breaker:
    """How it stands. `trips`: how often it has opened since the last success, 0: it is closed. `until_ms`: the end of
    the present back-off. `burnt` by `failures` since the last success, of which `free` cost nothing. `successes` since
    it last opened. `last`: the last failure."""

    trips: int = 0
    opened_ms: int = 0
    until_ms: int = 0
    burnt: Amount = Amount(0)
    failures: int = 0
    free: int = 0
    successes: int = 0
    last: InstanceId = InstanceId("")

    def is_open(self, now_ms: int) -> bool:
        """Whether nothing at all is launched; tripped and not open, one VM is tried."""
        return self.trips > 0 and now_ms < self.until_ms

    def describe(self, recipe: Recipe) -> str:
        """Why it stands so."""
        vms = "1 VM" if self.failures == 1 else f"{self.failures} VMs"
        what = "registered" if recipe.kind is Kind.BOOT else "did a task"
        return f"{recipe}: {format_amount(self.burnt)} burnt by {vms} of which none {what}"


def most_of(kind: Kind) -> int | None:
    """How many failures in a row open a breaker of `kind`, whatever they cost; None: only what they cost counts."""
    return MOST_FUTILE if kind is Kind.FUTILITY else None


def judged(
    history: History, allowance: int, now_ms: int, reset_ms: int = -1, most_failures: int | None = None
) -> Breaker:
    """The breaker after all that has happened; `allowance` in micro-dollars, `most_failures` whatever they cost. What
    an operator has reset at `reset_ms` does not count, nor what is long past, nor what can't have happened yet. A
    failure of what was begun before the back-off ended is no new one. At the same moment the success was first. Only
    failures are walked through: launch after launch asks, of a fleet in which thousands have succeeded."""
    failed, succeeded = history
    known_ms = known_by(now_ms)
    since = max(now_ms - HISTORY_MS, reset_ms + 1 if reset_ms <= known_ms else 0)
    trips = opened = until = burnt = failures = free = 0
    last = InstanceId("")
    seen = proved_from = bisect_left(succeeded, since)
    told = bisect_right(succeeded, known_ms, lo=seen)
    for one in failed[bisect_left(failed, since, key=moment) : bisect_right(failed, known_ms, key=moment)]:
        before = bisect_right(succeeded, one.at_ms, lo=seen)
        if before > seen:
            trips = opened = until = burnt = failures = free = 0
            seen = before
        burnt, failures, free, last = burnt + one.amount, failures + 1, free + (not one.amount), one.instance
        again = trips > 0 and one.began_ms >= until
        if again or (not trips and is_used_up(allowance, most_failures, burnt, failures, free)):
            trips, opened, proved_from = trips + 1, one.at_ms, before
            until = one.at_ms + back_off_ms(trips)
    if told > seen:
        trips = opened = until = burnt = failures = free = 0
    return Breaker(trips, opened, until, Amount(burnt), failures, free, told - proved_from, last)


def is_used_up(allowance: int, most_failures: int | None, burnt: int, failures: int, free: int) -> bool:
    """Whether so many `failures` in a row, of which `free` cost nothing, open a breaker that is closed."""
    return burnt >= allowance or free >= UNPRICED or (most_failures is not None and failures >= most_failures)


def back_off_ms(trips: int) -> int:
    """How long it stays open the so-and-so-many-th time in a row."""
    return min(FIRST_MS << min(trips - 1, 20), LONGEST_MS)


def admitted(breaker: Breaker, allowance: int, booting: Sequence[int], each: int, wanted: int, now_ms: int) -> int:
    """How many of `wanted` VMs may be launched, each of which can burn `each` before it is given up. `booting`: the
    same of those that exist and have not registered. See the module for what this bounds."""
    if breaker.trips:
        return 0 if breaker.is_open(now_ms) or booting else min(wanted, 1)
    if each:
        fit = (allowance - breaker.burnt - sum(booting)) // each
    else:
        fit = UNPRICED - breaker.free - sum(not one for one in booting)
    proved = breaker.successes - len(booting)
    return max(min(max(fit, proved, not booting), wanted), 0)
