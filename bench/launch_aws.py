"""``launch-aws``: 1,000 EC2 instances, from the tasks that want them to rows that have their VMs.

A real dispatcher with the AWS driver in its process is given 1,000 tasks, of which each wants an instance, over REST;
the clock runs from that call until every instance has its VM in the statestore, durably. The peer is bare boto3 making
the same calls (the very parameters, but for the client tokens) from as many threads, against another fake that is new.
Meanwhile somebody on the dispatcher's loop asks again and again to be woken in a millisecond; beside boto3 an idle loop
is asked the same, since on a busy machine that is late too.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.fake_ec2 import Fake, configure, fake_ec2, helper
from bench.processes import BenchmarkFailed, free_port
from bench.product import Dispatcher
from bench.report import Metric, Repetition, Target
from bench.wakeups import of_an_idle_loop, percentile
from bench.yardsticks import take

INSTANCES, LATENCY_MS = 1_000, 200
BARE, AIM, IDLE = "boto3", "aim", "idle loop"
TIME = (Target(BARE, 1.3),)
WITHIN = (Target(AIM, 1.0),)
MOST_CALLS = 59
WAKE_UP_MS = 5.0
CPUS = 2


@dataclass(frozen=True)
class Run:
    """One launch of all of them: how long it took, in how many calls, how late the loop was (ascending)."""

    seconds: float
    calls: int
    late: list[float]

    def late_ms(self, percent: int) -> float:
        return percentile(self.late, percent) * 1e3


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """Three metrics of the same runs: milliseconds, calls, lateness of the loop."""
    instances = INSTANCES // 10 if quick else INSTANCES
    found: dict[str, list[Repetition]] = {"time": [], "calls": [], "wake_up_p99": []}
    for number in range(1, repeat + 1):
        yardsticks = take(folder)
        home = folder / f"launch-aws-{number}"
        home.mkdir()
        ours = run(home, instances)
        peer = bare(home, instances, ours.calls)
        for name, one in (("ours", ours), (BARE, peer)):
            late = ", ".join(f"p{percent} {one.late_ms(percent):.2f} ms" for percent in (50, 99, 100))
            seconds = f"{one.seconds * 1e3:,.0f} ms in {one.calls} calls"
            print(f"repetition {number}: {name} {seconds}, {len(one.late)} wake-ups late by {late}", file=sys.stderr)
        idle = {AIM: WAKE_UP_MS, IDLE: peer.late_ms(99)}
        found["time"].append(Repetition(ours.seconds * 1e3, {BARE: peer.seconds * 1e3}, yardsticks))
        found["calls"].append(Repetition(ours.calls, {AIM: MOST_CALLS}, yardsticks))
        found["wake_up_p99"].append(Repetition(ours.late_ms(99), idle, yardsticks))
    yield Metric("launch-aws", f"launched_{INSTANCES}", "ms", False, tuple(found["time"]), TIME)
    yield Metric("launch-aws", "calls", "RunInstances", False, tuple(found["calls"]), WITHIN)
    yield Metric("launch-aws", "wake_up_p99", "ms", False, tuple(found["wake_up_p99"]), WITHIN)


def run(home: Path, instances: int) -> Run:
    """Launch so many with a new dispatcher on a new fake."""
    port = free_port()
    with fake_ec2(home, LATENCY_MS) as fake:
        config = configure(home, fake.url, port)
        with helper("bench.watched_dispatcher", str(config), str(instances), log=home / "dispatcher.log") as watched:
            watched.hear()
            dispatcher = Dispatcher(home, port, watched.process)
            watched.say()
            began = time.perf_counter()
            dispatcher.submit([{"command": ["true"], "cpus": CPUS}] * instances)
            told = watched.hear()
            dispatcher.hang_up()
        check(fake, instances)
        calls = fake.calls()["RunInstances"]
    if told["calls"] != calls:
        raise BenchmarkFailed(f"the driver was asked for {told['calls']} launches and asked EC2 for {calls}")
    return Run(told["launched"] - began, calls, told["late"])


def bare(home: Path, instances: int, calls: int) -> Run:
    """boto3 with the same calls, all at once as the driver makes them, on a new fake."""
    requests = home / "launches.json"
    with fake_ec2(home, LATENCY_MS) as fake:
        with helper("bench.bare_ec2", fake.url, str(requests), log=home / "boto3.log") as peer:
            peer.hear()
            peer.say(f"launch {calls}")
            told, late = of_an_idle_loop(peer.hear)
        check(fake, instances)
    if told["instances"] != instances:
        raise BenchmarkFailed(f"boto3 launched {told['instances']} of {instances} instances")
    return Run(told["seconds"], calls, late)


def check(fake: Fake, instances: int) -> None:
    """BenchmarkFailed unless EC2 has made exactly so many and was asked nothing that it has not."""
    fake.check()
    made = len(fake.do("inventory"))
    if made != instances:
        raise BenchmarkFailed(f"{instances} instances were to be launched, EC2 has {made}")
