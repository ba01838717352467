"""The three simulated clouds pass the public suite of provider drivers, with late reads and short pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import pytest

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Challenge, Leftover, LeftoverKind, Provider
from cloud_dispatch.simulation.clock import VirtualClock
from cloud_dispatch.simulation.clouds.account import Account
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.make import defaults, open_account
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.clouds.settings import Cloud, Spread
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.testing.provider_contract import Faults, ProviderContract, Truth


class CloudFaults(Faults):
    """The suite's controls over an account's own faults."""

    def __init__(self, account: Account) -> None:
        self.account = account

    def fail(
        self, call: str, error: type[ProviderError], *, commit: bool = False, times: int = 1, after: int = 0,
        type_name: str = "", retry_after_ms: int = 0,
    ) -> None:  # fmt: skip
        kind = FaultKind.LOST_ANSWER if commit else FaultKind.ERROR
        call = "tag" if call == "extend" else call  # that is what moves an end
        self.account.book.add(
            Fault(
                kind, call, type=type_name, skip=after, times=times, error=error.__name__, retry_after_ms=retry_after_ms
            )
        )

    def delay(self, call: str, delay_ms: int, *, times: int = 1) -> None:
        self.account.book.add(Fault(FaultKind.SLOW, call, times=times, amount=delay_ms))

    def calm(self) -> None:
        for kind in (FaultKind.ERROR, FaultKind.LOST_ANSWER, FaultKind.SLOW):
            self.account.book.drop(kind)

    def fail_later(self, error: type[ProviderError], *, times: int = 1) -> None:
        self.account.book.add(Fault(FaultKind.ASYNC_FAILURE, "launch", times=times, error=error.__name__))

    def capacity(self, type_name: str, vms: int) -> None:
        self.account.book.drop(FaultKind.CAPACITY)
        self.account.book.add(Fault(FaultKind.CAPACITY, type=type_name, amount=vms))

    def quota(self, vms: int) -> None:
        cheapest = min(self.account.settings.sells, key=lambda sold: sold.rate)
        self.account.book.add(Fault(FaultKind.QUOTA, amount=vms * cheapest.type.vcpus))

    def hide(self, vm: VmId, for_ms: int) -> None:
        record = record_of(self.account, vm)
        record.hidden_until_ms = self.account.clock.now() + for_ms

    def cut_short(self, *, times: int = 1) -> None:
        self.account.book.add(Fault(FaultKind.INCOMPLETE, times=times, amount=0))

    def leave_behind(self, kind: LeftoverKind) -> None:
        if kind not in [extra.kind for extra in self.account.settings.extras]:
            self._lacks(f"leave a {kind} behind: its VMs have none")
        self.account.book.add(Fault(FaultKind.LEFTOVER, times=1, code=kind))

    def attach(self, leftover: Leftover, vm: VmId) -> None:
        self.account.extras.attach(leftover.id, record_of(self.account, vm))

    def slow_operations(self, for_ms: int) -> None:
        slow = replace(self.account.settings.life, start=Spread(for_ms, 0, for_ms))
        self.account.settings = replace(self.account.settings, life=slow)

    def say(self, vm: VmId, text: str) -> None:
        record_of(self.account, vm).console += text

    def preempt(self, vm: VmId) -> None:
        self.account.preempt(record_of(self.account, vm))


class CloudTruth(Truth):
    """What an account knows."""

    def __init__(self, account: Account) -> None:
        self.account = account

    async def user_data(self, vm: VmId) -> bytes:
        return record_of(self.account, vm).user_data.encode()

    async def hard_end_ms(self, vm: VmId) -> int:
        """GCE's is a property of the VM, elsewhere the reaper reads a tag."""
        record = record_of(self.account, vm)
        return record.ends_ms if self.account.settings.cloud is Cloud.GCE else int(record.tags[ENDS_AT])

    async def market(self, vm: VmId) -> Market:
        return record_of(self.account, vm).market

    async def requests(self) -> int:
        return sum(self.account.gate.arrived.values())


def record_of(account: Account, vm: VmId) -> Record:
    record = account.register.find(vm)
    assert record is not None
    return record


class CloudContract(ProviderContract):
    cloud: Cloud
    settle_s = 900.0
    poll_s = 0.5
    many = 7
    lives_ms = 900_000
    slow_s = 400.0

    @pytest.fixture
    async def account(self) -> Account:
        usual = defaults(self.cloud)
        settings = replace(usual, reads=replace(usual.reads, page=3))
        return open_account(VirtualClock(asyncio.get_running_loop()), SeededStreams(1), settings)

    @pytest.fixture
    def connect(self, account: Account) -> Callable[[], Provider]:
        return lambda: account.driver(ProfileName("test"))

    @pytest.fixture
    def faults(self, account: Account) -> CloudFaults:
        return CloudFaults(account)

    @pytest.fixture
    def truth(self, account: Account) -> CloudTruth:
        return CloudTruth(account)

    @pytest.fixture
    def prove(self, account: Account) -> Callable[[VmId, Challenge], Awaitable[str]]:
        async def ask(vm: VmId, challenge: Challenge) -> str:
            return account.proof_of(vm, challenge.audience)

        return ask

    @pytest.fixture
    def leftovers(self, account: Account) -> Callable[[], Iterable[object]]:
        return account.leftovers

    @pytest.fixture
    def now(self, account: Account) -> Callable[[], int]:
        return account.clock.now


class TestEc2(CloudContract):
    """EC2: the cloud's own ids, a client token, late reads."""

    cloud = Cloud.EC2


class TestGce(CloudContract):
    """GCE: names, operations, a fixed end of the cloud's own."""

    cloud = Cloud.GCE


class TestArm(CloudContract):
    """ARM: names, a NIC before the VM, creates that fail later."""

    cloud = Cloud.ARM
