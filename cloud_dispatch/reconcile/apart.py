"""Clocks that are further apart than every sum of money allows for. Owns how that is noticed, by what a provider says
of a VM that it has just made, and how long it is believed; what a limit covers is not launched meanwhile, but for one
VM now and then that shows whether it is still so.

No provider is asked for its time: a VM that it made before it was asked to, or later than now, tells enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import Blocked
from cloud_dispatch.ports.clock import MOVED_MS, ahead_ms
from cloud_dispatch.provider.spi import Vm
from cloud_dispatch.reconcile.context import Apart, Context
from cloud_dispatch.spend.clocks import CLOCKS_MS
from cloud_dispatch.spend.commitment import OF_PAYERS
from cloud_dispatch.spend.instances import keys_of_place

#: So long one such VM is believed.
AGAIN_MS = 600_000
MINUTE_MS = 60_000


def apart_ms(asked_ms: int, made_ms: int, now_ms: int) -> int:
    """By how much the dispatcher's clock is ahead of the provider's, at least, where a VM that was asked for at
    `asked_ms` of the former was made at `made_ms` of the latter and known of at `now_ms`; negative where it is behind,
    0 where neither is known."""
    return min(now_ms - made_ms, 0) or max(asked_ms - made_ms, 0)


def heard(context: Context, row: Instance, vms: Collection[Vm]) -> None:
    """A provider has told, for the first time, of `vms`, which were asked for together, one of them for `row`.

    The clock may have been set since, or have stood still: when that was is the earlier of what it said then, and what
    is reckoned back from now. Where a dispatcher before this one asked, it may have been whenever."""
    profile, now, monotonic_ms = row.profile, context.clock.now(), context.clock.monotonic()
    asked, view = context.contacts.of(row.id, monotonic_ms).asked_ms, context.view(profile)
    asked_ms = 0 if asked is None else min(row.intended_ms, now - (monotonic_ms - asked))
    found = [apart_ms(asked_ms, vm.created_ms, now) for vm in vms if vm.created_ms]
    if not found:
        return
    by_ms, told = max(found, key=abs), profile in dict(_known(context))
    view.apart = None
    if abs(by_ms) > CLOCKS_MS:
        view.apart = Apart(by_ms, context.clock.monotonic(), ahead_ms(context.clock))
        if not told:
            context.note("clock.apart", detail=f"profile {profile}: {_words(view.apart)}", warn=True)


def blocked(context: Context, now: int) -> Iterator[Blocked]:
    """What is not launched before another VM may show whether it is still so."""
    for profile, one in _known(context):
        left = _left_ms(context, one)
        for pool in context.settings.pools.values() if left > 0 else ():
            if why := _why(context, pool, profile, one):
                yield Blocked(profile, now + left, why, pool=pool.name, obstacle=Obstacle.CLOCK)


def admits(context: Context, pool: Pool, profile: ProfileName, slots: int) -> tuple[int, str]:
    """How many of `slots` VMs may be asked for now, and why no more: one that shows whether it is still so, no other
    before it has, or as much time is over again. Whoever is told of one asks for it, or says that none came of it."""
    for name, one in _known(context):
        if name == profile and (why := _why(context, pool, profile, one)):
            if _left_ms(context, one) > 0:
                return 0, why
            context.view(profile).apart = replace(one, seen_ms=context.clock.monotonic())
            return min(slots, 1), why
    return slots, ""


def untold(context: Context, pool: Pool, profile: ProfileName) -> None:
    """No VM came of a launch for `pool`, to show whether it is still so: the next one may. What nothing
    holds back was not that one."""
    one = context.view(profile).apart
    if one is not None and _why(context, pool, profile, one):
        context.view(profile).apart = replace(one, seen_ms=context.clock.monotonic() - AGAIN_MS)


def words(context: Context) -> list[str]:
    """What is wrong now, for people."""
    return [f"profile {name}: {_words(one)}" for name, one in _known(context)]


def _known(context: Context) -> list[tuple[ProfileName, Apart]]:
    """Those that are apart. Not where the dispatcher's clock has been set since that was seen."""
    ahead = ahead_ms(context.clock)
    found = ((name, view.apart) for name, view in context.profiles.items())
    return [(name, one) for name, one in found if one is not None and abs(ahead - one.ahead_ms) <= MOVED_MS]


def _left_ms(context: Context, one: Apart) -> int:
    """For how long it is believed still."""
    return one.seen_ms + AGAIN_MS - context.clock.monotonic()


def _why(context: Context, pool: Pool, profile: ProfileName, one: Apart) -> str:
    """Why VMs for `pool` are not launched then, "" where they may be."""
    if profile not in pool.profiles:
        return ""
    keys = keys_of_place(pool.name, profile, context.settings.drivers)
    if any(budget.key in keys or budget.key.scope in OF_PAYERS for budget in context.store.limits()):
        return f"profile {profile}: {_words(one)}; a limit covers what is launched, and can't be held"
    if pool.end.lifetime_ms + one.by_ms <= pool.boot_deadline_ms:
        return f"profile {profile}: {_words(one)}; a VM has its hard end there before it has booted"
    return ""


def _words(apart: Apart) -> str:
    by = format_duration(abs(apart.by_ms) // MINUTE_MS * MINUTE_MS)
    where = "ahead of" if apart.by_ms > 0 else "behind"
    return f"the dispatcher's clock is at least {by} {where} the provider's: set it right"
