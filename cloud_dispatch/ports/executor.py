"""Heavy work off the loop. Owns the port; adapters are inline (simulation), a thread, or a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
#: Who sleeps is woken by one turn of the loop, resumed by the next, and in asyncio's own loop by the one after that.
TURNS = 3


async def give_way() -> None:
    """Let everybody who is due have his turn, in the middle of work that takes milliseconds. After one turn alone who
    was woken by a timer is still not resumed: measured with pieces of 5 ms, wake-ups are late by one piece with this,
    by two and more with a single turn."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Executor(Protocol):
    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """`work(*args)`, elsewhere if the adapter can; its exception is raised here."""

    async def run_long(self, work: Callable[..., T], *args: Any) -> T:
        """`run` of what is known to take long: whatever quick work is done where it is asked for, this is not."""

    async def close(self) -> None:
        """Wait for what runs, take nothing more."""
