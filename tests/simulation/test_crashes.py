"""The dispatcher dies at one place of a small scenario after the other: whichever it is, every promise holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.simulation import __main__ as command
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.crashes import crashed_at, every
from cloud_dispatch.simulation.faults import POINTS, Fault
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import Scenario, Work, encode
from tests.simulation.scenes import scene

#: Of the steps one in four is tried here; all of them are `python -m cloud_dispatch.simulation crashes`.
FIRST, STRIDE = (1, 5, 9), 12
WORK = (Work(count=3, conduct=Conduct(run_ms=3_000), expected_ms=60_000),)


def small(cloud: Cloud, *faults: Fault) -> Scenario:
    """From nothing over a launch and three tasks to nothing."""
    return scene(cloud, work=WORK, faults=faults)


@pytest.mark.parametrize("cloud", Cloud)
@pytest.mark.parametrize("first", FIRST)
def test_a_death_at_any_step_breaks_nothing(cloud: Cloud, first: int) -> None:
    """Steps of the launch, the boot, the work, the drain and the end, some hundreds of them."""
    outcomes = list(every(small(cloud), "step", first=first, stride=STRIDE))
    assert len(outcomes) > 20
    assert not [(o.scenario.name, *map(str, o.findings)) for o in outcomes if not o.ok]


@pytest.mark.parametrize("cloud", Cloud)
def test_a_death_around_any_effect_breaks_nothing(cloud: Cloud) -> None:
    """After each commit, before and after each launch, listing and termination."""
    outcomes = [outcome for point in POINTS if point != "step" for outcome in every(small(cloud), point)]
    assert len(outcomes) > 20
    assert {o.scenario.faults[-1].point for o in outcomes} == set(POINTS) - {"step"}
    assert not [(o.scenario.name, *map(str, o.findings)) for o in outcomes if not o.ok]


def test_the_enumeration_ends_behind_the_last_passing() -> None:
    """Each passing is died at once, in order; the first run in which nobody dies is not given."""
    outcomes = list(every(small(Cloud.GCE), "launch asked"))
    assert [o.scenario.faults[-1].which for o in outcomes] == list(range(1, len(outcomes) + 1))
    assert all(o.deaths == 1 for o in outcomes)
    assert not run(crashed_at(small(Cloud.GCE), "launch asked", len(outcomes) + 1), keep=1).deaths
    with pytest.raises(ValueError, match="is no point"):
        next(every(small(Cloud.GCE), "lunch"))


def test_the_command_lets_it_die_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`crashes` takes a scenario file, and says how many deaths it tried."""
    file = tmp_path / "scenario.json"
    file.write_bytes(encode(small(Cloud.GCE)))
    assert command.main(["crashes", "--scenario", str(file), "--point", "terminate asked"]) == 0
    assert "0 of them broke a promise" in capsys.readouterr().out
