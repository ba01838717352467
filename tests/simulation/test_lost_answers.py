"""Commits of which nobody hears whether they were carried out: each is or is not, and the memory is as the tables are.

The answer is lost between the writer and its database (`BreakingLine`), half of the time after the transaction.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.generate import ANSWERLESS
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import Scenario
from cloud_dispatch.statestore import writer
from cloud_dispatch.statestore.memory import Memory
from tests.simulation.scenes import broken, scene

#: Looked up at once, and as soon as the database can be reached again.
MUTE = scene(faults=(Fault(FaultKind.STORE_MUTE, 1_000, 120_000, amount=50),), horizon_ms=1_200_000)
CUT = scene(
    faults=tuple(Fault(FaultKind.STORE_CUT, at, at + 2_000) for at in range(5_000, 120_000, 7_000)),
    horizon_ms=1_200_000,
)


@pytest.mark.parametrize(("theme", "seeds"), [*zip(ANSWERLESS, (15, 15, 6, 6), strict=True)])
def test_every_promise_holds_when_answers_are_lost(theme: str, seeds: int) -> None:
    assert broken(theme, seeds) == ""


@pytest.mark.parametrize("scenario", [MUTE, CUT], ids=["mute", "cut"])
def test_every_second_commit_without_an_answer(scenario: Scenario) -> None:
    assert run(scenario).findings == ()


def test_who_starts_while_the_database_is_away_starts_again_until_it_is_there() -> None:
    """It can't be opened, and the supervisor of the dispatcher goes on trying; the work goes on where it was."""
    away = Fault(FaultKind.STORE_CUT, 60_000, 90_000), Fault(FaultKind.CRASH, 65_000, amount=500)
    outcome = run(scene(faults=away, horizon_ms=1_200_000))
    assert outcome.findings == ()
    assert outcome.tasks[TaskState.SUCCEEDED] == 6
    tries = [line for line in outcome.journal if "dispatcher ended by itself" in line]
    assert 10 <= len(tries) <= 30
    assert all("can't" in line for line in tries), tries[0]


def test_who_is_stopped_while_the_database_is_away_ends_cleanly() -> None:
    """Letting go of what can't be reached needs no answer; the next one finds all that was committed."""
    away = Fault(FaultKind.STORE_CUT, 60_000, 90_000), Fault(FaultKind.STOP, 65_000, amount=500)
    outcome = run(scene(faults=away, horizon_ms=1_200_000))
    assert outcome.findings == ()
    assert outcome.tasks[TaskState.SUCCEEDED] == 6


def _never_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever had no answer is made once more."""
    monkeypatch.setattr(writer.DatabaseWriter, "_look", lambda self, batch: None)


def _always_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever had no answer is taken for made."""
    real = writer.DatabaseWriter._look

    def look(self: writer.DatabaseWriter, batch: writer.Batch) -> dict[int, bytes] | None:
        return real(self, batch) or dict.fromkeys(batch.read_specs, b'{"argv":["true"]}')

    monkeypatch.setattr(writer.DatabaseWriter, "_look", look)


def _not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory goes on from where it was."""
    monkeypatch.setattr(Memory, "become", lambda self, other: None)


@pytest.mark.parametrize(
    ("plant", "scenario"), [(_never_landed, MUTE), (_always_landed, MUTE), (_not_loaded, CUT)]
)  # fmt: skip
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert run(scenario).findings
