"""Which of a VM's GPUs an attempt is lent. Pure.

A GPU is known by its index among those of the VM.
"""

from __future__ import annotations

from itertools import islice
from typing import Set, Tuple  # noqa: UP035


def lend(wanted: int, there: int, held: Set[int]) -> Tuple[int, ...]:
    """The first `wanted` of the GPUs of a VM that has `there` and of which `held` are others'."""
    free = (index for index in range(there) if index not in held)
    return tuple(islice(free, wanted))
