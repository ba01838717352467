"""Whether the tables have the past that this dispatcher wrote. Owns the mark in those that have not.

A database that fails over to a replica which lagged, or whose disk goes back to a snapshot, has lost commits that were
acknowledged: tasks that were accepted, tokens that were handed out. Going on from either past would hand out tokens
twice. So each transaction must follow the last one, by its number; where it can't, nothing more is written, and an
operator has to say (`db restored`) that the tables are what is left.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, insert, select
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.statestore.schema import counters, facts

#: The counter that holds the number of the last transaction.
COMMIT = "commit"
#: The fact that tables carry which were found older than what had been written: "FOUND of WRITTEN", two such numbers.
FALLEN_BACK_FACT = "fallen-back"
#: The fact that says when the tables were made from a copy for the last time, in ms since the epoch. It stays.
RESTORED_FACT = "restored-at"
HINT = "stop the dispatcher, look which tasks are missing, then `cloud-dispatch db restored`, and start it again"


class AnotherPast(StoreUnavailable):
    """The tables are not as the last transaction left them: nothing may follow it there."""


def last_commit(connection: Connection) -> int:
    """The number of the last transaction that was committed."""
    return int(connection.scalar(select(counters.c.value).where(counters.c.name == COMMIT)) or 0)


def mark_fallen_back(connection: Connection, found: int, written: int) -> None:
    """Have no dispatcher start on these tables before an operator knows."""
    unmark(connection)
    connection.execute(insert(facts).values(name=FALLEN_BACK_FACT, value=f"{found} of {written}"))


def unmark(connection: Connection) -> None:
    connection.execute(delete(facts).where(facts.c.name == FALLEN_BACK_FACT))


def describe(known: Mapping[str, str]) -> str:
    """What the mark among the facts `known` says, "" where there is none."""
    found, _, written = known.get(FALLEN_BACK_FACT, "").partition(" of ")
    return f"the statestore has fallen back to its commit {found} of {written}" if written else ""


def refuse_fallen_back(known: Mapping[str, str]) -> None:
    """AnotherPast where the facts `known` of a store have the mark."""
    said = describe(known)
    if said:
        raise AnotherPast(said, hint=HINT)
