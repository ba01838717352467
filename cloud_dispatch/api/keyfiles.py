"""Files of secrets. Owns how they are written (whole, durable, mode 0600) and which are refused; knows no token."""

from __future__ import annotations

import stat
from pathlib import Path

from cloud_dispatch import durable
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.ports.entropy import Entropy

#: The folder of a state directory that keys are in.
KEYS = "keys"
_KEY_LENGTH = 22  # characters of URL-safe base64 for 128 bits


def keys_folder(state_dir: Path) -> Path:
    """The folder of the keys, made where there is none."""
    folder = state_dir / KEYS
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def secret(path: Path, purpose: str, entropy: Entropy) -> str:
    """The secret that `path` holds, made when there is none yet. InvalidInput for a file that can't be used."""
    if not path.exists():
        write(path, entropy.secret(purpose))
    found = read(path)
    if len(found) < _KEY_LENGTH or not found.isascii():
        hint = "restore it from a backup; or remove it, then every token made with it is void"
        raise InvalidInput("this is not a key of ours", place=str(path), hint=hint)
    return found


def write(path: Path, text: str) -> None:
    """Put `text` there, mode 0600, in place of what was. It is the folder's owner's, also where root writes it: the
    dispatcher has to read what a command of root's has left."""
    durable.write(path, f"{text}\n".encode("ascii"), 0o600, path.parent)


def read(path: Path) -> str:
    """What the file holds, without the end of its line. InvalidInput where others may read it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InvalidInput(f"mode {mode:04o} lets others read a key", place=str(path), hint=f"chmod 600 {path}")
    return path.read_bytes().decode("ascii", errors="replace").strip()
