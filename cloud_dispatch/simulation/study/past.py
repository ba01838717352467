"""The history of the configured statestore. Owns how it is read while a dispatcher has it open: from a copy."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from cloud_dispatch import safekeeping, statestore
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.config import Config
from cloud_dispatch.simulation.record import Record
from cloud_dispatch.simulation.workload.history import record_of


def read_past(config: Config) -> Record:
    """All that the statestore remembers, up to its last moment. Changes nothing, and disturbs no dispatcher.

    InvalidInput when there is no statestore yet.
    """
    with tempfile.TemporaryDirectory(prefix="cloud-dispatch-") as folder:
        copy = Path(folder) / "copy.sqlite"
        safekeeping.to_file(config, copy)
        return asyncio.run(_read(f"sqlite:///{copy}"))


async def _read(url: str) -> Record:
    store = await statestore.open_store(
        url, clock=SystemClock(), entropy=SystemEntropy(), executor=Inline(), create=False
    )
    try:
        return await record_of(store)
    finally:
        await store.close()
