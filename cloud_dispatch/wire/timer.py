"""The words of the guest timer: how a VM is told that it may live on, so that nobody but the dispatcher can say so.

The words of a batch are a hash chain. Each is the sha256 of the next one; the hash of the first, the *anchor*, stands
in the user data, where everybody on the VM may read it. Whoever has a word can work out all that were said before it
and none that comes after. Owns the chain and how a word is written; knows no clock and no secret of its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Optional, Tuple  # noqa: UP035  (3.9 on the VM)

#: Longest chain: to check a word takes a few milliseconds at most.
MOST_LINKS = 4096
_LINK_BYTES = 32


@dataclass
class TimerPlan:
    """What the user data say of the timer; none without an `anchor` (hex).

    Without a word the VM's time is up `first_ms` after its birth, and when its wall clock has come to `ends_ms`. Word
    number n says that it may live until n times `step_ms` after its birth; there are `links` of them. `lease_ms`: how
    long after it was asked the dispatcher means to let it live.
    """

    anchor: str = ""
    first_ms: int = 0
    step_ms: int = 0
    links: int = 0
    lease_ms: int = 0
    ends_ms: int = 0


def forward(link: bytes, times: int) -> bytes:
    """`link` hashed so often: the word that was said so many before it."""
    for _ in range(times):
        link = hashlib.sha256(link).digest()
    return link


def write_word(count: int, link: bytes) -> str:
    """Word number `count`, from 1."""
    return "%d:%s" % (count, link.hex())


def read_word(text: str) -> Optional[Tuple[int, bytes]]:
    """The number and the link of a word; None for what is none."""
    count, _, link = text.partition(":")
    if not (count.isascii() and count.isdigit() and len(count) <= 4):
        return None
    found = read_link(link)
    return None if found is None else (int(count), found)


def read_link(text: str) -> Optional[bytes]:
    """A link in hex, None for what is none."""
    try:
        link = bytes.fromhex(text)
    except ValueError:
        return None
    return link if len(link) == _LINK_BYTES and len(text) == 2 * _LINK_BYTES else None
