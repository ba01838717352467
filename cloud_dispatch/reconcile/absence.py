"""Proof of absence. Owns when an instance that is not seen may be declared gone.

A VM is absent only when the call that might have made it has ended, the provider's consistency horizon has passed, two
complete listings *started after that* did not show it, and a get by its id says that there is none. One missing list
entry proves nothing (eventual consistency, stale pages), and declaring a live VM gone makes an orphan.
"""

from __future__ import annotations

from dataclasses import dataclass

LISTINGS_NEEDED = 2


@dataclass(frozen=True, slots=True)
class Absence:
    """Evidence so far: complete listings, started after `horizon_ms`, that lacked the instance."""

    horizon_ms: int
    listings: int = 0

    def missed(self, listing_started_ms: int) -> Absence:
        """The evidence after one more complete listing without the instance."""
        if listing_started_ms < self.horizon_ms:
            return self
        return Absence(self.horizon_ms, self.listings + 1)

    @property
    def worth_a_get(self) -> bool:
        return self.listings >= LISTINGS_NEEDED
