"""Tasks of local VMs as users of their own: the users that a VM gets, and folders that these can reach and not read.

Owns which uids VMs have and the modes on the way to them. The agent's supervisor does the rest, in the VM.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from cloud_dispatch.domain.errors import InvalidInput

#: Above all uids that distributions, systemd and user namespaces give out. A block of them is one VM's.
FIRST_UID = 0x7000_0000
BLOCK = 512
_BLOCKS = 4096
_LOCKS = Path("/run/cloud-dispatch-local")
#: What the agent's supervisor takes instead of its configuration, which all VMs of a batch share.
_AGENT_USER = "CLOUD_DISPATCH_AGENT_USER"
_TASK_UIDS = "CLOUD_DISPATCH_TASK_UIDS"


class NoUids(Exception):
    """Every block of uids is some VM's."""


def lease_uids() -> Mapping[str, str]:
    """A block of uids that no other VM of this host has, as variables for the VM's environment. It is this process's
    until it ends, whoever starts or kills it. NoUids where there is none, OSError where that can't be known."""
    _LOCKS.mkdir(mode=0o700, exist_ok=True)
    for number in (*range(os.getpid() % _BLOCKS, _BLOCKS), *range(os.getpid() % _BLOCKS)):
        handle = os.open(_LOCKS / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        first = FIRST_UID + number * BLOCK
        return {_AGENT_USER: str(first), _TASK_UIDS: f"{first + 1}-{first + BLOCK - 1}"}
    raise NoUids(f"all {_BLOCKS} blocks of uids are in use, see {_LOCKS}")


def check_root(profile: str) -> None:
    """InvalidInput unless this process may give VMs users of their own."""
    if os.geteuid() != 0:
        raise InvalidInput(
            f"isolate_tasks needs root, and the dispatcher runs as uid {os.geteuid()}",
            place=f"profiles.{profile}.isolate_tasks",
            hint="run the dispatcher as root, or take isolate_tasks out: tasks then run as the dispatcher's user",
        )


def ours(root: Path, own: Path) -> Path:
    """The uppermost folder that we may open: the dispatcher's, two above a profile's own, where VMs live there."""
    return own.parents[1] if root == own and own.parent.name == "providers" else root


def open_way(root: Path, top: Path, profile: str) -> None:
    """Let everybody pass through `root` and the folders above it up to `top`, and through nothing else in these. What
    is in `root` is left as it is: VMs that run.

    InvalidInput where a folder above `top` is closed: that one is not ours to open.
    """
    for folder in (top, *top.parents)[1:]:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise InvalidInput(
                f"isolate_tasks: the users of tasks can't get through {folder}",
                place=f"profiles.{profile}.root",
                hint=f"set root to a folder that everybody can reach, such as /var/lib/cloud-dispatch/vms,"
                f" or chmod o+x {folder}",
            )
    way = sorted(folder for folder in (root, *root.parents) if folder.is_relative_to(top))  # from the top down
    for folder, below in pairwise(way):
        close_entries(folder, below)
    for folder in way:
        folder.chmod(0o711)


def close_entries(folder: Path, way: Path) -> None:
    """Take what is in `folder`, but for `way`, from everybody but its owner."""
    with os.scandir(folder) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if mode & 0o077 and not stat.S_ISLNK(mode) and entry.name != way.name:
                os.chmod(entry.path, stat.S_IMODE(mode) & ~0o077)
