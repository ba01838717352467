"""The accounts' limits. Owns which of what providers told is still good for a plan, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.planner.scopes import Scopes
from cloud_dispatch.planner.snapshot import QuotaUse
from cloud_dispatch.provider.spi import Quota
from cloud_dispatch.reconcile.context import Context, ProfileView

#: What is used changes with every launch, anybody's: older answers keep nobody from asking for a VM.
GOOD_MS = 900_000


def known(context: Context) -> tuple[QuotaUse, ...]:
    """Those of which limit and use are known."""
    return tuple(_known(context))


def _known(context: Context) -> Iterator[QuotaUse]:
    now = context.clock.monotonic()
    views = {
        profile: view
        for profile, view in context.profiles.items()
        if view.quotas and view.quotas_ms is not None and now - view.quotas_ms <= GOOD_MS
    }
    if not views:
        return
    since_ms = min(view.quotas_asked_ms for view in views.values())
    recent = [row for row in context.store.instances().values() if row.intended_ms >= since_ms]
    for profile, view in views.items():
        told = [known for quota in view.quotas if (known := use(profile, quota)) is not None]
        yield from _with_ours(recent, profile, view, told) if told else ()


def _with_ours(
    recent: Sequence[Instance], profile: ProfileName, view: ProfileView, told: Sequence[QuotaUse]
) -> Iterator[QuotaUse]:
    """The quotas with what was launched of ours since they were asked for, of the `recent` instances of all profiles:
    the next pass must not take the same room again."""
    since_ms = view.quotas_asked_ms
    keys = Counter(row.offering_key for row in recent if row.profile == profile and row.intended_ms >= since_ms)
    ours = [(one, keys[one.key]) for one in view.offerings if one.key in keys] if keys else []
    scopes = Scopes(told)
    more: Counter[int] = Counter()
    for one, count in ours:
        for quota in scopes.of(one):
            more[id(quota)] += count * quota.size(one)
    for quota in told:
        yield replace(quota, used=quota.used + more[id(quota)]) if more[id(quota)] else quota


def use(profile: ProfileName, quota: Quota) -> QuotaUse | None:
    """The quota as the planner takes it; None where the provider does not tell limit and use."""
    if quota.limit is None or quota.used is None:
        return None
    scope = quota.scope
    return QuotaUse(
        profile, quota.name, quota.limit, quota.used, scope.type, scope.zone, scope.market, scope.family, scope.region,
        gpu=scope.gpu, gpu_memory=scope.gpu_memory, unit=str(quota.unit),
    )  # fmt: skip
