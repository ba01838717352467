"""What the service will find: the program and the configuration, tried as its user before anything is made a service.

Owns that `install` refuses what its service would end of. Root reads everything; the user may be closed out of the
configuration, of a certificate's key, or of the environment that the program is in.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from cloud_dispatch.config.source import ENVIRONMENT_KEY
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.install.units import HIDDEN, Place

#: Has the service's user judge the configuration; InvalidInput with what was said where he can't start with it.
Try = Callable[[Place], object]
#: The same, of a program, a configuration and a user.
TryOne = Callable[[Path, Path, str], object]
_SECONDS = 120
_PATH = "/usr/local/bin:/usr/bin:/bin"


def visible(paths: Iterable[Path]) -> None:
    """InvalidInput where one of them, or what it leads to, is in a folder that the units hide from the service."""
    for path in paths:
        real = path.resolve()
        if any(real.is_relative_to(folder) for folder in HIDDEN):
            raise InvalidInput(
                f"{path} is hidden from the service, as all of {', '.join(HIDDEN)}",
                hint="keep the program in /opt, the configuration in /etc/cloud-dispatch, the state in /var/lib",
            )


def tried(program: Path, config: Path, user: str) -> None:
    """Have `user` judge the configuration, by `program`. InvalidInput with what that said, and where there is no such
    user. Who is not root judges it himself: he can be nobody else."""
    try:
        known = pwd.getpwnam(user)
    except KeyError:
        raise InvalidInput(
            f"there is no user {user}", hint="`install` makes the one that the service runs as"
        ) from None
    hint = f"the service runs as {user}, who has to read it: chown root:{user} and chmod 0640, for instance"
    root = os.geteuid() == 0
    environment = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": known.pw_dir, ENVIRONMENT_KEY: str(config)}
    try:
        done = subprocess.run(
            [str(program), "config", "check"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            cwd="/",
            env=environment,
            user=known.pw_uid if root else None,
            group=known.pw_gid if root else None,
            extra_groups=os.getgrouplist(user, known.pw_gid) if root else None,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InvalidInput(f"{program} can't be run by {user}: {error}", hint=hint) from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise InvalidInput(f"{user} can't start with {config}: {said}", hint=hint)
