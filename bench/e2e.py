"""``e2e``: real agents running real processes, against HyperQueue.

Two local instances of one cpu, each a process tree that booted through the product's own template, run ``true``. The
clock is HyperQueue's: from 5 % done, long warm, to the end.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from bench import product
from bench.interleave import interleave
from bench.peers import PEERS, tasks_per_second
from bench.processes import wait_until
from bench.report import Metric, Target

TASKS = 20_000
INSTANCES = 2
WARM_UP_FRACTION = 0.05
RUN_SECONDS = 600.0
TARGETS = (Target("hyperqueue", 1.0),)
CONFIGURATION = """
[profiles.local]
driver = "local"
[pools.bench]
profiles = ["local"]
types = {{ allow = [{type}] }}
min = {instances}
caps = {{ instances = {instances} }}
end = {{ idle = "1h" }}
"""
#: The local driver's type of one cpu.
ONE_CPU_TYPE = "local.1"


def configuration(instances: int) -> str:
    """A pool of exactly so many local instances of one cpu."""
    return CONFIGURATION.format(type=product.toml_value(ONE_CPU_TYPE), instances=instances)


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """One metric: tasks a second."""
    tasks = TASKS // 10 if quick else TASKS
    runs = iter(range(repeat))
    repetitions = interleave(
        folder,
        repeat,
        lambda: run(folder / f"ours-e2e-{next(runs)}", tasks),
        {"hyperqueue": lambda: tasks_per_second("hyperqueue", folder, max(tasks, PEERS["hyperqueue"].tasks // 5))},
    )
    yield Metric("e2e", "true", "tasks/s", True, repetitions, TARGETS)


def run(folder: Path, tasks: int) -> float:
    """Tasks a second of ours, once; checked in the store afterwards."""
    with product.dispatcher(folder, configuration(INSTANCES)) as started:
        product.wait_for_instances(started, INSTANCES)
        started.submit([{"command": ["true"]}] * tasks)
        seen = 0

        def warm() -> bool:
            nonlocal seen
            seen = started.succeeded()
            return seen >= tasks * WARM_UP_FRACTION

        wait_until(warm, "first tasks", timeout_seconds=RUN_SECONDS, watch={started.log: started.process})
        warm_time = time.perf_counter()
        ended = product.wait_for_succeeded(started, tasks, RUN_SECONDS)
    product.check_store(started.store, tasks)
    return (tasks - seen) / (ended - warm_time)
