"""A scenario: everything that makes a run, as data. Owns its JSON; how a seed becomes one is in `generate`.

Two runs of one scenario are the same to the byte. The seed in it feeds chance in the run (delays, boot times, ids); a
scenario without a fault has the same chance in all else as one with it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import MACHINE_CAUSES, Cause
from cloud_dispatch.planner.snapshot import DriverCaps
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.simulation.clouds.faults import USUAL
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.settings import AccountSettings
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.ends import Pace


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """`count` tasks that are alike, submitted together at `submit_ms` after the start."""

    submit_ms: int = 0
    count: int = 1
    shape: Shape = Shape()
    conduct: Conduct = Conduct()
    expected_ms: int = 0
    priority: int = 0
    max_attempts: int = 3
    #: The ends, and the exit codes, after which it is tried again.
    causes: tuple[Cause, ...] = tuple(sorted(MACHINE_CAUSES))
    exit_codes: tuple[int, ...] = ()
    max_runtime_ms: int = 0
    outputs: tuple[str, ...] = ()
    user: str = ""
    project: str = ""
    checkpoint_signal: str = ""


class CloudAccount(msgspec.Struct, frozen=True, omit_defaults=True):
    """A profile and the account behind it, with what the cloud does wrong."""

    profile: ProfileName
    settings: AccountSettings
    faults: tuple[CloudFault, ...] = ()
    caps: Caps = Caps()
    #: What its driver is called where limits and caps speak of it; empty: as the cloud.
    driver: str = ""
    #: Accepted that no hand but the guests' own timers ends its VMs.
    guest_enforced: bool = False


class AgentTiming(msgspec.Struct, frozen=True, omit_defaults=True):
    """What agents are told beyond the dispatcher's own timing; milliseconds. `hang_ms`: their supervisor gives up an
    agent that shows no sign of life for so long (and earlier, when the lease of what it runs has ended). `replace_ms`:
    the agent of a newer dispatcher waits so long for an idle moment."""

    kill_grace_ms: int = 10_000
    silence_ms: int = 600_000
    hang_ms: int = 60_000
    replace_ms: int = 600_000


class Scenario(msgspec.Struct, frozen=True, omit_defaults=True):
    """See the module. The run ends when all work and all VMs but those that pools keep in any case have ended and the
    faults are over, at `horizon_ms` at the latest: what has not ended by then is a finding."""

    name: str
    seed: int
    accounts: tuple[CloudAccount, ...]
    pools: tuple[Pool, ...]
    work: tuple[Work, ...] = ()
    faults: tuple[Fault, ...] = ()
    caps: Caps = Caps()
    driver_caps: tuple[DriverCaps, ...] = ()
    timing: Timing = Timing()
    agents: AgentTiming = AgentTiming()
    latency_ms: int = 20
    plan_ms: int = 5
    horizon_ms: int = 4 * 3_600_000
    #: How long after the usual moment (`clock.EPOCH_MS`, midnight of a new year) it starts: where windows of time lie.
    begins_ms: int = 0
    #: Spending limits. What they do not pay for need not be finished.
    budgets: tuple[Budget, ...] = ()
    #: Whether what waits for a limit of an hour, a day or a month is waited for: it is a new one then.
    awaits_limits: bool = False
    pace: Pace = Pace()

    @property
    def drivers(self) -> dict[ProfileName, str]:
        """By profile, its driver."""
        return {account.profile: account.driver or str(account.settings.cloud) for account in self.accounts}

    @property
    def tasks(self) -> int:
        return sum(work.count for work in self.work)

    @property
    def quiet_ms(self) -> int:
        """From when on nothing goes wrong any more, as far as the scenario says; not what is usual."""
        own = [fault.ends_ms for fault in self.faults]
        theirs = [f for account in self.accounts for f in account.faults if f.kind not in USUAL]
        clouds = [max(f.until_ms, f.from_ms) for f in theirs]
        return max([*own, *clouds, *(work.submit_ms for work in self.work)], default=0)

    @property
    def size(self) -> tuple[int, int, int]:
        """What a shrinker makes smaller: faults, tasks, virtual time."""
        return len(self.faults) + sum(len(account.faults) for account in self.accounts), self.tasks, self.horizon_ms


def encode(scenario: Scenario) -> bytes:
    """As JSON, indented for people."""
    return msgspec.json.format(msgspec.json.encode(scenario), indent=1)


def decode(text: bytes) -> Scenario:
    """From JSON; InvalidInput with the place of what is wrong."""
    try:
        return msgspec.json.decode(text, type=Scenario)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"this is not a scenario: {error}", hint="expected the JSON that `replay` prints") from None


def read(path: Path) -> Scenario:
    """The scenario in a file; InvalidInput where there is none."""
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"scenario {path}: {error.strerror}") from None
