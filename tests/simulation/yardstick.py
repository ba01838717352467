"""What a scheduler that knows everything beforehand finishes for a limit. Pure; it knows every runtime, price and boot.

It runs the tasks one after another on one machine, which is rented not a millisecond longer than it works and boots
once, at the quickest; in the order of the queue, as every scheduler must. So none finishes more.
"""

from __future__ import annotations

from collections.abc import Iterable

from cloud_dispatch.domain.money import Amount, Rate, cost


def clairvoyant(limit: Amount, lengths_ms: Iterable[int], rate: Rate, boot_ms: int, slots: int = 1) -> int:
    """How many of the tasks are finished for `limit`, on machines at `rate` that boot in `boot_ms` at the quickest and
    run `slots` tasks at once: the first ones, all of them on one machine. An upper bound."""
    done, worked_ms = 0, 0
    for length_ms in lengths_ms:
        worked_ms += length_ms
        if cost(rate, boot_ms + worked_ms // slots) > limit:
            break
        done += 1
    return done
