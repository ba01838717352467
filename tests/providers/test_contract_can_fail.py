"""The conformance suite is worth something: each of its tests fails for a driver with the bug that it is there for."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract import ProviderContract
from tests.providers.broken_places import PLANTED, Planted
from tests.providers.test_memory_contract import MemoryContract as _MemoryContract

VIRTUAL_TIME = True
NAMES = sorted(name for name in dir(ProviderContract) if name.startswith("test_"))


def must_fail(test: Callable[..., Awaitable[None]], only: tuple[str, ...] = ()) -> Callable[..., Awaitable[None]]:
    """The test turned round: it passes when `test` fails, by an assertion or by what the driver raises at it. Where
    `only` names parameters, with the others it is as it was."""

    @functools.wraps(test)
    async def turned(*args: Any, **fixtures: Any) -> None:
        given = {str(getattr(value, "__name__", value)) for value in fixtures.values()}
        if only and not given & set(only):
            await test(*args, **fixtures)
            return
        try:
            with pytest.raises((AssertionError, pytest.fail.Exception, ProviderError)):
                await test(*args, **fixtures)
        except pytest.skip.Exception as skipped:
            pytest.fail(f"the suite skips what it should find: {skipped}")

    return turned


class Broken(_MemoryContract):
    """The provider of a test is left as it is: one that is broken might not be ended by the suite."""

    @pytest.fixture
    def provider(self, connect: Callable[[], Provider]) -> Provider:
        return connect()


def suite_against(planted: Planted) -> type[Broken]:
    """The suite with the named test alone, turned round, and the broken driver as its subject."""
    hidden = dict.fromkeys(NAMES)
    marks = getattr(getattr(ProviderContract, planted.test), "pytestmark", ())
    given = [value for mark in marks if mark.name == "parametrize" for value in mark.args[1]]
    values = {str(getattr(value, "__name__", value)) for value in given}
    assert values >= set(planted.only), f"{planted.test} has no such parameters: {planted.only}"
    own = {planted.test: must_fail(getattr(ProviderContract, planted.test), planted.only)}
    subject = {"driver": planted.driver, "traits": planted.traits, "settle_s": 2.0, "__doc__": planted.driver.__name__}
    return type(f"Test{planted.driver.__name__}", (Broken,), {**hidden, **own, **subject})


for index, planted in enumerate(PLANTED):
    globals()[f"Test{index:02d}{planted.driver.__name__}"] = suite_against(planted)


def test_every_test_of_the_suite_has_a_bug_planted_for_it() -> None:
    """A test that nobody has seen fail proves nothing."""
    assert sorted({planted.test for planted in PLANTED}) == NAMES
