"""Making the words of guest timers. Owns the dispatcher's end of the chain; how many words a VM may have is `spend`'s.

Nothing is remembered of a batch: its chain follows from the keys, its id and the terms of its timer, which the VM tells
with its request. Terms other than those of its user data are those of another chain, whose words its timer ignores.
"""

from __future__ import annotations

from collections import OrderedDict

from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.domain.ids import BatchId
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.spend.grant import Terms, first_ms, terms
from cloud_dispatch.wire.timer import MOST_LINKS, TimerPlan, forward, write_word

#: Of a chain every so many-th link is kept, so that a word costs as many hashes at most.
_MARK_EVERY = 64
_MOST_CHAINS = 4096


class Words:
    """The words of every batch, made with the keys of `tokens`."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._marks: OrderedDict[tuple[BatchId, Terms], list[bytes]] = OrderedDict()

    def plan(self, pool: Pool, batch: BatchId, ends_ms: int, now_ms: int, lease_ms: int) -> TimerPlan:
        """What the VMs of `batch`, launched now with the hard end `ends_ms`, are told of their timer."""
        own = terms(pool.end.lifetime_ms, lease_ms, MOST_LINKS)
        return TimerPlan(
            anchor=self._link(batch, own, own.links).hex(),
            first_ms=first_ms(now_ms, ends_ms, pool.boot_deadline_ms, lease_ms),
            step_ms=own.step_ms,
            links=own.links,
            lease_ms=lease_ms,
            ends_ms=ends_ms,
        )

    def word(self, batch: BatchId, terms: Terms, count: int) -> str:
        """The word number `count`, at most `terms.links`: with it its VMs know all before it too."""
        return write_word(count, self._link(batch, terms, terms.links - count))

    def _link(self, batch: BatchId, terms: Terms, distance: int) -> bytes:
        """The seed of the chain, hashed so often."""
        key = (batch, terms)
        marks = self._marks.get(key)
        if marks is not None:
            self._marks.move_to_end(key)
        else:
            marks = self._marks[key] = [self._tokens.timer(batch, terms.step_ms, terms.links)]
            for _ in range(terms.links // _MARK_EVERY):
                marks.append(forward(marks[-1], _MARK_EVERY))
            if len(self._marks) > _MOST_CHAINS:
                self._marks.popitem(last=False)
        return forward(marks[distance // _MARK_EVERY], distance % _MARK_EVERY)
