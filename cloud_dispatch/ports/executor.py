"""Heavy work off the loop. Owns the port; adapters are inline (simulation), a thread, or a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """`work(*args)`, elsewhere if the adapter can; its exception is raised here."""

    async def run_long(self, work: Callable[..., T], *args: Any) -> T:
        """`run` of what is known to take long: whatever quick work is done where it is asked for, this is not."""

    async def close(self) -> None:
        """Wait for what runs, take nothing more."""
