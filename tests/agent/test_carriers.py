"""The threads of transfers: so many begin at once, and none that anybody has to wait for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from cloud_dispatch.agent import adapters
from cloud_dispatch.agent.adapters import Carriers, Steps
from cloud_dispatch.agent.attempt import Attempt
from cloud_dispatch.agent.baggage import Baggage
from cloud_dispatch.agent.channel import Channel, Endpoint, Unreachable
from cloud_dispatch.agent.identity import Config, Identity
from cloud_dispatch.agent.shell import Shell
from cloud_dispatch.wire.messages import Policy
from tests.agent.virtual import order
from tests.virtual_time import standing_still


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
    while len(began) < 3:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert len(began) == 3
    slow[0].cancel()
    while len(began) < 4:
        await asyncio.sleep(0.01)
    gate.set()
    assert await asyncio.gather(*slow[1:]) == [None] * 4


def paused(value: str, *pauses: float) -> Steps[str]:
    """Work that pauses so often and comes to `value`."""
    yield from pauses
    return value


async def test_what_pauses_holds_no_place() -> None:
    """However many there are whose store is away, what needs no other goes on at once; and they do when it is back."""
    carriers, away = Carriers(most=2, many=2), []

    def kept() -> Steps[str]:
        away.append(None)
        yield 0.2
        return "stored"

    waiting = [asyncio.create_task(carriers.carry(kept)) for _ in range(20)]
    with standing_still():
        while len(away) < 20:
            await asyncio.sleep(0)
        assert await carriers.carry(lambda: paused("quick")) == "quick"
    assert await asyncio.gather(*waiting) == ["stored"] * 20


async def test_what_is_silent_again_leaves_places_to_others() -> None:
    """A store that takes a minute to say nothing takes it each time: it has no more than half of the places then."""
    carriers, gate, silent = Carriers(most=4, many=4), threading.Event(), []

    def dead() -> Steps[str]:
        yield 0.001
        silent.append(None)
        gate.wait()
        return "given up"

    waiting = [asyncio.create_task(carriers.carry(dead)) for _ in range(10)]
    while len(silent) < 2:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        assert await carriers.carry(lambda: paused("quick")) == "quick"
    assert len(silent) == 2
    gate.set()
    assert await asyncio.gather(*waiting) == ["given up"] * 10


async def test_what_goes_wrong_after_a_pause_is_raised() -> None:
    """As before it; and what is given up in one is not gone on with."""
    carriers, went_on = Carriers(), []

    def fails() -> Steps[str]:
        yield 0.001
        raise ZeroDivisionError

    def goes_on() -> Steps[str]:
        yield 60
        went_on.append(None)
        return ""

    with pytest.raises(ZeroDivisionError):
        await carriers.carry(fails)
    given_up = asyncio.create_task(carriers.carry(goes_on))
    await asyncio.sleep(0.05)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert not went_on


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
    return await asyncio.gather(*(attempt._carried(lambda transfers: paused("carried")) for attempt in attempts))


class Crowded:
    """A kernel whose table of processes is full for the next `full` threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, full: int) -> None:
        self.full = full
        true = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            self.full -= 1
            if self.full >= 0:
                raise RuntimeError("can't start new thread")
            true(thread)

        monkeypatch.setattr(threading.Thread, "start", start)


async def test_a_transfer_that_has_no_thread_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others fill the table of processes: that costs nobody his outputs, unless it lasts."""
    monkeypatch.setattr(adapters, "_START_PAUSE_S", 0.001)
    monkeypatch.setattr(adapters, "_START_TRIES", 20)
    crowded = Crowded(monkeypatch, 10)
    assert await Carriers().run(lambda: "carried") == "carried"
    crowded.full = 20
    with pytest.raises(BlockingIOError, match="no room for a thread"):
        await Carriers().run(lambda: "carried")
    assert await Carriers().run(lambda: "carried") == "carried"


async def test_threads_for_files_are_there_before_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that could not start one when a folder is to be removed would end, and all tasks with it."""
    threads, crowded = adapters.Threads(), Crowded(monkeypatch, 1000)
    meeting = threading.Barrier(adapters._THREADS)
    together = [threads.run(meeting.wait, 10) for _ in range(adapters._THREADS)]
    assert sorted(await asyncio.gather(*together)) == list(range(adapters._THREADS))
    threads.close()
    crowded.full = 2
    with pytest.raises(RuntimeError):
        adapters.Threads()  # whose threads come to their end, or this process would not


async def test_a_name_that_no_thread_can_look_up_is_a_dispatcher_that_is_not_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Soon there is one: it is tried again as after any other failure."""
    crowded = Crowded(monkeypatch, 1000)
    channel = Channel(Endpoint.parse("http://localhost:9"), lambda: "token")
    with pytest.raises(Unreachable, match="can't connect to localhost:9: can't start new thread"):
        await channel.request("GET", "/", b"")
    crowded.full = 0
