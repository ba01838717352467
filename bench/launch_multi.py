"""``launch-multi``: 1,000 VMs of three clouds at once, beside each third of them alone.

A real dispatcher with three profiles (AWS, Google Cloud, Azure), each driver in its own process, is given 1,000 tasks
over REST, a third for the pool of each; the clock runs from that call until every instance has its VM in the
statestore, durably. Before it, in the same repetition, each third is launched by a dispatcher with that profile alone.
All fakes are new for every launch and take 200 ms a call. What is reported is how much longer all take than the slowest
third alone; the others say how far one cloud delays another that is faster.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.fake_ec2 import helper
from bench.processes import BenchmarkFailed, free_port
from bench.product import Dispatcher
from bench.report import Metric, Repetition, Target
from bench.three_clouds import CLOUDS, CPUS, configure, sky
from bench.wakeups import percentile
from bench.yardsticks import take

INSTANCES, LATENCY_MS = 1_000, 200
SLOWEST, ALONE = "slowest alone", "alone"
TIME = (Target(SLOWEST, 1.5),)


@dataclass(frozen=True)
class Run:
    """One launch: seconds until all VMs were there, and those of each cloud; how late the loop was (ascending)."""

    seconds: float
    by: Mapping[str, float]
    late: list[float]


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """Milliseconds until all are there, and until those of each cloud are."""
    thirds = share(INSTANCES // 10 if quick else INSTANCES)
    repetitions = []
    each: dict[str, list[Repetition]] = {name: [] for name in thirds}
    for number in range(1, repeat + 1):
        yardsticks = take(folder)
        alone = {}
        for name, count in thirds.items():
            alone[name] = run(folder / f"launch-multi-{number}-{name}", {name: count})
        all_ = run(folder / f"launch-multi-{number}", thirds)
        for name, one in alone.items():
            told = f"{name} alone {one.seconds * 1e3:,.0f} ms, among all {all_.by[name] * 1e3:,.0f} ms"
            print(f"repetition {number}: {told}", file=sys.stderr, flush=True)
            each[name].append(Repetition(all_.by[name] * 1e3, {ALONE: one.seconds * 1e3}, yardsticks))
        late = ", ".join(f"p{percent} {percentile(all_.late, percent) * 1e3:.2f} ms" for percent in (50, 99, 100))
        print(
            f"repetition {number}: all {all_.seconds * 1e3:,.0f} ms, loop late by {late}", file=sys.stderr, flush=True
        )
        slowest = max(one.seconds for one in alone.values()) * 1e3
        repetitions.append(Repetition(all_.seconds * 1e3, {SLOWEST: slowest}, yardsticks))
    yield Metric("launch-multi", f"launched_{INSTANCES}", "ms", False, tuple(repetitions), TIME)
    for name, ones in each.items():
        yield Metric("launch-multi", f"{name}_of_{INSTANCES}", "ms", False, tuple(ones), ())


def share(instances: int) -> dict[str, int]:
    """So many over the clouds, as evenly as can be."""
    return {name: (instances + place) // len(CLOUDS) for place, name in enumerate(CLOUDS)}


def run(home: Path, wanted: Mapping[str, int]) -> Run:
    """Launch so many of each of these clouds with a new dispatcher on new fakes."""
    home.mkdir()
    port, names, instances = free_port(), tuple(wanted), sum(wanted.values())
    with sky(home, LATENCY_MS, names) as clouds:
        config = configure(home, clouds, port, names)
        with helper("bench.watched_clouds", str(config), str(instances), log=home / "dispatcher.log") as watched:
            watched.hear()
            dispatcher = Dispatcher(home, port, watched.process)
            watched.say()
            tasks = [{"command": ["true"], "cpus": CPUS, "pool": name} for name in names for _ in range(wanted[name])]
            began = time.perf_counter()
            dispatcher.submit(tasks)
            told = watched.hear()
            dispatcher.hang_up()
        clouds.check(wanted)
    if told["there"] != dict(wanted):
        raise BenchmarkFailed(f"{dict(wanted)} were to be launched, the statestore has {told['there']}")
    by = {name: at - began for name, at in told["by"].items()}
    return Run(max(by.values()), by, told["late"])
