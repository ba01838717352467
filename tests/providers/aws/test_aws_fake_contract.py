"""The AWS driver passes the public suite of provider drivers against the fake EC2, with its faults, over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import BatchId, ProfileName, VmId
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.provider import errors
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Challenge, LaunchRequest, Leftover, LeftoverKind, ProfileContext, Provider
from cloud_dispatch.testing.provider_contract import Faults, ProviderContract, Truth
from cloud_dispatch.testing.provider_contract_base import DEPLOYMENT, ContractBase, MakeRequest
from cloud_dispatch.testing.provider_contract_ending import EndingContract
from cloud_dispatch.testing.provider_contract_hard_ends import HardEndContract
from cloud_dispatch_aws import plugin
from cloud_dispatch_aws.policy import document
from tests.fakes.ec2 import FakeEc2
from tests.fakes.ec2.reaper import AccountReaper
from tests.fakes.ec2.settings import IMAGES, ImageDisk
from tests.fakes.faults import Fault, FaultKind
from tests.providers.aws import scenes

CALLS = {
    "launch": "RunInstances", "list": "DescribeInstances", "get": "DescribeInstances", "tag": "CreateTags",
    "terminate": "TerminateInstances", "extend": "CreateTags", "console": "GetConsoleOutput",
    "leftovers": "DescribeVolumes", "quotas": "DescribeInstances", "prices": "GetProducts",
    "offerings": "DescribeInstanceTypes",
}  # fmt: skip
CODES: dict[type[ProviderError], str] = {
    errors.CapacityUnavailable: "InsufficientInstanceCapacity",
    errors.QuotaExceeded: "VcpuLimitExceeded",
    errors.RateLimited: "RequestLimitExceeded",
    errors.InvalidRequest: "InvalidParameterValue",
    errors.CredentialsRejected: "UnauthorizedOperation",
    errors.Transient: "RequestExpired",
    errors.InDoubt: "InternalError",
}
KEPT = {LeftoverKind.DISK: "volume", LeftoverKind.NIC: "network-interface"}


class FakeFaults(Faults):
    """Sets faults in the fake, and the limits of its account."""

    def __init__(self, fake: FakeEc2, quotas: dict[str, int]) -> None:
        self.fake = fake
        self.quotas = quotas
        self.born_ms = fake.clock.now()

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
        more: dict[str, Any] = {"operation": CALLS[call], "times": times, "skip": after, "type": type_name}
        if commit:
            self.fake.add_faults(Fault(FaultKind.LOST_ANSWER, **more))
        else:
            self.fake.add_faults(Fault(FaultKind.ERROR, code=CODES[error], **more))

    def delay(self, call: str, delay_ms: int, *, times: int = 1) -> None:
        if call not in CALLS:
            self._lacks(f"delay {call}")
        self.fake.add_faults(Fault(FaultKind.SLOW, operation=CALLS[call], times=times, amount=delay_ms))

    def calm(self) -> None:
        self.fake.clear_faults()

    def capacity(self, type_name: str, vms: int) -> None:
        self.fake.clear_faults()
        self.fake.add_faults(Fault(FaultKind.CAPACITY, type=type_name, amount=vms))

    def quota(self, vms: int) -> None:
        self.quotas[scenes.STANDARD] = 2 * vms

    def hide(self, vm: VmId, for_ms: int) -> None:
        past_ms = self.fake.clock.now() - self.born_ms
        self.fake.add_faults(
            Fault(FaultKind.STALE, operation="DescribeInstances", amount=for_ms, until_ms=past_ms + for_ms)
        )

    def cut_short(self, *, times: int = 1) -> None:
        self.fake.add_faults(
            Fault(FaultKind.INCOMPLETE, operation="DescribeInstances", times=times, code="InternalError")
        )

    def leave_behind(self, kind: LeftoverKind) -> None:
        if kind is LeftoverKind.ADDRESS:
            pytest.skip("the driver's VMs have no addresses of their own")
        self.fake.add_faults(Fault(FaultKind.LEFTOVER, code=KEPT[kind], times=1))

    def attach(self, leftover: Leftover, vm: VmId) -> None:
        with self.fake.lock:
            for region in self.fake.regions_in_use():
                for part in (*region.volumes.values(), *region.interfaces.values()):
                    if part.id == leftover.id:
                        part.instance = vm

    def say(self, vm: VmId, text: str) -> None:
        self.fake.write_console(vm, text)

    def lock_out(self) -> None:
        self.fake.add_faults(Fault(FaultKind.ERROR, code=CODES[errors.CredentialsRejected]))

    def preempt(self, vm: VmId) -> None:
        self.fake.interrupt(vm, notice_ms=0)


class FakeTruth(Truth):
    """What the fake knows. Hard ends are tags, which the reaper reads."""

    def __init__(self, fake: FakeEc2) -> None:
        self.fake = fake

    async def user_data(self, vm: VmId) -> bytes:
        return self.fake.instance(vm).user_data

    async def hard_end_ms(self, vm: VmId) -> int:
        return int(self.fake.instance(vm).tags.true.items[ENDS_AT])

    async def market(self, vm: VmId) -> Market:
        return Market(self.fake.instance(vm).market)

    async def requests(self) -> int:
        return sum(self.fake.calls.values())


class OnFake(ContractBase):
    """The driver, and what the suite has to know of the fake."""

    unknown_vm = VmId("i-0fedcba9876543210")
    settle_s = 20.0
    poll_s = 0.02
    many = 7

    @pytest.fixture(autouse=True)
    def rights(self, fake: FakeEc2) -> None:
        """What the policy gives by tags: what is gone has none, and is refused rather than not found. The suite acts
        for two deployments, hence for any."""
        for one in document(scenes.settings(), "*")["Statement"]:
            for key, value in one.get("Condition", {}).get("StringEquals", {}).items():
                what, _, tag = key.partition("/")
                if what == "aws:ResourceTag":
                    fake.scoped.update(dict.fromkeys(one["Action"], (tag, value)))
        assert {"ec2:TerminateInstances", "ec2:CreateTags"} < fake.scoped.keys()

    @pytest.fixture
    def faults(self, fake: FakeEc2, quotas: dict[str, int]) -> FakeFaults:
        return FakeFaults(fake, quotas)

    @pytest.fixture
    def connect(self, fake: FakeEc2, tmp_path: Path) -> Callable[[], Provider]:
        said = scenes.settings(
            endpoint_url=fake.url, instance_types=["m5.large", "m6i.large"], consistency="300ms",
            identity_certificate=scenes.certificate(), tags={"team": "batch"},
        )  # fmt: skip
        context = ProfileContext(ProfileName("aws"), said, tmp_path, now=fake.clock.now)
        return lambda: plugin.create(context)

    @pytest.fixture
    def elsewhere(self, fake: FakeEc2, tmp_path: Path) -> Callable[[], list[Provider]]:
        """Another region."""
        said = scenes.settings(endpoint_url=fake.url, instance_types=["m5.large"], region="eu-west-1")
        return lambda: [plugin.create(ProfileContext(ProfileName("aws"), said, tmp_path, now=fake.clock.now))]

    @pytest.fixture
    def truth(self, fake: FakeEc2) -> FakeTruth:
        return FakeTruth(fake)

    @pytest.fixture
    def leftovers(self, fake: FakeEc2) -> Callable[[], Iterable[object]]:
        return lambda: [*fake.leftovers(), *(vm.id for vm in fake.all_instances() if vm.state.value != "terminated")]

    @pytest.fixture
    def prove(self, provider: Provider) -> Callable[[VmId, Challenge], Awaitable[str]]:
        async def sign(vm: VmId, challenge: Challenge) -> str:
            started = datetime.fromtimestamp((await provider.get(vm)).created_ms // 1000, UTC)
            return scenes.proof(scenes.document(vm, started.strftime("%Y-%m-%dT%H:%M:%SZ")))

        return sign


class TestAwsOnFake(OnFake, ProviderContract):
    tells_quotas_of_parts = False  # EC2 makes as many as the quota has room for

    async def test_both_markets_have_prices(self, provider: Provider) -> None:
        """The price list and the spot history of the fake are read: no price is an estimate."""
        offered = await provider.offerings()
        assert {one.market for one in offered} == set(Market)
        assert all(one.rate and one.max_rate and not one.estimated for one in offered)

    async def test_a_vm_gets_the_document_itself(
        self, provider: Provider, fake: FakeEc2, make_request: Callable[..., Awaitable[LaunchRequest]]
    ) -> None:
        """As cloud-init reads it: unpacked once, it is what was to boot."""
        (vm,) = await self.launched(provider, await make_request(user_data="#cloud-config\nruncmd: [echo]\n"))
        assert gzip.decompress(fake.instance(vm.id).user_data) == b"#cloud-config\nruncmd: [echo]\n"


async def test_a_burstable_machine_bills_no_credits_beside_its_price(fake: FakeEc2, tmp_path: Path) -> None:
    """By EC2's own description of it: T3 would go on without credits, and a limit would not know what that costs."""
    said = scenes.settings(endpoint_url=fake.url, instance_types=["t3.micro", "m5.large"])
    driver = plugin.create(ProfileContext(ProfileName("aws"), said, tmp_path, now=fake.clock.now))
    try:
        offered = {one.type.name: one for one in await driver.offerings() if one.market is Market.ON_DEMAND}
        for name, offering in offered.items():
            await driver.launch(replace(scenes.request(), batch=BatchId(name), offering=offering, slots=1))
    finally:
        await driver.close()
    assert {vm.type_name: vm.credits for vm in fake.all_instances()} == {"t3.micro": "standard", "m5.large": ""}


