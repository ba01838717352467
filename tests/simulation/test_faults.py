"""Each fault of the network and of agents does what it says: something is cut, late, killed or silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.network import Exchange
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.simulation.world import World
from tests.simulation.scenes import scene

#: While both tasks run, on the one VM that there is.
AT_MS = 60_000


class Traffic:
    """When requests were sent and when they arrived, milliseconds."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.ways: list[tuple[int, int]] = []  # (sent, arrived)

    def watch(self, world: World) -> None:
        """`prepare` of a run."""
        send = world.network.send
        moments: dict[int, int] = {}
        kept: list[Exchange] = []  # so that no two have one id

        def sending(*args: Any, **more: Any) -> Exchange:
            self.sent.append(world.now_ms)
            exchange = send(*args, **more)
            moments[id(exchange)] = world.now_ms
            kept.append(exchange)
            return exchange

        def assembled(living: Incarnation) -> None:
            serve = living.serve

            def serving(exchange: Exchange) -> None:
                self.ways.append((moments[id(exchange)], world.now_ms))
                serve(exchange)

            living.serve = serving  # type: ignore[method-assign]

        world.network.send = sending  # type: ignore[method-assign]
        world.plants.append(assembled)


def with_fault(kind: FaultKind, lasts_ms: int = 0, amount: int = 0) -> tuple[Outcome, Traffic]:
    """Two tasks of a minute on one VM, which the fault strikes while they run."""
    traffic = Traffic()
    fault = Fault(kind, AT_MS, AT_MS + lasts_ms if lasts_ms else 0, amount=amount)
    work = (Work(count=2, conduct=Conduct(run_ms=60_000)),)
    outcome = run(scene(work=work, caps=Caps(instances=1), faults=(fault,)), prepare=traffic.watch)
    assert outcome.ok, outcome.findings
    assert outcome.tasks[TaskState.SUCCEEDED] == 2
    return outcome, traffic


def moments(outcome: Outcome, says: Callable[[str], bool]) -> list[int]:
    """When the journal says so."""
    return [int(line[:9]) for line in outcome.journal if says(line)]


def starts(outcome: Outcome) -> list[int]:
    return moments(outcome, lambda line: " runs task " in line)


def ends(outcome: Outcome) -> list[int]:
    return moments(outcome, lambda line: line.endswith(" runs no more"))


def test_nothing_passes_a_partition() -> None:
    """What is sent meanwhile does not arrive, though the agent goes on trying; before and after, it does."""
    until_ms = AT_MS + 15_000
    _, traffic = with_fault(FaultKind.PARTITION, 15_000)
    assert any(AT_MS < sent < until_ms for sent in traffic.sent)
    assert not any(AT_MS <= arrived < until_ms for _, arrived in traffic.ways)
    assert any(arrived < AT_MS for _, arrived in traffic.ways)
    assert any(arrived > until_ms for _, arrived in traffic.ways)


def test_a_delay_makes_requests_late_each_by_its_own() -> None:
    """Up to twice the amount on the way, and no longer than usual once it is over."""
    until_ms = AT_MS + 40_000
    _, traffic = with_fault(FaultKind.DELAY, 40_000, amount=2_000)
    late = [arrived - sent for sent, arrived in traffic.ways if AT_MS <= sent < until_ms]
    usual = [arrived - sent for sent, arrived in traffic.ways if not AT_MS <= sent < until_ms]
    assert max(usual) <= 41 < max(late) <= 41 + 4_000
    assert max(late) - min(late) > 1_000


def test_an_agent_that_crashes_takes_its_processes_along_and_is_started_again() -> None:
    """Both end at that moment; soon the same VM runs them again."""
    outcome, _ = with_fault(FaultKind.AGENT_CRASH)
    assert ends(outcome)[:2] == [AT_MS, AT_MS]
    assert [start > AT_MS for start in starts(outcome)] == [False, False, True, True]
    assert len({line.vm for line in outcome.bill if line.billed_ms and not line.came_with}) == 1


def test_an_agent_that_hangs_says_nothing_until_it_is_started_again() -> None:
    """Its processes run on without it; before their lease can be given away they are killed, and it speaks again."""
    outcome, traffic = with_fault(FaultKind.AGENT_HANG)
    killed_ms = ends(outcome)[0]
    assert AT_MS + 5_000 < killed_ms <= AT_MS + 20_000
    assert ends(outcome)[:2] == [killed_ms, killed_ms]
    assert not any(AT_MS <= sent < killed_ms for sent in traffic.sent)
    assert any(sent > killed_ms for sent in traffic.sent)
    assert [start > killed_ms for start in starts(outcome)] == [False, False, True, True]
