"""Simulated attempts whose agent goes: their moments still come, and nothing may happen then."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from cloud_dispatch.agent.uploads import ChannelPool
from cloud_dispatch.simulation.attempts import VirtualAttempt
from cloud_dispatch.simulation.conduct import Conduct, command
from cloud_dispatch.wire.messages import Order, OrderSpec, Result


class HostOfOne:
    """Writes down what it is told; `moments` are what is to be called, in order."""

    log_limit = 0
    log_pool: ChannelPool
    in_contact = True

    def __init__(self) -> None:
        self.moments: list[Callable[[], None]] = []
        self.told: list[str] = []

    def after(self, milliseconds: int, callback: Callable[..., None], *args: Any) -> None:
        self.moments.append(lambda: callback(*args))

    def spawn(self, work: Any) -> None:
        raise AssertionError("nothing is to be delivered")

    def started(self, attempt: VirtualAttempt) -> None:
        self.told.append("started")

    def exited(self, attempt: VirtualAttempt) -> None:
        self.told.append("exited")

    def vacated(self, attempt: VirtualAttempt) -> None:
        self.told.append("vacated")

    def ended(self, attempt: VirtualAttempt, result: Result) -> None:
        self.told.append(result.cause)

    async def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        raise AssertionError("nothing is to be sent")


@pytest.mark.parametrize(
    ("steps", "told"), [(0, []), (1, ["started", "exited"]), (2, ["started", "exited", "success"])]
)
def test_an_attempt_that_vanished_is_silent_whatever_was_still_to_come(steps: int, told: list[str]) -> None:
    """Before its command runs, while it runs and dies, and after its end: the rest of its moments change nothing."""
    host = HostOfOne()
    order = Order(1, 1, 1, OrderSpec(argv=list(command(Conduct(run_ms=100)))))
    attempt = VirtualAttempt(order, host)
    attempt.begin()
    for _ in range(steps):
        host.moments.pop(0)()
        attempt.signal(signal.SIGTERM)
    attempt.vanish()
    assert host.told == told
    while host.moments:
        host.moments.pop(0)()
    assert host.told == told
