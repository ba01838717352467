"""The Google Cloud driver passes the public suite of provider drivers against the fake, with its faults, over HTTP."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider import errors
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Challenge, Leftover, LeftoverKind, ProfileContext, Provider
from cloud_dispatch.testing.provider_contract import Faults, ProviderContract, Truth
from cloud_dispatch.testing.provider_contract_base import MakeRequest
from cloud_dispatch_gcp import plugin
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce import FakeGce
from tests.fakes.gce.identity import identity_token
from tests.fakes.gce.records import Instance
from tests.providers.gcp import scenes

CALLS = {
    "launch": ("instances.insert",), "list": ("instances.aggregatedList",), "get": ("instances.get",),
    "tag": ("instances.setLabels",), "terminate": ("instances.delete",), "resume": ("instances.list",),
    "console": ("instances.getSerialPortOutput",), "leftovers": ("disks.aggregatedList",), "quotas": ("regions.get",),
    "prices": ("skus.list",), "offerings": ("machineTypes.list",),
}  # fmt: skip
CODES: dict[type[ProviderError], str] = {
    errors.CapacityUnavailable: "503 ZONE_RESOURCE_POOL_EXHAUSTED",
    errors.QuotaExceeded: "quotaExceeded",
    errors.RateLimited: "rateLimitExceeded",
    errors.InvalidRequest: "invalid",
    errors.CredentialsRejected: "forbidden",
    errors.Transient: "resourceNotReady",
    errors.InDoubt: "backendError",
}
LATER: dict[type[ProviderError], str] = {
    errors.CapacityUnavailable: "ZONE_RESOURCE_POOL_EXHAUSTED",
    errors.QuotaExceeded: "QUOTA_EXCEEDED",
}
QUOTA = (scenes.REGION, "N2_CPUS")


class FakeFaults(Faults):
    """Sets faults in the fake, and the limits of its project."""

    def __init__(self, fake: FakeGce, quotas: dict[tuple[str, str], int]) -> None:
        self.fake = fake
        self.quotas = quotas

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
        for operation in CALLS[call]:
            more: dict[str, Any] = {"operation": operation, "times": times, "skip": after, "type": type_name}
            if commit:
                self.fake.add_faults(Fault(FaultKind.LOST_ANSWER, **more))
            else:
                self.fake.add_faults(Fault(FaultKind.ERROR, code=CODES[error], **more))

    def delay(self, call: str, delay_ms: int, *, times: int = 1) -> None:
        if call not in CALLS:
            self._lacks(f"delay {call}")
        for operation in CALLS[call]:
            self.fake.add_faults(Fault(FaultKind.SLOW, operation=operation, times=times, amount=delay_ms))

    def fail_later(self, error: type[ProviderError], *, times: int = 1) -> None:
        self.fake.add_faults(
            Fault(FaultKind.ASYNC_FAILURE, operation="instances.insert", times=times, code=LATER[error])
        )

    def calm(self) -> None:
        self.fake.clear_faults()

    def forget_operations(self) -> None:
        self.fake.forget_operations()

    def capacity(self, type_name: str, vms: int) -> None:
        self.fake.clear_faults()
        self.fake.add_faults(Fault(FaultKind.CAPACITY, type=type_name, amount=vms))

    def quota(self, vms: int) -> None:
        self.quotas[QUOTA] = 2 * vms

    def hide(self, vm: VmId, for_ms: int) -> None:
        self.fake.hide(vm.rpartition("/")[2], for_ms)

    def cut_short(self, *, times: int = 1) -> None:
        self.fake.add_faults(
            Fault(FaultKind.INCOMPLETE, operation="instances.aggregatedList", times=times, code="backendError")
        )

    def leave_behind(self, kind: LeftoverKind) -> None:
        if kind is LeftoverKind.NIC:
            pytest.skip("a VM's interface is a part of it")
        self.fake.add_faults(Fault(FaultKind.LEFTOVER, code=str(kind), times=1))

    def attach(self, leftover: Leftover, vm: VmId) -> None:
        project, (zone, _, holder) = self.fake.project(scenes.PROJECT), vm.rpartition("/")
        with self.fake.lock:
            for disk in project.disks.values():
                if f"{disk.zone}/{disk.name}" == leftover.id:
                    disk.user = holder
            for address in project.addresses.values():
                if f"{address.region}/{address.name}" == leftover.id:
                    address.user = f"zones/{zone}/instances/{holder}"

    def slow_operations(self, for_ms: int) -> None:
        self.fake.add_faults(Fault(FaultKind.LATE, amount=for_ms))

    def say(self, vm: VmId, text: str) -> None:
        self.fake.write_console(vm.rpartition("/")[2], text)

    def lock_out(self) -> None:
        self.fake.add_faults(Fault(FaultKind.ERROR, code=CODES[errors.CredentialsRejected]))

    def preempt(self, vm: VmId) -> None:
        self.fake.preempt(vm.rpartition("/")[2], notice_ms=0)


class FakeTruth(Truth):
    """What the fake knows."""

    def __init__(self, fake: FakeGce) -> None:
        self.fake = fake

    async def user_data(self, vm: VmId) -> bytes:
        """cloud-init takes the base64 off, of which the metadata tell."""
        return base64.b64decode(self._named(vm).metadata["user-data"])

    async def hard_end_ms(self, vm: VmId) -> int:
        found = self._named(vm)
        return found.created_ms + found.limit_ms if found.limit_ms else 0

    async def market(self, vm: VmId) -> Market:
        return Market(self._named(vm).market)

    async def requests(self) -> int:
        return sum(self.fake.calls.values())

    def _named(self, vm: VmId) -> Instance:
        return self.fake.instance(vm.rpartition("/")[2])


class TestGcpOnFake(ProviderContract):
    unknown_vm = VmId(f"{scenes.ZONE}/c99999999999-0")
    settle_s = 20.0
    poll_s = 0.02
    many = 7

    @pytest.fixture
    def faults(self, fake: FakeGce, quotas: dict[tuple[str, str], int]) -> FakeFaults:
        return FakeFaults(fake, quotas)

    @pytest.fixture
    def connect(self, fake: FakeGce, told: dict[str, Any], tmp_path: Path) -> Callable[[], Provider]:
        said = scenes.settings(
            **told, instance_types=["n2-standard-2", "n2-standard-4"], consistency="300ms", operation_poll="100ms",
            service_account=scenes.ACCOUNT, labels={"team": "batch"}, regions=["us-central1", "europe-west4"],
            name_prefix="lab--",
        )  # fmt: skip
        context = ProfileContext(ProfileName("gcp"), said, tmp_path, now=fake.clock.now)
        return lambda: plugin.create(context)

    @pytest.fixture
    def elsewhere(self, fake: FakeGce, told: dict[str, Any], tmp_path: Path) -> Callable[[], list[Provider]]:
        """Other regions of the project."""
        said = scenes.settings(**told, instance_types=["n2-standard-2"], consistency="300ms", regions=["us-east1"])
        return lambda: [plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=fake.clock.now))]

    @pytest.fixture
    def truth(self, fake: FakeGce) -> FakeTruth:
        return FakeTruth(fake)

    @pytest.fixture
    def leftovers(self, fake: FakeGce) -> Callable[[], Iterable[object]]:
        return lambda: [*fake.leftovers(), *(vm.name for vm in fake.all_instances())]

    @pytest.fixture
    def prove(self, fake: FakeGce) -> Callable[[VmId, Challenge], Awaitable[str]]:
        async def sign(vm: VmId, challenge: Challenge) -> str:
            found = fake.instance(vm.rpartition("/")[2])
            return identity_token(found, challenge.audience, fake.clock.now(), full=True)

        return sign

    async def test_both_markets_have_prices(self, provider: Provider) -> None:
        """The billing catalogue of the fake is read: no price is an estimate."""
        offered = await provider.offerings()
        assert {one.market for one in offered} == set(Market)
        assert {one.region for one in offered} == {"us-central1", "europe-west4"}
        assert all(one.rate and one.max_rate and not one.estimated for one in offered)

    async def test_a_launch_is_pending_until_google_has_made_it(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """All slots of a launch are one operation of ours, asked for together."""
        request = await make_request(slots=3)
        result = await provider.launch(request)
        (operation,) = result.pending
        assert (result.vms, result.shortfall, operation.instances) == ((), None, request.instances)

    async def test_a_vm_gets_the_document_packed(
        self, provider: Provider, fake: FakeGce, make_request: MakeRequest
    ) -> None:
        """As cloud-init unpacks it: base64, of which it is told, and gzip below, as metadata are text."""
        text = "#cloud-config\nruncmd: [echo]\n"
        (vm,) = await self.launched(provider, await make_request(user_data=text))
        told = fake.instance(vm.id.rpartition("/")[2]).metadata
        assert told["user-data-encoding"] == "base64"
        assert gzip.decompress(base64.b64decode(told["user-data"])).decode() == text
