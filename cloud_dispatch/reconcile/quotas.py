"""The accounts' limits. Owns which of what providers told is still good for a plan, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.planner.snapshot import QuotaUse
from cloud_dispatch.provider.spi import Quota, QuotaUnit
from cloud_dispatch.reconcile.context import Context

#: What is used changes with every launch, anybody's: older answers keep nobody from asking for a VM.
GOOD_MS = 900_000


def known(context: Context) -> tuple[QuotaUse, ...]:
    """Those of which limit and use are known."""
    return tuple(_known(context))


def _known(context: Context) -> Iterator[QuotaUse]:
    now = context.clock.monotonic()
    for profile, view in context.profiles.items():
        if view.quotas_ms is not None and now - view.quotas_ms <= GOOD_MS:
            yield from filter(None, (use(profile, quota) for quota in view.quotas))


def use(profile: ProfileName, quota: Quota) -> QuotaUse | None:
    """The quota as the planner takes it; None where the provider does not tell limit and use."""
    if quota.limit is None or quota.used is None:
        return None
    scope = quota.scope
    return QuotaUse(
        profile, quota.name, quota.limit, quota.used, scope.type, scope.zone, scope.market, scope.family, scope.region,
        instances=quota.unit is QuotaUnit.INSTANCES,
    )  # fmt: skip
