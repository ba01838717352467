"""``simulation``: how long a day of a large fleet takes in the simulator.

Owns the metric, its target and what is said beside it. The day itself is ``bench.simulation_day``, in a process of its
own for each repetition: a run leaves memory behind that the next one should not pay for.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.interleave import interleave
from bench.peers import ROOT
from bench.processes import BenchmarkFailed
from bench.report import Metric, Target
from bench.yardsticks import loop

LOOP = "loop"
TARGETS = (Target(LOOP, 4_000.0),)
#: A day is refused after so many seconds: at ten times the target something hangs.
PATIENCE_S = 1_800
_LEAST_VMS = 0.97


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """One metric: seconds a day. The ratio is to ``loop`` as it was in the same repetition."""

    def ours() -> float:
        told = one_day(quick)
        print(describe(told), file=sys.stderr, flush=True)
        return float(told["seconds"])

    repetitions = interleave(folder, repeat, ours, {LOOP: _loop})
    yield Metric("simulation", "day_1000", "s", False, repetitions, TARGETS)


def _loop() -> float:
    """The yardstick once more, after the day: the smaller of several, since one preempted loop would flatter us."""
    return min(loop() for _ in range(5))


def one_day(quick: bool) -> dict[str, Any]:
    """What the day's process tells; BenchmarkFailed where it broke a promise, lost work, or had no such fleet."""
    argv = [sys.executable, "-m", "bench.simulation_day", *(["--quick"] if quick else [])]
    try:
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise BenchmarkFailed(f"the day did not end within {PATIENCE_S} s") from None
    if done.returncode:
        raise BenchmarkFailed(f"the day ended with exit code {done.returncode}\n{done.stderr[-2_000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    check(told)
    return told


def check(told: dict[str, Any]) -> None:
    """BenchmarkFailed unless all promises held, all tasks succeeded and the fleet was there all day."""
    if told["findings"]:
        raise BenchmarkFailed(f"the day broke a promise: {told['findings'][0]}")
    if told["succeeded"] != told["tasks"]:
        raise BenchmarkFailed(f"{told['succeeded']} of {told['tasks']} tasks succeeded")
    wanted = told["asked_vms"] * 24 * _LEAST_VMS
    if told["vm_hours"] < wanted:
        raise BenchmarkFailed(f"{told['vm_hours']:,.0f} VM hours are no day of {told['asked_vms']} VMs")


def describe(told: dict[str, Any]) -> str:
    """Intervals, what happened, and the microseconds of a sync and a pass."""
    intervals = ", ".join(f"{name} {value // 1000} s" for name, value in told["intervals"].items())
    return (
        f"intervals: {intervals}\n"
        f"{told['most_vms']} VMs at once, {told['vms']} in all, {told['vm_hours']:,.0f} VM hours in"
        f" {told['virtual_hours']:.1f} h; {told['succeeded']:,} tasks; journal {told['digest']}\n"
        f"{told['syncs']:,} syncs, {told['passes']:,} passes, {told['commits']:,} commits,"
        f" {told['steps']:,} steps of the loop, {told['events']:,} lines of the journal\n"
        f"{told['sync_us']:.0f} us a sync (all but passes: both ends, network, store, clouds, checkers),"
        f" {told['pass_us']:,.0f} us a pass"
    )
