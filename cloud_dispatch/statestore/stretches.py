"""Attempts of one instance without an index by instance. Owns how tokens are cut into stretches, and the lookup.

An index by instance has as many places where it grows as there are instances, and every commit wrote a page of each. By
stretch of tokens and instance it grows in one place of some ten pages; a lookup asks each stretch once, a few
microseconds each, and there is one for every thousand attempts that the store ever saw.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Select, and_, cast, literal_column, select

from cloud_dispatch.statestore.schema import attempts, counters

_BITS = 10


def stretch_of(token: int) -> int:
    """The stretch that `token` belongs to; 1,024 tokens have the same."""
    return token >> _BITS


def of_instance(instance: str, *columns: Any) -> Select[Any]:
    """`columns` of the attempts that ended on `instance`, in no order."""
    newest = counters.c.value.op(">>")(literal_column(str(_BITS)))
    last = select(newest).where(counters.c.name == "token").scalar_subquery()
    stretches = select(cast(0, BigInteger).label("number")).cte("stretches", recursive=True)
    stretches = stretches.union_all(select(stretches.c.number + 1).where(stretches.c.number < last))
    here = and_(attempts.c.stretch == stretches.c.number, attempts.c.instance == instance)
    return select(*columns).select_from(stretches.join(attempts, here))
