"""One attempt and its host, without an agent around."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cloud_dispatch.agent.attempt import Attempt
from cloud_dispatch.agent.folders import Folders
from cloud_dispatch.wire.messages import Order, OrderSpec, Policy


class Crowded:
    """Processes of an agent that has no descriptor free for the first of them."""

    def __init__(self) -> None:
        self.tries = 0

    def spawn(self, *_: object) -> int:
        self.tries += 1
        if self.tries == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return 1

    def own(self, *_: object) -> None:
        """Nothing is to be ended here."""


async def test_what_had_to_wait_for_a_descriptor_can_be_taken_over_as_any_other(tmp_path: Path) -> None:
    """Once its command runs, and not before: else its agent was never replaced by another while it does."""
    started = asyncio.Event()
    processes = Crowded()
    folders = Folders(str(tmp_path / "attempts"), lambda *_: None)
    host: Any = SimpleNamespace(
        processes=processes, folders=folders, policy=Policy(), base_env={}, instance="i", log_pool=None,
        spill_path=lambda _: str(tmp_path / "log"), check=lambda _: None, started=lambda _: started.set(),
    )  # fmt: skip
    attempt = Attempt(Order(1, 1, 1, OrderSpec(argv=["true"])), host)
    attempt.begin()
    assert (attempt.at_rest, processes.tries) == (False, 1)
    async with asyncio.timeout(10):
        await started.wait()
    assert (attempt.at_rest, processes.tries) == (True, 2)
    attempt.discard()
