"""Whether the reaper of a project is alive, by the sign that the shipped one leaves."""

from __future__ import annotations

import pytest

from cloud_dispatch.domain.sign import KEY, written
from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch.provider.spi import Level
from cloud_dispatch.reapers import gcp
from tests.fakes.gce import FakeGce
from tests.fakes.gce.settings import PROJECT
from tests.providers.gcp.conftest import Connect

MINUTE_MS = 60_000
SIGN = "gs://own/reaper/sign"


@pytest.fixture
def metadata(fake: FakeGce) -> dict[str, str]:
    """Of the object that Terraform makes."""
    made: dict[str, str] = {}
    fake.objects["own", "reaper/sign"] = made
    return made


def leave(fake: FakeGce, deployment: str = "contract", place: str = PROJECT, ago_ms: int = 0) -> None:
    """What the function does after a round that began so long ago."""
    with fake.lock:
        token = fake.tokens.new(fake.settings.caller, fake.timers.now)
    gcp.leave(fake.url, token, SIGN, written(deployment, fake.clock.now() - ago_ms, [place]))


async def said(driver: object) -> list[tuple[Level, str]]:
    found = await driver.preflight("contract")  # type: ignore[attr-defined]
    return [(one.level, one.text) for one in found if one.about == "reaper"]


async def test_a_reaper_that_is_alive_is_heard(fake: FakeGce, connect: Connect, metadata: dict[str, str]) -> None:
    leave(fake, ago_ms=MINUTE_MS)
    driver = connect(reaper_sign=SIGN)
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
        ({"place": "other-1"}, f"it looks at other-1, and not at {PROJECT}"),
    ],
)
async def test_one_that_is_silent_or_anothers_is_told(
    fake: FakeGce, connect: Connect, metadata: dict[str, str], wrong: dict[str, object], words: str
) -> None:
    """No error: Google itself ends what runs, and the reaper is the hand for what has stopped."""
    leave(fake, **wrong)  # type: ignore[arg-type]
    ((level, text),) = await said(connect(reaper_sign=SIGN))
    assert (level, words in text) == (Level.WARNING, True), text


@pytest.mark.parametrize("what", ["no object", "no sign", "no sense"])
async def test_one_that_was_never_there_is_told(
    fake: FakeGce, connect: Connect, metadata: dict[str, str], what: str
) -> None:
    if what == "no object":
        fake.objects.clear()
    elif what == "no sense":
        metadata[KEY] = "yes"
    ((level, text),) = await said(connect(reaper_sign=SIGN))
    assert (level, "no sign of life" in text) == (Level.WARNING, True), text


async def test_without_a_place_nobody_looks(connect: Connect) -> None:
    driver = connect()
    assert driver.traits.hand_period_ms == 0
    assert await said(driver) == []


async def test_a_sign_that_may_not_be_read_is_told(fake: FakeGce, connect: Connect, metadata: dict[str, str]) -> None:
    leave(fake)
    fake.denied.add("storage.objects.get")
    driver = connect(reaper_sign=SIGN)
    with pytest.raises(CredentialsRejected, match=r"storage\.objects\.get"):
        await driver.heard("contract")
    ((level, text),) = await said(driver)
    assert (level, "storage.objects.get" in text) == (Level.WARNING, True)
