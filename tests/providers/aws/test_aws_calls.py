"""How calls are sent: how often, with whose credentials, to where; and from a process of their own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import CapacityUnavailable, CredentialsRejected, Transient
from cloud_dispatch.provider.process_host import ProcessHost
from cloud_dispatch.provider.spi import ProfileContext, Provider
from cloud_dispatch_aws import plugin
from cloud_dispatch_aws.calls import Calls
from cloud_dispatch_aws.errors import Asked
from tests.fakes.ec2 import FakeEc2
from tests.fakes.ec2.settings import IMAGES
from tests.fakes.faults import Fault, FaultKind
from tests.providers.aws import scenes
from tests.providers.aws.conftest import ROLE
from tests.providers.giving_up import Slow, given_up

IDENTITY = (Asked("GetCallerIdentity"), "sts", "get_caller_identity")


def context(fake: FakeEc2, folder: Path, **more: Any) -> ProfileContext:
    said = scenes.settings(
        endpoint_url=fake.url, instance_types=["m5.large"], images={"x86_64": IMAGES[0].id}, consistency="0s", **more
    )
    return ProfileContext(ProfileName("aws"), said, folder, now=lambda: time.time_ns() // 1_000_000)


@pytest.fixture
def connect(fake: FakeEc2, tmp_path: Path) -> Callable[..., Provider]:
    return lambda **more: plugin.create(context(fake, tmp_path, **more))


async def whoami(fake: FakeEc2, **more: Any) -> str:
    calls = Calls(scenes.settings(endpoint_url=fake.url, **more), "test", lambda: scenes.NOW_MS)
    try:
        return str((await calls.patiently(*IDENTITY))["Arn"])
    finally:
        calls.close()


async def test_a_launch_is_sent_once_whatever_is_answered(fake: FakeEc2, connect: Callable[..., Provider]) -> None:
    """boto3 would send it again: a lack of capacity is a 500 to it."""
    driver = connect()
    for code in ("InsufficientInstanceCapacity", "RequestLimitExceeded", "InternalError"):
        fake.add_faults(Fault(FaultKind.ERROR, operation="RunInstances", times=1, code=code))
        before = fake.calls["RunInstances"]
        with pytest.raises(Exception, match=code):
            await driver.launch(scenes.request())
        assert fake.calls["RunInstances"] == before + 1
    await driver.close()


async def test_a_launch_that_was_given_up_while_credentials_were_renewed_is_never_sent(fake: FakeEc2) -> None:
    """Its slots may have been given back by then: proof of absence begins with the end of the call."""
    calls, slow = Calls(scenes.settings(endpoint_url=fake.url), "test", lambda: scenes.NOW_MS), Slow()
    calls._signed_by().client("ec2", False).meta.events.register("before-sign", slow)
    launch = Asked("RunInstances", changes=True, offering=scenes.offering())
    image = IMAGES[0].id
    run = calls.once(launch, "run_instances", ImageId=image, InstanceType="m5.large", MinCount=1, MaxCount=1)
    await given_up(run, slow, calls._threads)
    assert fake.calls["RunInstances"] == 0
    calls.close()


async def test_a_slow_read_is_sent_up_to_three_times(fake: FakeEc2, connect: Callable[..., Provider]) -> None:
    driver = connect()
    fake.add_faults(Fault(FaultKind.ERROR, operation="DescribeInstanceTypes", times=2, code="InternalError"))
    assert await driver.offerings()
    assert fake.calls["DescribeInstanceTypes"] == 3
    fake.add_faults(Fault(FaultKind.ERROR, operation="DescribeVolumes", code="InternalError"))
    with pytest.raises(Transient):
        await driver.leftovers("contract")
    assert fake.calls["DescribeVolumes"] == 3
    await driver.close()


async def test_what_does_not_change_is_not_asked_again(fake: FakeEc2, connect: Callable[..., Provider]) -> None:
    """Types, zones, prices and images are kept; a launch is one call."""
    driver = connect()
    first = await driver.offerings()
    before = dict(fake.calls)
    assert await driver.offerings() == first
    assert dict(fake.calls) == before
    offering = next(one for one in first if one.zone == scenes.ZONE and one.market is Market.SPOT)
    await driver.launch(scenes.request(offering=offering))
    assert {name: count - before.get(name, 0) for name, count in fake.calls.items() if count != before.get(name)} == {
        "RunInstances": 1
    }
    await driver.close()


async def test_nobody_at_the_other_end_is_transient_even_for_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection, no request: nothing was made."""
    for name, value in scenes.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
        calls = Calls(scenes.settings(endpoint_url=nowhere), "test", lambda: scenes.NOW_MS)
        launch = Asked("RunInstances", changes=True, offering=scenes.offering())
        with pytest.raises(Transient):
            await calls.once(launch, "run_instances", MinCount=1, MaxCount=1)
        calls.close()


