"""Whether the reaper of an account is alive, by the sign that the shipped one leaves."""

from __future__ import annotations

import boto3
import pytest

from cloud_dispatch.domain.sign import written
from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch.provider.hand import UNHEARD
from cloud_dispatch.provider.spi import Level
from cloud_dispatch.reapers import aws
from cloud_dispatch_aws import plugin, policy
from tests.fakes.ec2 import FakeEc2
from tests.fakes.ec2.settings import REGION
from tests.providers.aws import scenes
from tests.providers.aws.test_aws_preflight import context, look

MINUTE_MS = 60_000
SIGN = "/cloud-dispatch-lab/reaper"


@pytest.fixture(autouse=True)
def function(monkeypatch: pytest.MonkeyPatch, fake: FakeEc2) -> None:
    """What Lambda and Terraform tell the reaper."""
    monkeypatch.setenv("SIGN", SIGN)
    monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


def leave(fake: FakeEc2, deployment: str = "contract", place: str = REGION, ago_ms: int = 0) -> None:
    """What the function does after a round that began so long ago."""
    left = aws._leaves([REGION])
    assert left is not None
    left(written(deployment, fake.clock.now() - ago_ms, [place]))


async def test_a_reaper_that_is_alive_is_heard(fake: FakeEc2) -> None:
    leave(fake, ago_ms=MINUTE_MS)
    driver = plugin.create(context(fake, reaper_sign=SIGN))
    assert driver.traits.hand_period_ms == MINUTE_MS
    assert 0 < fake.clock.now() - (await driver.heard("contract")).last_ms < 2 * MINUTE_MS
    await driver.close()
    ((level, text),) = (await look(fake, reaper_sign=SIGN))["reaper"]
    assert (level, "it is alive" in text) == (Level.OK, True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ago_ms": 14 * MINUTE_MS}, "14m ago, 13m is the most"),
        ({"ago_ms": -3 * MINUTE_MS}, "one of the two is wrong"),
        ({"deployment": "other"}, "of the deployment 'other'"),
        ({"place": "eu-west-1"}, f"it looks at eu-west-1, and not at {REGION}"),
    ],
)
async def test_one_that_is_silent_or_anothers_is_an_error(fake: FakeEc2, wrong: dict[str, object], words: str) -> None:
    leave(fake, **wrong)  # type: ignore[arg-type]
    ((level, text),) = (await look(fake, reaper_sign=SIGN))["reaper"]
    assert (level, words in text) == (Level.ERROR, True), text


@pytest.mark.parametrize("value", [None, "none"], ids=["no parameter", "no sign"])
async def test_one_that_was_never_there_is_an_error(fake: FakeEc2, value: str | None) -> None:
    """Nothing was deployed; or Terraform was applied, and the function never came to the end of a round."""
    if value is not None:
        fake.region().parameters[SIGN] = value
    ((level, text),) = (await look(fake, reaper_sign=SIGN))["reaper"]
    assert (level, "no sign of life" in text) == (Level.ERROR, True), text


async def test_a_reaper_that_nobody_looks_for_is_told_as_that(fake: FakeEc2) -> None:
    """`reaper = true` alone says that one is there, and nobody checks it."""
    assert (await look(fake))["reaper"] == [(Level.WARNING, UNHEARD)]
    assert [one for one in plugin.notes(scenes.settings(reaper=True)) if one.startswith("reaper")]
    assert not [one for one in plugin.notes(scenes.settings(reaper=True, reaper_sign=SIGN)) if "reaper" in one]


async def test_a_sign_that_may_not_be_read_is_an_error_and_its_right_is_printed(fake: FakeEc2) -> None:
    leave(fake)
    said = scenes.settings(reaper=True, reaper_sign=SIGN)
    (right,) = (one for one in policy.document(said, "lab")["Statement"] if one["Sid"] == "HearTheReaper")
    assert right["Resource"] == [f"arn:aws:ssm:{said.region}:*:parameter{SIGN}"]
    (action,) = right["Action"]
    fake.denied.add(action)
    driver = plugin.create(context(fake, reaper_sign=SIGN))
    with pytest.raises(CredentialsRejected, match="GetParameter"):
        await driver.heard("contract")
    await driver.close()
    ((level, text),) = (await look(fake, reaper_sign=SIGN))["reaper"]
    assert (level, "GetParameter" in text) == (Level.ERROR, True)
