"""The day of the simulation benchmark: it is what it says it is, and what is not true is refused."""

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import simulation_day
from bench.processes import BenchmarkFailed
from bench.simulation import check, describe
from bench.simulation_day import DAY_MS, INTERVALS, TASKS, VMS, Stopwatch, day, scenario
from cloud_dispatch.config.schema import Timing

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "run-a-large-fleet.md"


def test_the_day_is_a_thousand_vms_and_200_000_tasks() -> None:
    """Submitted over a day, on three clouds, under a cap of as many VMs."""
    asked = scenario()
    assert (asked.caps.instances, asked.tasks, len(asked.accounts)) == (VMS, TASKS, 3) == (1_000, 200_000, 3)
    assert DAY_MS * 9 // 10 < max(work.submit_ms for work in asked.work) < DAY_MS < asked.horizon_ms
    assert scenario().work == asked.work


def test_the_work_keeps_the_fleet_busy_all_day_and_no_longer() -> None:
    """What the tasks ask for is between 80 and 100 per cent of what the fleet has in 24 hours."""
    asked = sum(w.count * w.conduct.run_ms * w.shape.resources.cpus_milli for w in scenario().work)
    assert 0.80 < asked / (VMS * 8_000 * DAY_MS) < 1.0


def test_its_intervals_are_those_that_operators_are_told_to_use() -> None:
    """Nobody measures with intervals that nobody would run."""
    (_, _, told) = HOW_TO.read_text().partition("```toml\n")
    timing = Timing(**tomllib.loads(told.partition("```")[0])["timing"])
    for name in ("heartbeat_ms", "poll_ms", "lease_ms", "pass_interval_ms", "list_interval_ms"):
        assert getattr(INTERVALS, name) == getattr(timing, name), name


def test_a_small_day_runs_with_all_checkers_and_counts_what_happened() -> None:
    """Four VMs, forty tasks: every promise holds, and the figures are there."""
    asked = scenario(4, 40)
    work = tuple(msgspec.structs.replace(w, submit_ms=0) for w in asked.work)
    told = day(msgspec.structs.replace(asked, work=work))
    assert (told.findings, told.succeeded, told.tasks, told.most_vms) == ((), 40, 40, 4)
    assert told.syncs > 80
    assert told.commits >= 80
    assert 0 < told.pass_seconds < told.seconds
    assert told.sync_us > 0 < told.pass_us
    assert told.vms >= 4
    assert told.vm_hours > 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"findings": ["P1 tasks at 3 ms: a task was lost"]}, "broke a promise"),
        ({"succeeded": 39}, "39 of 40 tasks"),
        ({"vm_hours": 50.0}, "no day of 4 VMs"),
    ],
)
def test_a_day_that_is_not_true_is_refused(fields: dict[str, Any], says: str) -> None:
    """A broken promise, a lost task or a fleet that was not there is no measurement."""
    good: dict[str, Any] = {"findings": [], "succeeded": 40, "tasks": 40, "vm_hours": 96.0, "asked_vms": 4}
    check(good)
    with pytest.raises(BenchmarkFailed, match=says):
        check({**good, **fields})


def test_what_is_said_beside_the_metric_has_intervals_and_costs() -> None:
    """Intervals, and the microseconds of a sync and of a pass."""
    told = {
        "intervals": {"heartbeat": 180_000, "lease": 900_000}, "most_vms": 1, "vms": 1, "vm_hours": 24.0, "digest": "d",
        "virtual_hours": 24.0, "succeeded": 1, "syncs": 2, "passes": 3, "commits": 4, "steps": 5, "events": 6,
        "sync_us": 100.4, "pass_us": 2000.0,
    }  # fmt: skip
    text = describe(told)
    assert "heartbeat 180 s, lease 900 s" in text
    assert "100 us a sync" in text
    assert "2,000 us a pass" in text


async def test_a_stopwatch_counts_steps_not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value comes through, an error too; what a coroutine waits for is not its time."""
    watch, now = Stopwatch(), 0.0
    monkeypatch.setattr(simulation_day.time, "perf_counter", lambda: now)

    def goes_on(waiting: asyncio.Event) -> None:
        nonlocal now
        now += 100
        waiting.set()

    async def work(fails: bool) -> int:
        nonlocal now
        now += 1
        waiting = asyncio.Event()
        asyncio.get_running_loop().call_soon(goes_on, waiting)
        await waiting.wait()
        now += 2
        if fails:
            raise ValueError("planted")
        return 7

    assert await watch.timed(work)(False) == 7
    with pytest.raises(ValueError, match="planted"):
        await watch.timed(work)(True)
    assert (watch.count, watch.seconds) == (2, 2 * (1 + 2))
