"""The risk that is told at the start. Owns which offerings and caps it is reckoned from."""

from __future__ import annotations

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.spend.risk import in_words, risk_of


def words(context: Context) -> list[str]:
    """What each pool may come to at worst and which limits hold, a line each; from what is known of offerings now."""
    risks = []
    for pool in context.settings.pools.values():
        offerings = [
            offering
            for profile in pool.profiles
            if (view := context.profiles.get(profile)) is not None
            for offering in view.offerings
        ]
        risk = risk_of(pool, offerings, [_bounds(context, pool, offering) for offering in offerings])
        if risk is not None:
            risks.append(risk)
    return in_words(risks, context.store.limits())


def _bounds(context: Context, pool: Pool, offering: Offering) -> list[Caps]:
    settings = context.settings
    of_driver = [one.caps for one in settings.driver_caps if offering.profile in one.profiles]
    return [settings.caps, pool.caps, settings.profile_caps.get(offering.profile, Caps()), *of_driver]
