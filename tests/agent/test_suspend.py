"""A VM that was suspended: the clock of the leases went on meanwhile, that of the loop's timers did not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.agent import events, shell, supervisor
from cloud_dispatch.agent.baggage import Baggage
from cloud_dispatch.agent.channel import Endpoint
from cloud_dispatch.agent.identity import Config, Identity
from cloud_dispatch.agent.supervisor import Supervisor
from cloud_dispatch.wire.messages import Policy, SyncReply
from tests.agent.virtual import KILL, TERM, order


async def test_a_lease_that_ended_in_a_suspend_is_acted_on_with_the_first_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is killed though no timer is due and nobody answers; the supervisor still waits for the next sign."""
    now_ms = 1_000_000
    monkeypatch.setattr(shell, "now_ms", lambda: now_ms)
    said: list[Any] = []
    reports: list[str] = []
    config = Config(url="http://127.0.0.1:9", vm="vm", work_dir=str(tmp_path))
    baggage = Baggage("incarnation", config, Identity("i", "token", Policy(lease_ms=60_000, cpus_milli=1_000)))
    agent = shell.Shell(baggage, Endpoint.parse(config.url), reports.append)
    for kind in (events.Sync, events.Start, events.Kill):
        agent._does[kind] = said.append
    agent.feed(events.Boot(0, 10**12, None))
    agent.feed(events.Replied(1, SyncReply(1, [order(1)], lease_ms=60_000)))
    agent.feed(events.Started(1))
    agent._beat()
    assert reports[-1] == f"beat {now_ms + 63_000}"
    now_ms += 100_000
    agent._beat()
    assert [command.signal for command in said if isinstance(command, events.Kill)] == [TERM, KILL]
    assert reports[-1] == f"beat {now_ms + 3_000}"


class Watched:
    """A supervisor that looks each second at an agent which has begun just now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000_000
        monkeypatch.setattr(supervisor, "now_ms", lambda: self.now_ms)
        self.supervisor = Supervisor(Config(hang_ms=60_000), "unused", self.now_ms)
        self.supervisor._beat_ms = self.supervisor._looked_ms = self.now_ms
        self.beat()

    def beat(self) -> None:
        self.supervisor._hear(b"beat %d\n" % (self.now_ms + 33_000))

    def verdict(self, after_ms: int = 1_000) -> str:
        self.now_ms += after_ms
        return self.supervisor._verdict()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    made = Watched(monkeypatch)
    yield made
    for end in (made.supervisor._wake_read, made.supervisor._wake_write):
        end.close()


@pytest.mark.parametrize("suspended_ms", [40_000, 1_000_000])
def test_an_agent_has_time_for_its_first_sign_of_life_after_a_suspend(watched: Watched, suspended_ms: int) -> None:
    """Past the lease of what it runs, and past all patience: its timer comes to its end up to two seconds later."""
    assert watched.verdict() == ""
    assert watched.verdict(suspended_ms) == ""
    assert [watched.verdict(), watched.verdict(), watched.verdict()] == [""] * 3
    watched.beat()
    assert [watched.verdict() for _ in range(33)] == [""] * 33
    assert "the lease of what it runs has ended" in watched.verdict()


def test_an_agent_that_hangs_after_a_suspend_has_no_more_time_than_that(watched: Watched) -> None:
    """Whatever else keeps the supervisor from looking: one suspend is borne for a sign of life."""
    assert watched.verdict(40_000) == ""
    assert "hung" in watched.verdict(5_000)
    assert "hung" in watched.verdict(5_000)