async def test_disks_that_an_image_brings_are_encrypted_and_go_with_the_vm(fake: FakeEc2, tmp_path: Path) -> None:
    """Whatever the image says of them: EC2 keeps a disk of it that does not say that it goes."""
    image = replace(IMAGES[0], id="ami-0a1b2c3d4e5f60009", disks=(ImageDisk("/dev/sdf", 500),))
    fake.region().images[image.id] = image
    said = scenes.settings(endpoint_url=fake.url, images={"x86_64": image.id}, scratch=["10GiB"])
    driver = plugin.create(ProfileContext(ProfileName("aws"), said, tmp_path, now=fake.clock.now))
    try:
        (vm,) = (await driver.launch(replace(scenes.request(), slots=1))).vms
        disks = fake.region().volumes.values()
        assert {one.device: one.size_gb for one in disks} == {"/dev/xvda": 30, "/dev/sdf": 500, "/dev/sdg": 10}
        assert all(one.encrypted and one.dies_with_instance for one in disks)
        await driver.terminate(vm.id)
    finally:
        await driver.close()


PERIOD_MS, STOP_LAG_MS = 200, 1_000


class TestAwsWithReaper(OnFake, EndingContract, HardEndContract):
    """With `reaper = true`, and a function in the account that does what it says: ends come, and can be moved."""

    lives_ms = 3_000

    @pytest.fixture(autouse=True)
    def reaper(self, fake: FakeEc2) -> Iterator[AccountReaper]:
        with AccountReaper(fake, PERIOD_MS, deployment=DEPLOYMENT) as reaper:
            yield reaper
        assert reaper.errors == []

    @pytest.fixture
    def now(self, fake: FakeEc2) -> Callable[[], int]:
        return fake.clock.now

    @pytest.fixture
    def connect(self, fake: FakeEc2, tmp_path: Path) -> Callable[[], Provider]:
        """As it is, but for the lag: EC2 is given two minutes to end a VM, and the fake needs a moment."""
        said = scenes.settings(
            endpoint_url=fake.url, instance_types=["m5.large"], consistency="300ms",
            identity_certificate=scenes.certificate(), reaper=True, reaper_period=f"{PERIOD_MS}ms",
        )  # fmt: skip

        def make() -> Provider:
            driver = plugin.create(ProfileContext(ProfileName("aws"), said, tmp_path, now=fake.clock.now))
            driver.traits = replace(driver.traits, stop_lag_ms=STOP_LAG_MS)
            return driver

        return make

    async def test_nobody_else_ends_them(
        self, provider: Provider, reaper: AccountReaper, now: Callable[[], int], make_request: MakeRequest
    ) -> None:
        """What the suite sees end is the reaper's doing: the driver and the fake keep no end."""
        (vm,) = await self.launched(provider, await make_request(ends_ms=now() + 500))
        await self.until(lambda: self._ended(provider, vm.id), bool)
        await self.until(reaper.has_ended, {vm.id}.__eq__)  # it is told of it later than whoever lists
