"""How far transfers reach on the agent's own machine. Owns that nothing which a task names (a file's URL, a working
folder, a link) leads the agent to what is its own: its token, its program, what it holds of other attempts.

Where a name leads, only that tells which was opened by it: so a descriptor is judged, and then used. Where tasks run
as the agent's own user nothing is closed, since nothing could be.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import IO, Iterator  # noqa: UP035

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
#: By it the agent comes to its own memory and to all that it has open.
_PROCESSES = "/proc"


@dataclass(frozen=True)
class Reach:
    """Nothing below `closed` ("": all is open), but for `own`, the folder of the attempt. Both are real places."""

    closed: str = ""
    own: str = ""

    def allow(self, place: str) -> None:
        """PermissionError where the real place `place` is out of reach."""
        if not self.closed or _is_within(place, self.own):
            return
        for closed in (self.closed, _PROCESSES):
            if _is_within(place, closed):
                raise PermissionError("%s is below %s, which is closed to transfers" % (place, closed))

    def judge(self, opened: int) -> None:
        """PermissionError where the file or folder `opened` is out of reach. What was given back is the agent's: in the
        attempt's folder anything else was never the task's."""
        if not self.closed:
            return
        place, status = os.readlink("/proc/self/fd/%d" % opened), os.fstat(opened)
        self.allow(place)
        if stat.S_ISDIR(status.st_mode):
            return
        if not stat.S_ISREG(status.st_mode) or not status.st_nlink:  # memory that somebody has open has no name
            raise PermissionError("it is no plain file")
        if _is_within(place, self.own) and status.st_uid != os.geteuid():
            raise PermissionError("it belongs to another user than the task's")

    def source(self, path: str) -> IO[bytes]:
        """The file `path`, to be read. OSError."""
        if not self.closed:
            return open(path, "rb")
        file = os.open(path, _FILE)
        try:
            self.judge(file)
        except OSError:
            os.close(file)
            raise
        return os.fdopen(file, "rb")

    @contextlib.contextmanager
    def written(self, target: str, suffix: str) -> Iterator[IO[bytes]]:
        """A new file, to be written, that is `target` when the block ends and never was anything less: until then it
        has `suffix` at its name. Folders are made as needed. OSError."""
        folder, name = os.path.split(target)
        at = self._folder(folder)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name + suffix, dir_fd=at)  # of one that was cut off; or a link that somebody has put there
            try:
                with os.fdopen(os.open(name + suffix, _NEW, 0o666, dir_fd=at), "wb") as file:
                    yield file
                os.replace(name + suffix, name, src_dir_fd=at, dst_dir_fd=at)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name + suffix, dir_fd=at)
        finally:
            os.close(at)

    def _folder(self, path: str) -> int:
        """The descriptor of the folder `path`, made where it is missing, in one that is within reach."""
        try:
            found = os.open(path, _FOLDER)
        except FileNotFoundError:
            above, name = os.path.split(path.rstrip("/"))
            if not name:
                raise
            at = self._folder(above)
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
                found = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            finally:
                os.close(at)
        try:
            self.judge(found)
        except OSError:
            os.close(found)
            raise
        return found


def _is_within(place: str, folder: str) -> bool:
    return bool(folder) and (place == folder or place.startswith(folder + "/"))
