"""What the loop needs to know of the configuration, already validated. Times in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName
from cloud_dispatch.domain.pool import Caps, Pool, TypeFilter
from cloud_dispatch.planner.snapshot import DriverCaps
from cloud_dispatch.provider.spi import HardEnd, Provider
from cloud_dispatch.spend.ends import Pace


@dataclass(frozen=True)
class Timing:
    """`missed_ms` without contact: out of contact. `silence_ms`: failed. See `liveness`."""

    heartbeat_ms: int = 10_000
    poll_ms: int = 20_000
    lease_ms: int = 60_000
    pass_interval_ms: int = 5_000
    list_interval_ms: int = 30_000
    call_timeout_ms: int = 60_000
    doubt_ms: int = 60_000

    @property
    def leftovers_interval_ms(self) -> int:
        """Between two looks for what outlives its VM: it costs little and is rare, so far less often than VMs."""
        return 10 * self.list_interval_ms

    @property
    def missed_ms(self) -> int:
        return max(self.heartbeat_ms, self.poll_ms) * 3 // 2

    @property
    def silence_ms(self) -> int:
        """A claim's lease plus one heartbeat: by then the agent itself has killed what it could not renew."""
        return self.lease_ms + max(self.heartbeat_ms, self.poll_ms)


#: Makes the user data of a launch: pool, batch, slots, profile, hard end, whether it is of the spot market.
UserData = Callable[[Pool, BatchId, int, ProfileName, int, bool], str]


@dataclass(frozen=True)
class Settings:
    deployment: str
    pools: Mapping[PoolName, Pool]
    caps: Caps
    profile_caps: Mapping[ProfileName, Caps]
    providers: Mapping[ProfileName, Provider]
    user_data: UserData
    profile_types: Mapping[ProfileName, TypeFilter] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    #: By profile its driver, whose profiles share the driver's bounds; and how far ahead hard ends are set.
    driver_caps: Sequence[DriverCaps] = ()
    drivers: Mapping[ProfileName, str] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    #: Profiles whose VMs no hand but their own timer ends, and for which an operator has accepted that.
    guest_enforced: frozenset[ProfileName] = frozenset()
    #: When the prices were told that are kept of a profile, milliseconds since the epoch.
    prices_ms: Mapping[ProfileName, int] = field(default_factory=dict)
    #: Profiles that have left the configuration while VMs of theirs live: their drivers look after those to the end.
    leaving: frozenset[ProfileName] = frozenset()

    def moves_ends(self, profile: ProfileName) -> bool:
        """Whether a hard end of the profile's VMs can be moved on."""
        hand = self.providers[profile].traits.hard_end if profile in self.providers else HardEnd.FIXED
        return hand is HardEnd.EXTENDABLE or (hand is HardEnd.NONE and profile in self.guest_enforced)
