"""Tests of this folder run in virtual time: hours pass in milliseconds, and nothing happens on another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from cloud_dispatch.simulation.loop import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}
