"""Instances with too little of their life left for what they would take next: they are drained in time, so that it is
begun where it can be finished. Owns that judgement; which ends there are is `spend`'s and the pool's.

Only known runtimes say anything. What takes longer than a whole life of an instance is tried all the same: nothing else
could run it either, and an expectation may be wrong.
"""

from __future__ import annotations

from cloud_dispatch.domain.durations import about
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceEvent, InstanceState
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.spend import Spending

_S = InstanceState
_SERVING = frozenset({_S.IDLE, _S.BUSY})
#: An agent goes so long before its end: the grace of a kill, and its last words.
LEAVES_MS = 30_000


def is_too_late(now_ms: int, next_ms: int, ends_ms: int, boot_ms: int, life_ms: int) -> bool:
    """Whether what takes `next_ms` can't be finished by `ends_ms` if it begins at `now_ms`, and could be on another
    instance, which boots in `boot_ms` and lives for `life_ms`. Of one that has just booted and will live as long it is
    never true: nothing is drained for what its successor would be drained for."""
    return now_ms + next_ms > ends_ms and boot_ms + next_ms <= life_ms


class Retiring:
    """Looks at every instance that serves, once a pass: a comparison each while none is old."""

    def __init__(self, context: Context, spending: Spending) -> None:
        self._c = context
        self._spending = spending

    async def retire(self) -> None:
        """Drain those that would be cut off."""
        heads, now = self._spending.heads(), self._c.clock.now()
        if not heads.longest_ms:
            return
        margin_ms = self._margin_ms()
        late_ms = now + heads.longest_ms + margin_ms
        for row in [row for row in self._c.store.instances().values() if row.ends_ms < late_ms]:
            if row.state not in _SERVING or row.behaviour is Behaviour.HOLD:
                continue
            if self._c.store.instances().get(row.id) is not row:
                continue  # it has changed while others were drained: the next pass looks again
            next_ms = heads.next_ms(row.machine)
            if next_ms is not None and self._is_too_late(row, now, next_ms + margin_ms):
                await self._drain(row, next_ms, self._spending.latest_of(row) - now)

    def _margin_ms(self) -> int:
        """Before the next pass it may take another task, and its agent goes a while before its end."""
        timing = self._c.settings.timing
        return timing.pass_interval_ms + max(timing.heartbeat_ms, timing.poll_ms) + LEAVES_MS

    def _is_too_late(self, row: Instance, now: int, next_ms: int) -> bool:
        ends_ms, latest_ms = self._spending.latest_of(row), self._spending.lifetime_of(row)
        if ends_ms < latest_ms and row.state is _S.IDLE and not row.busy_ms:
            return False  # rented for less than another would be: it has its try
        boot_ms = max((row.registered_ms or row.intended_ms) - row.intended_ms, 0)
        return is_too_late(now, next_ms, ends_ms, boot_ms, latest_ms - row.intended_ms)

    async def _drain(self, row: Instance, next_ms: int, left_ms: int) -> None:
        await self._c.apply(
            row.id, InstanceEvent.DRAIN, cause="lifetime",
            reason=f"what it would take next is expected to run for {about(next_ms)}, and it ends in"
            f" {about(max(left_ms, 0))}",
            expect=frozenset({row.state}), unless_held=True, drain_token=row.drain_token + 1,
        )  # fmt: skip
