"""Credentials that are missing, refused or replaced while the driver lives, and how often others are looked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore import exceptions as sdk
from botocore.credentials import Credentials
from botocore.exceptions import ConfigParseError

from cloud_dispatch.provider.errors import CredentialsRejected, ProviderError, Transient
from cloud_dispatch_aws import calls
from cloud_dispatch_aws.calls import LEAST_MS, Calls
from cloud_dispatch_aws.errors import Asked
from tests.fakes.aws.auth import Key
from tests.fakes.ec2 import FakeEc2
from tests.fakes.ec2.settings import ACCOUNT, KEY
from tests.fakes.faults import Fault, FaultKind
from tests.providers.aws import scenes
from tests.providers.aws.conftest import ROLE

SECOND = Key("AKIASECONDSECONDSECO", "second-secret", ACCOUNT, f"arn:aws:iam::{ACCOUNT}:user/second")


class Scene:
    """The calls of a profile whose credentials are those of the SDK's file, and a clock to be set."""

    def __init__(self, fake: FakeEc2, file: Path) -> None:
        self.fake, self.now_ms, self._file = fake, scenes.NOW_MS, file
        self.calls = self.made()

    def made(self, **more: Any) -> Calls:
        return Calls(scenes.settings(endpoint_url=self.fake.url, **more), "test", lambda: self.now_ms)

    def write(self, key: Key) -> None:
        self._file.write_text(
            f"[default]\naws_access_key_id = {key.id}\naws_secret_access_key = {key.secret}\n"
            + (f"aws_session_token = {key.token}\n" if key.token else "")
        )

    def allow(self, *keys: Key) -> None:
        """These, and no other any more."""
        with self.fake.lock:
            self.fake.keys.clear()
            self.fake.keys.update({key.id: key for key in keys})

    async def ask(self) -> None:
        await self.calls.once(Asked("DescribeInstances"), "describe_instances")

    async def refused(self, error: type[ProviderError] = CredentialsRejected) -> None:
        with pytest.raises(error):
            await self.ask()


