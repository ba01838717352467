"""Budgets. Owns what an operator may set about spending, already validated, and which part of a limit brings what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cloud_dispatch.domain.money import Amount
from cloud_dispatch.spend.commitment import Key
from cloud_dispatch.spend.windows import Window


class Stage(StrEnum):
    """How far the spending of a budget has come, each stage with all that the ones before it bring."""

    CALM = "calm"
    NOTIFY = "notify"  # the operator is told
    NO_LAUNCH = "no-launch"  # nothing more is launched
    DRAIN = "drain"  # what runs finishes and ends
    LIMIT = "limit"  # nothing is granted any more: the ends do the rest


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `limit` micro-dollars for `key` in each window. The soft thresholds are percentages of the limit, of what
    has been spent; 0 is no such threshold."""

    key: Key
    window: Window
    limit: Amount
    notify_percent: int = 80
    no_launch_percent: int = 0
    drain_percent: int = 0

    @property
    def name(self) -> str:
        """`total`, `profile aws-eu day`: unique among budgets of one key and window."""
        scope = "" if not self.key.name else f"{self.key.scope} {self.key.name} "
        return f"{scope}{self.window}"

    def stage(self, spent: Amount) -> Stage:
        """What having spent so much brings about."""
        if spent >= self.limit:
            return Stage.LIMIT
        for stage, percent in (
            (Stage.DRAIN, self.drain_percent),
            (Stage.NO_LAUNCH, self.no_launch_percent),
            (Stage.NOTIFY, self.notify_percent),
        ):
            if percent and spent * 100 >= self.limit * percent:
                return stage
        return Stage.CALM
