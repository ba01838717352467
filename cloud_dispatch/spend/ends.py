"""When VMs shall end. Owns which hard ends are moved on, in which order, and what must stay free to finish what runs.

A hard end is kept near: it is what a VM may cost if everybody who could end it earlier is dead. So it is set from the
work at hand, moved on as long as the work goes on and the budgets admit it, and what is refused in time is drained in
time. A launch is admitted only if, besides, everything that runs can be finished, the new one too: otherwise money is
burnt on VMs that are cut off (`left`). Work of unknown length may take as long as its VM may live: then few VMs
are launched until the first results tell how long such work takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Machine
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.standing import Refusal, Standing
from cloud_dispatch.spend.upcoming import Upcoming

_ANY = Machine(Resources())


@dataclass(frozen=True, slots=True)
class Pace:
    """How far ahead ends are set, milliseconds. `lease_ms`: how much longer than its work a VM may last, and how long
    one without known work may. `drain_ms`: what is refused is drained so long before its end."""

    lease_ms: int = 30 * 60_000
    drain_ms: int = 5 * 60_000

    @property
    def due_ms(self) -> int:
        """An end that is nearer than this is moved on: half a lease, so that one refusal or failure is not the last
        word, and never so late that no drain fits in."""
        return max(self.lease_ms // 2, 2 * self.drain_ms)


@dataclass(frozen=True, slots=True)
class Holder:
    """A VM that is committed to, as its end is judged. Times in epoch milliseconds.

    `ends_ms` its hard end now; `lifetime_ms` the moment that it never outlives. `works`: something runs on it, or will
    as soon as it has booted; `wanted`: that, or it will be given work. `finish_ms`: when all of that is expected to be
    done, None where it is unknown. `slack_ms`: how long after its hard end it may still bill. `movable`: whether the
    hand that ends it can be told another end. `machine`: what it offers to tasks.
    """

    commitment: Commitment
    ends_ms: int
    lifetime_ms: int
    works: bool
    wanted: bool
    finish_ms: int | None = None
    slack_ms: int = 0
    movable: bool = True
    machine: Machine = _ANY

    def is_soon_done(self, now_ms: int, pace: Pace) -> bool:
        """Whether it is about to take another task."""
        return self.works and self.finish_ms is not None and self.finish_ms - now_ms <= pace.drain_ms

    def wants(self, now_ms: int, pace: Pace) -> int:
        """The end that its work asks for, a lease beyond it."""
        if not self.wanted:
            return self.ends_ms
        work_ms = now_ms if self.finish_ms is None else max(self.finish_ms, now_ms)
        return max(min(work_ms + pace.lease_ms, self.lifetime_ms), self.ends_ms)

    def lasts(self, now_ms: int, pace: Pace) -> int:
        """The end that it needs to finish what runs, whatever that turns out to be."""
        if not self.works:
            return self.ends_ms
        return self.lifetime_ms if self.finish_ms is None else self.wants(now_ms, pace)

    def enough(self, now_ms: int, pace: Pace) -> int | None:
        """A later end that just lets what runs be finished, where that is known: for when no whole lease is left."""
        if not self.works or self.finish_ms is None:
            return None
        just_ms = min(max(self.finish_ms, now_ms) + pace.drain_ms, self.lifetime_ms)
        return just_ms if just_ms > self.ends_ms else None

    def until(self, ends_ms: int) -> Commitment:
        """Its commitment with another hard end, itself where it is the same."""
        until_ms = ends_ms + self.slack_ms
        return self.commitment if until_ms == self.commitment.until_ms else replace(self.commitment, until_ms=until_ms)


@dataclass(frozen=True, slots=True)
class Extension:
    """Move the hard end of `name` to `ends_ms`: commit `commitment` first."""

    name: str
    ends_ms: int
    commitment: Commitment


@dataclass(frozen=True, slots=True)
class Renewals:
    """What is moved on, in order, and what is not, with the reason."""

    extensions: tuple[Extension, ...]
    refused: Mapping[str, Refusal]


@dataclass(frozen=True, slots=True)
class FirstEnds:
    """For a VM that is launched now: its hard end, the one that finishing its work may come to need, and the one that
    it gets where no more is left: a lease to find out, where its work is `unknown`, else just what that takes."""

    ends_ms: int
    lasts_ms: int
    least_ms: int
    unknown: bool = False


def first_ends(
    now_ms: int, boot_ms: int, work_ms: int | None, lifetime_ms: int, pace: Pace, *, movable: bool
) -> FirstEnds:
    """The ends of a VM that is launched now for `work_ms` of work (None: unknown) and may live for `lifetime_ms`. An
    end that can't be moved has to be right from the start."""
    latest = now_ms + max(lifetime_ms, 1)
    known = min(now_ms + boot_ms + (work_ms or 0) + pace.lease_ms, latest)
    if work_ms is None:
        return FirstEnds(known if movable else latest, latest, known, unknown=True)
    return FirstEnds(known, known, min(now_ms + boot_ms + work_ms + pace.drain_ms, known))


