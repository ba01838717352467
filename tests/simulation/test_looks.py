"""How often checkers look at everything, and when a run is found to be over."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.simulation import world as worlds
from cloud_dispatch.simulation.checkers.base import Checker
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.simulation.world import LOOK_MS, World
from tests.simulation.scenes import scene


class Looks(Checker):
    """Notes when it is asked for a look, and how many VMs there are."""

    name = "looks"
    seen: list[tuple[int, int]]

    def look(self) -> None:
        self.seen.append((self.view.now_ms, len(self.view.alive)))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The looks of the run that follows."""
    looks: list[tuple[int, int]] = []
    monkeypatch.setattr(Looks, "seen", looks, raising=False)
    return looks


def test_a_fleet_of_tens_is_looked_at_every_few_seconds(seen: list[tuple[int, int]]) -> None:
    """What a look costs spaces nothing out until there are many VMs."""
    tens = scene(work=(Work(count=200, conduct=Conduct(run_ms=60_000)),), caps=Caps(instances=40))
    run(tens, checkers=(Looks,), keep=10)
    assert max(vms for _, vms in seen) > 20
    *every, _last_word = [moment for moment, _ in seen]
    assert every == [LOOK_MS * (number + 1) for number in range(len(every))]


def test_looks_at_a_large_fleet_are_spaced_by_its_size(
    seen: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a look at n VMs the next one comes n times so much later, at the next moment of the usual ones."""
    monkeypatch.setattr(worlds, "LOOK_MS_A_VM", 4_000)
    run(scene(), checkers=(Looks,), keep=10)
    *every, _last_word = seen
    assert max(vms for _, vms in every) > 1
    for (moment, vms), (following, _) in pairwise(every):
        assert following == moment + max(-(-4_000 * vms // LOOK_MS), 1) * LOOK_MS


def test_a_run_ends_at_the_first_look_at_which_it_is_over() -> None:
    """Not to ask while a VM lives moves no end: asked at each half second as well, the answer is the same."""
    moments: list[int] = []

    def prepare(world: World) -> None:
        def ask() -> None:
            if world.over:
                moments.append(world.now_ms)
            world.at(world.now_ms + 500, ask)

        world.at(500, ask)

    outcome = run(scene(), prepare=prepare, keep=10)
    assert outcome.ok, outcome.findings
    assert moments in ([], [outcome.virtual_ms])
    assert outcome.virtual_ms % 500 == 0


def test_nobody_looks_whether_it_is_over_while_work_is_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours between two tasks: they take no look each half second, and the end is found all the same."""
    looked: list[int] = []
    watch = World._watch

    def noting(world: World) -> None:
        looked.append(world.now_ms)
        watch(world)

    monkeypatch.setattr(World, "_watch", noting)
    later_ms = 4 * 3_600_000
    work = tuple(Work(submit_ms=at, conduct=Conduct(run_ms=60_000)) for at in (0, later_ms))
    found = run(scene(work=work, horizon_ms=2 * later_ms), checkers=(), keep=10)
    assert found.ok
    assert later_ms < found.virtual_ms < later_ms + 3_600_000
    assert sum(moment < later_ms for moment in looked) < 1_000
