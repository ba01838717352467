"""Pools (named templates for VMs) and caps. Owns what an operator may set about them, already validated."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Labels


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper bounds at one level (a pool, a profile, everything); None is no bound at this level."""

    instances: int | None = None
    vcpus: int | None = None


@dataclass(frozen=True, slots=True)
class TypeFilter:
    """`types.allow` / `types.deny`: shell patterns on type names. An empty allow list allows every type."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def admits(self, type_name: str) -> bool:
        if any(fnmatchcase(type_name, pattern) for pattern in self.deny):
            return False
        return not self.allow or any(fnmatchcase(type_name, pattern) for pattern in self.allow)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A command that an agent runs at start and every `interval_ms`; `failures` in a row end the instance."""

    argv: tuple[str, ...]
    interval_ms: int = 60_000
    timeout_ms: int = 10_000
    failures: int = 3


@dataclass(frozen=True, slots=True)
class EndRules:
    """When a compute service ends by itself; 0 is no limit of that kind, except that `lifetime_ms` is never 0.

    `idle_ms`: without work for so long, after asking. `max_tasks`: after so many tasks. `empty_claims`: after so many
    claims in a row that brought nothing. `lifetime_ms`: whatever it does.
    """

    idle_ms: int = 60_000
    max_tasks: int = 0
    empty_claims: int = 0
    lifetime_ms: int = 24 * 3_600_000


@dataclass(frozen=True)
class Pool:
    """A named template for VMs. Times in milliseconds."""

    name: PoolName
    profiles: tuple[ProfileName, ...]
    types: TypeFilter = TypeFilter()
    markets: tuple[Market, ...] = (Market.ON_DEMAND,)
    labels: Labels = ()
    caps: Caps = Caps()
    #: Kept ready whatever the queue holds (`min`) and the number wanted by configuration, schedule or REST (`target`).
    minimum: int = 0
    reserve: Resources = Resources()
    max_tasks_per_instance: int = 0
    #: Offerings up to cheapest x this percentage are acceptable substitutes.
    price_factor_percent: int = 150
    target_drain_ms: int = 600_000
    min_work_per_boot_percent: int = 100
    boot_deadline_ms: int = 600_000
    end: EndRules = EndRules()
    health_checks: tuple[HealthCheck, ...] = ()
    template: str = "agent"
    #: What boots that fail, and services that do nothing, may cost in a row before launches pause, micro-dollars.
    boot_allowance: int = 5_000_000
    futility_allowance: int = 10_000_000

    @property
    def ready_ms(self) -> int:
        """How long an instance may take from its registration until all health checks have passed once: one that fails
        for longer is not to be trusted, and ends."""
        return max((one.failures * (one.timeout_ms + one.interval_ms) for one in self.health_checks), default=0)

    def admits(self, offering: Offering) -> bool:
        """Whether the pool may rent `offering` at all (caps and money apart)."""
        return (
            offering.profile in self.profiles
            and offering.market in self.markets
            and self.types.admits(offering.type.name)
        )
