"""A wrapper that counts. Owns what is counted of a call: that it was made, how long it took, and how it failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import Provider


class CallMeter(Protocol):
    """Where counts go, for one profile."""

    def called(self, call: Call, took_ms: int, error: str, scope: str) -> None:
        """A call has ended. `error`: its class, "" for none, "cancelled" where its caller gave up. `scope`: the fields
        that the error's scope has (`type+zone`), `account` for none; never their values, of which there are many."""


class Metered(Wrapper):
    """`driver` with every call told to `meter`. `monotonic` gives milliseconds."""

    def __init__(self, driver: Provider, meter: CallMeter, monotonic: Callable[[], int]) -> None:
        super().__init__(driver)
        self._meter = meter
        self._monotonic = monotonic

    async def call(self, name: Call, *args: Any) -> Any:
        began = self._monotonic()
        error, scope = "cancelled", ""
        try:
            result = await self.pass_on(name, *args)
            error = ""
        except ProviderError as failure:
            error, scope = type(failure).__name__, failure.scope.level
            raise
        except Exception as bug:
            error = type(bug).__name__
            raise
        finally:
            self._meter.called(name, self._monotonic() - began, error, scope)
        return result
