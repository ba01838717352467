"""Machines as pools would rent them. Owns their making, once for each list of offerings: there may be thousands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Machine


class Offered(NamedTuple):
    """What a pool may rent, and the machine that it gives to tasks there."""

    pool: Pool
    offering: Offering
    machine: Machine


class OfferedMachines:
    """Remembers by pool what it made of each list, as long as that is the same."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[Pool, Sequence[Offering], list[Offered]]] = {}

    def of(self, pool: Pool, profile: str, offerings: Sequence[Offering]) -> Iterable[Offered]:
        """Of those that `pool` may rent, in order."""
        known = self._made.get((pool.name, profile))
        if known is None or known[0] is not pool or known[1] is not offerings:
            known = self._made[pool.name, profile] = (pool, offerings, [
                Offered(pool, one, one.machine(
                    pool.name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance
                ))
                for one in offerings
                if pool.admits(one)
            ])  # fmt: skip
        return known[2]