@pytest.fixture
def scene(fake: FakeEc2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    made = Scene(fake, tmp_path / "credentials")
    yield made
    made.calls.close()


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that are made, in order."""
    found: list[Any] = []
    make: Callable[..., Any] = calls.session

    def counted(settings: Any) -> Any:
        found.append(make(settings))
        return found[-1]

    monkeypatch.setattr(calls, "session", counted)
    return found


async def test_credentials_that_come_late_are_found(scene: Scene) -> None:
    """The metadata service may not be up yet when the first call is made, or a file not be there."""
    await scene.refused()
    scene.write(KEY)
    scene.now_ms += LEAST_MS
    await scene.refused()
    await scene.ask()


async def test_a_key_that_was_replaced_is_read(scene: Scene) -> None:
    """The old one is revoked, and the new one in its file: it asks from then on, with no restart."""
    scene.write(KEY)
    await scene.ask()
    scene.allow(SECOND)
    scene.write(SECOND)
    scene.now_ms += LEAST_MS
    refused = await asyncio.gather(*(scene.ask() for _ in range(4)), return_exceptions=True)
    assert any(isinstance(one, CredentialsRejected) for one in refused)
    await scene.ask()


async def test_a_session_that_has_expired_is_replaced_by_that_in_its_file(scene: Scene) -> None:
    """EC2 words it as a request that came too late."""
    now_ms = scene.fake.clock.now()
    first = Key("ASIAFIRSTFIRSTFIRSTF", "a", ACCOUNT, KEY.arn, token="one", expires_ms=now_ms - 1)
    scene.allow(first, KEY)
    scene.write(first)
    await scene.refused(ProviderError)
    scene.write(KEY)
    scene.now_ms += LEAST_MS
    await scene.refused(ProviderError)
    await scene.ask()


async def test_a_role_without_credentials_to_assume_it_is_refused_until_there_are(scene: Scene) -> None:
    """And no launch is in doubt that was never sent."""
    scene.calls = scene.made(role_arn=ROLE, external_id="shared-secret")
    launch = Asked("RunInstances", changes=True, offering=scenes.offering())
    with pytest.raises(CredentialsRejected):
        await scene.calls.once(launch, "run_instances", MinCount=1, MaxCount=1)
    scene.write(KEY)
    scene.now_ms += LEAST_MS
    await scene.refused()
    await scene.ask()


async def test_a_launch_without_a_client_to_send_it_is_not_in_doubt(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's file is half written."""

    def torn(settings: Any) -> Any:
        raise ConfigParseError(path="credentials")

    monkeypatch.setattr(calls, "session", torn)
    launch = Asked("RunInstances", changes=True, offering=scenes.offering())
    with pytest.raises(CredentialsRejected):
        await scene.calls.once(launch, "run_instances", MinCount=1, MaxCount=1)


@pytest.mark.parametrize(
    "fault",
    [Fault(FaultKind.ERROR, operation="AssumeRole", code="ServiceUnavailable"),
     Fault(FaultKind.ERROR, operation="AssumeRole", code="InternalFailure"),
     Fault(FaultKind.LOST_ANSWER, operation="AssumeRole")],
    ids=["unavailable", "failed", "no answer"],
)  # fmt: skip
async def test_a_launch_whose_role_was_not_to_be_had_is_not_in_doubt(scene: Scene, fault: Fault) -> None:
    """Before a request leaves its credentials are renewed, by other requests. What becomes of these is not its fate."""
    scene.write(KEY)
    scene.calls = scene.made(role_arn=ROLE, external_id="shared-secret")
    scene.fake.add_faults(fault)
    launch = Asked("RunInstances", changes=True, offering=scenes.offering())
    with pytest.raises(Transient):
        await scene.calls.once(launch, "run_instances", MinCount=1, MaxCount=1)
    assert scene.fake.calls["RunInstances"] == 0


@pytest.mark.parametrize(
    "error",
    [sdk.LoginRefreshRequired(), sdk.RefreshWithMFAUnsupportedError(), RuntimeError("refreshed, and still expired")],
    ids=lambda error: type(error).__name__,
)
async def test_credentials_that_can_not_be_renewed_are_refused(
    scene: Scene, sessions: list[Any], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whatever they are: a login that has ended, a code that nobody is there to type. Others are looked for."""
    scene.write(KEY)
    await scene.ask()

    def worn(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Credentials, "get_frozen_credentials", worn)
        scene.now_ms += LEAST_MS
        launch = Asked("RunInstances", changes=True, offering=scenes.offering())
        with pytest.raises(CredentialsRejected):
            await scene.calls.once(launch, "run_instances", MinCount=1, MaxCount=1)
    await scene.ask()
    assert len(sessions) == 2


async def test_an_error_of_any_kind_after_a_launch_has_left_refuses_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has the same class for what else goes wrong, and the VMs may be there by then."""
    scene.write(KEY)
    await scene.ask()

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("dictionary changed size during iteration")

    launch = Asked("RunInstances", changes=True, offering=scenes.offering())
    with monkeypatch.context() as patched:
        patched.setattr("botocore.endpoint.convert_to_response_dict", broken)
        with pytest.raises(RuntimeError):
            await scene.calls.once(
                launch, "run_instances", MinCount=1, MaxCount=1, ImageId="ami-1", InstanceType="m5.large"
            )
    assert scene.fake.calls["RunInstances"] == 1


async def test_others_are_looked_for_only_so_often(scene: Scene, sessions: list[Any]) -> None:
    """While all is refused not each call makes a session; nor does a clock that was set back stop them for good."""
    for _ in range(3):
        await scene.refused()
    assert len(sessions) == 1
    for count, step_ms in ((2, LEAST_MS), (3, LEAST_MS), (4, -3_600_000)):
        scene.now_ms += step_ms
        for _ in range(3):
            await scene.refused()
        assert len(sessions) == count


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "OptInRequired"])
async def test_a_lack_of_rights_is_none_of_credentials(scene: Scene, sessions: list[Any], code: str) -> None:
    """One VM that is gone must not cost the others their connections."""
    scene.write(KEY)
    scene.fake.add_faults(Fault(FaultKind.ERROR, operation="DescribeInstances", times=2, code=code))
    for _ in range(2):
        scene.now_ms += LEAST_MS
        await scene.refused()
    await scene.ask()
    assert len(sessions) == 1
