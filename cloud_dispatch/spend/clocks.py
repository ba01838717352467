"""How far clocks may be apart. Owns the one number that every sum of money allows for."""

from __future__ import annotations

#: The dispatcher's clock and the one by which a cloud ends VMs and bills them are never further apart, milliseconds.
CLOCKS_MS = 120_000
