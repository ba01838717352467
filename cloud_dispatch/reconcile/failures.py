"""Memory of refusals. Owns which offerings are not tried for how long after what error. Pure but for what it holds.

TTLs: three minutes for capacity, as Karpenter keeps them; longer where only an operator can help; doubled at each
repetition within a block's own length, up to an hour, or a quarter of one for capacity: that comes back by itself, for
minutes, and to ask costs a call. What takes time to fail, a boot, has that time on top: it would be forgotten before it
can be repeated. While a block holds the same news again, of launches made before it, adds
nothing. A success ends the doubling: a launch that of refusals, a registration that of failed boots; neither says
anything of the other. What only an operator can mend is asked again as soon as he says that he has.

What was refused, or did not boot, when it was last tried is not counted on for a day, unless it succeeds: it is
tried again where something waits, but nothing that runs is given up for it. So it is with what a budget refused, for an
hour in any case: one pool's success says nothing of another's budget.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import Blocked
from cloud_dispatch.provider import errors
from cloud_dispatch.spend.clocks import CLOCKS_MS

MINUTE = 60_000
LONGEST_MS = 60 * MINUTE
#: Of capacity. Where nothing else does for the work, it waits for the next question.
LONGEST_FOR_CAPACITY_MS = 15 * MINUTE
#: How long nobody counts on what failed when it was last tried.
WARY_MS = 24 * 60 * MINUTE
#: How long a refusal by a budget is good for, and how long nobody counts on what was refused.
MONEY_MS = 20_000
WARY_OF_MONEY_MS = 60 * MINUTE
#: How long it is good for that so many boot that no more may, should none of them register.
BOOTING_MS = 60_000


#: Refusals that time does not mend.
_MENDABLE = (errors.CredentialsRejected, errors.InvalidRequest, errors.QuotaExceeded)
#: Those that speak of what was asked for, not of the call.
_TELLING = (errors.CapacityUnavailable, errors.InvalidRequest, errors.QuotaExceeded)


class _Kind(enum.Enum):
    """What failed. A machine that launches well may boot badly, so each has its own memory."""

    LAUNCH = enum.auto()
    BOOT = enum.auto()
    MONEY = enum.auto()
    BREAKER = enum.auto()


_OBSTACLES = {
    _Kind.LAUNCH: Obstacle.REFUSED, _Kind.BOOT: Obstacle.BOOT, _Kind.MONEY: Obstacle.BUDGET,
    _Kind.BREAKER: Obstacle.BREAKER,
}  # fmt: skip


@dataclass
class _Entry:
    kind: _Kind
    blocked: Blocked
    length_ms: int
    forget_ms: int
    mendable: bool = False  # by an operator, if at all
    wary_ms: int = 0  # until when nobody counts on it


class FailureMemory:
    """Bounded by the number of distinct scopes; entries are forgotten one block length, and the time that the failure
    took to show, after they ran out."""

    def __init__(self) -> None:
        self._entries: dict[tuple[_Kind, str, errors.Scope, str, str], _Entry] = {}

    def refused(self, offering: Offering, error: errors.ProviderError, now_ms: int) -> Blocked:
        """Remember that a launch of `offering` was refused."""
        length, scope = _length_and_scope(offering, error)
        reason = f"{type(error).__name__}: {error.message}"
        longest = LONGEST_FOR_CAPACITY_MS if isinstance(error, errors.CapacityUnavailable) else LONGEST_MS
        mendable = isinstance(error, _MENDABLE)
        wary_for_ms = WARY_MS if isinstance(error, _TELLING) else 0
        return self._remember(
            _Kind.LAUNCH, offering, scope, length, reason, now_ms, mendable=mendable, longest_ms=longest,
            wary_for_ms=wary_for_ms,
        )  # fmt: skip

    def boot_failed(self, offering: Offering, reason: str, now_ms: int, took_ms: int) -> Blocked:
        """Remember that a VM of `offering` never registered, which took `took_ms` from its launch to be known."""
        scope = _alone(offering)
        reason = f"boot failed: {reason}"
        return self._remember(_Kind.BOOT, offering, scope, MINUTE // 2, reason, now_ms, took_ms, wary_for_ms=WARY_MS)

    def unaffordable(
        self, offering: Offering, reason: str, now_ms: int, *, pool: str = "", from_rate: int = 0
    ) -> Blocked:
        """Remember that no budget admits a launch of `offering` now; with `from_rate` that none admits a launch for
        `pool` of anything in its profile that can cost so much (nano-dollars an hour), so that the next plan does not
        try one dear type after the other. What is left changes with everything that ends, so this is never held for
        longer than it takes to ask again."""
        scope = _alone(offering)
        if from_rate:
            scope = errors.Scope()
            holding = (one for one in self.blocked(now_ms) if one.from_rate and one.profile == offering.profile)
            from_rate = min([from_rate, *(one.from_rate for one in holding if one.pool == pool)])
        return self._remember(
            _Kind.MONEY, offering, scope, MONEY_MS, reason, now_ms, pool=pool if from_rate else "", from_rate=from_rate,
            doubles=False, wary_for_ms=WARY_OF_MONEY_MS,
        )  # fmt: skip

    def unproved(self, offering: Offering, template: str, reason: str, now_ms: int) -> Blocked:
        """Remember that no more of `offering` may boot from `template` now: until one registers, and it is asked again
        before long anyway."""
        scope = _alone(offering)
        return self._remember(
            _Kind.BREAKER, offering, scope, BOOTING_MS, reason, now_ms, template=template, doubles=False
        )

    def launched(self, offering: Offering) -> None:
        """A launch of `offering` brought a VM: the next refusal is a first one again."""
        self._calm(_Kind.LAUNCH, offering)

    def forget_money(self) -> None:
        """The limits are others: what they admit is asked anew."""
        self._entries = {key: one for key, one in self._entries.items() if one.kind is not _Kind.MONEY}

    def forget_mendable(self) -> None:
        """An operator has changed something, a right or a quota or a setting: what waits for that is asked anew."""
        self._entries = {key: one for key, one in self._entries.items() if not one.mendable}

    def booted(self, offering: Offering) -> None:
        """A VM of `offering` registered: the next boot failure is a first one again, and more of what it was made from
        may boot."""
        self._calm(_Kind.BOOT, offering)
        self._entries = {
            key: entry
            for key, entry in self._entries.items()
            if entry.kind is not _Kind.BREAKER
            or (entry.blocked.profile, entry.blocked.zone) != (offering.profile, offering.zone)
        }

    def _calm(self, kind: _Kind, offering: Offering) -> None:
        """A block that holds is kept, as later news than the launch it may have followed; it is just not remembered."""
        for entry in self._entries.values():
            if entry.kind is kind and entry.blocked.covers(offering):
                entry.forget_ms = entry.wary_ms = entry.blocked.until_ms

    def blocked(self, now_ms: int) -> tuple[Blocked, ...]:
        """What is blocked now. What would be for longer than its block is long was remembered while the clock was
        ahead."""
        self._entries = {
            key: entry
            for key, entry in self._entries.items()
            if max(entry.forget_ms, entry.wary_ms) > now_ms
            and entry.blocked.until_ms <= now_ms + entry.length_ms + CLOCKS_MS
        }
        return tuple(entry.blocked for entry in self._entries.values() if entry.blocked.until_ms > now_ms)

    def failed(self, now_ms: int) -> tuple[Blocked, ...]:
        """What is blocked no more, and has not succeeded since."""
        return tuple(e.blocked for e in self._entries.values() if e.blocked.until_ms <= now_ms < e.wary_ms)

    def covers(self, offering: Offering, now_ms: int, pool: Pool | None = None) -> bool:
        """Whether `offering` is not tried now: for `pool`, else for any."""
        return any(
            blocked.covers(offering) and (not blocked.template if pool is None else blocked.is_for(pool))
            for blocked in self.blocked(now_ms)
        )

    def _remember(
        self, kind: _Kind, offering: Offering, scope: errors.Scope, length_ms: int, reason: str, now_ms: int,
        took_ms: int = 0, template: str = "", pool: str = "", from_rate: int = 0, mendable: bool = False,
        longest_ms: int = LONGEST_MS, wary_for_ms: int = 0, doubles: bool = True,
    ) -> Blocked:  # fmt: skip
        key = (kind, offering.profile, scope, template, pool)
        before = self._entries.get(key)
        if before is not None and before.forget_ms <= now_ms:
            before = None
        if before is not None and before.blocked.until_ms > now_ms:
            length_ms = max(before.length_ms, length_ms)
        elif before is not None:
            length_ms = min(max(before.length_ms * 2, length_ms), longest_ms)
        blocked = Blocked(
            profile=offering.profile,
            until_ms=now_ms + length_ms,
            reason=reason,
            type=scope.type,
            zone=scope.zone,
            market=scope.market,
            family=scope.family,
            region=scope.region,
            gpu=scope.gpu,
            gpu_memory=scope.gpu_memory,
            template=template,
            pool=pool,
            from_rate=from_rate,
            obstacle=_OBSTACLES[kind],
        )
        forget_ms = blocked.until_ms + length_ms + took_ms if doubles else blocked.until_ms
        self._entries[key] = _Entry(kind, blocked, length_ms, forget_ms, mendable, now_ms + wary_for_ms)
        return blocked


def _alone(offering: Offering) -> errors.Scope:
    """Its type in its zone and market, and nothing else."""
    return errors.Scope(type=offering.type.name, zone=offering.zone, market=str(offering.market))


def _length_and_scope(offering: Offering, error: errors.ProviderError) -> tuple[int, errors.Scope]:
    this = _alone(offering)
    if isinstance(error, errors.CapacityUnavailable):
        return 3 * MINUTE, error.scope if error.scope != errors.Scope() else this
    if isinstance(error, errors.QuotaExceeded):
        return 5 * MINUTE, error.scope
    if isinstance(error, errors.RateLimited):
        return max(error.retry_after_ms, 5_000), errors.Scope()
    if isinstance(error, errors.CredentialsRejected):
        return 10 * MINUTE, errors.Scope()
    if isinstance(error, errors.InvalidRequest):
        return 10 * MINUTE, this
    return 10_000, this
