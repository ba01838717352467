"""That a state is being made from a copy. Owns the sign of it in the state folder.

A restore takes several steps, and the service of a new control VM starts with the machine: on what a restore that was
cut off has left it would begin with an empty statestore, or with keys that no agent believes, and the VMs that run
would be lost. So nothing starts on a state before all of it is there.
"""

from __future__ import annotations

from pathlib import Path

from cloud_dispatch import durable
from cloud_dispatch.domain.errors import Conflict
from cloud_dispatch.ownership import as_owner

#: In the state folder, while it is made from a copy and after that was cut off: which copy.
SIGN = "restoring"


def begun(state: Path) -> str:
    """From which copy the state is being made, "" where it is not."""
    try:
        return (state / SIGN).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def begin(state: Path, source: str) -> None:
    """From now on nothing starts on this state."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with as_owner(state):
        durable.write(state / SIGN, f"{source}\n".encode(), 0o600)


def end(state: Path) -> None:
    """All of it is there."""
    with as_owner(state):
        (state / SIGN).unlink(missing_ok=True)
        durable.sync(state)


def refuse_half(state: Path) -> None:
    """Conflict where the state is not whole."""
    sign = state / SIGN
    if not sign.exists():
        return
    source = begun(state) or "a copy"
    raise Conflict(
        f"the restore of {source} into {state} is not complete",
        hint=f"wait for it, or restore the same again; to begin without it remove {sign}, and with it what it brought",
    )
