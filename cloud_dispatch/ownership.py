"""Whose the files of a dispatcher's state are. Root runs commands on a state folder that is a service's: what they make
there has to be the service's, or it can't go on with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def give(made: int, folder: Path) -> None:
    """Give what root has made, by its descriptor, to the owner of `folder`. Who is not root has made it as that owner,
    or may give nothing away; nor may a root without that right, in a container."""
    if os.geteuid() != 0:
        return
    owner = folder.stat()
    with suppress(PermissionError):
        os.fchown(made, owner.st_uid, owner.st_gid)


@contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    """Root has the rights of the owner of `folder` for as long: a link that this one has put there leads root no
    further than its owner gets, and what root makes is that one's. All of the process has them, as suits a command. Who
    is not root, or may not change its rights in a container, goes on as it is; so does root where no folder is."""
    found = (folder.lstat(), folder.stat()) if os.geteuid() == 0 and folder.exists() else ()
    owner = next((one for one in found if one.st_uid != 0), None)
    if owner is None:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    try:
        with suppress(PermissionError):
            os.setgroups([])
            os.setegid(owner.st_gid)
            os.seteuid(owner.st_uid)
        yield
    finally:
        if os.geteuid() != 0:
            os.seteuid(0)
        with suppress(PermissionError):
            os.setegid(group)
            os.setgroups(groups)
