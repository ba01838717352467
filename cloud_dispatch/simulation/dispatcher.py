"""The dispatcher in a run: one incarnation after the other on the same statestore. Owns their birth, death and burial.

The parts are the real ones, wired by `assembly.assemble`; only what they stand on is made here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cloud_dispatch import assembly, statestore, succession
from cloud_dispatch.api.auth import Tokens, join_ends_ms, service_life_ms
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.operator_token import OperatorToken
from cloud_dispatch.api.outputs import OutputStore
from cloud_dispatch.api.services import AgentBundle
from cloud_dispatch.api.timer import Words
from cloud_dispatch.domain.ids import BatchId, ProfileName
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.planner.snapshot import DriverCaps
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.entropy import Entropy
from cloud_dispatch.provider.spi import Challenge, Provider
from cloud_dispatch.provider.tagfilter import TagFilter
from cloud_dispatch.provider.throttle import Throttled
from cloud_dispatch.reconcile.settings import Settings, Timing
from cloud_dispatch.simulation import serving
from cloud_dispatch.simulation.disk import Disk
from cloud_dispatch.simulation.guest import UserData
from cloud_dispatch.simulation.loop import Group, VirtualLoop
from cloud_dispatch.simulation.network import Exchange, Network
from cloud_dispatch.simulation.severed import (
    BreakingLine,
    Cut,
    Hooks,
    PlanExecutor,
    SeveredClock,
    SeveredEntropy,
    SeveredProvider,
    StoreExecutor,
    StoreFaults,
)
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.grant import timer_lease_ms
from cloud_dispatch.statestore import SqlStore
from cloud_dispatch.wire.messages import Policy

DEPLOYMENT = "simulated"
#: After a cut the dead get so many turns of the loop to fall over.
_BURIAL_TURNS = 20


@dataclass(frozen=True)
class House:
    """What every incarnation is made from."""

    pools: tuple[Pool, ...]
    caps: Caps
    profile_caps: Mapping[ProfileName, Caps]
    driver_caps: tuple[DriverCaps, ...]
    timing: Timing
    policy: Policy
    plan_ms: int
    budgets: tuple[Budget, ...]
    driver_names: Mapping[ProfileName, str]
    pace: Pace
    guest_enforced: frozenset[ProfileName]
    drivers: Callable[[], dict[ProfileName, Provider]]
    clock: Clock
    entropy: Entropy
    folder: Path


class Incarnation:
    """One life of the dispatcher."""

    def __init__(
        self, number: int, house: House, disk: Disk, loop: VirtualLoop, network: Network, hooks: Hooks,
        faults: StoreFaults,
    ) -> None:  # fmt: skip
        self.number = number
        self.cut = Cut()
        self.group = Group(f"dispatcher {number}")
        self.parts: assembly.Parts | None = None
        self.store: SqlStore | None = None
        self.house = house
        self._disk = disk
        self._loop = loop
        self._network = network
        self._hooks, self._faults = hooks, faults
        #: Each life is a newer dispatcher, whose agent is another: so wherever one dies, agents are replaced.
        body = b"the agent of life %d" % number
        self._agent = AgentBundle(body, hashlib.sha256(body).hexdigest())
        self.stopped = False
        self._following = asyncio.Lock()
        self.assembled: Callable[[Incarnation], None] = lambda living: None

    def dead(self) -> bool:
        """Whether its ports are severed."""
        return self.cut.severed

    async def live(self) -> None:
        """Open the store, assemble, serve; until `stop` or death."""
        house, cut = self.house, self.cut
        clock, entropy = SeveredClock(cut, house.clock), SeveredEntropy(cut, house.entropy)
        store = self.store = await statestore.open_store(
            self._disk.url, clock=clock, entropy=entropy, executor=StoreExecutor(cut, self._hooks, self._faults),
            line=BreakingLine(self._hooks, self._faults),
        )  # fmt: skip
        await succession.succeed(store, house.folder)
        life_ms = service_life_ms(house.policy.silence_ms)
        operator = OperatorToken.of("operator")
        tokens = self._tokens = Tokens(
            b"service key of the simulation", b"join key of the simulation", operator, life_ms
        )
        planning = PlanExecutor(cut, house.plan_ms)
        ports = assembly.Ports(
            clock=clock,
            entropy=entropy,
            store=store,
            tokens=tokens,
            planning=planning,
            logs=LogStore(house.folder / "logs", 1 << 24),
            outputs=OutputStore(house.folder / "outputs", 1 << 24, PlanExecutor(cut, 0)),
        )
        rules = self._rules(house, {})
        await assembly.set_limits(store, rules)
        parts = self.parts = assembly.assemble(ports, rules, shutdown=lambda terminate, grace_ms: None)
        self.assembled(self)
        await parts.loop.agree()
        self._network.listen(self)
        mending = self._loop.start(store.mend(), self.group)
        try:
            await asyncio.gather(parts.loop.run(), parts.keeper.run())
        finally:
            mending.cancel()

    async def follow(self, house: House) -> None:
        """As SIGHUP does it, one after the other: from now on `house` says what it shall do."""
        assert self.parts is not None
        await self.parts.loop.restored.wait()
        async with self._following:
            settings = self.parts.context.settings
            known = {name: one for name, one in settings.providers.items() if name not in settings.leaving}
            await self.parts.follow(self._rules(house, known))

    def _rules(self, house: House, known: Mapping[ProfileName, Provider]) -> assembly.Rules:
        """What `house` comes to, with the drivers that are `known` and new ones for other profiles."""
        clock = SeveredClock(self.cut, house.clock)
        providers = {
            name: known[name]
            if name in known
            else TagFilter(Throttled(SeveredProvider(driver, self.cut, self._hooks), clock.monotonic), DEPLOYMENT)
            for name, driver in house.drivers().items()
        }
        return assembly.Rules(
            self._settings(house, providers, self._tokens), house.policy, self._agent, budgets=house.budgets
        )

    def _settings(self, house: House, providers: Mapping[ProfileName, Provider], tokens: Tokens) -> Settings:
        timers, lease_ms = Words(tokens), timer_lease_ms(house.pace, house.policy.silence_ms)

        def user_data(pool: Pool, batch: BatchId, slots: int, profile: ProfileName, ends_ms: int, _: bool) -> str:
            now = house.clock.now()
            joins = tokens.join(batch, slots, join_ends_ms(now, pool.boot_deadline_ms))
            timer = timers.plan(pool, batch, ends_ms, now, lease_ms)
            audience = Challenge(batch, since_ms=0).audience
            return msgspec.json.encode(UserData(joins, timer, self._agent.sha256, audience)).decode()

        return Settings(
            deployment=DEPLOYMENT,
            pools={pool.name: pool for pool in house.pools},
            caps=house.caps,
            profile_caps=house.profile_caps,
            driver_caps=house.driver_caps,
            providers=providers,
            user_data=user_data,
            timing=house.timing,
            drivers=house.driver_names,
            pace=house.pace,
            guest_enforced=house.guest_enforced,
        )

    def serve(self, exchange: Exchange) -> None:
        """Answer `exchange`, as one of this incarnation's tasks."""
        assert self.parts is not None
        self._loop.begin(serving.answer(self.parts.app, exchange), self.group)

    async def stop(self) -> None:
        """As `SIGTERM` does it: answer what waits, let calls under way end, close the store."""
        self.stopped = True
        if self.parts is None or self.store is None:
            return
        self.parts.loop.stop()
        self.parts.keeper.stop()
        await self.parts.take_leave()
        self.parts.app.close()
        await asyncio.sleep(0.05)
        self._network.fall_silent()
        try:
            await self.parts.loop.close()
        finally:
            self.cut.leaving = True
            await self.store.close()

    def die(self) -> None:
        """At once: the ports first, then everything that runs."""
        self.cut.severed = True
        self._network.fall_silent()
        self.group.cancel()

    async def bury(self) -> None:
        """Let the dead fall over, then give back what they held of the disk. Called from outside its group."""
        for _ in range(_BURIAL_TURNS):
            if not self.group.tasks:
                break
            self.group.cancel()
            await asyncio.sleep(0)
        self.cut.burying = True
        if self.store is not None:
            await self.store.close()
