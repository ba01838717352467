"""Setting the budgets. Owns the moment from which they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import delete
from sqlalchemy.engine import Connection

from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.instances import Drivers
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.purse import UNSURE_FACT, Purse
from cloud_dispatch.statestore.schema import facts


class SetLimits:
    """From its commit on these are the budgets: an operation of the group commit, between two groups. `reconciles`: and
    what the ledger has booked is all that was spent."""

    reads = True

    def __init__(
        self, budgets: Sequence[Budget], drivers: Drivers, unsure_ms: int | None, now_ms: int, *,
        reconciles: bool = False,
    ) -> None:  # fmt: skip
        self._purse = Purse(budgets, drivers)
        self._unsure_ms = unsure_ms
        self._now_ms = now_ms
        self._reconciles = reconciles

    def prepare(self, connection: Connection) -> None:
        self._purse.read(connection, self._now_ms, self._unsure_ms)

    def plan(self, batch: Batch) -> None:
        """First of all effects: what the group books is not in the ledger that was read."""
        batch.effects.insert(0, lambda: setattr(batch.memory, "purse", self._purse))
        if self._reconciles:
            batch.write(delete(facts).where(facts.c.name == UNSURE_FACT))
            batch.effects.append(lambda: batch.memory.facts.pop(UNSURE_FACT, None))

    def answer(self, specs: Mapping[int, bytes]) -> None:
        return None
