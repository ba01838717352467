"""Shrinking: a failing scenario gets small, and still fails for the same reason."""

from __future__ import annotations

import pytest

from cloud_dispatch.simulation import __main__ as command
from cloud_dispatch.simulation.checkers.base import Checker
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario, Work, decode, encode
from cloud_dispatch.simulation.shrink import shrink
from tests.simulation.scenes import scene


class NoDeath(Checker):
    """A promise that nobody made: the dispatcher never dies while a VM lives."""

    name = "planted"

    def vm_changed(self, vm: TrueVm) -> None:
        if self.view.store is None and self.view.alive:
            self.find("the dispatcher is down while a VM lives")


def planted(scenario: Scenario) -> Outcome:
    return run(scenario, checkers=(NoDeath,), keep=10)


def test_what_does_not_matter_is_left_out() -> None:
    """Of five faults and twelve tasks, the crash and little work remain."""
    faults = (
        Fault(FaultKind.LOSS, 5_000, 9_000, amount=5),
        Fault(FaultKind.CRASH, 6_000, amount=60_000),
        Fault(FaultKind.DELAY, 20_000, 22_000, amount=50),
        Fault(FaultKind.STORE_SLOW, 90_000, 92_000, amount=5),
        Fault(FaultKind.CANCEL, 95_000),
    )
    work = (Work(count=6, conduct=Conduct(run_ms=20_000)), Work(count=6, submit_ms=1_000))
    outcome = planted(scene(faults=faults, work=work))
    assert outcome.broken == {"planted"}
    small = shrink(outcome, runner=planted, tries=60)
    assert [fault.kind for fault in small.scenario.faults] == [FaultKind.CRASH]
    assert small.scenario.tasks == 1
    assert small.outcome.broken == {"planted"}
    assert not planted(decode(encode(small.scenario))).ok


def test_a_run_that_broke_nothing_is_not_shrunk() -> None:
    """There is nothing to look for in it."""
    with pytest.raises(ValueError, match="did not fail"):
        shrink(planted(scene()))


def test_a_failing_seed_names_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed of a failure can be pasted, and shows the same journal."""
    outcome = planted(scene(faults=(Fault(FaultKind.CRASH, 6_000, amount=60_000),)))
    said = command.explain(outcome, 7, "crashes")
    assert "python -m cloud_dispatch.simulation replay --seed 7 --theme crashes" in said
    assert "planted at" in said
    assert command.main(["replay", "--seed", "0", "--quiet"]) == 0
    assert run(command._of_seed(0, None)).digest in capsys.readouterr().out
    assert command.main(["replay", "--scenario", "/nowhere.json"]) == 2
