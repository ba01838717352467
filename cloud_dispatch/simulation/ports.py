"""What the core of the simulator and the simulated clouds are to each other. Protocols only; knows domain and SPI.

A cloud account is made once a run, with `(clock, streams, settings, its faults)`, and outlives every incarnation of the
dispatcher. The core gives each incarnation a driver, attaches itself as `Guests` to start what runs on the VMs, and
reads the truth (`inventory`, `bill`) for the checkers; the dispatcher sees the driver and nothing else.

Everything runs on one virtual-time asyncio loop: waiting is `asyncio.sleep` or `loop.call_later` (in seconds; the loop
counts whole milliseconds and rounds a wait up), no threads, no real I/O. Iterate over dicts and lists, never over sets
of strings: their order differs from one process to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from cloud_dispatch.domain.ids import BatchId, ProfileName, VmId
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.spi import Provider, VmState

T = TypeVar("T")


class Stream(Protocol):
    """Chance for one purpose. Draws of one stream never move another's."""

    def fraction(self) -> float:
        """In [0, 1)."""

    def below(self, bound: int) -> int:
        """An integer in [0, `bound`)."""

    def between(self, low: int, high: int) -> int:
        """An integer in [`low`, `high`], both included."""

    def chance(self, probability: float) -> bool:
        """True so often; draws once whatever the probability."""

    def pick(self, among: Sequence[T]) -> T:
        """One of them."""

    def exponential(self, mean: float) -> float:
        """A waiting time of mean `mean`."""

    def lognormal(self, median: float, sigma: float) -> float:
        """A duration around `median`; `sigma` is the deviation of its logarithm (0: always the median)."""


class Streams(Protocol):
    """All chance of a run: a stream a purpose, made from the seed and the purpose's text alone."""

    def stream(self, *purpose: str | int) -> Stream:
        """The stream of `purpose`, e.g. `stream("boot", account, vm)`; the same object every time. Key by what the draw
        is for (the VM, the fault), not by when it is made, so that taking one fault out moves nothing else."""


class SimClock(Protocol):
    """`ports.clock.Clock` on the virtual loop: `now` in epoch ms, `monotonic` in ms since the start."""

    def now(self) -> int: ...

    def monotonic(self) -> int: ...


class EndCause(StrEnum):
    """Why a VM ended, as the cloud knows it."""

    TERMINATED = "terminated"  # the dispatcher asked
    SHUT_DOWN = "shut-down"  # its guest did
    PREEMPTED = "preempted"
    DIED = "died"  # hardware, host maintenance
    HARD_END = "hard-end"  # a hand independent of the guest, at `ends_at`


@dataclass(slots=True)
class TrueVm:
    """A VM as it truly is, whatever lists say. The account's own record: others read it and keep references.

    Times are epoch milliseconds. `state` is PENDING until the guest starts, GONE when it no longer bills nor counts.
    """

    id: VmId
    account: str  # `CloudAccount.name`
    profile: ProfileName
    batch: BatchId
    type: str
    vcpus: int
    zone: str
    market: Market
    created_ms: int
    deployment: str = ""
    pool: str = ""
    slot: int = -1  # where slots are named, else -1
    state: VmState = VmState.PENDING
    since_ms: int = 0  # when it came into `state`
    ended_ms: int | None = None
    #: Parts per million by which the guest's clock runs fast (negative: slow).
    drift_ppm: int = 0
    #: By so much its wall clock is fast when it boots.
    wall_off_ms: int = 0
    #: Until then nothing passes between the VM and the dispatcher, in either direction.
    cut_off_until_ms: int = 0
    #: Whether it died, or its cloud has said that it takes it back.
    taken: bool = False

    @property
    def birth(self) -> tuple[str, VmId, int]:
        """Which VM this is: where slots are names (GCE, ARM) another may have the same `id` once it is gone."""
        return self.account, self.id, self.created_ms


