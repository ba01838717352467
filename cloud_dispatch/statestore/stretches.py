"""Attempts of one instance without an index by instance. Owns how tokens are cut into stretches, and the lookup.

An index by instance has as many places where it grows as there are instances, and every commit wrote a page of each. By
stretch of tokens and instance it grows in one place of some ten pages; a lookup asks each stretch with attempts once,
a few microseconds each, and there is one for every thousand attempts.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Select, and_, func, select

from cloud_dispatch.statestore.schema import attempts

_BITS = 10


def stretch_of(token: int) -> int:
    """The stretch that `token` belongs to; 1,024 tokens have the same."""
    return token >> _BITS


def of_instance(instance: str | BindParameter[str], *columns: Any) -> Select[Any]:
    """`columns` of the attempts that ended on `instance`, in no order."""
    any_one = attempts.alias()
    stretches = select(func.min(any_one.c.stretch).label("number")).cte("stretches", recursive=True)
    following = select(func.min(any_one.c.stretch)).where(any_one.c.stretch > stretches.c.number)
    stretches = stretches.union_all(
        select(following.correlate(stretches).scalar_subquery()).where(stretches.c.number.is_not(None))
    )
    here = and_(attempts.c.stretch == stretches.c.number, attempts.c.instance == instance)
    return select(*columns).select_from(stretches.join(attempts, here))
