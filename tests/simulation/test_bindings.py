"""Agents that register while an answer says which VM is which slot: a VM is one instance, whoever comes first."""

from __future__ import annotations

import pytest

from cloud_dispatch.simulation.generate import BELATED, of_theme
from cloud_dispatch.simulation.run import run
from cloud_dispatch.statestore import instances
from tests.simulation.scenes import broken

SEEDS = 15


@pytest.mark.parametrize("theme", BELATED)
def test_every_promise_holds_when_answers_come_as_late_as_agents(theme: str) -> None:
    assert broken(theme, SEEDS) == ""


def test_a_store_that_binds_a_vm_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: whoever binds last is right, as it was before CI met the race once in some hundred runs."""
    monkeypatch.setattr(instances.Change, "_bind", staticmethod(lambda *_: None))
    monkeypatch.setattr(instances, "_free", lambda *_: None)
    outcomes = (run(of_theme("late-answers", seed), keep=50) for seed in range(SEEDS))
    first = next((outcome.findings[0] for outcome in outcomes if outcome.findings), None)
    assert first is not None
    assert first.checker == "P7 identities"
    assert first.text.endswith("too"), first.text
