"""The simulator's loop for modules that set `VIRTUAL_TIME`, where waiting costs nothing; and a clock that stands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from cloud_dispatch.simulation.loop import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    virtual = getattr(getattr(item, "module", None), "VIRTUAL_TIME", False)
    return {"virtual": VirtualLoop} if virtual else {"real": asyncio.new_event_loop}


@contextlib.contextmanager
def standing_still() -> Iterator[None]:
    """The loop's clock stands, for however long: no timer brings about what happens, and what waits for one hangs."""
    loop: Any = asyncio.get_running_loop()
    now = loop.time()
    loop.time = lambda: now
    try:
        yield
    finally:
        del loop.time