def finish_of(now_ms: int, started_ms: int, expected_ms: int) -> int | None:
    """When work that began at `started_ms` is expected to be done; 0 is unknown. What takes longer than expected is
    expected to take as long again as it has."""
    if not expected_ms:
        return None
    finish = started_ms + expected_ms
    return finish if finish > now_ms else 2 * now_ms - started_ms


def renew(standing: Standing, holders: Iterable[Holder], now_ms: int, pace: Pace) -> Renewals:
    """Which ends are moved on now. What works comes before what is idle, what is nearest to finishing first, so that
    what is refused is what would have cost most before it brought anything. All that can be finished are given the time
    for it before the first is given a whole lease. `standing` holds all commitments, and the extensions afterwards."""
    due = [
        (holder, ends_ms)
        for holder in sorted(holders, key=_urgency)
        if holder.movable and _is_due(holder, ends_ms := holder.wants(now_ms, pace), now_ms, pace)
    ]
    moved: dict[str, Extension] = {}
    for holder, _ in due:
        just_ms = holder.enough(now_ms, pace)
        if just_ms is not None:
            _move(standing, holder, just_ms, moved)
    refused: dict[str, Refusal] = {}
    for holder, ends_ms in due:
        refusal = _move(standing, holder, ends_ms, moved)
        if refusal is not None and holder.commitment.name not in moved:
            refused[holder.commitment.name] = refusal
    return Renewals(tuple(moved.values()), refused)


def _move(standing: Standing, holder: Holder, ends_ms: int, moved: dict[str, Extension]) -> Refusal | None:
    """Its end in `moved`, counted from then on; why it is not admitted, where it isn't."""
    wanted, name = holder.until(ends_ms), holder.commitment.name
    before = moved[name].commitment if name in moved else holder.commitment
    refusal = standing.refusal(wanted, before)
    if refusal is None:
        _replace(standing, before, wanted)
        moved[name] = Extension(name, ends_ms, wanted)
    return refusal


def last_tasks(
    standing: Standing,
    holders: Iterable[Holder],
    leaving: Iterable[Holder],
    upcoming: Upcoming,
    now_ms: int,
    pace: Pace,
) -> Mapping[str, Refusal]:
    """Those that will soon have done what they run, and could not finish what comes next for them before an end that
    the budgets admit: taking it they would be cut off. Who is nearest to finishing is asked first; what it may take is
    counted, and comes next for nobody else.

    What leaves, or is refused here, gives back what it will not use: so one goes and the other works on, and not both
    for want of what both of them hold. `standing` holds all commitments, and what they are expected to come to
    afterwards."""
    refused: dict[str, Refusal] = {}
    for holder in leaving:
        _replace(standing, holder.commitment, _ending(holder, now_ms, pace))
    for holder in sorted(holders, key=_urgency):
        number = upcoming.next_for(holder.machine) if holder.is_soon_done(now_ms, pace) else None
        work_ms = upcoming.work_ms(number)
        if number is None or work_ms is None:
            continue
        done_ms = max(holder.finish_ms or now_ms, now_ms) + work_ms
        ends_ms = max(min(done_ms + pace.drain_ms, holder.lifetime_ms), holder.ends_ms)
        another = holder.until(ends_ms)
        refusal = standing.refusal(another, holder.commitment)
        if refusal is None:
            upcoming.take(number)
        else:
            refused[another.name] = refusal
        _replace(standing, holder.commitment, another if refusal is None else _ending(holder, now_ms, pace))
    return refused


def _ending(holder: Holder, now_ms: int, pace: Pace) -> Commitment:
    """What one comes to that is given no more work, and obeys."""
    if holder.works and holder.finish_ms is None:
        return holder.commitment
    done_ms = max(holder.finish_ms or now_ms, now_ms) if holder.works else now_ms
    return replace(holder.commitment, until_ms=min(done_ms + pace.drain_ms, holder.commitment.until_ms))


def _replace(standing: Standing, before: Commitment, after: Commitment) -> None:
    standing.remove(before)
    standing.add(after)


def lasting(holder: Holder, now_ms: int, pace: Pace) -> Commitment:
    """The commitment that finishing what runs there may come to."""
    return holder.until(holder.lasts(now_ms, pace))


def _urgency(holder: Holder) -> tuple[bool, bool, int, int, str]:
    finish = holder.finish_ms
    return (not holder.works, finish is None, finish or 0, holder.commitment.from_ms, holder.commitment.name)


def _is_due(holder: Holder, ends_ms: int, now_ms: int, pace: Pace) -> bool:
    """Whether there is an end worth moving: it comes soon, or before the work that is known to be done."""
    if ends_ms <= holder.ends_ms:
        return False
    known = holder.finish_ms is not None and holder.finish_ms + pace.drain_ms > holder.ends_ms
    return known or holder.ends_ms - now_ms < pace.due_ms
