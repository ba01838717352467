"""Small values for the statestore's contract: a clock that tests move, specifications, instances, sync calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState, LaunchIntent
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.domain.task import Cause, Outcome, TaskSpec
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import Claimed, ClaimResult, HeldClaim, Store, SyncCall, SyncDone

#: The first moment of every test's clock.
START_MS = 1_700_000_000_000
#: Opens the test's store; called again after `close`, it opens the same one.
OpenStore = Callable[[Clock], Awaitable[Store]]
SUCCESS = Outcome(Cause.SUCCESS, exit_code=0)
FAILURE = Outcome(Cause.EXIT_CODE, exit_code=1)


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def now(self) -> int:
        return self.now_ms

    def monotonic(self) -> int:
        return self.now_ms - START_MS


def spec(name: str = "", *, cpus_milli: int = 1000, memory: int = GIB, **more: Any) -> TaskSpec:
    """A task; keywords of `Shape` go to its shape, others to the specification."""
    of_shape = {key: more.pop(key) for key in list(more) if key in Shape.__dataclass_fields__}
    shape = Shape(Resources(cpus_milli, memory), **of_shape)
    return TaskSpec(argv=("true",), name=name, shape=shape, **more)


def instance(
    batch: str = "batch",
    slot: int = 0,
    *,
    cpus: int = 4,
    memory: int = 16 * GIB,
    state: InstanceState = InstanceState.IDLE,
    machine: Machine | None = None,
    **more: Any,
) -> Instance:
    return Instance(
        id=InstanceId(f"{batch}-{slot}"),
        batch=BatchId(batch),
        pool=PoolName("default"),
        profile=ProfileName("local"),
        type="t4",
        zone="a",
        market=Market.ON_DEMAND,
        machine=machine or Machine(Resources(cpus * 1000, memory), pool="default"),
        vcpus=cpus,
        rate=Rate(96_000_000),
        state=state,
        intended_ms=START_MS,
        ends_ms=START_MS + 86_400_000,
        boot_deadline_ms=START_MS + 600_000,
        vm=VmId(more.pop("vm", f"vm-{batch}-{slot}" if state is not InstanceState.INTENDED else "")),
        **more,
    )


def intent(batch: str = "batch", slots: int = 1) -> LaunchIntent:
    return LaunchIntent(BatchId(batch), PoolName("default"), "local/t4/a/on-demand", slots, START_MS, "10 tasks wait")


class Agent:
    """Syncs for one instance, as its agent would: what it holds is what it was given and has not reported."""

    def __init__(self, store: Store, own: Instance) -> None:
        self.store = store
        self.id = own.id
        self.order = 0
        self.holding: dict[int, HeldClaim] = {}
        self.specs: dict[int, Claimed] = {}

    async def sync(
        self, *results: ClaimResult, want: int = 0, ahead: int = 0, claiming: bool = True, order: int | None = None
    ) -> SyncDone:
        self.order = self.order + 1 if order is None else order
        for result in results:
            self.holding.pop(result.task, None)
        held = tuple(self.holding.values())
        done = await self.store.sync(SyncCall(self.id, self.order, held, results, want, ahead, claiming))
        for claimed in done.claims:
            self.holding[claimed.task] = HeldClaim(claimed.task, claimed.token, None)
            self.specs[claimed.task] = claimed
        return done

    async def claim(self, want: int = 1, ahead: int = 0) -> Sequence[Claimed]:
        return (await self.sync(want=want, ahead=ahead)).claims

    def runs(self, claimed: Claimed, ran_ms: int = 0) -> None:
        """From the next sync on it says that the command runs."""
        self.holding[claimed.task] = HeldClaim(claimed.task, claimed.token, ran_ms)

    def forgets(self, claimed: Claimed) -> None:
        """From the next sync on it does not know the claim."""
        del self.holding[claimed.task]


async def adopted(store: Store, batch: str = "batch", **more: Any) -> Agent:
    """The agent of a new instance that the store has adopted; keywords as for `instance`."""
    own = instance(batch, **more)
    await store.adopt(own)
    return Agent(store, own)


def result(claimed: Claimed, outcome: Outcome | None = SUCCESS, ran_ms: int | None = 5, ago_ms: int = 0) -> ClaimResult:
    return ClaimResult(claimed.task, claimed.token, ran_ms, outcome, ago_ms)
