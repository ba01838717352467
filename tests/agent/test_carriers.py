"""The threads of transfers: so many begin at once, and none that anybody has to wait for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from cloud_dispatch.agent.adapters import Carriers
from cloud_dispatch.agent.attempt import Attempt
from cloud_dispatch.agent.baggage import Baggage
from cloud_dispatch.agent.channel import Endpoint
from cloud_dispatch.agent.identity import Config, Identity
from cloud_dispatch.agent.shell import Shell
from cloud_dispatch.wire.messages import Policy
from tests.agent.virtual import order


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


async def test_slow_work_leaves_its_place_to_what_waits_after_its_turn() -> None:
    """However many are slow, and though none of them ends; each is waited for as before, and leaves no second place."""
    carriers, gate, began = Carriers(1, turn_s=0.01), threading.Event(), []
    slow = [asyncio.create_task(carriers.run(gate.wait)) for _ in range(5)]
    await carriers.run(lambda: began.append("quick"))
    assert (began, [each.done() for each in slow]) == (["quick"], [False] * 5)
    gate.set()
    assert await asyncio.gather(*slow) == [True] * 5
    carriers._turn_s = 600
    gate.clear()
    first = asyncio.create_task(carriers.run(gate.wait))
    second = asyncio.create_task(carriers.run(lambda: began.append("second")))
    await asyncio.sleep(0.1)
    assert began == ["quick"], "it has one place, as before"
    gate.set()
    await asyncio.gather(first, second)


async def test_so_many_go_on_at_once_however_slow_they_are() -> None:
    """Places that are left are no more places than that: all share one network."""
    carriers, gate, began = Carriers(1, turn_s=0.01, many=3), threading.Event(), []

    def carry() -> None:
        began.append(None)
        gate.wait()

    slow = [asyncio.create_task(carriers.run(carry)) for _ in range(5)]
    await asyncio.sleep(0.3)
    assert len(began) == 3
    slow[0].cancel()
    while len(began) < 4:
        await asyncio.sleep(0.01)
    gate.set()
    assert await asyncio.gather(*slow[1:]) == [None] * 4


def test_each_agent_has_its_own(tmp_path: Path) -> None:
    """Two in one process, one after the other, each with more to carry than may begin at once."""
    for name in ("first", "second"):
        assert asyncio.run(_carried(tmp_path / name)) == ["carried"] * 9


async def _carried(folder: Path) -> list[str]:
    """What an agent's attempts have of what they want carried."""
    config = Config(url="http://127.0.0.1:9", vm="vm", work_dir=str(folder))
    baggage = Baggage("incarnation", config, Identity("i", "token", Policy(cpus_milli=1_000)))
    agent = Shell(baggage, Endpoint.parse(config.url), lambda line: None)
    attempts = [Attempt(order(number), agent) for number in range(1, 10)]
    return await asyncio.gather(*(attempt._carried(lambda transfers: "carried") for attempt in attempts))
