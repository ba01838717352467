"""Settings to offerings. Pure translation: no effects, no clock."""

from __future__ import annotations

import platform

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch_local.settings import LocalSettings, LocalType

#: What starting an interpreter, fetching the agent and registering take beyond the boot delay.
_START_MS = 1_000


def boot_delay_ms(settings: LocalSettings, kind: LocalType) -> int:
    return settings.boot_delay if kind.boot_delay is None else kind.boot_delay


def offerings(profile: ProfileName, settings: LocalSettings, now: int) -> tuple[Offering, ...]:
    """Every type of the catalogue, on demand and, where the settings have a discount, as spot."""
    return tuple(
        _offering(profile, settings, name, kind, market, now)
        for name, kind in sorted(settings.catalogue.items())
        for market in Market
        if market is Market.ON_DEMAND or settings.spot_discount is not None
    )


def _offering(
    profile: ProfileName, settings: LocalSettings, name: str, kind: LocalType, market: Market, now: int
) -> Offering:
    full = Rate(kind.price)
    discount = settings.spot_discount or 0
    return Offering(
        profile=profile,
        type=InstanceType(
            name=name,
            capacity=Resources(kind.cpus, kind.memory, kind.disk, kind.gpus),
            gpu_type=kind.gpu_type,
            gpu_memory=kind.gpu_memory,
            architecture=platform.machine() or "x86_64",
            family="local",
        ),
        zone=settings.zone,
        market=market,
        rate=Rate(full * (100 - discount) // 100) if market is Market.SPOT else full,
        max_rate=full,
        priced_ms=now,
        boot_ms=boot_delay_ms(settings, kind) + _START_MS,
    )
