"""Bugs of spending, to be planted: each lets some meter pass a limit, and each has to be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.reconcile import launch, observe, restored
from cloud_dispatch.reconcile import spend as spending
from cloud_dispatch.reconcile.spend import Spending
from cloud_dispatch.spend import clocks
from cloud_dispatch.spend import instances as money
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.ends import Extension
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.statestore import copying, departures
from cloud_dispatch.statestore.purse import Purse

Plant = Callable[[pytest.MonkeyPatch], None]


def admits_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Standing, "refusal", lambda *_: None)
    patch.setattr(Standing, "room", lambda self, wanted, most: most)


def forgets_the_hands_slowness(patch: pytest.MonkeyPatch) -> None:
    """A commitment ends with the hard end."""
    for module in (launch, observe, spending):
        patch.setattr(module, "lag_ms", lambda *_: 0)


def tells_before_it_commits(patch: pytest.MonkeyPatch) -> None:
    committed = Spending._extend

    async def tell_first(self: Spending, extension: Extension, row: Instance, now: int) -> None:
        await self._told_of(self._c.settings.providers[row.profile], [row.vm], extension.ends_ms)
        await committed(self, extension, row, now)

    patch.setattr(Spending, "_extend", tell_first)


def books_the_price_of_the_moment(patch: pytest.MonkeyPatch) -> None:
    """A row has the price at which the VM was launched, spot or not."""
    booked = money.booking_of

    def at_its_price(own: Instance, *args: Any) -> Any:
        return booked(replace(own, max_rate=Rate(own.rate or 0)), *args)

    patch.setattr(departures, "booking_of", at_its_price)


def forgets_that_it_came_from_a_backup(patch: pytest.MonkeyPatch) -> None:
    for fact in ("UNSURE_FACT", "RESTORED_FACT"):
        patch.setattr(copying, fact, f"not-{fact}")


def takes_the_unseen_for_unspent(patch: pytest.MonkeyPatch) -> None:
    """Once a restore has no more to say, what no listing has shown since is nothing."""
    patch.setattr(restored, "_unshown", lambda *_: ())


def looks_at_the_first_window_alone(patch: pytest.MonkeyPatch) -> None:
    """What reaches into a later window is not held against that one."""
    touched = Standing._touched

    def first_of_each(self: Standing, wanted: Commitment) -> Iterator[Any]:
        seen = set()
        for budget, span in touched(self, wanted):
            if budget not in seen:
                seen.add(budget)
                yield budget, span

    patch.setattr(Standing, "_touched", first_of_each)


def forgets_what_is_in_doubt(patch: pytest.MonkeyPatch) -> None:
    """An intent without an answer has no commitment."""
    standing = Purse.standing

    def answered(self: Purse, rows: Any, *args: Any, **more: Any) -> Standing:
        known = (row for row in rows if row.vm or row.state is not InstanceState.LAUNCHING)
        return standing(self, known, *args, **more)

    patch.setattr(Purse, "standing", answered)


def believes_its_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clocks, "CLOCKS_MS", 0)


def books_nothing(patch: pytest.MonkeyPatch) -> None:
    """What is gone has cost nothing."""
    patch.setattr(Purse, "_book", lambda *_: None)


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        admits_everything,
        forgets_the_hands_slowness,
        tells_before_it_commits,
        books_the_price_of_the_moment,
        forgets_that_it_came_from_a_backup,
        takes_the_unseen_for_unspent,
        looks_at_the_first_window_alone,
        forgets_what_is_in_doubt,
        believes_its_clock,
        books_nothing,
    )
}
