"""How many files this process may have open. Owns the soft limit, which the system sets low by default."""

from __future__ import annotations

import resource


def allow(wanted: int) -> int:
    """Have the soft limit be `wanted` at least, as far as the hard one allows; what it is then. Never lowers it, and
    raises it no further: programs that are started inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed
