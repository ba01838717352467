"""Fakes that know their dispatchers: at the end of a test each has what the others know, and nothing that nobody does.

What a fake has is its `Inventory`, by the ids that dispatchers use; what is compared with what is here, for all clouds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a fake has. `living`: what bills, or is about to. `there`: each VM that there is, off or failed ones too,
    and what its guest is called on this host. `ran`, `made`: all that ever did, and those that failed before. `loose`:
    disks, interfaces and addresses that belong to no VM."""

    living: frozenset[str]
    there: Mapping[str, str]
    ran: frozenset[str]
    made: frozenset[str]
    loose: tuple[str, ...] = ()


def compared(has: Inventory, ever: Iterable[str], now: frozenset[str], guests: Iterable[str]) -> list[str]:
    """In what a fake and its dispatchers are not alike. `ever`: the VM of each instance of theirs that had one, `now`:
    of those that are not gone; `guests`: which run on this host."""
    known = Counter(ever)
    found = [f"{vm} is {times} instances" for vm, times in known.items() if times > 1]
    found += [f"{vm} lives and is unknown" for vm in has.living - now]
    found += [f"{vm} is off and unknown" for vm in has.there.keys() - has.living - now]
    found += [f"{vm} is known and does not live" for vm in now - has.living]
    found += [f"{vm} was launched and never known" for vm in has.ran - set(known)]
    found += [f"{vm} is known and was never launched" for vm in set(known) - has.made]
    found += [f"{guest} runs and is no instance" for guest in set(guests) - set(has.there.values())]
    return found + [f"{what} belongs to no VM" for what in has.loose]


class Watched:
    """Mixed into a fake. Leaving it ends its dispatchers, and fails where inventory and state are not alike, or where
    something was asked for that the fake has not."""

    #: Deployments on it: each has a `house` and `guests`, and can be closed.
    accounts: list[Any]
    patience_s: float

    def inventory(self) -> Inventory:
        """What there is."""
        raise NotImplementedError

    def differences(self) -> list[str]:
        """In what inventory and state are not alike: each VM that lives is one instance of a dispatcher's, each that
        ever was has been one and no more, none is off that nobody knows, and no part is without a VM."""
        houses = [account.house for account in self.accounts]
        ever = [row["vm"] for house in houses for row in house.instances(past=True) if row["vm"]]
        now = frozenset(row["vm"] for house in houses for row in house.instances() if row["vm"])
        guests = [name for account in self.accounts for name in account.guests.running()]
        return compared(self.inventory(), ever, now, guests)

    def until_alike(self) -> None:
        """Inventory and state are alike, soon."""
        deadline = time.monotonic() + self.patience_s
        while found := self.differences():
            assert time.monotonic() < deadline, f"inventory and state are not alike: {', '.join(found)}"
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        try:
            if kind is None:
                self.until_alike()
        finally:
            for account in self.accounts:
                account.close()
            super().__exit__(kind, error, trace)  # type: ignore[misc]
