"""User data as it travels. Owns its bytes, so that whoever checks their number and whoever sends them agree."""

from __future__ import annotations

import gzip

from cloud_dispatch.provider.spi import Traits

_MOST_EFFORT = 9


#: What gzip adds to a text that it can't make smaller, and more than that.
_OVERHEAD = 256


def fits(user_data: str, traits: Traits) -> bool:
    """Whether the provider takes it. What is small enough as it is need not be packed to know."""
    plain = len(user_data.encode())
    return plain + _OVERHEAD <= traits.max_user_data or len(sent(user_data, traits)) <= traits.max_user_data


def sent(user_data: str, traits: Traits) -> bytes:
    """What the provider is given of `user_data`. The same for the same text, always: a repeated launch must not differ
    from the first. cloud-init unpacks gzip by itself."""
    plain = user_data.encode()
    return gzip.compress(plain, _MOST_EFFORT, mtime=0) if traits.gzips_user_data else plain
