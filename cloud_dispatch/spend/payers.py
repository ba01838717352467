"""What claims cost those for whom tasks are done. Owns the part of a VM that a claim pays for, and what is committed
for it.

A VM is shared, so a payer's part of it is defined here: what the task holds of the machine, at the highest price of the
VM, from the claim until its end. Boot and idle time are nobody's but the deployment's.

A claim may last as long as its VM, and that much is committed. A VM ends soon and is moved on while it works: so that
what was begun can be finished, what the task is expected to need is committed from the start. What is not known may
need its VM's lifetime; where that is too much, one claim of that kind is tried at a time, with the VM's end as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.remaining import Remaining
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.spend.commitment import Commitment, Key, Scope
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.instances import highest_rate
from cloud_dispatch.spend.parts import divided
from cloud_dispatch.spend.standing import Standing

_TASK = "task "
_LEAVE_PART = 10
_TRYING = "its tasks are of unknown length, and another one of them is being tried"


def name_of(task: int) -> str:
    """What the commitment of a claim of it is called."""
    return f"{_TASK}{task}"


def task_of(commitment: Commitment) -> int | None:
    """Whose claim it is of; None where it is an instance's."""
    return int(commitment.name.removeprefix(_TASK)) if commitment.name.startswith(_TASK) else None


