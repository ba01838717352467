"""Whose the files of a dispatcher's state are. Root runs commands on a state folder that is a service's: what they make
there has to be the service's, or it can't go on with it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_HOME = "HOME"


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
    further than its owner gets, and what root makes is that one's. All of the process has them, as suits a command, and
    that one's home: a library that looks there (libpq does) would be refused root's. Who is not root, or may not change
    its rights in a container, goes on as it is; so does root where no folder is."""
    found = (folder.lstat(), folder.stat()) if os.geteuid() == 0 and folder.exists() else ()
    owner = next((one for one in found if one.st_uid != 0), None)
    if owner is None:
        yield
        return
    group, groups, home = os.getegid(), os.getgroups(), os.environ.get(_HOME)
    owners_home = _home_of(owner.st_uid)
    try:
        with suppress(PermissionError):
            os.setgroups([])
            os.setegid(owner.st_gid)
            os.seteuid(owner.st_uid)
            os.environ[_HOME] = owners_home
        yield
    finally:
        os.environ.pop(_HOME, None)
        if home is not None:
            os.environ[_HOME] = home
        if os.geteuid() != 0:
            os.seteuid(0)
        with suppress(PermissionError):
            os.setegid(group)
            os.setgroups(groups)


def _home_of(uid: int) -> str:
    """As whoever starts a service says it to that; who is in no list of users has none."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/"
