"""How long Linux lets a worker go on before another one has its turn.

Six workers on two cores would change places every 1.4 ms, each time with caches full of somebody else's objects: fifty
scenarios of the simulator took 10.9 s of CPU when six ran at once, and 8 alone. So a worker asks for longer turns;
those of 10 ms gain what those of 100 ms do. The processes that tests start have the usual short ones.

The standard library has no call for it. Kernels before 6.12 ignore what is asked.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

#: Linux grants up to 100 ms: a test that wakes would wait for as long.
TURN_NS = 10_000_000
#: sched_setattr and sched_getattr, by machine.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
#: sched_attr as of its first version: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_RESET_ON_FORK = 1


def ask_for_long() -> bool:
    """Ask for them, for this thread alone: not for what it starts. Whether Linux took it."""
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, 0, 0, TURN_NS, 0, 0)
    return _call(0, ctypes.create_string_buffer(wanted), 0)


def granted_ns() -> int:
    """The turn that this thread has, in nanoseconds; 0 where that is not known."""
    told = ctypes.create_string_buffer(_ATTRIBUTES.size)
    return int(_ATTRIBUTES.unpack_from(told)[5]) if _call(1, told, _ATTRIBUTES.size, 0) else 0


def can_be_asked_for() -> bool:
    """Whether this machine has the calls; old kernels have them and ignore what is asked."""
    return platform.system() == "Linux" and platform.machine() in _CALLS


def _call(which: int, *arguments: object) -> bool:
    """Whether it is there and went well, for this thread."""
    return can_be_asked_for() and ctypes.CDLL(None).syscall(_CALLS[platform.machine()][which], 0, *arguments) == 0
