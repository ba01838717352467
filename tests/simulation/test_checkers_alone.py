"""Checkers by themselves, told what happens by a test: what each counts, and what it must not complain of."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_dispatch.domain.ids import BatchId, FencingToken, InstanceId, ProfileName, TaskId, VmId
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.planner.snapshot import DriverCaps
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.simulation.checkers.base import Checker, overriding
from cloud_dispatch.simulation.checkers.caps import CapsKept
from cloud_dispatch.simulation.checkers.drains import Drains
from cloud_dispatch.simulation.checkers.ends import Ends
from cloud_dispatch.simulation.checkers.results import Results
from cloud_dispatch.simulation.facts import Commit, EndedAttempt, LiveTask
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.testing.store_builders import instance

S = InstanceState


@dataclass
class Truth:
    """As much of a run as these checkers look at."""

    scenario: Any = None
    alive: dict[VmId, TrueVm] = field(default_factory=dict)
    processes: dict[Any, Any] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def report(self, checker: str, text: str) -> None:
        self.found.append(text)


def capped(
    everything: Caps = Caps(), profiles: Caps = Caps(), pools: Caps = Caps(), drivers: Caps = Caps()
) -> tuple[Truth, CapsKept]:
    """Two profiles, drivers and pools, of which the first ones are capped."""
    truth = Truth(
        SimpleNamespace(
            caps=everything,
            driver_caps=(DriverCaps("d", (ProfileName("a"),), drivers), DriverCaps("e", (ProfileName("b"),), Caps())),
            pools=[SimpleNamespace(name="p", caps=pools), SimpleNamespace(name="q", caps=Caps())],
            accounts=[SimpleNamespace(profile="a", caps=profiles), SimpleNamespace(profile="b", caps=Caps())],
        )
    )
    return truth, CapsKept(truth)  # type: ignore[arg-type]


def made(truth: Truth, checker: CapsKept, profile: str, pool: str) -> TrueVm:
    """One more VM of two vCPUs."""
    vm = TrueVm(
        VmId(f"vm-{len(truth.alive)}"), profile, ProfileName(profile), BatchId("b"), "t", 2, "z", Market.SPOT, 0,
        pool=pool,
    )  # fmt: skip
    truth.alive[vm.id] = vm
    checker.vm_changed(vm)
    return vm


@pytest.mark.parametrize("caps", [Caps(instances=2), Caps(vcpus=4), Caps(vcpus=5)])
@pytest.mark.parametrize("level", ["everything", "profiles", "pools", "drivers"])
def test_a_cap_counts_what_is_of_its_level_and_nothing_else(caps: Caps, level: str) -> None:
    """As many as it admits are no finding, whatever else lives; one more is one, when it comes and not again."""
    truth, checker = capped(**{level: caps})
    others = 1 if level == "everything" else 4
    for profile, pool in (*[("b", "q")] * others, *[("a", "p")] * (1 if level == "everything" else 2)):
        made(truth, checker, profile, pool)
    assert truth.found == []
    late = made(truth, checker, "a", "p")
    (found,) = truth.found
    named = {"everything": "everything", "profiles": "profile a", "pools": "pool p", "drivers": "driver d"}
    assert f"the cap of {named[level]} is" in found
    late.state = VmState.STOPPING
    checker.vm_changed(late)
    assert len(truth.found) == 1


def commit(*instances: Instance, live: tuple[LiveTask, ...] = ()) -> Commit:
    return Commit((), live, (), (), instances, frozenset())


def claim(token: int, state: str = "claimed") -> LiveTask:
    """A claim of task 1 by the one instance."""
    return LiveTask(TaskId(1), state, 0, FencingToken(token), InstanceId("batch-0"))


@pytest.mark.parametrize(
    ("before", "at", "complains"),
    [
        (S.IDLE, S.IDLE, False),
        (S.IDLE, S.DRAINING, False),  # decided before it was told to drain
        (S.DRAINING, S.IDLE, False),  # after it was told to go on
        (S.DRAINING, S.DRAINING, True),
        (S.DRAINING, S.DRAINED, True),
        (S.FAILED, S.TERMINATING, True),
    ],
)
def test_work_is_handed_to_what_was_open_before_or_after_the_same_commit(
    before: InstanceState, at: InstanceState, complains: bool
) -> None:
    truth = Truth()
    checker = Drains(truth)  # type: ignore[arg-type]
    checker.committed(commit(instance(state=before)))
    checker.committed(commit(instance(state=at), live=(claim(7),)))
    assert bool(truth.found) == complains


def test_what_was_handed_out_before_a_drain_may_go_on_under_it() -> None:
    """It is no new one when it starts, and what waits is nobody's; another token is another claim."""
    truth = Truth()
    checker = Drains(truth)  # type: ignore[arg-type]
    checker.committed(commit(instance(state=S.IDLE), live=(claim(7),)))
    checker.committed(commit(instance(state=S.DRAINING)))
    checker.committed(commit(live=(claim(7, "running"), LiveTask(TaskId(2), "queued", 0, None, None))))
    assert truth.found == []
    checker.committed(commit(live=(claim(8),)))
    assert truth.found == ["task 1 was handed to instance batch-0, which is draining"]


