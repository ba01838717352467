"""How long Linux lets a worker go on before another one has its turn.

Six workers on two cores would change places every 1.4 ms, each time with caches full of somebody else's objects: what
computes takes a quarter more CPU than alone (measured on the simulator: 10.9 instead of 8.6 s). So a worker asks for
longer turns; those of 10 ms gain what those of 100 ms do. The processes that tests start have the usual short ones, and
Linux lets who has a shorter one go first when it wakes: they wait less than before.

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
    calls = _CALLS.get(platform.machine())
    if platform.system() != "Linux" or calls is None:
        return False
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, 0, 0, TURN_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(calls[0], 0, ctypes.create_string_buffer(wanted), 0) == 0)


def granted_ns() -> int:
    """The turn that this thread has, in nanoseconds; 0 where that is not known."""
    calls = _CALLS.get(platform.machine())
    if platform.system() != "Linux" or calls is None:
        return 0
    told = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if ctypes.CDLL(None).syscall(calls[1], 0, told, _ATTRIBUTES.size, 0):
        return 0
    return int(_ATTRIBUTES.unpack(told.raw)[5])
