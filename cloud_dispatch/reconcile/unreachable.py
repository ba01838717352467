"""VMs that nobody can end: their profile left the configuration, and after a restart no driver of it is known. Owns who
they are and what an operator is told of them, who alone can do something about it."""

from __future__ import annotations

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.reconcile import places
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.unended import names

_GONE = InstanceState.GONE


def why(context: Context, row: Instance) -> str:
    """Why nobody can end `row`, and what to do; "" where its profile has a driver, or nothing of it is left."""
    if row.profile in context.settings.providers or row.state is _GONE:
        return ""
    return f"nobody can end it or see that it is gone: {_left(context, row.profile)}"


def words(context: Context) -> list[str]:
    """What an operator is told of all of them, by profile."""
    providers = context.settings.providers
    left: dict[ProfileName, list[Instance]] = {}
    for row in context.store.instances().values():
        if row.profile not in providers:
            left.setdefault(row.profile, []).append(row)
    return [
        f"nobody can end VMs that live, or see that they are gone: {_left(context, profile)}. They are {names(rows)}"
        for profile, rows in sorted(left.items())
    ]


def _left(context: Context, profile: ProfileName) -> str:
    place = ", ".join(f"{key} {value}" for key, value in sorted(places.told(context.store, profile).items()))
    was = f" ({place})" if place else ""
    return (
        f"profile {profile}{was} is not configured any more; configure it again, in no pool if nothing shall be "
        "launched by it, until they have ended"
    )
