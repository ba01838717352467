"""What a benchmark found and how it is shown: one line of JSON a metric, or a table.

Owns the arithmetic of repetitions: every repetition takes ours and each peer (or yardstick) one after another, the
ratio is formed within the repetition, and the worst ratio of all repetitions is what is reported.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.yardsticks import Yardsticks


@dataclass(frozen=True)
class Repetition:
    """Ours and the peers, or the amounts that ours is held against, in one unit and taken right after each other."""

    ours: float
    peers: dict[str, float]
    yardsticks: Yardsticks


@dataclass(frozen=True)
class Target:
    """What the ratio to one peer must reach: at least ``ratio`` for speeds, at most for durations."""

    peer: str
    ratio: float


@dataclass(frozen=True)
class Metric:
    """One result. ``higher_is_better`` says whether ``ours`` is a speed or a duration."""

    name: str
    metric: str
    unit: str
    higher_is_better: bool
    repetitions: tuple[Repetition, ...]
    targets: tuple[Target, ...]

    @property
    def value(self) -> float:
        """Ours, the median of the repetitions."""
        return statistics.median(repetition.ours for repetition in self.repetitions)

    def peer_value(self, peer: str) -> float:
        """The peer's, the median of the repetitions."""
        return statistics.median(repetition.peers[peer] for repetition in self.repetitions)

    def ratios(self) -> dict[str, float]:
        """By peer the worst ours/peer of all repetitions: the smallest of a speed, the largest of a duration."""
        worst = min if self.higher_is_better else max
        first = self.repetitions[0]
        return {peer: worst(one.ours / one.peers[peer] for one in self.repetitions) for peer in first.peers}

    def missed(self) -> list[str]:
        """The peers whose target is not reached."""
        ratios = self.ratios()
        if self.higher_is_better:
            return [target.peer for target in self.targets if ratios[target.peer] < target.ratio]
        return [target.peer for target in self.targets if ratios[target.peer] > target.ratio]


def json_line(metric: Metric) -> str:
    """The one line of JSON that stands for a metric."""
    return json.dumps(
        {
            "name": metric.name,
            "metric": metric.metric,
            "value": round(metric.value, 6),
            "unit": metric.unit,
            "ratios": {peer: round(ratio, 4) for peer, ratio in metric.ratios().items()},
        }
    )


def show_yardsticks(console: Console, yardsticks: Yardsticks) -> None:
    """One line: what the machine could do at that moment."""
    console.print("yardsticks  " + "  ".join(f"{name} {ms:g} ms" for name, ms in yardsticks.as_milliseconds().items()))


def show(console: Console, metrics: Sequence[Metric]) -> None:
    """A table a metric: a row a repetition with its yardsticks, then the worst ratios against their targets."""
    for metric in metrics:
        console.print(_table(metric))


def _table(metric: Metric) -> Table:
    peers = list(metric.repetitions[0].peers)
    table = Table(title=f"{metric.name}: {metric.metric} ({metric.unit})", title_justify="left")
    for column in ("", "ours", *peers, "loop ms", "fsync ms", "spawn ms", "echo ms"):
        table.add_column(column, justify="right")
    for number, one in enumerate(metric.repetitions, start=1):
        yardsticks = [f"{ms:g}" for ms in one.yardsticks.as_milliseconds().values()]
        table.add_row(str(number), f"{one.ours:,.5g}", *(f"{one.peers[peer]:,.5g}" for peer in peers), *yardsticks)
    ratios, missed = metric.ratios(), metric.missed()
    goals = {target.peer: target.ratio for target in metric.targets}
    bound = "at least" if metric.higher_is_better else "at most"
    cells = []
    for peer in peers:
        goal = f"\n{bound} {goals[peer]:g}: {'missed' if peer in missed else 'met'}" if peer in goals else ""
        cells.append(f"{ratios[peer]:.2f}{goal}")
    table.add_section()
    table.add_row("worst ratio", "", *cells)
    return table
