"""The kill switch in whole runs: it holds over crashes, ends what it says, and lets everything go on afterwards."""

from __future__ import annotations

import re

import pytest

from cloud_dispatch.domain import stop
from cloud_dispatch.domain.stop import StopLevel
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import POINTS, Fault, FaultKind
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Work
from tests.simulation.scenes import scene

STOPPED_MS, LIFTED_MS = 60_000, 900_000
LEVELS = tuple(StopLevel)
WORK = (Work(count=48, conduct=Conduct(run_ms=60_000)),)


def stopped(level: StopLevel, *faults: Fault, cloud: Cloud = Cloud.GCE) -> Outcome:
    pulled = Fault(FaultKind.STOP_ALL, STOPPED_MS, LIFTED_MS, which=LEVELS.index(level))
    outcome = run(scene(cloud, work=WORK, faults=(pulled, *faults)), keep=200_000)
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 48  # type: ignore[index]
    return outcome


def lives(outcome: Outcome) -> list[tuple[int, int]]:
    """When VMs came into being and were no more by their clouds' own word, milliseconds of the run."""
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    said = re.findall(r"^ *(\d+) (\S+) (pending|gone)$", outcome.journal.text(), re.M)
    for moment, vm, what in said:
        (begun if what == "pending" else ended).setdefault(vm, int(moment))
    return sorted((at, ended[vm]) for vm, at in begun.items())


@pytest.mark.parametrize("cloud", Cloud)
@pytest.mark.parametrize("level", LEVELS[1:])
def test_nothing_is_launched_while_it_holds(level: StopLevel, cloud: Cloud) -> None:
    outcome = stopped(level, cloud=cloud)
    assert any(begun < STOPPED_MS for begun, _ in lives(outcome)), "the scene shows nothing"
    assert not [begun for begun, _ in lives(outcome) if STOPPED_MS + 5_000 < begun < LIFTED_MS]


@pytest.mark.parametrize("cloud", Cloud)
def test_the_end_of_everything_is_soon(cloud: Cloud) -> None:
    outcome = stopped(StopLevel.TERMINATE, cloud=cloud)
    assert max(end for begun, end in lives(outcome) if begun < LIFTED_MS) < STOPPED_MS + 120_000


def test_a_drain_lets_what_runs_finish() -> None:
    """Nothing is lost: no task is begun twice."""
    outcome = stopped(StopLevel.DRAIN)
    assert max(end for begun, end in lives(outcome) if begun < LIFTED_MS) < STOPPED_MS + 300_000
    assert "instance-lost" not in outcome.journal.text()


@pytest.mark.parametrize("point", POINTS)
def test_it_is_kept_over_crashes(point: str) -> None:
    """The dispatcher dies at once after it, again and again."""
    crashes = [
        Fault(FaultKind.CRASH, STOPPED_MS + at, amount=10_000, which=1, point=point) for at in (500, 30_000, 200_000)
    ]
    outcome = stopped(StopLevel.TERMINATE, *crashes)
    assert not [begun for begun, _ in lives(outcome) if STOPPED_MS + 5_000 < begun < LIFTED_MS]


def test_one_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: the fact is written, and not read at the next start."""
    monkeypatch.setattr("cloud_dispatch.assembly.decode_stop", lambda _: stop.Stop())
    crash = Fault(FaultKind.CRASH, STOPPED_MS + 30_000, amount=10_000)
    outcome = stopped(StopLevel.TERMINATE, crash)
    assert [begun for begun, _ in lives(outcome) if STOPPED_MS + 5_000 < begun < LIFTED_MS]


def test_a_store_that_fails_does_not_keep_vms_running() -> None:
    """It holds in memory at once; what was asked is stored as soon as that is possible again."""
    failing = Fault(FaultKind.STORE_FAILS, STOPPED_MS - 1_000, STOPPED_MS + 20_000)
    outcome = stopped(StopLevel.LAUNCHES, failing)
    assert not [begun for begun, _ in lives(outcome) if STOPPED_MS + 5_000 < begun < LIFTED_MS]


@pytest.mark.parametrize("text", ["", "x", "{}", '{"level": "everything", "why": "", "since_ms": 0}', "[]", "null"])
def test_what_can_not_be_read_stops_launches(text: str) -> None:
    assert stop.decode(text).level is StopLevel.LAUNCHES


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_kept_is_read_again(level: StopLevel) -> None:
    one = stop.Stop(level, 'why, "so"', 17)
    assert stop.decode(stop.encode(one)) == one
    assert stop.decode(None) == stop.Stop()


def test_who_pulls_it_while_the_dispatcher_is_down_lets_go_of_it_after_that() -> None:
    """Both wait for the dispatcher: let go of first it would hold for ever."""
    down = Fault(FaultKind.CRASH, 50_000, amount=600_000)
    pulled = Fault(FaultKind.STOP_ALL, 60_400, 70_100, which=LEVELS.index(StopLevel.LAUNCHES))
    outcome = run(scene(faults=(down, pulled)), keep=20_000)
    assert outcome.ok, outcome.findings
    said = re.findall(r"operator stops (\S+)", outcome.journal.text())
    assert said == [str(StopLevel.LAUNCHES), str(StopLevel.NOTHING)]


@pytest.mark.parametrize(
    ("lifted_ms", "copied_ms", "level"),
    [(70_000, 65_000, StopLevel.NOTHING), (600_000, 55_000, StopLevel.LAUNCHES)],
    ids=["it was let go of meanwhile", "it was pulled meanwhile"],
)
def test_a_copy_has_the_switch_elsewhere_and_its_operator_sees_it(
    lifted_ms: int, copied_ms: int, level: StopLevel
) -> None:
    """He has it where it was before the store went back."""
    pulled = Fault(FaultKind.STOP_ALL, 60_000, lifted_ms, which=LEVELS.index(StopLevel.LAUNCHES))
    back = Fault(FaultKind.RESTORE, 90_000, amount=90_000 - copied_ms)
    outcome = run(scene(faults=(pulled, back)), keep=20_000)
    assert outcome.ok, outcome.findings
    said = re.findall(r"operator stops (\S+)", outcome.journal.text())
    before = [StopLevel.LAUNCHES, *[StopLevel.NOTHING] * (lifted_ms < 90_000)]
    assert said[: len(before) + 1] == [*map(str, before), str(level)]


def test_what_was_let_go_of_since_is_not_pulled_again() -> None:
    """The database lost commits, and the dispatcher was down until after the switch had been let go of."""
    pulled = Fault(FaultKind.STOP_ALL, 60_000, 300_000, which=LEVELS.index(StopLevel.LAUNCHES))
    faults = (pulled, Fault(FaultKind.FALL_BACK, 80_000, amount=1_000), Fault(FaultKind.CRASH, 90_000, amount=600_400))
    outcome = run(scene(faults=faults), keep=20_000)
    assert outcome.ok, outcome.findings
    assert re.findall(r"operator stops (\S+)", outcome.journal.text())[-1] == str(StopLevel.NOTHING)
