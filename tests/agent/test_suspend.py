"""A VM that was suspended: the clock of the leases went on meanwhile, that of the loop's timers did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.agent import events, shell
from cloud_dispatch.agent.baggage import Baggage
from cloud_dispatch.agent.channel import Endpoint
from cloud_dispatch.agent.identity import Config, Identity
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
