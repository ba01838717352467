"""The threads of transfers: so many at once, and none that anybody has to wait for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cloud_dispatch.agent.adapters import Carriers


async def test_what_work_gives_or_raises_is_had() -> None:
    """From a thread of its own."""
    carriers = Carriers(1)
    assert await carriers.run(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await carriers.run(lambda: 1 // 0)


async def test_work_that_is_given_up_is_not_waited_for_and_leaves_its_place() -> None:
    """Neither by whoever gave it up nor by the next; what still waited for its turn never begins."""
    carriers, gate, began = Carriers(1), threading.Event(), []
    first = asyncio.create_task(carriers.run(gate.wait))
    second = asyncio.create_task(carriers.run(lambda: began.append("second")))
    third = asyncio.create_task(carriers.run(lambda: began.append("third")))
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    await third
    assert (first.cancelled(), second.cancelled(), began) == (True, True, ["third"])
    gate.set()
