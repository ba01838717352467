"""The statestore loses commits under the dispatcher that lives on: it writes nothing more until an operator knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloud_dispatch.simulation.faults import NOTICED_MS, Fault, FaultKind
from cloud_dispatch.simulation.generate import BEREFT, of_theme
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.world import World
from cloud_dispatch.statestore import batch, writer
from cloud_dispatch.statestore.lineage import AnotherPast
from tests.simulation.scenes import broken, scene

SEEDS = 15
LOST = Fault(FaultKind.FALL_BACK, 75_000, amount=20_000)


@pytest.fixture
def estranged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[AnotherPast]]:
    """What was said to those who would have written."""
    said: list[AnotherPast] = []
    real = writer.DatabaseWriter._estrange

    def watched(self: Any) -> AnotherPast:
        said.append(real(self))
        return said[-1]

    monkeypatch.setattr(writer.DatabaseWriter, "_estrange", watched)
    return said  # type: ignore[return-value]


@pytest.mark.parametrize("theme", BEREFT)
def test_every_promise_holds_when_commits_are_lost(theme: str, estranged: list[AnotherPast]) -> None:
    assert broken(theme, SEEDS) == ""
    assert estranged


def test_nothing_is_written_before_an_operator_knows(estranged: list[AnotherPast]) -> None:
    """Not until he has stopped the dispatcher and said so; then the work goes on under new tokens."""
    commits: list[tuple[int, int]] = []

    def watch(world: World) -> None:
        tell = world.committed

        def committed(rows: batch.Batch) -> None:
            commits.append((world.now_ms, world.deaths))
            tell(rows)

        world.committed = committed  # type: ignore[method-assign]

    outcome = run(scene(faults=(LOST,)), prepare=watch)
    assert (outcome.ok, outcome.deaths, len(estranged)) == (True, 1, 1), outcome.findings
    assert not [at for at, deaths in commits if LOST.at_ms < at and not deaths]
    assert [at for at, deaths in commits if LOST.at_ms + NOTICED_MS <= at and deaths]


def test_a_store_that_follows_on_any_past_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the counters are written without a look at what they were, as it was before."""

    def blind(cursor: Any, statements: batch.Statements, rows: batch.Batch) -> None:
        numbers = {**{name: new for name, (new, _) in rows.counters.items()}, "commit": rows.serial}
        cursor.executemany("UPDATE counters SET value = ? WHERE name = ?", [(n, name) for name, n in numbers.items()])

    monkeypatch.setattr(batch, "_count_on", blind)
    # Some of the first seeds find it too: by a store that stays down, which takes a simulated life to be sure of.
    outcomes = (run(of_theme(BEREFT[0], seed), keep=50) for seed in range(SEEDS, 3 * SEEDS))
    assert next((outcome.findings for outcome in outcomes if outcome.findings), None)
