"""Why what is followed has not begun, or is not heard of. Owns when the dispatcher is asked, and that a reason is told
once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud_dispatch.cli import show
from cloud_dispatch.cli.session import say, seconds
from cloud_dispatch.domain.errors import DispatchError, Unavailable

if TYPE_CHECKING:
    from cloud_dispatch.client import Client

#: A task waits this long before anybody wonders why, and so long until it is asked again.
SOON_S, AGAIN_S = 3.0, 15.0


def say_away(error: Unavailable, patience_s: float) -> None:
    """Say that the dispatcher is away, and for how long that is borne."""
    say(f"{show.clean(error.message)}: it is waited for, {patience_s:.0f} s at most")


class Waits:
    """What a follower says while nothing of what it follows runs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next_s = seconds() + SOON_S
        self._told = ""

    def look(self, task: int | None) -> None:
        """Say why `task` is still queued, once it has been looked at for a while and where that is news; None:
        something runs."""
        if task is None:
            self._next_s = seconds() + SOON_S
        elif seconds() >= self._next_s:
            self._next_s = seconds() + AGAIN_S
            self._tell(task)

    def _tell(self, task: int) -> None:
        try:
            found = self._client.explain_task(task)
        except DispatchError:
            return  # whoever follows meets it too, and knows whether to wait
        reasons = show.clean("; ".join(found["reasons"]))
        if found["state"] == "queued" and reasons != self._told:
            self._told = reasons
            say(f"task {task} waits: {reasons}")
