"""What the parts of the drivers' conformance suite share: fixtures, requests, patience, fault controls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from cloud_dispatch.domain.ids import BatchId, PoolName, VmId, instance_id
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider.errors import ProviderError, VmNotFound
from cloud_dispatch.provider.spi import (
    Challenge,
    LaunchRequest,
    LaunchResult,
    Leftover,
    LeftoverKind,
    Provider,
    Vm,
    VmState,
)
from cloud_dispatch.testing.provider_contract_truth import Truth

DEPLOYMENT = "contract"
OTHER_DEPLOYMENT = "contract-other"
FAR_FUTURE_MS = 4_102_444_800_000  # 2100
LONG_AGO_MS = 1_000_000_000_000  # 2001: what is less are no milliseconds
UP = frozenset({VmState.PENDING, VmState.RUNNING})
_batches = itertools.count()
_T = TypeVar("_T")

Connect = Callable[[], Provider]
MakeRequest = Callable[..., Awaitable[LaunchRequest]]
Prove = Callable[[VmId, Challenge], Awaitable[str]]
Leftovers = Callable[[], Iterable[object]]
Elsewhere = Callable[[], Iterable[Provider]]


class Faults:
    """How a suite makes the driver's cloud misbehave: override what the backend can do; the rest skips its tests.

    `call` is the name of a method of the SPI; for one that it can't do, a control calls `_lacks`. A fault is used up by
    the calls that it hits.
    """

    def fail(
        self,
        call: str,
        error: type[ProviderError],
        *,
        commit: bool = False,
        times: int = 1,
        after: int = 0,
        type_name: str = "",
        retry_after_ms: int = 0,
    ) -> None:
        """Let the first `after` calls pass, then answer `times` with `error` (RateLimited: with this `retry_after_ms`).
        With `commit` (InDoubt only) the call is carried out and its answer lost, also of one that changes nothing.
        `type_name`: launches of that type only."""
        self._lacks("fail a call")

    def delay(self, call: str, delay_ms: int, *, times: int = 1) -> None:
        """Answer only after `delay_ms`, the call carried out by then or not."""
        self._lacks("delay a call")

    def calm(self) -> None:
        """Take back the faults that no call has met yet; where it can't be done, a busy machine may fail a test."""

    def fail_later(self, error: type[ProviderError], *, times: int = 1) -> None:
        """Accept the next launch, and let its operation fail with `error`."""
        self._lacks("let an operation fail")

    def forget_operations(self) -> None:
        """Forget the operations that have ended, as clouds do after a while."""
        self._lacks("forget operations")

    def capacity(self, type_name: str, vms: int) -> None:
        """Let at most `vms` VMs of the type exist, for drivers made from now on."""
        self._lacks("limit capacity")

    def quota(self, vms: int) -> None:
        """Let at most `vms` VMs of the cheapest type exist, by a limit of the account, for drivers made from now on."""
        self._lacks("set a quota")

    def hide(self, vm: VmId, for_ms: int) -> None:
        """Leave `vm` out of listings for `for_ms`, at most the traits' `consistency_ms`."""
        self._lacks("hide a VM from listings")

    def cut_short(self, *, times: int = 1) -> None:
        """Let the next listings end before they are whole."""
        self._lacks("cut a listing short")

    def leave_behind(self, kind: LeftoverKind) -> None:
        """Let this part of the next VM that is terminated outlive it."""
        self._lacks("leave something behind")

    def attach(self, leftover: Leftover, vm: VmId) -> None:
        """Let `vm` have what was left behind, from now on."""
        self._lacks("give a VM what was left behind")

    def preempt(self, vm: VmId) -> None:
        """Let the provider take a spot VM back, now."""
        self._lacks("take a VM back")

    def slow_operations(self, for_ms: int) -> None:
        """Let the operations of launches from now on be under way for so long, at least."""
        self._lacks("let operations take long")

    def say(self, vm: VmId, text: str) -> None:
        """Let the guest say this on its console."""
        self._lacks("write to a console")

    def lock_out(self) -> None:
        """Refuse the driver's credentials, whatever it asks, until `calm`."""
        self._lacks("refuse credentials")

    def _lacks(self, what: str) -> None:
        pytest.skip(f"the backend can't {what}")


