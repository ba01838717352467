"""Notices of the provider: how three clouds' words are understood, how they are asked for, and what an agent does."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.agent import events, notices
from cloud_dispatch.agent.channel import Channel
from cloud_dispatch.agent.identity import Config, NoticeSource
from cloud_dispatch.agent.notices import Notices, left_ms
from cloud_dispatch.wire.codec import decode
from cloud_dispatch.wire.messages import ADVISED, PREEMPTED
from tests.agent.conftest import RunningAgent, quick_policy, until
from tests.agent.imds import INTERRUPTION, REBALANCE, TOKEN, MetadataService
from tests.agent.stub import StubDispatcher
from tests.docs.pages import blocks

Start = Callable[..., RunningAgent]


def documented() -> dict[str, list[NoticeSource]]:
    """What the drivers of three clouds say, as the how-to has it; each driver's own tests compare theirs."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-driver.md"
    (block,) = (block for block in blocks(page, "python") if "instance-action" in block)
    said: dict[str, Any] = {}
    exec(block, said)  # noqa: S102
    return {
        cloud: decode(Config, json.dumps({"notices": said[cloud]}).encode()).notices
        for cloud in ("EC2", "GCE", "AZURE")
    }


SAID = documented()
(EC2, REBALANCING), (GCE, MAINTENANCE), (AZURE,) = SAID["EC2"], SAID["GCE"], SAID["AZURE"]
NOW_MS = int(datetime(2026, 9, 18, 8, 20, tzinfo=timezone.utc).timestamp() * 1000)  # noqa: UP017


def event(kind: str = "Preempt", at: str = "Fri, 18 Sep 2026 08:20:30 GMT", vm: str = "vm-1") -> dict[str, Any]:
    return {"EventId": "1", "EventType": kind, "Resources": ["other", vm], "NotBefore": at, "EventStatus": "Scheduled"}


def azure(*found: dict[str, Any]) -> str:
    return json.dumps({"DocumentIncarnation": 2, "Events": list(found)})


@pytest.mark.parametrize(
    ("source", "answer", "left"),
    [
        (EC2, '{"action": "terminate", "time": "2026-09-18T08:22:00Z"}', 120_000),
        (EC2, '{"action": "stop", "time": "2026-09-18T08:19:00Z"}', 0),
        (EC2, '{"action": "hibernate"}', 120_000),
        (EC2, '{"action": "terminate", "time": 7}', 120_000),
        (EC2, "<html>", None),
        (EC2, "[]", None),
        (REBALANCING, '{"noticeTime": "2026-09-18T08:19:00Z"}', 0),
        (GCE, "TRUE", 30_000),
        (GCE, "FALSE", None),
        (MAINTENANCE, "TERMINATE_ON_HOST_MAINTENANCE", 0),
        (MAINTENANCE, "MIGRATE_ON_HOST_MAINTENANCE", None),
        (MAINTENANCE, "NONE", None),
        (AZURE, azure(), None),
        (AZURE, azure(event()), 30_000),
        (AZURE, azure(event("Reboot"), event(at="Fri, 18 Sep 2026 08:21:00 GMT")), 60_000),
        (AZURE, azure(event("Freeze")), None),
        (AZURE, azure(event(vm="vm-2")), None),
        (AZURE, azure(event(at="")), 30_000),
    ],
)
def test_three_clouds_words_are_understood(source: NoticeSource, answer: str, left: int | None) -> None:
    """A time in the words of each, a text, one event among others and of this VM; what can't be read is no notice."""
    assert left_ms(answer, source, "vm-1", NOW_MS) == left


class Heard:
    """Runs `Notices` against a service in this process, whose answers are waited for however long they take unless
    told otherwise. `asked`: the questions so far."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sources: list[dict[str, Any]], answer_s: float = 600) -> None:
        monkeypatch.setattr(notices, "PERIOD_S", 0.02)
        monkeypatch.setattr(notices, "_ANSWER_S", answer_s)
        self.asked = 0
        exchange = Channel.exchange

        def counted(*question: Any) -> Any:
            self.asked += 1
            return exchange(*question)

        monkeypatch.setattr(Channel, "exchange", counted)
        self.config = decode(Config, json.dumps({"vm": "vm-1", "notices": sources}).encode())
        self.events: list[Any] = []
        self.lines: list[str] = []

    async def run(self, until: Callable[[], object]) -> None:
        watching = asyncio.create_task(Notices(self.config, self.events.append, self.lines.append).run())
        async with asyncio.timeout(20):
            while not until() and not watching.done():
                await asyncio.sleep(0.005)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_one_connection_and_one_token_serve_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of ours is told to the service."""
    with MetadataService() as service:
        heard = Heard(monkeypatch, service.sources())
        await heard.run(lambda: len(service.asked) > 20)
        assert (service.connections, service.issued) == (1, 1)
        assert not any("Authorization" in told for told in service.headers)
        assert (heard.events, heard.lines) == ([], [])


