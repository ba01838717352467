"""The system's randomness behind `ports.entropy`."""

from __future__ import annotations

import secrets
import string

_FIRST = string.ascii_lowercase
_REST = string.ascii_lowercase + string.digits


class SystemEntropy:
    """Unguessable names and secrets; the purpose only matters to seeded implementations."""

    def name(self, purpose: str, length: int = 12) -> str:
        return secrets.choice(_FIRST) + "".join(secrets.choice(_REST) for _ in range(length - 1))

    def secret(self, purpose: str) -> str:
        return secrets.token_urlsafe(32)

    def fraction(self, purpose: str) -> float:
        return secrets.randbelow(2**32) / 2**32