@pytest.mark.asyncio
class ContractBase:
    """Subclass `ProviderContract`, not this. `settle_s` bounds how long a VM may take to come up or to be gone,
    `poll_s` is how often it is looked at, `many` how many VMs the largest listing has. `unknown_vm` is the id of no VM,
    to be given where ids have a form."""

    settle_s = 60.0
    poll_s = 0.05
    many = 3
    unknown_vm = VmId("c99999999999-0")

    @pytest.fixture
    def connect(self) -> Connect:
        pytest.fail("give a fixture `connect`: () -> Provider")

    @pytest.fixture
    def user_data(self) -> str:
        return "#cloud-config\nruncmd:\n  - [sleep, '3600']\n"

    @pytest.fixture
    def faults(self) -> Faults:
        return Faults()

    @pytest.fixture
    def truth(self) -> Truth:
        return Truth()

    @pytest.fixture
    def leftovers(self) -> Leftovers:
        return lambda: ()

    @pytest.fixture
    def elsewhere(self) -> Elsewhere:
        return lambda: ()

    @pytest.fixture
    def prove(self) -> Prove:
        async def by_nothing(vm: VmId, challenge: Challenge) -> str:
            pytest.fail("give a fixture `prove`: async (vm, challenge) -> the proof of identity that the VM has")

        return by_nothing

    @pytest.fixture
    def now(self) -> Callable[[], int] | None:
        return None

    @pytest_asyncio.fixture
    async def provider(self, connect: Connect) -> AsyncIterator[Provider]:
        driver = connect()
        try:
            yield driver
        finally:
            await driver.close()
            last = connect()  # whatever the test did to its driver
            try:
                await asyncio.sleep(last.traits.consistency_ms / 1000)
                for deployment in (DEPLOYMENT, OTHER_DEPLOYMENT):
                    for vm in (await last.list(deployment)).vms:
                        await self.end(last, vm.id)
            finally:
                await last.close()

    @pytest_asyncio.fixture
    async def make_request(self, provider: Provider, user_data: str) -> MakeRequest:
        """`await make_request(slots=1, deployment=...)`: a request for the cheapest offering, a new batch."""

        async def make(
            slots: int = 1, deployment: str = DEPLOYMENT, type_name: str = "", ends_ms: int = FAR_FUTURE_MS, **more: Any
        ) -> LaunchRequest:
            cheapest = await self.cheapest(provider, type_name)
            batch = BatchId(f"c{next(_batches):011d}")
            facts = VmTags(deployment, "store-1", PoolName("default"), batch, cheapest.rate or -1, ends_ms)
            request = LaunchRequest(
                batch=batch,
                slots=slots,
                offering=cheapest,
                tags=facts.encode(),
                user_data=user_data,
                ends_ms=ends_ms,
                instances=tuple(instance_id(batch, slot) for slot in range(slots)),
            )
            return replace(request, **more)

        return make

    async def cheapest(self, provider: Provider, type_name: str = "") -> Offering:
        """The cheapest offering that is not spot."""
        offered = [
            offering
            for offering in await provider.offerings()
            if offering.rate is not None
            and offering.market is Market.ON_DEMAND
            and type_name in ("", offering.type.name)
        ]
        return min(offered, key=lambda offering: (offering.rate or 0, offering.key))

    async def cheapest_spot(self, provider: Provider) -> Offering:
        """The cheapest spot offering; where there is none, the test is skipped."""
        offered = await provider.offerings()
        spot = [offering for offering in offered if offering.market is Market.SPOT and offering.rate is not None]
        if not spot:
            pytest.skip("no spot market")
        return min(spot, key=lambda offering: (offering.rate or 0, offering.key))

    async def launched(self, provider: Provider, request: LaunchRequest) -> tuple[Vm, ...]:
        """The VMs of a launch that shall succeed whole, its operations asked for to their end."""
        result = await self.settled(provider, request)
        assert result.shortfall is None
        return result.vms

    async def settled(self, provider: Provider, request: LaunchRequest) -> LaunchResult:
        """What a launch comes to: nothing is pending any more. Asserts that each slot is somewhere all the time."""
        result = await provider.launch(request)
        assert not result.pending or provider.traits.operation_poll_ms > 0
        vms, shortfall, pending = list(result.vms), result.shortfall, list(result.pending)
        for _ in range(int(self.settle_s / self.poll_s)):
            slots = len(vms) + sum(len(operation.instances) for operation in pending)
            assert slots == request.slots or (slots < request.slots and shortfall is not None)
            if not pending:
                return LaunchResult(tuple(vms), shortfall)
            await asyncio.sleep(provider.traits.operation_poll_ms / 1000)
            operation = pending.pop(0)
            answer = await provider.resume(operation)
            vms += answer.vms
            pending += answer.pending
            shortfall = shortfall or answer.shortfall
        pytest.fail(f"operations still pending after {self.settle_s} s: {pending}")

    async def until(self, ask: Callable[[], Awaitable[_T]], good: Callable[[_T], bool]) -> _T:
        """The first answer that is good; fails with the last one after `settle_s`."""
        answer = await ask()
        for _ in range(int(self.settle_s / self.poll_s)):
            if good(answer):
                return answer
            await asyncio.sleep(self.poll_s)
            answer = await ask()
        pytest.fail(f"not within {self.settle_s} s; at last {answer!r}")

    async def horizon(self, provider: Provider) -> None:
        """From here on, listings and gets show everything that was done before."""
        await asyncio.sleep(provider.traits.consistency_ms / 1000)

    async def running(self, provider: Provider, vm: VmId) -> Vm:
        await self.horizon(provider)
        return await self.until(lambda: provider.get(vm), lambda found: found.state is VmState.RUNNING)

    async def end(self, provider: Provider, vm: VmId) -> None:
        """Terminate as the dispatcher does: again and again until the provider says not found."""

        async def gone() -> bool:
            await provider.terminate(vm)
            return await self.is_gone(provider, vm)

        await self.until(gone, bool)

    async def is_gone(self, provider: Provider, vm: VmId) -> bool:
        try:
            return (await provider.get(vm)).state is VmState.GONE
        except VmNotFound:
            return True

    async def ids(self, provider: Provider, deployment: str = DEPLOYMENT) -> set[VmId]:
        """The VMs of a complete listing, now."""
        listing = await provider.list(deployment)
        assert listing.complete
        found = [vm.id for vm in listing.vms if vm.state is not VmState.GONE]
        assert len(set(found)) == len(found)
        return set(found)

    async def known(self, provider: Provider, deployment: str = DEPLOYMENT) -> set[VmId]:
        """The VMs that a listing shows once everything that was done can be seen."""
        await self.horizon(provider)
        return await self.ids(provider, deployment)
