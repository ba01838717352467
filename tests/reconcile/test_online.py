"""`config check --online`: each profile gets an answer, whatever its provider does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch.provider.lacking import Lacking
from cloud_dispatch.provider.spi import Finding, Level
from cloud_dispatch.reconcile.online import Found, preflight

GOOD = Finding(Level.OK, "credentials", "user/dispatcher")
LATE = Finding(Level.WARNING, "prices", "a week old")


class Examined(Lacking):
    def __init__(self, *findings: Finding, error: Exception | None = None, takes_s: float = 0) -> None:
        self._findings, self._error, self._takes_s = findings, error, takes_s

    async def preflight(self, deployment: str) -> Sequence[Finding]:
        assert deployment == "d"
        await asyncio.sleep(self._takes_s)
        if self._error is not None:
            raise self._error
        return self._findings


async def asked(**providers: Any) -> dict[str, Found]:
    named = {ProfileName(name): one for name, one in providers.items()}
    return {found.profile: found for found in await preflight(named, "d", most_s=0.2)}


async def test_every_profile_is_asked_and_only_errors_block() -> None:
    """A warning is told and does not fail the check; a driver without the hook has looked at nothing."""
    found = await asked(good=Examined(GOOD, LATE), bad=Examined(Finding(Level.ERROR, "images", "gone")), none=Lacking())
    assert {name: one.blocked for name, one in found.items()} == {"good": False, "bad": True, "none": False}
    assert list(found["good"].findings) == [GOOD, LATE]
    assert list(found["none"].findings) == []


async def test_who_fails_or_does_not_answer_has_a_finding() -> None:
    """The others' answers are there all the same."""
    found = await asked(
        good=Examined(GOOD), mute=Examined(GOOD, takes_s=60), refused=Examined(error=CredentialsRejected("expired")),
        broken=Examined(error=KeyError("State")),
    )  # fmt: skip
    assert [one.blocked for one in found.values()] == [False, True, True, True]
    assert found["broken"].findings[0].text == "its driver stumbled: 'State'"
    assert found["mute"].findings[0].text == "no answer within 0.2 s"
    assert found["refused"].findings[0].text == "CredentialsRejected: expired"
