"""Whether the reaper of a subscription is alive, by the sign that the shipped one leaves."""

from __future__ import annotations

import ssl
import time

import pytest

from cloud_dispatch.domain.sign import KEY, written
from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch.provider.hand import UNHEARD
from cloud_dispatch.provider.spi import Level
from cloud_dispatch.reapers import azure
from cloud_dispatch_azure import policy
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.reaper import own_identity
from tests.fakes.arm.settings import GROUP
from tests.providers.azure import scenes
from tests.providers.azure.steps import Connect

MINUTE_MS = 60_000


def leave(fake: FakeArm, resource: str, deployment: str = "contract", place: str = GROUP, ago_ms: int = 0) -> None:
    """What the function does after a round that began so long ago."""
    told = fake.function_environment()
    bearer = azure.token(told["IDENTITY_ENDPOINT"], told["IDENTITY_HEADER"], told["CLIENT"])
    trusted = ssl.create_default_context(cafile=fake.ca_file)
    arm = azure.Arm(told["ARM"], told["GROUP"], bearer, lambda: 30, time.sleep, trusted=trusted)
    arm.leave(resource, written(deployment, fake.clock.now() - ago_ms, [place]))


async def said(driver: object) -> list[tuple[Level, str]]:
    found = await driver.preflight("contract")  # type: ignore[attr-defined]
    return [(one.level, one.text) for one in found if one.about == "reaper"]


async def test_a_reaper_that_is_alive_is_heard(fake: FakeArm, connect: Connect) -> None:
    """However Azure writes the group's name."""
    reaper = own_identity(fake)
    leave(fake, reaper.id, place=GROUP.upper(), ago_ms=MINUTE_MS)
    driver = connect(reaper=True, reaper_sign=reaper.id)
    assert driver.traits.hand_period_ms == MINUTE_MS
    assert 0 < fake.clock.now() - (await driver.heard("contract")).last_ms < 2 * MINUTE_MS
    ((level, text),) = await said(driver)
    assert (level, "it is alive" in text) == (Level.OK, True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ago_ms": 14 * MINUTE_MS}, "14m ago, 13m is the most"),
        ({"ago_ms": -3 * MINUTE_MS}, "one of the two is wrong"),
        ({"deployment": "other"}, "of the deployment 'other'"),
        ({"place": "other-vms"}, f"it looks at other-vms, and not at {GROUP}"),
    ],
)
async def test_one_that_is_silent_or_anothers_is_an_error(
    fake: FakeArm, connect: Connect, wrong: dict[str, object], words: str
) -> None:
    reaper = own_identity(fake)
    leave(fake, reaper.id, **wrong)  # type: ignore[arg-type]
    ((level, text),) = await said(connect(reaper=True, reaper_sign=reaper.id))
    assert (level, words in text) == (Level.ERROR, True), text


@pytest.mark.parametrize("what", ["no identity", "no sign", "no sense"])
async def test_one_that_was_never_there_is_an_error(fake: FakeArm, connect: Connect, what: str) -> None:
    reaper = own_identity(fake)
    if what == "no identity":
        del fake.estate.parts[reaper.id.lower()]
    elif what == "no sense":
        reaper.tags[KEY] = "yes"
    ((level, text),) = await said(connect(reaper=True, reaper_sign=reaper.id))
    assert (level, "no sign of life" in text) == (Level.ERROR, True), text


async def test_a_reaper_that_nobody_looks_for_is_told_as_that(connect: Connect) -> None:
    """`reaper = true` alone says that one is there, and nobody checks it."""
    driver = connect(reaper=True)
    assert driver.traits.hand_period_ms == 0
    assert await said(driver) == [(Level.WARNING, UNHEARD)]


async def test_a_sign_that_may_not_be_read_is_an_error_and_its_right_is_printed(
    fake: FakeArm, connect: Connect
) -> None:
    reaper = own_identity(fake)
    leave(fake, reaper.id)
    *_, role = policy.document(scenes.settings(reaper=True, reaper_sign=reaper.id), "lab", "west")["roles"]
    (right,) = role["Actions"]
    fake.denied.add(right)
    driver = connect(reaper=True, reaper_sign=reaper.id)
    with pytest.raises(CredentialsRejected, match=right):
        await driver.heard("contract")
    ((level, text),) = await said(driver)
    assert (level, right in text) == (Level.ERROR, True)