@dataclass(frozen=True)
class ClaimTerms:
    """What claims are judged by: how far beyond its work a VM may last, and how long one lives at most, by pool.
    `leave_ms`: how long before its end it shall have done its work, a tenth of its life at most. `movable`: the
    profiles whose hard ends can be moved on. `ready_ms`: how long health checks may keep one from its first work."""

    lease_ms: int = Pace().lease_ms
    lifetimes: Mapping[PoolName, int] = field(default_factory=dict)
    leave_ms: int = Pace().drain_ms
    movable: frozenset[ProfileName] = frozenset()
    ready_ms: Mapping[PoolName, int] = field(default_factory=dict)

    def remaining(self, instance: Instance, now_ms: int) -> Remaining | None:
        """What is left of its life; None where nobody knows, as in a pool that left. A lifetime that was lowered is its
        agent's at once. A hard end that can't be moved on is the last word, and was set for what is to be done.

        Another one like it would ask for its first work a while after it has booted: what would not be done then either
        is too long for any, so that none declines what it was launched for."""
        lifetime_ms = self.lifetimes.get(instance.pool)
        if lifetime_ms is None:
            return None
        begun_ms = instance.intended_ms
        leave_ms = min(self.leave_ms, lifetime_ms // _LEAVE_PART)
        left_ms = begun_ms + lifetime_ms - leave_ms - now_ms
        if instance.profile not in self.movable:
            left_ms = min(left_ms, instance.ends_ms - leave_ms // _LEAVE_PART - now_ms)
        boot_ms = max((instance.registered_ms or begun_ms) - begun_ms, 0)
        late_ms = leave_ms + self.ready_ms.get(instance.pool, 0)
        return Remaining(left_ms, lifetime_ms - boot_ms - leave_ms - late_ms)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a claim would be: a machine at `rate` that nobody pays after `last_ms`, `lag_ms` after its hard end. It
    may live until `lifetime_ms` (None: nobody knows)."""

    machine: Machine
    rate: Rate
    last_ms: int
    lag_ms: int
    lifetime_ms: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The commitment that a claim wants: `whole` pays for all that it may need (None: nobody knows), `trial` for its
    VM's end as it is (None: `whole` is known to be enough)."""

    whole: Commitment | None
    trial: Commitment | None = None

    @property
    def cost(self) -> int:
        """What it comes to at least until its end, in nano-dollars an hour times milliseconds: of two claims of the
        same payer the one that costs less is admitted sooner."""
        return self.least.rate * self.ms

    @property
    def ms(self) -> int:
        """How long that is committed."""
        return self.least.until_ms - self.least.from_ms

    @property
    def least(self) -> Commitment:
        """The least that it may be content with."""
        least = self.trial or self.whole
        assert least is not None
        return least

    def at(self, now_ms: int) -> Wanted:
        """The same, begun at another moment."""
        return Wanted(_shifted(self.whole, now_ms), _shifted(self.trial, now_ms))


def keys_of_payer(payer: Payer) -> tuple[Key, ...]:
    """Whom a claim counts for."""
    named = ((Scope.PROJECT, payer.project), (Scope.USER, payer.user))
    return tuple(Key(scope, name) for scope, name in named if name)


def part_rate(rate: Rate, want: Resources, *, exclusive: bool, capacity: Resources) -> Rate:
    """What an hour of the part of a machine costs that a task holds: of a machine at `rate`, the mean of its parts of
    cpus, memory and GPUs, of those that the machine has; all of it for an exclusive task. Rounded up; the parts of
    tasks that fit together are at most the whole."""
    parts = divided(want, capacity)
    if exclusive or not parts:
        return rate
    whole = 1
    for _, had in parts:
        whole *= had
    asked_for = sum(asked * (whole // had) for asked, had in parts)
    return Rate(min(-(-rate * asked_for // (whole * len(parts))), rate))


def place_of(instance: Instance, terms: ClaimTerms) -> Place | str:
    """Where a claim on `instance` would be, or why nobody with a limit can pay for one there."""
    if instance.max_rate is None:
        return f"nobody knows what {instance.id} costs at most"
    if instance.last_ms is None or instance.end_lag_ms is None:
        return f"no hand keeps the hard end of {instance.id}"
    lifetime_ms = terms.lifetimes.get(instance.pool)
    latest = None if lifetime_ms is None else instance.intended_ms + lifetime_ms
    return Place(instance.machine, highest_rate(instance), instance.last_ms, instance.end_lag_ms, latest)


def wanted_at(
    place: Place, name: str, payer: Payer, shape: Shape, now_ms: int, finish_ms: int | None, lease_ms: int
) -> Wanted:
    """What a claim of a task of `shape` at `place` wants now. `finish_ms`: when it, and what its VM does besides, is
    expected to be done; None where the task does not say."""
    rate = part_rate(place.rate, shape.resources, exclusive=shape.exclusive, capacity=place.machine.capacity)
    last_ms = max(place.last_ms, now_ms)
    least = Commitment(name, keys_of_payer(payer), rate, now_ms, last_ms, begins_by_ms=now_ms)
    if finish_ms is not None:
        return Wanted(replace(least, until_ms=max(last_ms, finish_ms + lease_ms + place.lag_ms)))
    if place.lifetime_ms is None:
        return Wanted(None, least)
    return Wanted(replace(least, until_ms=max(last_ms, place.lifetime_ms + place.lag_ms)), least)


def admitted(standing: Standing, wanted: Wanted, *, trying: bool) -> Commitment | str:
    """What is committed for a claim, or why it is not admitted. `trying`: the payer has a claim of unknown length."""
    why = ""
    if wanted.whole is not None:
        refusal = standing.refusal(wanted.whole)
        if refusal is None:
            return wanted.whole
        why = str(refusal)
    if wanted.trial is None:
        return why
    if trying:
        return f"{_TRYING}; {why}" if why else _TRYING
    refusal = standing.refusal(wanted.trial)
    return wanted.trial if refusal is None else str(refusal)


def room_for(standing: Standing, wanted: Wanted, most: int, *, trying: bool) -> int:
    """How many such claims are admitted together, at most `most`; they are counted in `standing` from here on."""
    count, one = 0, wanted.whole
    if one is not None:
        count = standing.room(one, most)
    if not count and wanted.trial is not None and not trying and most and standing.refusal(wanted.trial) is None:
        count, one = 1, wanted.trial
    if one is not None and count:
        standing.add(replace(one, rate=Rate(one.rate * count)))
    return count


def cheapest(places: Collection[Place], shape: Shape) -> Place | None:
    """Where a claim of a task of `shape` costs least, of the places that can ever run it."""
    able = [place for place in places if not place.machine.misfit(shape)]

    def price(place: Place) -> int:
        return part_rate(place.rate, shape.resources, exclusive=shape.exclusive, capacity=place.machine.capacity)

    return min(able, key=price, default=None)


def _shifted(one: Commitment | None, now_ms: int) -> Commitment | None:
    if one is None:
        return None
    return replace(one, from_ms=now_ms, until_ms=now_ms + one.until_ms - one.from_ms, begins_by_ms=now_ms)
