"""Scenarios in which a promise was broken once, shrunk and kept: each is replayed, and every promise holds in it now.

A file in `regressions/` is a scenario; its name field is the story in one line, its seed is for chance alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import read

FILES = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_was_broken_once_holds(file: Path) -> None:
    """The scenario's name tells what went wrong."""
    scenario = read(file)
    assert scenario.name.endswith("."), "the name is the story, a sentence"
    outcome = run(scenario, keep=200)
    assert outcome.ok, [scenario.name, *map(str, outcome.findings)]


def test_there_are_regressions_to_replay() -> None:
    """A folder that moved would leave nothing to test."""
    assert len(FILES) >= 4
