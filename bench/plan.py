"""``plan``: what one planning pass costs, and that it does not grow with the queue.

Owns the metric and its targets. The scenes, one with a long queue and one with a short one, are ``bench.plan_scene``,
each in a process of its own; their passes take turns.
"""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.peers import ROOT
from bench.processes import BenchmarkFailed, end, tail
from bench.report import Metric, Repetition, Target
from bench.yardsticks import take

LARGE_QUEUE, SMALL_QUEUE = 1_000_000, 10_000
PASSES = 21
LOOP, SMALL = "loop", "10,000 tasks"
TARGETS = (Target(LOOP, 2.0), Target(SMALL, 1.2))


class Scene:
    """One ``bench.plan_scene`` that runs."""

    def __init__(self, stack: ExitStack, folder: Path, tasks: int) -> None:
        self._log = folder / f"plan-{tasks}.log"
        argv = [sys.executable, "-m", "bench.plan_scene", str(folder / f"plan-{tasks}"), str(tasks)]
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                text=True,
                start_new_session=True,
            )
        stack.callback(end, self._process)

    def read(self) -> str:
        """Its next line. BenchmarkFailed when it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise BenchmarkFailed(f"the scene of the plan benchmark ended\n{tail(self._log)}")
        return line

    def one_pass(self) -> float:
        """Milliseconds of one pass."""
        assert self._process.stdin is not None
        self._process.stdin.write("pass\n")
        self._process.stdin.flush()
        return float(self.read())


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """One metric: milliseconds a pass with the large queue, the median of PASSES in each repetition."""
    with ExitStack() as stack:
        large = Scene(stack, folder, LARGE_QUEUE // 10 if quick else LARGE_QUEUE)
        large.read()  # one fills after the other: both use the disk
        small = Scene(stack, folder, SMALL_QUEUE)
        small.read()
        repetitions = tuple(_repetition(folder, large, small) for _ in range(repeat))
    yield Metric("plan", "queue_1m", "ms", False, repetitions, TARGETS)


def _repetition(folder: Path, large: Scene, small: Scene) -> Repetition:
    yardsticks = take(folder)
    passes = [(large.one_pass(), small.one_pass()) for _ in range(PASSES)]
    ours, short = (statistics.median(column) for column in zip(*passes, strict=True))
    return Repetition(ours, {LOOP: yardsticks.loop * 1e3, SMALL: short}, yardsticks)
