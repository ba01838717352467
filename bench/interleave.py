"""Interleaved repetitions: ours, peer, peer, ours, peer, peer, ... Owns the order, not what is measured."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.report import Repetition
from bench.yardsticks import take


def interleave(
    folder: Path, repeat: int, ours: Callable[[], float], peers: Mapping[str, Callable[[], float]]
) -> tuple[Repetition, ...]:
    """``repeat`` repetitions, each of which takes the yardsticks, then ours, then each peer in order."""
    repetitions = []
    for number in range(1, repeat + 1):
        yardsticks = take(folder)
        mine = _tell(number, "ours", ours())
        others = {name: _tell(number, name, peer()) for name, peer in peers.items()}
        repetitions.append(Repetition(mine, others, yardsticks))
    return tuple(repetitions)


def _tell(number: int, name: str, value: float) -> float:
    """A run takes minutes: say each figure as soon as it is there."""
    print(f"repetition {number}: {name} {value:,.0f}", file=sys.stderr, flush=True)
    return value
