"""The benchmark of boots on a real dispatcher with TLS, and its readings of processes."""

import os
import time
from pathlib import Path

import pytest

from bench import boot, product
from bench.footprint import cpu_seconds, find_service, parent, proportional_bytes
from bench.processes import BenchmarkFailed
from bench.report import Repetition
from bench.yardsticks import Yardsticks


@pytest.mark.process
def test_a_boot_is_timed_and_its_service_is_found(tmp_path: Path) -> None:
    """One VM boots for one task and is gone; of the next one, supervisor and agent are told apart from its task."""
    with product.dispatcher(tmp_path / "run", boot.configuration(False, most_tasks=1), tls=True) as started:
        begun = time.monotonic()
        taken = boot.boot(started)
        assert 0 < taken < time.monotonic() - begun - 1  # the task stays for a second
        started.submit([{"command": ["sleep", "600"]}])
        boot.wait_for_running(started, 1)
        service = boot.service_of(started)
        assert parent(service.agent) == service.supervisor != parent(service.supervisor)
        assert proportional_bytes(service.agent) > 1_000_000
        assert proportional_bytes(service.supervisor) > 1_000_000


def test_a_vm_without_its_service_is_refused(tmp_path: Path) -> None:
    """Nothing is measured of processes that are not there."""
    with pytest.raises(BenchmarkFailed, match="expected a supervisor and its agent"):
        find_service(tmp_path)


def test_cpu_time_is_that_of_the_process_not_of_the_clock() -> None:
    """Sleeping costs nothing to speak of, working does."""
    before = cpu_seconds(os.getpid())
    time.sleep(0.1)
    slept = cpu_seconds(os.getpid()) - before
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    worked = cpu_seconds(os.getpid()) - before - slept
    assert slept < 0.05 < 0.1 <= worked + 0.01


def test_bare_starts_are_starts_of_python() -> None:
    """Each took some time and ended."""
    taken = boot.bare_starts()
    assert len(taken) == boot.BARE_STARTS
    assert min(taken) > 0


def test_what_the_agent_takes_is_measured_with_tasks_of_their_own_users_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root, every figure of a VM is taken both ways: the agent is another process then, with a warden beside it."""
    yardsticks = Yardsticks(1, 1, 1, 1)
    asked: list[tuple[str, bool]] = []

    def amount(folder: Path, *given: object) -> float:
        asked.append((folder.name, bool(given[-1])))
        return len(asked)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(boot, "take", lambda _: yardsticks)
    monkeypatch.setattr(boot, "first_tasks", lambda *_: (Repetition(1, {boot.BARE: 1}, yardsticks),))
    monkeypatch.setattr(boot, "memory", amount)
    monkeypatch.setattr(boot, "idle_percent", amount)
    found = {metric.metric: metric.value for metric in boot.measure(tmp_path, 1, quick=True)}
    ways = [(f"{what}-{how}", how == "isolated") for what in ("memory", "idle") for how in ("together", "isolated")]
    assert asked == ways
    assert (found["idle_cpu"], found["idle_cpu_isolated"]) == (3, 4)
