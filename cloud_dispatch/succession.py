"""Which statestore a state folder serves. Owns the sign of it, by which a store that takes the place of a lost one is
known where no VM of the lost one is left to tell."""

from __future__ import annotations

from pathlib import Path

import structlog

from cloud_dispatch import durable
from cloud_dispatch.ports.store import Store

log = structlog.get_logger(__name__)
#: In the state folder: the id of its statestore.
SIGN = "statestore-id"


async def succeed(store: Store, folder: Path) -> None:
    """`store` is that of the state folder `folder` from now on. Where another one was before, what that one spent is
    not known to it; a sign that says nothing is that of one of which nothing else is known. If this is cut short it is
    so the next time."""
    sign = folder / SIGN
    before = sign.read_text().strip() if sign.exists() else None
    if before == store.id:
        return
    if before is not None:
        await store.doubt()
        log.warning("statestore.another_before", before=before, now=store.id)
    durable.write(sign, f"{store.id}\n".encode(), 0o644, folder)
