"""Each margin of money is seen to be missing: in scenarios in which no other stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.spi import Traits
from cloud_dispatch.reconcile import launch, observe, offers
from cloud_dispatch.reconcile import spend as spending
from cloud_dispatch.reconcile.settings import Settings
from cloud_dispatch.simulation.checkers.spend import Spend
from cloud_dispatch.simulation.generate import of_theme
from cloud_dispatch.simulation.run import run
from cloud_dispatch.spend import instances, standing
from cloud_dispatch.spend.clocks import CLOCKS_MS
from cloud_dispatch.statestore import purse

THEME = "money-to-the-last-cent"
_NO_CLOCKS = SimpleNamespace(CLOCKS_MS=0)
Plant = Callable[[pytest.MonkeyPatch], None]


def _lag_without(part: Callable[[Traits], int]) -> Plant:
    """A VM is thought to bill less long after its hard end."""
    lag_ms = spending.lag_ms

    def plant(patch: pytest.MonkeyPatch) -> None:
        def less(settings: Settings, profile: ProfileName) -> int | None:
            whole_ms = lag_ms(settings, profile)
            return None if whole_ms is None else whole_ms - part(settings.providers[profile].traits)

        for module in (spending, launch, observe, offers):
            patch.setattr(module, "lag_ms", less)

    return plant


def _books_what_its_clock_says(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(instances, "clocks", _NO_CLOCKS)


def _is_in_the_next_window_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(standing, "clocks", _NO_CLOCKS)
    patch.setattr(purse, "clocks", _NO_CLOCKS)


def overspent(seed: int) -> list[str]:
    """What the clouds' meters have beyond a limit. Nothing else is asked: no other checker need look."""
    found = run(of_theme(THEME, seed), checkers=(Spend,), keep=20, sought=Spend.name).findings
    return [str(one) for one in found if one.checker == Spend.name]


@pytest.mark.parametrize(
    ("seed", "plant"),
    [
        pytest.param(98, _lag_without(lambda traits: traits.hard_end_period_ms), id="of the hand that ends"),
        pytest.param(78, _lag_without(lambda traits: traits.stop_lag_ms), id="of a VM that stops"),
        pytest.param(6, _lag_without(lambda traits: CLOCKS_MS), id="of the hand's clock"),
        pytest.param(4, _books_what_its_clock_says, id="of the clock that books"),
        pytest.param(12, _is_in_the_next_window_at_once, id="of the clock at a window's edge"),
    ],
)
def test_a_margin_that_is_missing_is_found(seed: int, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is found where all are there."""
    assert overspent(seed) == []
    plant(monkeypatch)
    assert overspent(seed) != []