@dataclass(frozen=True, slots=True)
class Leftover:
    """A disk, NIC or address that still exists and bills although its VM is gone."""

    id: str
    kind: str
    batch: BatchId
    since_ms: int


@dataclass(frozen=True, slots=True)
class BillLine:
    """What one VM, or what came with one, has cost to now, by the account's own meter: micro-dollars, billed
    milliseconds. `vm` is its own id, `came_with` that of the VM that a disk, NIC or address was made for."""

    vm: str
    batch: BatchId
    amount: Amount
    billed_ms: int
    running: bool
    came_with: str = ""


class Metered(Protocol):
    """What one VM, with the disks and addresses that came with it, has cost to now: how much of it falls where."""

    @property
    def vm(self) -> TrueVm: ...

    @property
    def closed(self) -> bool:
        """Whether this never changes any more."""

    @property
    def ends_ms(self) -> int:
        """The hard end as the hand that keeps it knows it now; 0 for none."""

    @property
    def from_ms(self) -> int:
        """Nothing is billed before; epoch milliseconds of the cloud's own clock."""

    @property
    def until_ms(self) -> int:
        """Nothing is billed from then on. It lies in the future where a minimum or an increment is not over."""

    def nano_ms(self, from_ms: int, until_ms: int) -> int:
        """What is billed for the time in between: nano-dollars an hour x milliseconds, exactly."""

    def prices(self) -> Sequence[tuple[int, int]]:
        """From which moments on it is billed at which nano-dollars an hour, in order of time; 0 where it ends."""


class Guests(Protocol):
    """The core, as an account sees it. Calls return at once and never raise."""

    def on_boot(self, vm: TrueVm, user_data: str) -> None:
        """The guest of `vm` has started and runs its user data now. Not called for a VM that never boots or whose user
        data fails."""

    def on_end(self, vm: TrueVm, cause: EndCause) -> None:
        """The guest of `vm` is dead from this moment; nothing on it runs on. At most once a VM that booted."""

    def on_notice(self, vm: TrueVm, ends_ms: int) -> None:
        """The VM will be taken at `ends_ms`; the guest may read so from its metadata. Not where there is no notice."""

    def on_freeze(self, vm: TrueVm, until_ms: int, unaware: bool) -> None:
        """The guest of `vm` stands still until then; `unaware`: its clock does, too. May end before `until_ms`."""

    def on_change(self, vm: TrueVm) -> None:
        """The truth about `vm` has changed (created, running, stopping, gone): counted by the checkers, at once."""


class CloudAccount(Protocol):
    """One simulated account at one cloud: its VMs, quotas, capacity, prices, meter and faults."""

    @property
    def name(self) -> str: ...

    def attach(self, guests: Guests) -> None:
        """From here on the account calls `guests`; once, before the first driver is made."""

    def driver(self, profile: ProfileName) -> Provider:
        """A driver for an incarnation of the dispatcher. Calls of one that crashed are cancelled, or never answered:
        what the cloud has accepted goes on."""

    def inventory(self) -> Sequence[TrueVm]:
        """Every VM ever made, gone ones included, in order of creation. Cheap; not a copy."""

    def leftovers(self) -> Sequence[Leftover]:
        """What exists beside the VMs now."""

    def trespasses(self) -> Sequence[str]:
        """What anybody did to VMs and leftovers of others in the account, which none of the other methods tell of."""

    def bill(self) -> Sequence[BillLine]:
        """The meter's own lines to now, in order of creation; the dispatcher never sees them."""

    def metered(self, first: int = 0) -> Sequence[Metered]:
        """The same to now, for stretches of time, from the VM of that number (0: the first one made) on: exact, and a
        VM with its disks and addresses as one. What has outlived its VM is left out from then on."""

    def proof_of(self, vm: VmId, audience: str) -> str:
        """What the metadata service says to the guest of `vm`: a proof of which VM it is, "" where there are none."""

    def guest_shuts_down(self, vm: VmId) -> None:
        """The guest of `vm` powers it off: ends the VM, or (ARM) only stops it, which still bills."""
