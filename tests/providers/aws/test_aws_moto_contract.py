"""The AWS driver passes the public suite of provider drivers against moto, through real boto3 over HTTP. What is
skipped or done otherwise there stands in `moto_differences`, and nowhere else; each entry is asked of moto here."""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import Challenge, ProfileContext, Provider
from cloud_dispatch.testing.provider_contract import ProviderContract, Truth
from cloud_dispatch_aws import plugin
from cloud_dispatch_aws.settings import AwsSettings
from tests.fakes.clock import SetClock
from tests.fakes.ec2 import FakeEc2, Settings, catalogue
from tests.providers.aws import moto_differences, moto_server, scenes
from tests.providers.aws.moto_differences import DIFFERENCES, TYPE, Difference

pytestmark = pytest.mark.process
each_difference = pytest.mark.parametrize("one", DIFFERENCES, ids=lambda one: one.name.replace(" ", "-"))


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server.serving() as url:
        yield url


class AsMotoWants(Wrapper):
    """Launches are asked for as the list says."""

    async def call(self, name: Call, *args: Any) -> Any:
        if name is Call.LAUNCH:
            args = (moto_differences.launch(args[0]),)
        return await self.pass_on(name, *args)


class MotoTruth(Truth):
    """What moto tells whoever asks it."""

    def __init__(self, ec2: Any) -> None:
        self.ec2 = ec2

    async def user_data(self, vm: VmId) -> bytes:
        told = self.ec2.describe_instance_attribute(InstanceId=vm, Attribute="userData")
        return base64.b64decode(told["UserData"]["Value"])

    async def market(self, vm: VmId) -> Market:
        (found,) = self.ec2.describe_instances(InstanceIds=[vm])["Reservations"][0]["Instances"]
        return Market.SPOT if found.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND


class TestAwsOnMoto(ProviderContract):
    unknown_vm = VmId("i-0fedcba9876543210")
    settle_s = 20.0
    poll_s = 0.02

    @pytest.fixture(autouse=True)
    def _as_ec2_does(self, request: pytest.FixtureRequest, moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
        why = moto_differences.skipped(request.function.__name__, request.fixturenames)
        if why:
            pytest.skip(f"moto: {why}")
        for name, value in scenes.CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        moto_server.reset(moto)

    @pytest.fixture
    def connect(self, moto: str, tmp_path: Path) -> Callable[[], Provider]:
        said = scenes.settings(
            endpoint_url=moto, instance_types=["m5.large", "m5.xlarge", "c5.large"],
            identity_certificate=scenes.certificate(), tags={"team": "batch"}, **moto_differences.settings(),
        )  # fmt: skip
        context = ProfileContext(ProfileName("aws"), said, tmp_path, now=lambda: time.time_ns() // 1_000_000)
        return lambda: AsMotoWants(plugin.create(context))

    @pytest.fixture
    def truth(self, moto: str) -> MotoTruth:
        keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "example"}
        return MotoTruth(boto3.client("ec2", region_name=scenes.REGION, endpoint_url=moto, **keys))

    @pytest.fixture
    def prove(self, provider: Provider) -> Callable[[VmId, Challenge], Awaitable[str]]:
        async def sign(vm: VmId, challenge: Challenge) -> str:
            started = datetime.fromtimestamp((await provider.get(vm)).created_ms // 1000, UTC)
            return scenes.proof(scenes.document(vm, started.strftime("%Y-%m-%dT%H:%M:%SZ")))

        return sign


@each_difference
def test_the_difference_is_still_there(one: Difference, moto: str) -> None:
    """Where moto has mended it, what the entry changes has to go."""
    moto_server.reset(moto)
    config = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "example"}

    def client(service: str) -> Any:
        return boto3.client(service, region_name=scenes.REGION, endpoint_url=moto, config=config, **keys)

    assert one.still(client), f"moto no longer differs: {one.moto}"


@each_difference
def test_an_emulator_without_the_difference_is_seen_to_have_none(one: Difference) -> None:
    """Asked of our own fake: the question tells the two apart, so that an entry that was mended would fail."""
    quotas = dict.fromkeys((code for codes in catalogue.QUOTAS.values() for code in codes), 640)
    settings = Settings(types=(TYPE, "p4d.24xlarge"), quotas=quotas, appears_ms=1_000)
    with FakeEc2(settings, SetClock()) as fake:
        assert not one.still(fake.client)


@each_difference
def test_what_an_entry_changes_is_there_to_be_changed(one: Difference) -> None:
    """A test of the suite that has another name now would be skipped no more, or for nothing."""
    assert all(hasattr(ProviderContract, name) for name in (*one.skips, *one.skips_using))
    assert set(one.settings) <= set(AwsSettings.model_fields)
    assert one.skips or one.skips_using or one.settings or one.launch
