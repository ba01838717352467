"""Python's search for garbage. Owns how seldom a process of ours looks, and that none looks as it ends."""

from __future__ import annotations

import atexit
import gc

#: Objects more than were freed, before it looks; Python's own 700 come while modules are imported, again and again.
_OFTEN, _OLDER, _OLDEST = 50_000, 20, 50


def spare() -> None:
    """Called first, before the modules are imported that do the work. They live to the end, when Python would walk all
    of them several times: that and the walks meanwhile were up to two fifths of a short process's time."""
    gc.set_threshold(_OFTEN, _OLDER, _OLDEST)
    atexit.register(gc.freeze)


def keep() -> None:
    """For who serves: as seldom, and never again at what there is by now. The queue is millions of small objects that
    live on (measured once: 44 instead of 54 µs of CPU a claim). What garbage is among it stays too: some thousand
    objects where a store is new, hundreds else, which it took 60 ms to find."""
    gc.set_threshold(_OFTEN, _OLDER, _OLDEST)
    gc.freeze()
