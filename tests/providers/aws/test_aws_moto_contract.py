"""The AWS driver passes the public suite of provider drivers against moto, through real boto3 over HTTP."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import Challenge, ProfileContext, Provider
from cloud_dispatch.testing.provider_contract import ProviderContract
from cloud_dispatch_aws import plugin
from tests.providers.aws import moto_server, scenes

pytestmark = pytest.mark.process

#: What moto does otherwise than EC2. Nothing else may be skipped; the fake of our own has all of this.
KNOWN = {
    "test_a_repeated_launch_makes_nothing_new": "client tokens are echoed, not honoured",
    "test_a_repeat_that_asks_for_something_else_makes_nothing_new": "client tokens are echoed, not honoured",
    "test_launches_of_one_batch_at_once_make_it_once": "client tokens are echoed, not honoured",
}


#: What moto has of public parameters.
IMAGES = {"x86_64": "ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server.serving() as url:
        yield url


class MostAtOnce(Wrapper):
    """moto makes as many instances as the least that is asked for, where EC2 makes as many of the most as it can."""

    async def call(self, name: Call, *args: Any) -> Any:
        if name is Call.LAUNCH and args[0].min_slots == 1:
            args = (replace(args[0], min_slots=max(args[0].slots, 1)),)
        return await self.pass_on(name, *args)


class TestAwsOnMoto(ProviderContract):
    settle_s = 20.0
    poll_s = 0.02

    @pytest.fixture(autouse=True)
    def _as_ec2_does(self, request: pytest.FixtureRequest, moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
        why = KNOWN.get(request.function.__name__)
        if why is None and "faults" in request.fixturenames:
            why = "it does not misbehave on request; the fake of our own does"
        if why:
            pytest.skip(f"moto: {why}")
        for name, value in scenes.CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        moto_server.reset(moto)

    @pytest.fixture
    def connect(self, moto: str, tmp_path: Path) -> Callable[[], Provider]:
        said = scenes.settings(
            endpoint_url=moto, instance_types=["m5.large", "m5.xlarge", "c5.large"], consistency="0s",
            price_list=False, images=IMAGES, identity_certificate=scenes.certificate(), tags={"team": "batch"},
        )  # fmt: skip
        context = ProfileContext(ProfileName("aws"), said, tmp_path, now=lambda: time.time_ns() // 1_000_000)
        return lambda: MostAtOnce(plugin.create(context))

    @pytest.fixture
    def prove(self, provider: Provider) -> Callable[[VmId, Challenge], Awaitable[str]]:
        async def sign(vm: VmId, challenge: Challenge) -> str:
            started = datetime.fromtimestamp((await provider.get(vm)).created_ms // 1000, UTC)
            return scenes.proof(scenes.document(vm, started.strftime("%Y-%m-%dT%H:%M:%SZ")))

        return sign
