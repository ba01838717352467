"""Chance and new names. Owns the one way in which the core gets them; streams are keyed by purpose."""

from __future__ import annotations

from typing import Protocol


class Entropy(Protocol):
    def name(self, purpose: str, length: int = 12) -> str:
        """A new name, `[a-z][a-z0-9]*`, unguessable where the implementation is the real one."""

    def secret(self, purpose: str) -> str:
        """A new secret of at least 128 bits, URL-safe."""

    def fraction(self, purpose: str) -> float:
        """A number in [0, 1), for jitter."""
