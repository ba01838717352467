"""Modules that set `VIRTUAL_TIME` run on the simulator's loop: waiting costs nothing, and a busy machine no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from cloud_dispatch.simulation.loop import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    virtual = getattr(getattr(item, "module", None), "VIRTUAL_TIME", False)
    return {"virtual": VirtualLoop} if virtual else {"real": asyncio.new_event_loop}
