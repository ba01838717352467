"""Interleaved repetitions: ours, peer, peer, ours, peer, peer, ... Owns the order, not what is measured."""

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.report import Repetition
from bench.yardsticks import take


def interleave(
    folder: Path, repeat: int, ours: Callable[[], float], peers: Mapping[str, Callable[[], float]]
) -> tuple[Repetition, ...]:
    """``repeat`` repetitions, each of which takes the yardsticks, then ours, then each peer in order."""
    repetitions = []
    for _ in range(repeat):
        yardsticks = take(folder)
        mine = ours()
        repetitions.append(Repetition(mine, {name: peer() for name, peer in peers.items()}, yardsticks))
    return tuple(repetitions)
