"""Hundreds of scenarios from seeds: every promise holds in each. A failing seed names the command that replays it."""

from __future__ import annotations

import pytest

from cloud_dispatch.simulation.__main__ import explain
from cloud_dispatch.simulation.generate import (
    ANSWERLESS,
    BELATED,
    BEREFT,
    CONFIGURED,
    DEMANDING,
    FROZEN,
    LEFT,
    MIXED,
    MONEY,
    RETIMED,
    SEVERAL,
    SHARED,
    STORELESS,
    THEMES,
    TURNS,
    generate,
    of_theme,
)
from cloud_dispatch.simulation.run import run

SEEDS = 330
MIXTURES = 30
#: Seeds of one test: few enough that the tests can be spread over workers.
TOGETHER = 15


@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_every_promise_holds(first: int) -> None:
    """Fifteen scenarios, of all themes in turn."""
    failed = []
    for seed in range(first, first + TOGETHER):
        outcome = run(generate(seed), keep=50)
        if not outcome.ok:
            failed.append(explain(outcome, seed))
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("first", range(0, MIXTURES, TOGETHER))
def test_every_promise_holds_whatever_comes_together(first: int) -> None:
    """Scenarios of which each has a few of all troubles, whichever they are."""
    failed = []
    for seed in range(first, first + TOGETHER):
        outcome = run(of_theme(MIXED, seed), keep=50)
        if not outcome.ok:
            failed.append(explain(outcome, seed, MIXED))
    assert not failed, "\n".join(failed)


def test_every_theme_has_its_turn() -> None:
    """The seeds that are run are of every theme, many times; money and several clouds have tests of their own."""
    themes = [generate(seed).name.rpartition("-")[0] for seed in range(SEEDS)]
    assert {themes.count(theme) for theme in TURNS} == {SEEDS // len(TURNS)}
    apart = {
        *MONEY,
        *SEVERAL,
        *CONFIGURED,
        *RETIMED,
        *BELATED,
        *BEREFT,
        *ANSWERLESS,
        *SHARED,
        *LEFT,
        *FROZEN,
        *DEMANDING,
        *STORELESS,
        MIXED,
    }
    assert {*TURNS, *apart} == THEMES.keys()
    assert (len(MONEY), len(SEVERAL), len(BELATED), len(BEREFT), len(ANSWERLESS), len(SHARED)) == (7, 4, 2, 2, 4, 9)
