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

from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.standing import Refusal, Standing


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
    hand that ends it can be told another end.
    """

    commitment: Commitment
    ends_ms: int
    lifetime_ms: int
    works: bool
    wanted: bool
    finish_ms: int | None = None
    slack_ms: int = 0
    movable: bool = True

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

    def enough(self, now_ms: int, pace: Pace) -> list[int]:
        """A later end that just lets what runs be finished, where that is known: for when no whole lease is left."""
        if not self.works or self.finish_ms is None:
            return []
        just_ms = min(max(self.finish_ms, now_ms) + pace.drain_ms, self.lifetime_ms)
        return [just_ms] if just_ms > self.ends_ms else []

    def until(self, ends_ms: int) -> Commitment:
        """Its commitment with another hard end."""
        return replace(self.commitment, until_ms=ends_ms + self.slack_ms)


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
    it gets where it is launched to find out how long such work takes."""

    ends_ms: int
    lasts_ms: int
    trial_ms: int


def first_ends(
    now_ms: int, boot_ms: int, work_ms: int | None, lifetime_ms: int, pace: Pace, *, movable: bool
) -> FirstEnds:
    """The ends of a VM that is launched now for `work_ms` of work (None: unknown) and may live for `lifetime_ms`. An
    end that can't be moved has to be right from the start."""
    latest = now_ms + max(lifetime_ms, 1)
    known = min(now_ms + boot_ms + (work_ms or 0) + pace.lease_ms, latest)
    lasts = latest if work_ms is None else known
    return FirstEnds(known if movable else lasts, lasts, known)


def finish_of(now_ms: int, started_ms: int, expected_ms: int, max_runtime_ms: int) -> int | None:
    """When work that began at `started_ms` is expected to be done; 0 is unknown, and no maximum. What takes longer than
    expected is expected to take as long again as it has."""
    finish = None
    if expected_ms:
        finish = started_ms + expected_ms
        if finish <= now_ms:
            finish = 2 * now_ms - started_ms
    if max_runtime_ms:
        latest = started_ms + max_runtime_ms
        finish = latest if finish is None else min(finish, latest)
    return finish


def renew(standing: Standing, holders: Iterable[Holder], now_ms: int, pace: Pace) -> Renewals:
    """Which ends are moved on now. What works comes before what is idle, what is nearest to finishing first, so that
    what is refused is what would have cost most before it brought anything. `standing` holds all commitments, and the
    extensions afterwards."""
    extensions: list[Extension] = []
    refused: dict[str, Refusal] = {}
    for holder in sorted(holders, key=_urgency):
        ends_ms = holder.wants(now_ms, pace)
        if not holder.movable or not _is_due(holder, ends_ms, now_ms, pace):
            continue
        found = _moved(standing, holder, [ends_ms, *holder.enough(now_ms, pace)])
        if isinstance(found, Extension):
            extensions.append(found)
        else:
            refused[holder.commitment.name] = found
    return Renewals(tuple(extensions), refused)


def _moved(standing: Standing, holder: Holder, ends: Iterable[int]) -> Extension | Refusal:
    """The first of `ends` that is admitted, counted from then on; why the first is not, where none is."""
    first: Refusal | None = None
    for ends_ms in ends:
        wanted = holder.until(ends_ms)
        refusal = standing.refusal(wanted, holder.commitment)
        if refusal is None:
            standing.remove(holder.commitment)
            standing.add(wanted)
            return Extension(wanted.name, ends_ms, wanted)
        first = first or refusal
    assert first is not None
    return first


def last_tasks(
    standing: Standing, holders: Iterable[Holder], work_ms: int | None, now_ms: int, pace: Pace
) -> Mapping[str, Refusal]:
    """Those that will soon have done what they run, and could not finish another `work_ms` of work (None: unknown)
    before an end that the budgets admit: taking it they would be cut off. Who is nearest to finishing is asked first,
    and what it may take is counted. `standing` holds all commitments, and more afterwards."""
    refused: dict[str, Refusal] = {}
    for holder in sorted(holders, key=_urgency):
        finish_ms = holder.finish_ms
        if work_ms is None or finish_ms is None or not holder.works or finish_ms - now_ms > pace.drain_ms:
            continue
        ends_ms = min(max(finish_ms, now_ms) + work_ms + pace.drain_ms, holder.lifetime_ms)
        if ends_ms <= holder.ends_ms:
            continue
        another = holder.until(ends_ms)
        refusal = standing.refusal(another, holder.commitment)
        if refusal is None:
            standing.remove(holder.commitment)
            standing.add(another)
        else:
            refused[another.name] = refusal
    return refused


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
