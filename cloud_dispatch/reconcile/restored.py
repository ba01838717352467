"""A statestore that came back older than the truth. Owns how long launches wait until listings have shown what it has
forgotten; must not know what is found."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import Blocked
from cloud_dispatch.ports.store import Store
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.reconcile.context import Context

#: For so long, after what is waited for should have come, before it is looked for again.
_AGAIN_MS = 2_000


#: The fact up to which restore a profile's tags have been read: a listing has shown all that there is.
READ = "tags-recalled:"


def is_shown(store: Store, profile: ProfileName) -> bool:
    """Whether a listing of the profile has shown all since the store came back; whoever starts later need not wait."""
    since = store.restored_ms()
    return since is None or store.fact(READ + profile) == str(since)


def settled(context: Context, since_ms: int, provider: Provider, started_ms: int) -> bool:
    """Whether a listing that began at `started_ms` (monotonic) shows all that was before the restore `since_ms`."""
    began_ms = context.clock.now() - (context.clock.monotonic() - started_ms)
    return began_ms >= since_ms + provider.traits.consistency_ms


def blocked(context: Context, now: int) -> Iterator[Blocked]:
    """The profiles at which nothing may be launched yet: what was launched after the store's copy was made counts
    against caps and serves its tasks, but a provider may not show it before its consistency horizon. So there has to
    be a listing that began after that."""
    since = context.store.restored_ms()
    if since is None:
        return
    for profile, provider in context.settings.providers.items():
        view = context.profiles.get(profile)
        shown = view is not None and view.shown_ms is not None and settled(context, since, provider, view.shown_ms)
        if provider.traits.consistency_ms and not shown and not is_shown(context.store, profile):
            waits = f"{profile} may show them only after {format_duration(provider.traits.consistency_ms)}"
            yield Blocked(
                profile,
                max(since + provider.traits.consistency_ms, now + _AGAIN_MS),
                f"the statestore was restored, and VMs may have been launched since its copy was made: {waits}",
                obstacle=Obstacle.SILENT,
            )