def test_what_is_held_is_given_nothing() -> None:
    """But for a claim that comes with the hold itself; once let go it is given work again."""
    truth = Truth()
    checker = Drains(truth)  # type: ignore[arg-type]
    held = instance(state=S.IDLE, behaviour=Behaviour.HOLD)
    checker.committed(commit(instance(state=S.IDLE)))
    checker.committed(commit(held, live=(claim(7),)))
    assert truth.found == []
    checker.committed(commit(live=(claim(8),)))
    assert truth.found == ["task 1 was handed to instance batch-0, which is held"]
    checker.committed(commit(instance(state=S.IDLE)))
    checker.committed(commit(live=(claim(9),)))
    assert len(truth.found) == 1


@pytest.mark.parametrize(
    ("was", "behaviour", "cause", "complains"),
    [
        (S.BUSY, Behaviour.RUN, "idle", True),
        (S.OUT_OF_CONTACT, Behaviour.RUN, "out-of-contact", True),
        (S.DRAINING, Behaviour.RUN, "idle", True),
        (S.BUSY, Behaviour.RUN, "killed", False),
        (S.DRAINED, Behaviour.RUN, "idle", False),
        (S.FAILED, Behaviour.RUN, "unhealthy", False),
        (S.FAILED, Behaviour.HOLD, "unhealthy", True),
        (S.FAILED, Behaviour.HOLD, "killed", False),
    ],
)
def test_what_works_or_is_held_is_ended_by_an_operator_or_its_own_end_alone(
    was: InstanceState, behaviour: Behaviour, cause: str, complains: bool
) -> None:
    truth = Truth()
    checker = Ends(truth)  # type: ignore[arg-type]
    checker.committed(commit(instance(state=was, behaviour=behaviour)))
    checker.committed(commit(instance(state=S.TERMINATING, behaviour=behaviour, cause=cause)))
    assert bool(truth.found) == complains


def test_what_is_drained_runs_nothing_and_what_is_gone_stays_gone() -> None:
    """But for what can't be killed; on other VMs work goes on. After a restore nothing of it is known any more."""
    own = instance(state=S.DRAINING)
    there, elsewhere = (SimpleNamespace(id=vm) for vm in (own.vm, "vm-other"))
    truth = Truth(processes={1: SimpleNamespace(vm=elsewhere, task=5, unkillable=False)})
    truth.processes[2] = SimpleNamespace(vm=there, task=6, unkillable=True)
    checker = Drains(truth)  # type: ignore[arg-type]
    checker.committed(commit(own))
    checker.process_started(SimpleNamespace(vm=there, task=7))  # type: ignore[arg-type]
    checker.committed(commit(instance(state=S.DRAINED)))
    checker.process_started(SimpleNamespace(vm=elsewhere, task=8))  # type: ignore[arg-type]
    assert truth.found == []
    checker.process_started(SimpleNamespace(vm=there, task=9))  # type: ignore[arg-type]
    truth.processes[3] = SimpleNamespace(vm=there, task=9, unkillable=False)
    for state in (S.DRAINED, S.DRAINING, S.DRAINED, S.GONE, S.GONE, S.IDLE):
        checker.committed(commit(instance(state=state)))
    assert truth.found == [
        "task 9 starts on instance batch-0, which is drained",
        "instance batch-0 is drained, and task 9 still runs on it",
        "instance batch-0 was gone and is idle",
    ]
    checker.committed(commit(instance(state=S.GONE)))
    checker.restored()
    checker.committed(commit(instance(state=S.IDLE)))
    assert len(truth.found) == 3


def test_a_result_that_a_restored_store_has_forgotten_may_be_told_again() -> None:
    """An agent that did not hear the answer brings it once more; without a restore nothing is accepted twice."""

    def ends(token: int) -> Commit:
        attempt = EndedAttempt(6, token, 1, "i", str(Cause.SUCCESS), 0)
        return Commit(new_tasks=(), live=(), ended=(), attempts=[attempt], instances=(), pruned=frozenset())

    truth = Truth()
    checker = Results(truth)  # type: ignore[arg-type]
    checker.process_ended(SimpleNamespace(token=1, end=("success", 0, None)))  # type: ignore[arg-type]
    checker.committed(ends(1))
    checker.restored()
    checker.committed(ends(1))
    assert truth.found == []
    checker.committed(ends(1))
    checker.committed(ends(2))
    assert len(truth.found) == 2


def test_events_go_to_those_who_do_something_there() -> None:
    """Also to one whose method a test has put in its place."""
    truth, caps = capped()
    drains = Drains(truth)  # type: ignore[arg-type]
    assert overriding([drains, caps], Checker.committed) == [drains.committed]
    assert overriding([drains, caps], Checker.vm_changed) == [caps.vm_changed]
    seen: list[Commit] = []
    caps.committed = seen.append  # type: ignore[method-assign, assignment]
    assert overriding([drains, caps], Checker.committed) == [drains.committed, caps.committed]
