"""Where the VMs of each profile are. Owns that a profile with VMs is not moved away from them: nobody would list them
any more, they would be taken for lost, and run and bill on with nobody to end them.

The store keeps it, since a start may come with another configuration than the dispatcher had before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

import msgspec

from cloud_dispatch.domain.errors import Conflict
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.ports.store import Store
from cloud_dispatch.provider.spi import Traits
from cloud_dispatch.reconcile.settings import Settings

#: The facts that have it, by profile.
FACT = "place:"
Place = Mapping[str, str]
_HINT = "keep the profile as it was until its VMs have ended, and give the new place a profile of another name"


def kept(store: Store, settings: Settings) -> Mapping[str, str | None]:
    """The facts that become others where `settings` hold; None: to be forgotten. Conflict where a profile with VMs
    would not find them any more. Of one without VMs it is only noted where it is: it may have moved."""
    zones: dict[ProfileName, set[str]] = defaultdict(set)
    for row in store.instances().values():
        zones[row.profile].add(row.zone)
    known = {ProfileName(name.removeprefix(FACT)): _read(value) for name, value in store.facts(FACT).items()}
    after: dict[ProfileName, Place] = {name: place for name, place in known.items() if name in zones}
    for name, provider in settings.providers.items():
        place = _place(settings.drivers.get(name, ""), provider.traits)
        if name in zones:
            _check(name, known.get(name, {}), place)
            _check_zones(name, zones[name], provider.traits.zones)
        after[name] = {**after.get(name, {}), **place}
    return {
        f"{FACT}{name}": _written(after.get(name, {}))
        for name in sorted(known.keys() | after.keys())
        if known.get(name, {}) != after.get(name, {})
    }


def told(store: Store, profile: ProfileName) -> Place:
    """Where the profile's VMs are, as far as it was ever said."""
    value = store.fact(f"{FACT}{profile}")
    return {} if value is None else _read(value)


def drivers(store: Store, settings: Settings) -> Mapping[ProfileName, str]:
    """By profile its driver, of those too that have left while VMs of theirs live: these count for it to their end."""
    before = {ProfileName(name.removeprefix(FACT)): _read(value) for name, value in store.facts(FACT).items()}
    living = {row.profile for row in store.instances().values()}
    left = {name: place["driver"] for name, place in before.items() if name in living and "driver" in place}
    return {**left, **settings.drivers}


def counted(store: Store, settings: Settings) -> Settings:
    """`settings`, by which the VMs of profiles that have left count for their driver, and against its caps, to their
    end."""
    known = drivers(store, settings)
    caps = [
        replace(
            one,
            profiles=(
                *one.profiles,
                *sorted(name for name in known.keys() - {*one.profiles} if known[name] == one.driver),
            ),
        )
        for one in settings.driver_caps
    ]
    return replace(settings, drivers=known, driver_caps=caps)


def _place(driver: str, traits: Traits) -> Place:
    return {**dict(traits.place), **({"driver": driver} if driver else {})}


def _check(profile: ProfileName, before: Place, after: Place) -> None:
    """Compares what both say: what is not known of one of them is no other place. The driver first, by which the rest
    means something."""
    for key in sorted(before.keys() & after.keys(), key=lambda key: (key != "driver", key)):
        if before[key] != after[key]:
            message = (
                f"profile {profile} has VMs where {key} is {before[key]!r}, and would not find them by {after[key]!r}"
            )
            raise Conflict(message, place=f"profiles.{profile}.{key}", hint=_HINT)


def _check_zones(profile: ProfileName, zones: Collection[str], listed: tuple[str, ...]) -> None:
    hidden = sorted(zone for zone in zones if zone and listed and not zone.startswith(listed))
    if hidden:
        message = f"profile {profile} has VMs in {', '.join(hidden)}, and would not find them there"
        raise Conflict(message, place=f"profiles.{profile}", hint=_HINT)


def _read(value: str) -> Place:
    return msgspec.json.decode(value, type=dict[str, str])


def _written(place: Place) -> str | None:
    return msgspec.json.encode(place, order="deterministic").decode() if place else None
