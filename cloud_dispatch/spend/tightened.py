"""Limits that an operator has tightened. Owns that the configuration's word is the loosest, and the stored form.

What an operator sets holds beside the configuration: of both the lower one counts, today's and that of every later
configuration. So neither a forgotten setting nor an edited file can raise what the other one forbids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.money import Amount, format_amount
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window

#: The fact of the statestore that keeps them.
TIGHTENED_FACT = "tightened-limits"
Tightened = Mapping[tuple[Key, Window], Amount]
_SCOPES, _WINDOWS = tuple(Scope), tuple(Window)


def in_force(configured: Iterable[Budget], tightened: Tightened) -> tuple[Budget, ...]:
    """The limits that hold, sorted by scope, name and window. One that the configuration does not have notifies as
    budgets do that say nothing of it."""
    limits = {(budget.key, budget.window): budget for budget in configured}
    for (key, window), limit in tightened.items():
        known = limits.get((key, window))
        lower = Budget(key, window, limit) if known is None else replace(known, limit=min(known.limit, limit))
        limits[key, window] = lower
    return tuple(sorted(limits.values(), key=_order))


def set_limit(
    configured: Sequence[Budget], tightened: Tightened, key: Key, window: Window, limit: Amount | None
) -> Tightened:
    """With another limit, or (None) with the configuration's alone. InvalidInput for one above the configuration's."""
    rest = {which: amount for which, amount in tightened.items() if which != (key, window)}
    if limit is None:
        return rest
    budget = Budget(key, window, limit)
    said = next((one.limit for one in configured if (one.key, one.window) == (key, window)), None)
    if said is not None and limit > said:
        raise InvalidInput(
            f"the configuration limits {budget.name} to {format_amount(said)}: it can only be tightened here",
            place="limit",
            hint="raise it in the configuration file and start the dispatcher again",
        )
    return {**rest, (key, window): limit}


def encode(tightened: Tightened) -> str:
    """As the statestore keeps it."""
    return json.dumps([[*key, window, limit] for (key, window), limit in sorted(tightened.items())])


def decode(text: str | None) -> Tightened:
    """What `encode` wrote; None is nothing. InvalidInput for what can't be read: nobody knows what holds then."""
    try:
        kept = [] if text is None else json.loads(text)
        return {(Key(Scope(s), str(n)), Window(w)): Amount(_whole(limit)) for s, n, w, limit in kept}
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f"the limits that an operator has set can't be read ({error})",
            place=f"fact {TIGHTENED_FACT!r} of the statestore",
            hint="restore a backup, or delete that row of the table `facts` and set them again",
        ) from None


def _whole(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise ValueError(f"{limit!r} is no amount")
    return limit


def _order(budget: Budget) -> tuple[int, str, int]:
    return _SCOPES.index(budget.key.scope), budget.key.name, _WINDOWS.index(budget.window)
