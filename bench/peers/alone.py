"""``python -m bench peers``: every peer and every variant by itself, for the table in the README.

Owns no target. The ratio is to ``loop``: tasks in the time of one yardstick loop, the only thing to hold a peer against
when ours is not in the run.
"""

from collections.abc import Iterator
from pathlib import Path

from bench.peers import ALL, tasks_per_second
from bench.report import Metric, Repetition
from bench.yardsticks import take


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """One metric a peer, each with its repetitions in a row."""
    for name, peer in ALL.items():
        tasks = peer.tasks // 10 if quick else peer.tasks
        repetitions = []
        for _ in range(repeat):
            yardsticks = take(folder)
            rate = tasks_per_second(name, folder, tasks)
            repetitions.append(Repetition(rate, {"loop": 1 / yardsticks.loop}, yardsticks))
        yield Metric("peers", name, "tasks/s", True, tuple(repetitions), ())
