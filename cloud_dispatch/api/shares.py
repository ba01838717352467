"""How much of the disk each attempt's output files take, and may take. Owns the count; must not know what is stored.

What was taken before this process is found on the disk, once an attempt; from then on uploads say what they bring.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from cloud_dispatch.api.http import TooLarge
from cloud_dispatch.domain.resources import format_size
from cloud_dispatch.ports.executor import Executor

#: What the smallest file counts as: empty ones fill a disk too.
LEAST_BYTES = 4096
#: Of so many attempts it is remembered what they took; that of others is found on the disk again.
_REMEMBERED = 1_000


class Share:
    """What one attempt has taken, in bytes, files that are under way included."""

    def __init__(self, most: int | None, size: int) -> None:
        self._most = most
        self.size = size
        self.uploads = 0  # under way

    @contextmanager
    def upload(self, former: int) -> Iterator[Upload]:
        """An upload in the place of a file that counts as `former`, so that a file that is sent once more has room. It
        takes what it says; what does not arrive takes nothing."""
        upload = Upload(self, former)
        self.uploads += 1
        try:
            yield upload
        except BaseException:
            self.size -= upload.held - former
            raise
        finally:
            self.uploads -= 1

    def grow(self, more: int) -> None:
        """TooLarge where that is more than an attempt may take."""
        if self._most is not None and more > 0 and self.size + more > self._most:
            message = f"all output files of an attempt have at most {format_size(self._most)} together"
            raise TooLarge(message, place="body", hint="give outputs a URL of their own, or raise the limit")
        self.size += more


class Upload:
    """One file on its way, and what is held of its attempt's share for it."""

    def __init__(self, share: Share, former: int) -> None:
        self._share = share
        self._former = former
        self.held = former

    def holds(self, size: int) -> None:
        """It has `size` bytes by now, or will have. TooLarge as `Share.grow`."""
        more = weight(size) - self.held
        if more > 0:
            self._share.grow(more)
            self.held += more

    def arrived(self, size: int, former: int) -> None:
        """It has its name and `size` bytes, and the file that had it last counted as `former`."""
        self._share.size += weight(size) - former - (self.held - self._former)


class Shares:
    """Those of all attempts, each at most `most` bytes; None: nobody counts."""

    def __init__(self, most: int | None, executor: Executor) -> None:
        self._most = most
        self._executor = executor
        self._known: OrderedDict[Path, Share] = OrderedDict()  # the latest asked for last

    async def of(self, folder: Path) -> Share:
        """The share of the attempt whose files lie in `folder`. Of several who look at once the first is believed: no
        file of theirs has its name before."""
        if self._most is None:
            return Share(None, 0)
        share = self._known.get(folder)
        if share is None:
            found = await self._executor.run(_weigh, str(folder))
            share = self._known.setdefault(folder, Share(self._most, found))
        self._known.move_to_end(folder)
        self._forget(folder)
        return share

    def _forget(self, folder: Path) -> None:
        """Whoever was asked for longest ago, of those that bring nothing now."""
        if len(self._known) > _REMEMBERED:
            idle = (known for known, share in self._known.items() if not share.uploads and known != folder)
            for known in list(islice(idle, 1)):
                del self._known[known]


def weight(size: int) -> int:
    """What a file of `size` bytes counts as."""
    return max(size, LEAST_BYTES)


def _weigh(folder: str) -> int:
    """What all files below `folder` count as. Of the module, so that any executor can run it."""
    found = ((above, name) for above, _, names in os.walk(folder) for name in names)
    return sum(weight(os.lstat(os.path.join(above, name)).st_size) for above, name in found)
