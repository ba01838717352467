"""Setting the budgets. Owns the moment from which they hold, and the facts that change with them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.engine import Connection

from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.engine import at_length
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.paying import recommit
from cloud_dispatch.statestore.purse import Configured, Purse
from cloud_dispatch.statestore.reader import PATIENCE_S
from cloud_dispatch.statestore.records import set_facts

#: By name; None: to be forgotten.
Facts = Mapping[str, str | None]


def take_purse(memory: Memory, purse: Purse, now_ms: int) -> None:
    """From here on these are the memory's budgets, and claims count for them."""
    memory.take_purse(purse, now_ms)
    recommit(memory)


class SetLimits:
    """From its commit on these are the budgets: an operation of the group commit, between two groups. `changed`: facts
    that become something else with it."""

    reads = True

    def __init__(self, configured: Configured, memory: Memory, now_ms: int, changed: Facts | None = None) -> None:
        self._memory = memory
        self._changed = changed or {}
        self._purse = Purse.of(configured, {**memory.facts, **self._changed})
        self._now_ms = now_ms

    def prepare(self, connection: Connection) -> None:
        with at_length(connection, PATIENCE_S):  # sums over all that was ever spent
            self._purse.read(connection, self._now_ms)

    def plan(self, batch: Batch) -> None:
        """First of all effects: what the group books is not in the ledger that was read."""
        batch.effects.insert(0, lambda: take_purse(batch.memory, self._purse, self._now_ms))
        if self._changed:
            set_facts(self._changed, self._memory).plan(batch)

    def answer(self, specs: Mapping[int, bytes]) -> None:
        return None
