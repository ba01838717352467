"""The last work of an instance: who will soon have done what it runs, and has too little of its life left for anything
that waits, is drained, so that this is begun where it can be finished. Owns that judgement; which ends there are is
`spend`'s and the pool's.

Where something waits that it could finish it works on, though what it is given next may be something else: to drain a
fleet for one long task would cost more than that is worth. Only known runtimes say anything. What takes longer than a
whole life is tried all the same: nothing else could run it either, and an expectation may be wrong.
"""

from __future__ import annotations

from cloud_dispatch.domain.durations import about
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceEvent, InstanceState
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.spend import Spending

_NO_END_MS = 1 << 62


def is_too_late(begins_ms: int, next_ms: int, ends_ms: int, boot_ms: int, life_ms: int) -> bool:
    """Whether what takes `next_ms` can't be finished by `ends_ms` if it begins at `begins_ms`, and could be on another
    instance, which boots in `boot_ms` and lives for `life_ms`. Of one that has just booted and will live as long it is
    never true: nothing is drained for what its successor would be drained for."""
    return begins_ms + next_ms > ends_ms and boot_ms + next_ms <= life_ms


class Retiring:
    """Looks at every instance that works, once a pass: a comparison each while none is old."""

    def __init__(self, context: Context, spending: Spending) -> None:
        self._c = context
        self._spending = spending

    async def retire(self) -> None:
        """Drain those for which there is nothing left that they could finish."""
        heads = self._spending.heads()
        if not heads.longest_ms or self._c.stop.launches:
            return
        for finish_ms, row in self._soon_done(self._c.clock.now(), heads.longest_ms):
            next_ms = heads.shortest_ms(row.machine)
            if next_ms is not None and self._is_too_late(row, finish_ms, next_ms):
                await self._drain(row, next_ms, self._latest_of(row) - finish_ms)

    def _soon_done(self, now: int, longest_ms: int) -> list[tuple[int, Instance]]:
        """Those that work, are old, and are expected to be done before long, with when."""
        drain_ms, found = self._c.settings.pace.drain_ms, list[tuple[int, Instance]]()
        late_ms = now + longest_ms + 2 * drain_ms
        lives_ms = {pool.name: pool.end.lifetime_ms for pool in self._c.settings.pools.values()}
        for row in self._c.store.instances().values():
            if row.ends_ms >= late_ms and row.intended_ms + lives_ms.get(row.pool, _NO_END_MS) >= late_ms:
                continue
            if row.state is not InstanceState.BUSY or row.behaviour is Behaviour.HOLD:
                continue
            works, finish_ms = self._c.store.finish_of(row.id, now)
            if works and finish_ms is not None and finish_ms - now <= drain_ms:
                found.append((max(finish_ms, now), row))
        return found

    def _latest_of(self, row: Instance) -> int:
        """The end that its agent goes by, and its provider: a lifetime that was lowered is the agent's at once."""
        pool = self._c.settings.pools.get(row.pool)
        latest_ms = self._spending.latest_of(row)
        return latest_ms if pool is None else min(latest_ms, row.intended_ms + pool.end.lifetime_ms)

    def _is_too_late(self, row: Instance, begins_ms: int, next_ms: int) -> bool:
        next_ms += self._c.settings.pace.drain_ms  # an agent goes a while before its end
        boot_ms = max((row.registered_ms or row.intended_ms) - row.intended_ms, 0)
        life_ms = self._spending.lifetime_of(row) - row.intended_ms
        return is_too_late(begins_ms, next_ms, self._latest_of(row), boot_ms, life_ms)

    async def _drain(self, row: Instance, next_ms: int, left_ms: int) -> None:
        if self._c.store.instances().get(row.id) is not row:
            return  # it has changed while others were drained: the next pass looks again
        await self._c.apply(
            row.id, InstanceEvent.DRAIN, cause="lifetime",
            reason=f"all that waits for it is expected to run for {about(next_ms)} or more, and"
            f" {about(max(left_ms, 0))} of its life are left when it is free",
            expect=frozenset({row.state}), unless_held=True, drain_token=row.drain_token + 1,
        )  # fmt: skip
