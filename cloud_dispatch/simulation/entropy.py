"""All chance of a run, from one seed. Owns the streams, keyed by purpose, and the ids and secrets made from them.

A stream depends on the seed and its purpose's text alone: taking one fault or one VM out of a run moves no draw of any
other. The generator is SplitMix64: a few integer operations a draw, the same on every machine and version of Python.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

T = TypeVar("T")
_MASK = (1 << 64) - 1
_FIRST = string.ascii_lowercase
_REST = string.ascii_lowercase + string.digits


class SeededStream:
    """`ports.Stream` over SplitMix64."""

    __slots__ = ("_state",)

    def __init__(self, state: int) -> None:
        self._state = state & _MASK

    def bits(self) -> int:
        """64 random bits."""
        z = self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def fraction(self) -> float:
        return (self.bits() >> 11) * 2.0**-53

    def below(self, bound: int) -> int:
        if bound <= 0:
            raise ValueError(f"nothing is below {bound}")
        return (self.bits() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        return self.fraction() < probability

    def pick(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def exponential(self, mean: float) -> float:
        return -mean * math.log(1.0 - self.fraction())

    def lognormal(self, median: float, sigma: float) -> float:
        radius = math.sqrt(-2.0 * math.log(1.0 - self.fraction()))
        return median * math.exp(sigma * radius * math.cos(2.0 * math.pi * self.fraction()))


class SeededStreams:
    """`ports.Streams`: one object a purpose, for the whole run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[tuple[str | int, ...], SeededStream] = {}

    def stream(self, *purpose: str | int) -> SeededStream:
        known = self._streams.get(purpose)
        if known is None:
            # An enum's member is its text: the two are equal, and must be the same purpose.
            text = repr((self.seed, *(str(part) if isinstance(part, str) else part for part in purpose))).encode()
            known = self._streams[purpose] = SeededStream(int.from_bytes(sha256(text).digest()[:8], "big"))
        return known


class SeededEntropy:
    """`ports.entropy.Entropy` for the dispatcher. It goes on from one incarnation to the next: no name comes twice."""

    def __init__(self, streams: SeededStreams) -> None:
        self._streams = streams

    def name(self, purpose: str, length: int = 12) -> str:
        stream = self._streams.stream("name", purpose)
        return stream.pick(_FIRST) + "".join(stream.pick(_REST) for _ in range(length - 1))

    def secret(self, purpose: str) -> str:
        stream = self._streams.stream("secret", purpose)
        return "".join(stream.pick(_REST) for _ in range(43))

    def fraction(self, purpose: str) -> float:
        return self._streams.stream("fraction", purpose).fraction()
