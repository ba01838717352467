"""Ways to bring a peer's behaviour into a run. Each changes one part; the rest is the product as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.simulation.world import World


def dispatcher(world: World, change: Callable[[Any], None]) -> None:
    """`change` every incarnation once it is assembled, before it does anything."""
    world.plants.append(change)


class Driver(Wrapper):
    """A driver whose calls go through `answer(driver, name, args)`."""

    def __init__(self, driver: Provider, answer: Callable[..., Any]) -> None:
        super().__init__(driver)
        self._answer = answer

    async def call(self, name: Call, *args: Any) -> Any:
        return await self._answer(self, name, *args)


def driver(world: World, answer: Callable[..., Any]) -> None:
    """Every call on a driver becomes `await answer(driver, name, *args)`; `driver.pass_on` makes the real one."""
    for account in world.accounts:
        make = account.driver

        def wrapped(profile: Any, make: Callable[..., Provider] = make) -> Provider:
            return Driver(make(profile), answer)

        account.driver = wrapped  # type: ignore[method-assign]


def deaf_machines(world: World) -> None:
    """Machines that can't power themselves off."""
    world.powered_off = lambda vm: None  # type: ignore[method-assign]
