"""Instances as money sees them: the commitment of one that lives, the ledger's row of one that is gone.

Nothing else translates between the two, so that a commitment and the row that replaces it rest on the same facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.money import Amount, Rate, cost
from cloud_dispatch.spend import clocks
from cloud_dispatch.spend.breaker import ENDING_MS, Departed
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment, Key, Scope
from cloud_dispatch.spend.ledger import Interval, Life, Row, row_of

#: By profile, its driver.
Drivers = Mapping[ProfileName, str]


def keys_of(instance: Instance, drivers: Drivers) -> tuple[Key, ...]:
    """Whom it counts for. Where nobody knows the driver of its profile the rest still holds."""
    return keys_of_place(instance.pool, instance.profile, drivers)


def keys_of_place(pool: PoolName, profile: ProfileName, drivers: Drivers) -> tuple[Key, ...]:
    """Whom what is rented for `pool` at `profile` counts for."""
    driver = drivers.get(profile)
    return (
        EVERYTHING,
        *((Key(Scope.DRIVER, driver),) if driver else ()),
        Key(Scope.PROFILE, profile),
        Key(Scope.POOL, pool),
    )


def commitment_of(instance: Instance, drivers: Drivers) -> Commitment:
    """The most that it can bill. One whose price is unknown is taken for free here: who launches must refuse it."""
    until_ms = instance.known_last_ms
    return _until(instance, until_ms, keys_of(instance, drivers))


class Commitments:
    """`commitment_of` for all that lives, again and again: an instance is a value, so that the same one comes to the
    same, and only what has changed is worked out anew."""

    def __init__(self, drivers: Drivers) -> None:
        self._drivers = drivers
        self._known: dict[InstanceId, tuple[Instance, Commitment]] = {}

    def of_all(self, instances: Iterable[Instance]) -> list[Commitment]:
        """In their order. What is not among them is forgotten."""
        before, self._known = self._known, {}
        found: list[Commitment] = []
        for one in instances:
            known = before.get(one.id)
            if known is None or known[0] is not one:
                known = one, commitment_of(one, self._drivers)
            self._known[one.id] = known
            found.append(known[1])
        return found


def _until(instance: Instance, until_ms: int, keys: tuple[Key, ...] = ()) -> Commitment:
    """The most that it can bill if it has ended by then, on the biller's clock."""
    began = _earliest_ms(instance)
    until_ms = max(until_ms, began)
    begins_by_ms = until_ms if instance.registered_ms is None else instance.registered_ms + clocks.CLOCKS_MS
    return Commitment(
        name=instance.id,
        keys=keys,
        rate=highest_rate(instance),
        from_ms=began,
        until_ms=until_ms,
        minimum_ms=instance.minimum_ms,
        increment_ms=instance.increment_ms,
        begins_by_ms=begins_by_ms,
    )


def _earliest_ms(instance: Instance) -> int:
    """Nothing of it is billed before this moment of the biller's clock. `launched_ms` is told by that clock."""
    if instance.launched_ms is not None:
        return min(instance.intended_ms, instance.launched_ms)
    return instance.intended_ms - clocks.CLOCKS_MS


def booking_of(instance: Instance, ended_ms: int, worked: Sequence[Interval], lost: Sequence[Interval]) -> Row:
    """What one has cost that was found to be gone at `ended_ms`: by then, or by the last moment that its hand left it,
    however much later somebody looked. One that was never seen may have existed all the same, and is booked as if it
    had; `amount`, which reports show, has nothing for it. What counts against limits ends later by as much as the
    clock on the wall may have been behind the biller's when that was found."""
    latest_ms = ended_ms + clocks.CLOCKS_MS
    if instance.last_ms is not None:
        ended_ms, latest_ms = min(ended_ms, instance.last_ms), min(latest_ms, instance.last_ms)
    seen = instance.launched_ms is not None
    began = instance.launched_ms if instance.launched_ms is not None else instance.intended_ms
    return row_of(
        Life(
            began_ms=began,
            ended_ms=ended_ms,
            rate=Rate((instance.rate or 0) + instance.extra_rate) if seen else Rate(0),
            bound=_until(instance, latest_ms),
            served_ms=instance.registered_ms,
            worked=worked,
            lost=lost,
            minimum_ms=instance.minimum_ms,
            increment_ms=instance.increment_ms,
        )
    )


def price(instance: Instance) -> tuple[int | None, ...]:
    """What its commitment is made from, besides when it began and ends."""
    return instance.rate, instance.max_rate, instance.extra_rate, instance.minimum_ms, instance.increment_ms


def known_rate(instance: Instance) -> Rate | None:
    """What an hour of it costs, disks and addresses with it; None where nobody told the price."""
    return None if instance.rate is None else Rate(instance.rate + instance.extra_rate)


def highest_rate(instance: Instance) -> Rate:
    """What an hour of it can cost at most."""
    return Rate(max(instance.rate or 0, instance.max_rate or 0) + instance.extra_rate)


def departed(instance: Instance, row: Row, tasks: int, waiting: int, now_ms: int) -> Departed:
    """One that is gone since `now_ms`, as breakers see it; `row` is what was booked of it."""
    return Departed(
        instance=instance.id,
        pool=instance.pool,
        profile=instance.profile,
        template=instance.template,
        image=instance.image,
        zone=instance.zone,
        intended_ms=row.bound_from_ms,
        registered_ms=instance.registered_ms,
        gone_ms=now_ms,
        bound=row.bound,
        lost=row.parts.lost,
        tasks=tasks,
        waiting=waiting,
        cause=instance.cause,
    )


def boot_at_risk(instance: Instance, now_ms: int) -> Amount:
    """What it costs at most if it never registers: until its boot's deadline, and the time that ending it takes."""
    lasts_ms = max(instance.boot_deadline_ms, now_ms) + ENDING_MS - instance.intended_ms
    return cost(
        highest_rate(instance), lasts_ms, minimum_ms=instance.minimum_ms, increment_ms=instance.increment_ms
    )  # fmt: skip
