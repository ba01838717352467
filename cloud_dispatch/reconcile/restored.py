"""A statestore that came back older than the truth, or is in the place of one that was lost. Owns how long launches
wait until listings have shown what it does not know, and where these have not come; must not know what is found."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import Blocked
from cloud_dispatch.ports.store import Store
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.spend import doubt
from cloud_dispatch.spend.commitment import EVERYTHING, OF_PAYERS, Key, Scope
from cloud_dispatch.spend.instances import keys_of_place

#: A first listing of thousands of VMs takes so long; and a complete one may take so long to come.
_FIRST_MS, _WHOLE_MS = 4_000, 60_000
#: For so long, after what is waited for should have come, before it is looked for again.
_AGAIN_MS = 2_000
_NEW = "the statestore is new"


#: The fact that a profile has had a complete listing once.
SHOWN = "shown-once:"
#: The fact up to which restore a profile's tags have been read: a listing has shown all that there is.
READ = "tags-recalled:"


def is_shown(store: Store, profile: ProfileName) -> bool:
    """Whether a listing of the profile has shown all since the store came back; whoever starts later need not wait."""
    since = store.restored_ms()
    return since is None or store.fact(READ + profile) == str(since)


def settled(context: Context, since_ms: int, provider: Provider, started_ms: int) -> bool:
    """Whether a listing that began at `started_ms` (monotonic) shows all that was before the restore `since_ms`. One
    that began so long after this process, which came after the restore, does so whatever the clock said then: it may
    have been ahead, and put right since."""
    if started_ms >= context.begun_ms + provider.traits.consistency_ms:
        return True
    began_ms = context.clock.now() - (context.clock.monotonic() - started_ms)
    return began_ms >= since_ms + provider.traits.consistency_ms


def blocked(context: Context, now: int) -> Iterator[Blocked]:
    """The profiles at which nothing may be launched yet: what was launched after the store's copy was made counts
    against caps and serves its tasks, but a provider may not show it before its consistency horizon. So there has to
    be a listing that began after that."""
    yield from _unlisted(context, now)
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
                max(min(since, now) + provider.traits.consistency_ms, now + _AGAIN_MS),
                f"the statestore was restored, and VMs may have been launched since its copy was made: {waits}",
                obstacle=Obstacle.SILENT,
            )
    if waited_for := awaited(context, now):
        for profile in context.settings.providers:
            limits = _limits(context, profile)
            together = sorted(name for name in waited_for if not limits.isdisjoint(_limits(context, name)))
            if together:
                yield Blocked(
                    profile,
                    now + _AGAIN_MS,
                    f"the statestore was restored, and {', '.join(together)} has not shown yet what was launched there"
                    " since its copy was made",
                    obstacle=Obstacle.SILENT,
                )


def unseen(context: Context, now: int) -> Iterator[ProfileName]:
    """The profiles of which no listing has shown yet what was launched there since the store's copy was made, where a
    limit covers that: it may bill on in windows of which the restore itself says nothing. Only where that is about to
    have no more to say; and not once an operator has said that the ledger is the truth."""
    views = ((name, context.view(name)) for name in _unshown(context, now))
    return (name for name, view in views if view.listed_ms is not None or view.problem)


def awaited(context: Context, now: int) -> list[ProfileName]:
    """Those that may come to be `unseen`, and are not doubted by now: mostly their first answer since the start, or
    since they were configured, is still to come. Were they doubted at once, whoever takes seconds to answer would spend
    every limit for an hour."""
    told = {*context.uncounted, *context.store.reckoned()}
    return [name for name in _unshown(context, now) if doubted_as(context, name) not in told]


def doubted_as(context: Context, profile: ProfileName) -> str:
    """By what name it is doubted: the next restore is another doubt."""
    return f"{profile}@{context.store.restored_ms()}"


def _unshown(context: Context, now: int) -> Iterator[ProfileName]:
    store = context.store
    since, reconciled = store.restored_ms(), store.reconciled_ms()
    if since is None or now + doubt.AGAIN_MS < doubt.reach(since).end_ms:
        return
    if reconciled is None or reconciled < since:
        for profile in context.settings.providers:
            if not is_shown(store, profile) and _limits(context, profile):
                yield profile


def _limits(context: Context, profile: ProfileName) -> set[Key]:
    """The limits that cover what may have been launched at `profile`: those of payers wherever tasks run."""
    keys = {*keys_of_place(PoolName(""), profile, context.settings.drivers), *_keys(context, profile)}
    limited = {budget.key for budget in context.store.limits()}
    return {key for key in limited if key in keys or key.scope in OF_PAYERS}


def _unlisted(context: Context, now: int) -> Iterator[Blocked]:
    """At a start others' VMs may be there that count against caps: those of another statestore of this deployment.
    Where some are or were known, a provider has the time that its listings may be behind, to show all of them. Where
    nothing is known yet, a store that has made nothing waits for a complete listing, and each profile for the others',
    which share its caps: for a while, since who is down must not hold up the rest."""
    waited_ms, store = context.clock.monotonic() - context.begun_ms, context.store
    is_new = not store.instances() and not len(store.past()) and store.restored_ms() is None
    followed = bool(context.foreign) or store.doubted_ms() is not None  # by us: also once all that is seen is ours
    if waited_ms >= _WHOLE_MS and not followed and not is_new:
        return
    views = {profile: context.view(profile) for profile in context.settings.providers}
    unlisted = [name for name, view in views.items() if view.listed_ms is None and not view.problem]
    partly = [name for name, view in views.items() if view.listed_ms is not None and view.shown_ms is None]
    for profile, view in views.items():
        horizon_ms = context.settings.providers[profile].traits.consistency_ms
        until_ms, why = now + _AGAIN_MS, ""
        if followed and horizon_ms and (view.shown_ms is None or view.shown_ms < context.begun_ms + horizon_ms):
            after = format_duration(horizon_ms)
            why = f"VMs of another statestore are or were there, and {profile} may show more only after {after}"
        elif is_new and waited_ms < _WHOLE_MS and (partly or view.shown_ms is None):
            why = f"{_NEW}, and {', '.join(partly) or profile} has not shown yet all VMs that another one may have made"
        elif unlisted and waited_ms < _FIRST_MS:
            why = f"it is not known yet whether VMs of another statestore are at {', '.join(unlisted)}"
        elif is_new or store.doubted_ms() is not None:
            until_ms, why = now + _WHOLE_MS, _uncounted(context, profile)
        if why:
            yield Blocked(profile, until_ms, why, obstacle=Obstacle.SILENT)


def _uncounted(context: Context, profile: ProfileName) -> str:
    """Why nothing is launched at `profile` by a store that is new or has taken another one's place, "" when something
    may be: a limit covers it together with a profile at which VMs of another store may be, since this one has never had
    a complete listing there, and which nobody would count; or a cap does, where it is known that there was another one.
    Until an operator says otherwise."""
    store = context.store
    if store.reconciled_ms() is not None:
        return ""
    unshown = [name for name in context.settings.providers if store.fact(SHOWN + name) is None]
    covers = _covering(context, profile)
    together = [name for name in unshown if not covers.isdisjoint(_covering(context, name))]
    if not together:
        return ""
    which = ", ".join(together)
    return (
        f"VMs that another statestore may have made at {which} would count against the caps and limits here, and are"
        f" not shown yet: mend {which}, or say `budget reconcile` if there are none"
    )


def _covering(context: Context, profile: ProfileName) -> set[Key]:
    """The limits, and where there was another store the caps, that cover what may be rented at `profile`; but not those
    of payers."""
    settings, store = context.settings, context.store
    pools = [pool for pool in settings.pools.values() if profile in pool.profiles]
    counted = {budget.key for budget in store.limits()}
    if store.doubted_ms() is not None:
        capped = [
            *([EVERYTHING] if settings.caps != Caps() else []),
            *(Key(Scope.DRIVER, one.driver) for one in settings.driver_caps),
            *(Key(Scope.PROFILE, name) for name, caps in settings.profile_caps.items() if caps != Caps()),
            *(Key(Scope.POOL, pool.name) for pool in pools if pool.caps != Caps()),
        ]
        counted.update(capped)
    return _keys(context, profile) & counted


def _keys(context: Context, profile: ProfileName) -> set[Key]:
    """Whom what is rented at `profile` counts for, by its pools; but not the payers."""
    settings = context.settings
    pools = [pool.name for pool in settings.pools.values() if profile in pool.profiles]
    return {key for pool in pools for key in keys_of_place(pool, profile, settings.drivers)}
