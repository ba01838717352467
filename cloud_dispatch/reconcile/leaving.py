"""Profiles that leave the configuration while the dispatcher runs. Owns that their VMs are looked after to the end: the
driver of before is kept as long as an instance of theirs lives, so that it is drained, ended and seen to be gone.

Nothing is launched by such a profile: no pool names it. After a restart its driver is gone, and `unreachable` tells so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.settings import Settings


def kept(before: Settings, after: Settings, rows: Iterable[Instance]) -> Settings:
    """`after`, with what the `rows` need of `before`."""
    living = {row.profile for row in rows}
    leaving = frozenset(living & before.providers.keys() - after.providers.keys())
    return replace(
        after,
        providers={**after.providers, **{name: before.providers[name] for name in sorted(leaving)}},
        drivers={**{name: before.drivers[name] for name in sorted(leaving & before.drivers.keys())}, **after.drivers},
        guest_enforced=after.guest_enforced | (before.guest_enforced & leaving),
        leaving=leaving,
    )


def let_go(context: Context) -> None:
    """Close the drivers of profiles that have left and of which nothing lives any more."""
    settings = context.settings
    if not settings.leaving:
        return
    gone = settings.leaving - {row.profile for row in context.store.instances().values()}
    if not gone:
        return
    providers = {name: one for name, one in settings.providers.items() if name not in gone}
    unused = context.follow(replace(settings, providers=providers, leaving=settings.leaving - gone))
    for name, provider in unused.items():
        context.calls.start(f"close:{name}", provider.close(), f"close:{name}")
