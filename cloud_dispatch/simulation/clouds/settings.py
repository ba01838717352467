"""What a simulated account is: frozen, serialisable values. Owns no behaviour beyond reading a value out of itself.

The defaults of a cloud stand with its dialect (`ec2.defaults`, `gce.defaults`, `arm.defaults`); they are estimates of
how the cloud behaves, not facts about a day. Durations are milliseconds, rates nano-dollars an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cloud_dispatch.domain.money import HOUR_MS, Rate
from cloud_dispatch.domain.offering import InstanceType, Market
from cloud_dispatch.provider.spi import LeftoverKind
from cloud_dispatch.simulation.ports import Stream


class Cloud(StrEnum):
    """Whose dialect an account speaks."""

    EC2 = "ec2"
    GCE = "gce"
    ARM = "arm"


@dataclass(frozen=True, slots=True)
class Spread:
    """A duration by chance: log-normal around `median_ms`, at most `most_ms`; `sigma` 0 is always the median."""

    median_ms: int
    sigma: float = 0.0
    most_ms: int = HOUR_MS

    @property
    def longest_ms(self) -> int:
        """What no draw exceeds."""
        return (self.most_ms if self.sigma else min(self.median_ms, self.most_ms)) if self.median_ms else 0

    def draw(self, stream: Stream) -> int:
        """Whole milliseconds; one draw of `stream`, whatever the spread."""
        return min(max(round(stream.lognormal(self.median_ms, self.sigma)), 0), self.most_ms) if self.median_ms else 0


@dataclass(frozen=True, slots=True)
class Sold:
    """An instance type, where it is sold, and for how much; zones that ask another price are another line. `spot_rate`
    None: not on the spot market. `boot` None: it boots as long as others of the account. `spot_most`: what is paid at
    most on the spot market, None: as much as on demand."""

    type: InstanceType
    zones: tuple[str, ...]
    rate: Rate
    spot_rate: Rate | None = None
    boot: Spread | None = None
    spot_most: Rate | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """At most `vcpus` of `family` on `market`; an empty family or market means all of them together."""

    vcpus: int
    family: str = ""
    market: Market | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What the provider has at most, for us, of a type in a zone on a market (empty: any, each by itself)."""

    vms: int
    type: str = ""
    zone: str = ""
    market: Market | None = None


@dataclass(frozen=True, slots=True)
class Tide:
    """Capacity that comes and goes: in a step of `step_ms`, each type x zone x market is sold out with this chance."""

    step_ms: int = 30 * 60_000
    dry: float = 0.0
    dry_spot: float = 0.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket of one operation: `burst` calls at once, then `per_second`."""

    operation: str
    burst: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Spot:
    """The spot market. A price moves by at most `swing` of itself a step, between half and twice its usual value and
    never above on-demand; VMs are reclaimed for capacity after `reclaim_mean_ms` on average (0: never)."""

    step_ms: int = 300_000
    swing: float = 0.05
    reclaim_mean_ms: int = 0
    notice_ms: int = 120_000
    #: How often a notice does not come at all.
    unannounced: float = 0.0
    #: Whether a VM that is taken back is left, stopped: deallocated, as Azure calls it.
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class Life:
    """How long a VM takes for what: create to running (billed from there), running to user data, end to power off."""

    start: Spread = Spread(8_000, 0.4, 60_000)
    boot: Spread = Spread(30_000, 0.3, 180_000)
    stop: Spread = Spread(8_000, 0.5, 60_000)
    #: How long an asynchronous create takes to fail, where the cloud finds out later that there is no room.
    refuse: Spread = Spread(3_000, 0.3, 20_000)
    #: How long a VM that is gone stays in lists, as gone.
    linger_ms: int = 0


@dataclass(frozen=True, slots=True)
class Mishaps:
    """Chances a VM, each drawn on its own."""

    never_starts: float = 0.0  # ends before it runs
    never_boots: float = 0.0  # runs, bills, no guest
    user_data_fails: float = 0.0  # boots, and our agent is never started
    late: float = 0.0  # boots after `late_by_ms` more
    late_by_ms: int = 600_000
    #: Mean time until a running VM dies, 0 for never.
    death_mean_ms: int = 0
    #: Guests' clocks run fast or slow by at most this.
    drift_ppm: int = 50


@dataclass(frozen=True, slots=True)
class Reads:
    """How late reads may be: a list or get shows the world as it was up to so long ago. Pages hold `page` VMs.

    `loose`: asked for the VMs and leftovers of a deployment, it shows those of all whose names begin like it, in
    whatever case, on one page."""

    list_ms: int = 0
    get_ms: int = 0
    page: int = 1000
    loose: bool = False

    def shows(self, deployment: str, worn: str) -> bool:
        """Whether a question for `deployment` shows what is of `worn`."""
        return worn.lower().startswith(deployment.lower()) if self.loose else worn == deployment


@dataclass(frozen=True, slots=True)
class Extra:
    """What comes with every VM, bills by itself, and can outlive it."""

    kind: LeftoverKind
    rate: Rate = Rate(0)


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """One account at one cloud."""

    name: str
    cloud: Cloud
    sells: tuple[Sold, ...]
    region: str = "region-1"
    quotas: tuple[Quota, ...] = ()
    rooms: tuple[Room, ...] = ()
    tide: Tide = Tide()
    spot: Spot = Spot()
    life: Life = Life()
    mishaps: Mishaps = Mishaps()
    reads: Reads = Reads()
    buckets: tuple[Bucket, ...] = ()
    #: Of a request on its way to the cloud, and of its answer on the way back.
    latency: Spread = Spread(40, 0.5, 2_000)
    #: Where the cloud says when to come again after a 429; 0 where it does not.
    retry_after_ms: int = 0
    minimum_ms: int = 60_000
    increment_ms: int = 1_000
    extras: tuple[Extra, ...] = (Extra(LeftoverKind.DISK),)
    #: The independent hand that ends VMs past their `ends_at` tag looks so often; 0: there is none.
    reaper_period_ms: int = 60_000
    #: By so much that hand's clock is behind the biller's.
    reaper_behind_ms: int = 0
    #: How long a launch's token is remembered, where launches have tokens.
    token_window_ms: int = 24 * HOUR_MS
    max_batch: int = 100
    #: Whether VMs get signed proofs of which one they are.
    proves: bool = True

    @property
    def consistency_ms(self) -> int:
        """After so long a list or get shows what was done, a request that was still on its way included."""
        return max(self.reads.list_ms, self.reads.get_ms) + 2 * self.latency.most_ms
