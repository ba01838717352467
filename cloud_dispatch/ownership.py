"""Whose the files of a dispatcher's state are. Root runs commands on a state folder that is a service's: what they make
there has to be the service's, or it can't go on with it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def give(made: Path | int, folder: Path) -> None:
    """Give what root has made (a path, of which no link is followed, or a descriptor) to the owner of `folder`. Who is
    not root has made it as that owner, or may give nothing away; nor may a root without that right, in a container."""
    if os.geteuid() != 0:
        return
    owner = folder.stat()
    with suppress(PermissionError):
        if isinstance(made, int):
            os.fchown(made, owner.st_uid, owner.st_gid)
        else:
            os.chown(made, owner.st_uid, owner.st_gid, follow_symlinks=False)


def give_all(made: Path, folder: Path) -> None:
    """`give` a folder with all that is in it."""
    for path in (made, *made.rglob("*")):
        give(path, folder)