async def test_a_role_is_assumed_with_its_external_id(fake: FakeEc2) -> None:
    """The calls are made as the role, in its account; another external id is refused."""
    assert ":user/" in await whoami(fake)
    assumed = await whoami(fake, role_arn=ROLE, external_id="shared-secret")
    assert assumed == "arn:aws:sts::210987654321:assumed-role/dispatcher/cloud-dispatch"
    with pytest.raises(CredentialsRejected):
        await whoami(fake, role_arn=ROLE, external_id="another")


async def test_a_role_is_assumed_with_a_web_identity(
    fake: FakeEc2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other credentials are needed; a token that has expired is refused."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    token = tmp_path / "token"
    token.write_text("good")
    assert ":assumed-role/" in await whoami(fake, role_arn=ROLE, web_identity_token_file=str(token))
    token.write_text("expired")
    with pytest.raises(CredentialsRejected):
        await whoami(fake, role_arn=ROLE, web_identity_token_file=str(token))


async def test_a_named_profile_is_read_from_the_files_of_the_sdk(
    fake: FakeEc2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several accounts are several profiles; one that is not there is refused."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    key = next(iter(fake.keys.values()))
    (tmp_path / "config").write_text("")
    (tmp_path / "credentials").write_text(
        f"[batch]\naws_access_key_id = {key.id}\naws_secret_access_key = {key.secret}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert ":user/" in await whoami(fake, named_profile="batch")
    for more in ({"named_profile": "none"}, {}):
        with pytest.raises(CredentialsRejected):
            await whoami(fake, **more)


async def test_a_listing_of_several_pages_is_whole(
    fake: FakeEc2, connect: Callable[..., Provider], quotas: dict[str, int]
) -> None:
    """More VMs than a page has, each once; with a page missing it is no listing."""
    quotas[scenes.STANDARD] = 10_000
    driver = connect()
    made = set()
    for number in range(13):
        result = await driver.launch(scenes.request(slots=80, batch=f"b{number}"))
        made |= {vm.id for vm in result.vms}
    listing = await driver.list("contract")
    assert listing.complete
    assert {vm.id for vm in listing.vms} == made
    assert (len(made), fake.calls["DescribeInstances"]) == (1040, 2)
    fake.add_faults(Fault(FaultKind.INCOMPLETE, operation="DescribeInstances", amount=1, times=1))
    with pytest.raises(Transient):
        await driver.list("contract")
    await driver.close()


@pytest.mark.process
async def test_the_driver_works_from_a_process_of_its_own(fake: FakeEc2, tmp_path: Path) -> None:
    """Settings, offerings, VMs, tags and errors travel."""
    host = ProcessHost("cloud_dispatch_aws:plugin", context(fake, tmp_path))
    try:
        offering = next(one for one in await host.offerings() if one.zone == scenes.ZONE)
        result = await host.launch(scenes.request(slots=1, offering=offering))
        assert [vm.id for vm in (await host.list("contract")).vms] == [vm.id for vm in result.vms]
        fake.add_faults(Fault(FaultKind.CAPACITY, amount=0))
        with pytest.raises(CapacityUnavailable) as caught:
            await host.launch(scenes.request(batch="b2", offering=offering))
        assert caught.value.scope.covers(offering)
        await host.terminate(result.vms[0].id)
    finally:
        await host.close()
