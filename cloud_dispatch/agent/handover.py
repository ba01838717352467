"""Brings the program that the dispatcher has now, and lets it take the place of this one. Owns its file and the exec.

The process stays the same, so its children, its pipes and the socket to the supervisor stay its own. A program that
does not live is named in a file, so that the one before, which the supervisor then starts again, does not try it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
from typing import List  # noqa: UP035

from cloud_dispatch.agent.baggage import Baggage
from cloud_dispatch.agent.memfd import holding
from cloud_dispatch.wire.codec import decode, encode
from cloud_dispatch.wire.messages import Program

#: What a supervisor and this module say before the number of the descriptor that the baggage is in.
TAKE_OVER = "--take-over"
_TRIED_FILE = "heir"
_ZIP_END = b"PK\5\6"
#: Held back from the last step of the one program to the first of the next, which would die of them.
_HELD_BACK = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def own_sha256() -> str:
    """That of the zipapp that runs, "" where it is none."""
    with contextlib.suppress(OSError), open(sys.argv[0], "rb") as file:
        body = file.read()
        if _ZIP_END in body[-65_557:]:  # as far from the end as it may be
            return hashlib.sha256(body).hexdigest()
    return ""


def spurned(work_dir: str, own: str) -> str:
    """The sha256 of the program that was to take the place of `own` and did not live, or ""."""
    with (
        contextlib.suppress(OSError),
        open(os.path.join(work_dir, _TRIED_FILE), encoding="ascii", errors="replace") as file,
    ):
        tried = file.read(64)
        return tried if tried != own else ""
    return ""


def keep(work_dir: str, program: Program, body: bytes) -> None:
    """Write `body` where `become` finds it. ValueError where it is not `program`; OSError."""
    if hashlib.sha256(body).hexdigest() != program.sha256:
        raise ValueError("what the dispatcher serves is not the agent that it named")
    target = _place(work_dir, program)
    descriptor = os.open(target + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
    os.replace(target + ".part", target)
    running = os.path.abspath(sys.argv[0])
    for name in os.listdir(work_dir):
        path = os.path.join(work_dir, name)
        if name.startswith("agent-") and name.endswith(".pyz") and path not in (target, running):
            with contextlib.suppress(OSError):
                os.unlink(path)


def become(work_dir: str, program: Program, baggage: Baggage) -> None:
    """Run `program`, which `keep` has kept, in this process. Returns only by an OSError, with everything as it was."""
    place = _place(work_dir, program)
    with open(place, "rb") as body:
        if hashlib.sha256(body.read()).hexdigest() != program.sha256:
            raise OSError("%s is not the program that was kept there" % place)
    packed = holding("baggage", encode(baggage if baggage.machine is not None else baggage.config))
    pipes = [moved.pipe for moved in baggage.attempts]
    kept = [descriptor for descriptor in (packed, baggage.pipe, baggage.warden, *pipes) if descriptor >= 0]
    arguments = [TAKE_OVER, str(packed)] if baggage.machine is not None else _afresh(baggage, packed)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        with open(os.path.join(work_dir, _TRIED_FILE), "w", encoding="ascii") as file:
            file.write(program.sha256)
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        os.execv(sys.executable, [sys.executable, "-S", "-I", place, "--agent", *arguments])
    finally:
        os.close(packed)
        for descriptor in kept[1:]:
            os.set_inheritable(descriptor, False)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _afresh(baggage: Baggage, config: int) -> List[str]:
    """How a supervisor starts an agent, which programs of all versions understand."""
    known = [str(config), str(baggage.pipe), str(baggage.born_ms), str(baggage.words)]
    return known if baggage.warden < 0 else [*known, str(baggage.warden), baggage.lodging]


def proved(work_dir: str) -> None:
    """This program has been answered by the dispatcher: it lives."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(work_dir, _TRIED_FILE))


def let_signals_in() -> None:
    """The handlers are there: what came meanwhile is heard now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)


def unpack(descriptor: int) -> Baggage:
    """What the program before has packed. ValueError."""
    with os.fdopen(descriptor, "rb") as file:
        return decode(Baggage, file.read())


def _place(work_dir: str, program: Program) -> str:
    return os.path.join(work_dir, "agent-%s.pyz" % program.sha256[:16])