async def test_a_token_that_is_refused_is_renewed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is good for six hours; no round is lost for it."""
    with MetadataService() as service:
        heard = Heard(monkeypatch, service.sources())
        await_once = [6]

        def renewed() -> bool:
            if await_once and len(service.asked) > await_once[0]:
                await_once.clear()
                service.expire()
            return [path for _, path, _ in service.asked].count(TOKEN) == 2

        await heard.run(renewed)
        statuses = [status for _, _, status in service.asked]
        refused = statuses.index(401)
        assert statuses.count(401) == 1
        assert service.asked[refused + 1] == ("PUT", TOKEN, 200)
        assert heard.lines == []


async def test_an_advice_is_told_once_and_a_notice_ends_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataService() as service:
        heard = Heard(monkeypatch, service.sources())
        service.said[REBALANCE] = '{"noticeTime": "2026-09-18T08:19:00Z"}'
        await heard.run(lambda: len(service.asked) > 20)
        assert heard.events == [events.Noticed(None)]
        assert [path for _, path, _ in service.asked].count(REBALANCE) == 1
        service.said[INTERRUPTION] = '{"action": "terminate"}'
        heard.events.clear()
        await heard.run(lambda: False)
        assert events.Noticed(120_000) in heard.events


@pytest.mark.parametrize("how", ["refused", "silent", "nonsense"])
async def test_a_service_that_is_away_is_one_line(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """However often it is asked, and no question is left open for long."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = f"http://127.0.0.1:{server.getsockname()[1]}"
        heard = Heard(monkeypatch, [{"steps": [{"url": at + "/x"}], "field": "time"}], answer_s=0.05)
        rounds = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal rounds
            rounds += 1
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                if how == "nonsense":
                    writer.write(b"no HTTP\r\n\r\n")
                await reader.read()
            writer.close()

        if how == "refused":
            server.close()
            await heard.run(lambda: heard.asked > 10)
        else:
            async with await asyncio.start_server(talk, sock=server.dup()):
                await heard.run(lambda: rounds > 3)
    assert heard.events == []
    assert len(heard.lines) == 1
    assert at in heard.lines[0]


# Real agents


def in_seconds(seconds: float) -> str:
    at = datetime.now(timezone.utc) + timedelta(seconds=seconds)  # noqa: UP017
    return json.dumps({"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")})


@pytest.mark.process
def test_a_notice_drains_signals_and_puts_back_long_before_the_end(
    stub: StubDispatcher, start_agent: Start, tmp_path: Path
) -> None:
    """Within seconds of two minutes: what can't end goes back, what wants to write down how far it is does so."""
    ready = tmp_path / "ready"
    with MetadataService() as service:
        agent = start_agent(notices=service.sources())
        plain = stub.submit(shell="sleep 1000")
        saves = stub.submit(
            shell=f"trap 'sleep 1; echo saved; exit 75' USR1; touch {ready}; while :; do sleep 0.05; done",
            checkpoint_signal="SIGUSR1",
        )
        stub.wait_started(plain)
        token = stub.wait_started(saves)
        until(ready.exists)
        service.said[INTERRUPTION] = in_seconds(120)
        noticed = time.monotonic()
        results = [stub.result(task) for task in (plain, saves)]
        assert time.monotonic() - noticed < 20
        assert [(result.cause, result.exit_code) for result in results] == [("preempted", None), ("preempted", 75)]
        assert bytes(stub.logs[token]) == b"saved\n"
        assert agent.wait() == 0
        assert any((sync.state, sync.detail, sync.want) == ("draining", PREEMPTED, 0) for sync in stub.syncs)
        assert stub.syncs[-1].ending == "preempted"
        assert not any("Authorization" in told for told in service.headers)


@pytest.mark.process
def test_an_advice_drains_and_lets_what_runs_end(stub: StubDispatcher, start_agent: Start, tmp_path: Path) -> None:
    """Nothing new is taken, nothing is ended or signalled."""
    go = tmp_path / "go"
    with MetadataService() as service:
        agent = start_agent(notices=service.sources())
        runs = stub.submit(shell=f"while [ ! -e {go} ]; do sleep 0.05; done", checkpoint_signal="SIGUSR1")
        stub.wait_started(runs)
        service.said[REBALANCE] = '{"noticeTime": "2026-09-18T08:19:00Z"}'
        stub.wait(lambda: stub.syncs[-1].detail == ADVISED)
        waits = stub.submit("true")
        time.sleep(1)
        go.touch()
        assert stub.result(runs).cause == "success"
        assert agent.wait() == 0
        assert (stub.syncs[-1].ending, waits in stub.given.values()) == ("advised", False)


@pytest.mark.process
def test_a_service_that_is_not_there_is_harmless(stub: StubDispatcher, start_agent: Start) -> None:
    """The agent works, and says it once."""
    stub.policy = quick_policy()
    with MetadataService() as service:
        told = service.sources()
    agent = start_agent(notices=told)
    for _ in range(2):
        assert stub.result(stub.submit("sleep", "6")).cause == "success"
    assert agent.console.read_text().count("no notices from") == 1
