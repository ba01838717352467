"""Put the units onto this machine. Owns what is made, in which order, and that a second time changes nothing else.

Each step may be done already. Files are written whole or not at all.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloud_dispatch import durable
from cloud_dispatch.domain.errors import Conflict, Unavailable
from cloud_dispatch.install.trial import Try
from cloud_dispatch.install.units import JOURNAL, JOURNAL_FILE, SERVICE, TIMER, Place

UNITS = Path("/etc/systemd/system")
#: Is in the top folder of a fresh disk, and stays root's.
_OF_THE_DISK = "lost+found"
#: The service is up only when its store is migrated; a copy of the state may take three quarters of an hour.
_SECONDS = 3_000
#: Runs a program with these words, and returns what it said; Unavailable with that where it fails.
Ask = Callable[[Sequence[str]], str]
Run = Callable[[Sequence[str]], object]


def run(words: Sequence[str]) -> str:
    """`words` as a program. It keeps the lock of `alone` for as long as it runs, whatever becomes of this process."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False, close_fds=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{words[0]} can't be run: {error}", hint="the command needs root and systemd") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise Unavailable(f"{' '.join(words)} failed: {said}", hint="the command needs root and systemd")
    return done.stdout


def install(place: Place, files: Mapping[str, str], *, start: bool, attempt: Try, execute: Run = run) -> list[str]:
    """Make the user, the folders, the units and the settings of the journal, and have systemd start them now and with
    the machine. The names of the `files` that were not so before. OSError where a file can't be written; before any is,
    InvalidInput where the user could not start with the configuration, Conflict where a folder with something in it is
    not the user's."""
    if not has_user(place.user):
        execute(["useradd", "--system", "--home-dir", str(place.state), "--shell", "/usr/sbin/nologin", place.user])
    attempt(place)
    folder(place.state, 0o700, place.user)
    folder(place.credentials, 0o700, None)
    if place.copies is not None:
        folder(place.copies, 0o700, place.user)
    changed = [name for name, text in files.items() if put(_folder_of(name) / name, text)]
    execute(["systemctl", "daemon-reload"])
    if JOURNAL_FILE in changed:  # where it runs already
        execute(["systemctl", "try-restart", f"systemd-journald@{JOURNAL}.service"])
    for name in (SERVICE, TIMER):
        execute(["systemctl", "enable", name])
        if start:  # what runs by the unit of before is started anew
            _start(name, anew=name in changed, execute=execute)
    return changed


def _start(name: str, *, anew: bool, execute: Run) -> None:
    try:
        execute(["systemctl", "restart" if anew else "start", name])
    except Unavailable as error:
        error.hint = f"what it said: journalctl --namespace {JOURNAL} --lines 20"
        raise


def _folder_of(name: str) -> Path:
    return UNITS.parent if name == JOURNAL_FILE else UNITS


def has_user(name: str) -> bool:
    """Whether the machine knows the user."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def folder(path: Path, mode: int, owner: str | None) -> None:
    """Make it with this mode, the owner's (None: of whoever makes it). One that is there stays as it is; but for one
    that the owner can't write to: it becomes his while it is empty, as an `install` leaves it that was cut off between
    two steps, or who mounts a disk. Conflict where it is not: whose files these are nobody knows here."""
    if path.is_dir():
        if owner is None or _may_write(path, owner):
            return
        if any(one.name != _OF_THE_DISK for one in path.iterdir()):
            hint = f"where all of it is a dispatcher's, such as one that was tried as root: chown -R {owner}: {path}"
            raise Conflict(f"{path} is not {owner}'s, as whom the dispatcher shall run, and not empty", hint=hint)
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    path.chmod(mode)
    if owner is not None:
        shutil.chown(path, owner, pwd.getpwnam(owner).pw_gid)


def _may_write(path: Path, user: str) -> bool:
    """By its mode alone: the user is another one than who asks."""
    known, there = pwd.getpwnam(user), path.stat()
    if known.pw_uid in (0, there.st_uid):
        return True
    own_group = there.st_gid in os.getgrouplist(user, known.pw_gid)
    wanted = 0o030 if own_group else 0o003
    return there.st_mode & wanted == wanted


def put(path: Path, text: str) -> bool:
    """Write `text`; False where it says so already."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    durable.write(path, text.encode(), 0o644)
    return True
