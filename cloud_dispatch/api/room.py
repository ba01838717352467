"""How much of the disk what VMs send may take. Owns the part that stays free for the statestore.

A disk that is full stops every commit: no result is accepted and no VM is ended for good. What tasks print and store is
theirs to choose, so it is refused while the statestore still has room, and not when the disk is full for all.
"""

from __future__ import annotations

import os
from pathlib import Path

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.resources import format_size

#: File systems run out of files as well; a statestore needs few.
_LEAST_FILES = 1_000
_HINT = "free space under the dispatcher's state directory; nothing that was stored is lost"


class Room:
    """Room on the disk of `folder`, of which `reserve` bytes are not for what VMs send. 0: nothing is kept back, and
    nobody looks."""

    def __init__(self, folder: Path, reserve: int) -> None:
        self._folder = folder
        self._reserve = reserve

    def check(self, place: str) -> None:
        """StoreUnavailable, with `place`, where no more than the reserve is left."""
        lack = self.lack() if self._reserve else ""
        if lack:
            raise StoreUnavailable(lack, place=place, hint=_HINT)

    def lack(self) -> str:
        """What is short, in words; "" while there is room."""
        if not self._reserve:
            return ""
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize < self._reserve:
            return f"the dispatcher's disk has less than {format_size(self._reserve)} left, which are the statestore's"
        if disk.f_files and disk.f_favail < _LEAST_FILES:  # else it makes them as needed
            return f"the dispatcher's disk has room for less than {_LEAST_FILES:,} files, which are the statestore's"
        return ""


#: All of the disk is for whoever comes first.
NOTHING_KEPT_BACK = Room(Path("/"), 0)
