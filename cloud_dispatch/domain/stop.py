"""The kill switch: what is stopped for the whole deployment, and why. Owns its levels and their stored form.

What a dispatcher reads of it at its start and can't understand stops launches: somebody wanted something stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

#: The fact of the statestore that keeps an operator's stop over restarts.
STOP_FACT = "stop"


class StopLevel(StrEnum):
    """Each stops all that the ones before it stop."""

    NOTHING = "nothing"
    LAUNCHES = "launches"  # nothing more is launched
    DRAIN = "drain"  # and what runs finishes and ends; what has nothing to finish ends now
    TERMINATE = "terminate-all"  # and everything ends now, what an operator holds too


_ORDER = tuple(StopLevel)


@dataclass(frozen=True)
class Stop:
    """What is stopped since `since_ms` (epoch; 0: since ever), and for what reason."""

    level: StopLevel = StopLevel.NOTHING
    why: str = ""
    since_ms: int = 0

    @property
    def launches(self) -> bool:
        """Whether nothing is launched."""
        return self.level is not StopLevel.NOTHING

    @property
    def drains(self) -> bool:
        return self.level in (StopLevel.DRAIN, StopLevel.TERMINATE)

    @property
    def terminates(self) -> bool:
        return self.level is StopLevel.TERMINATE

    def __str__(self) -> str:
        return f"launching is stopped: {self.why}" if self.launches else "nothing is stopped"


def strongest(stops: Iterable[Stop]) -> Stop:
    """The one that stops most, of equal ones the first."""
    return max(stops, key=lambda stop: _ORDER.index(stop.level), default=Stop())


def encode(stop: Stop) -> str:
    """As the statestore keeps it."""
    return json.dumps(asdict(stop))


def decode(text: str | None) -> Stop:
    """What `encode` wrote; None is nothing."""
    if text is None:
        return Stop()
    try:
        kept = json.loads(text)
        return Stop(StopLevel(kept["level"]), str(kept["why"]), int(kept["since_ms"]))
    except (ValueError, KeyError, TypeError):
        return Stop(StopLevel.LAUNCHES, f"the statestore's fact {STOP_FACT!r} can't be read; `stop` says it anew")
