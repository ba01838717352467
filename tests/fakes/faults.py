"""The fault engine of all fakes: what is done to a call, as data.

Matching and counting are those of the simulated clouds: one vocabulary of faults for both. This owns what a fault means
to an HTTP call, and refuses kinds that a fake does not have. `code` is the cloud's own word, `error` is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.simulation.clouds.faults import Fault, FaultBook, FaultKind

__all__ = ["CALL_KINDS", "Call", "Fault", "FaultBook", "FaultKind", "Faults", "Market", "Struck", "fault_of"]

#: What every fake does to calls. LOST_ANSWER with a `code` answers with that error instead of hanging up.
CALL_KINDS = frozenset(
    {FaultKind.ERROR, FaultKind.LOST_ANSWER, FaultKind.NO_ANSWER, FaultKind.SLOW, FaultKind.STALE, FaultKind.INCOMPLETE}
)


@dataclass(frozen=True, slots=True)
class Call:
    """What faults of calls are matched against."""

    operation: str
    type: str = ""
    zone: str = ""
    market: Market | None = None


@dataclass(frozen=True, slots=True)
class Struck:
    """What becomes of one call, decided when it arrives."""

    refused: Fault | None = None  # nothing is done, and it is answered with the fault's `code`
    lost: Fault | None = None  # it is carried out, and the connection breaks (or it answers with the `code`)
    never: bool = False  # it is carried out, and the caller waits for ever
    late_ms: int = 0


class Faults:
    """The faults of one fake, with what is left of their counts."""

    def __init__(self, kinds: Iterable[FaultKind], born_ms: int) -> None:
        self._kinds = CALL_KINDS | frozenset(kinds)
        self._born_ms = born_ms
        self.book = FaultBook((), born_ms)

    def add(self, *faults: Fault) -> None:
        """From now on these too. Their times count from the start of the fake."""
        for fault in faults:
            if fault.kind not in self._kinds:
                raise ValueError(f"this fake has no fault {fault.kind.value!r}")
            if fault.kind is FaultKind.ERROR and not fault.code:
                raise ValueError("an error needs the cloud's code for it")
            self.book.add(fault)

    def clear(self) -> None:
        """No more faults."""
        self.book = FaultBook((), self._born_ms)

    def strike(self, call: Call, now: int) -> Struck:
        """What becomes of this call; faults that strike count as having struck."""
        late = self._take(FaultKind.SLOW, call, now)
        late_ms = late.amount if late else 0
        refused = self._take(FaultKind.ERROR, call, now)
        if refused is not None:
            return Struck(refused=refused, late_ms=late_ms)
        if self._take(FaultKind.NO_ANSWER, call, now) is not None:
            return Struck(never=True)
        return Struck(lost=self._take(FaultKind.LOST_ANSWER, call, now), late_ms=late_ms)

    def staleness_ms(self, operation: str, now: int) -> int:
        """How old the world is that this read shows."""
        fault = self.book.take(FaultKind.STALE, now, operation)
        return fault.amount if fault else 0

    def breaks_off(self, operation: str, page: int, now: int) -> Fault | None:
        """The fault that keeps a listing from its page of this number, counted from 1."""
        waiting = self.book.all_standing(FaultKind.INCOMPLETE, now)
        if not any(fault.amount < page and fault.operation in ("", operation) for fault in waiting):
            return None
        return self.book.take(FaultKind.INCOMPLETE, now, operation)

    def _take(self, kind: FaultKind, call: Call, now: int) -> Fault | None:
        return self.book.take(kind, now, call.operation, call.type, call.zone, call.market)


def fault_of(document: Mapping[str, Any]) -> Fault:
    """A fault from its JSON."""
    unknown = set(document) - {field.name for field in fields(Fault)}
    if unknown:
        raise ValueError(f"a fault has no {sorted(unknown)}")
    market = document.get("market")
    return Fault(**{**document, "kind": FaultKind(document["kind"]), "market": Market(market) if market else None})
