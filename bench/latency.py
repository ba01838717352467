"""``latency``: from the call that submits a task to the first byte of its output, on an idle local worker.

Seen by a client that follows the task's log over REST, as ``run`` and ``logs -f`` do. The yardstick is what the way
costs at the very least: a process, two durable commits (the task, the claim) and two round trips. It is taken between
blocks of samples, since a shared machine's speed changes within seconds, and its median compared with theirs. Between
samples the worker is left idle for a while: that is the state in which a user finds it.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench import product
from bench.e2e import configuration
from bench.processes import BenchmarkFailed
from bench.report import Metric, Repetition, Target
from bench.yardsticks import Yardsticks, take

SAMPLES = 50
BLOCK = 10
WARM_UP = 5
PAUSE_SECONDS = 0.05
GIVE_UP_SECONDS = 30.0
YARDSTICK = "spawn + 2 fsync + 2 echo"
TARGETS = (Target(YARDSTICK, 4.0),)
WORD = "hello"


def yardstick(yardsticks: Yardsticks) -> float:
    """Seconds of one process, two commits and two round trips."""
    return yardsticks.spawn + 2 * yardsticks.fsync + 2 * yardsticks.echo


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """One metric: milliseconds, the median of SAMPLES submissions one after another."""
    samples = SAMPLES // 5 if quick else SAMPLES
    repetitions = []
    with product.dispatcher(folder / "ours-latency", configuration(1)) as started:
        product.wait_for_instances(started, 1)
        for _ in range(WARM_UP):
            first_byte(started)
        for _ in range(repeat):
            taken, least = [], [before := take(folder)]
            while len(taken) < samples:
                taken += [first_byte(started) for _ in range(BLOCK)]
                least.append(take(folder))
            yard = statistics.median(map(yardstick, least))
            repetitions.append(Repetition(statistics.median(taken) * 1e3, {YARDSTICK: yard * 1e3}, before))
    product.check_store(started.store, WARM_UP + samples * repeat)
    yield Metric("latency", "first_byte", "ms", False, tuple(repetitions), TARGETS)


def first_byte(started: product.Dispatcher) -> float:
    """Seconds from submission to the first byte of output. Returns when the worker is idle again."""
    begun = time.perf_counter()
    (task,) = started.submit([{"command": ["echo", WORD]}])
    output = b""
    while not output:
        output, _ = started.raw("GET", f"/v1/tasks/{task}/logs?offset=0&wait_ms=10000")
        if time.perf_counter() - begun > GIVE_UP_SECONDS:
            raise BenchmarkFailed(f"no output of task {task} within {GIVE_UP_SECONDS:g} s; see {started.folder}")
    taken = time.perf_counter() - begun
    while started.call("GET", f"/v1/tasks/{task}")["state"] != "succeeded":
        if time.perf_counter() - begun > GIVE_UP_SECONDS:
            raise BenchmarkFailed(f"task {task} printed and did not end within {GIVE_UP_SECONDS:g} s")
        time.sleep(0.005)
    time.sleep(PAUSE_SECONDS)
    return taken
