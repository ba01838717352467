"""The operator's token, known to the dispatcher by its sha256 alone. Owns where the hash lies.

The token is 256 bits of chance, so a plain hash gives nothing away. The clear copy is the client's: commands on the
control VM read it where the configuration says that it is, and it may be moved elsewhere. Another token holds from the
moment at which its hash is in place.
"""

from __future__ import annotations

import hmac
import os
import re
from hashlib import sha256
from pathlib import Path

import structlog

from cloud_dispatch.api import keyfiles
from cloud_dispatch.config import OPERATOR_FILE, OPERATOR_HASH
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.ownership import as_owner
from cloud_dispatch.ports.entropy import Entropy

_HEX = re.compile(r"[0-9a-f]{64}")
_Version = tuple[int, ...]
log = structlog.get_logger("cloud_dispatch.api")


class OperatorToken:
    """Knows the right token when it sees it."""

    def __init__(self, digest: str, path: Path | None = None, seen: _Version | None = None) -> None:
        """`digest`: its sha256 in hex, "" for none; `path`: the file where another may appear, `seen` as it was."""
        self._digest = digest
        self._path = path
        self._seen = seen

    @classmethod
    def of(cls, token: str) -> OperatorToken:
        """One that is in no file."""
        return cls(_hash(token.encode()))

    @classmethod
    def open(cls, state_dir: Path, entropy: Entropy) -> OperatorToken:
        """That of a state directory. Where no hash is kept yet it is made from the clear copy, and that too where there
        is none. InvalidInput when one of the files is open to others, or is not what it should be."""
        kept, clear = keyfiles.keys_folder(state_dir) / OPERATOR_HASH, state_dir / OPERATOR_FILE
        if clear.exists() or not kept.exists():
            token = keyfiles.secret(clear, "operator-token", entropy)
            if not kept.exists():
                keyfiles.write(kept, _hash(token.encode()))
        seen = _version(kept)
        return cls(_read(kept), kept, seen)

    def is_right(self, token: bytes) -> bool:
        """Whether `token` is the operator's now; takes the same time whatever differs."""
        self._look()
        return hmac.compare_digest(_hash(token), self._digest)

    def _look(self) -> None:
        """Take a hash that has changed. One that can't be used opens no door: the former token may be why it was
        changed. One that was deleted changes nothing until the next start."""
        if self._path is None or (now := _version(self._path)) in (None, self._seen):
            return
        self._seen = now
        try:
            self._digest = _read(self._path)
        except (InvalidInput, OSError) as error:
            self._digest = ""
            log.error("api.operator-token-unusable", error=str(error))


def renew(state_dir: Path, entropy: Entropy) -> Path:
    """Make another operator's token; where its clear copy is. The former one is void from then on, for a dispatcher
    that runs too. InvalidInput where none has run yet: whoever asks for another token means some other folder. Root
    makes it with the rights of the folder's owner."""
    with as_owner(state_dir):
        return _renew(state_dir, entropy)


def _renew(state_dir: Path, entropy: Entropy) -> Path:
    try:
        there = (state_dir / keyfiles.KEYS).is_dir()
        if there and not os.access(state_dir / keyfiles.KEYS, os.W_OK | os.X_OK):
            raise PermissionError
    except PermissionError:
        hint = "run it as the user that the dispatcher runs as, or as root: sudo cloud-dispatch token new"
        message = "this user may not write to the dispatcher's state folder: nothing was changed"
        raise InvalidInput(message, place=str(state_dir), hint=hint) from None
    if not there:
        hint = "use the configuration of the dispatcher, on its own machine; its first start makes the first token"
        raise InvalidInput("this is no dispatcher's state folder: it has no keys", place=str(state_dir), hint=hint)
    kept, clear = keyfiles.keys_folder(state_dir) / OPERATOR_HASH, state_dir / OPERATOR_FILE
    token = entropy.secret("operator-token")
    keyfiles.write(clear, token)
    keyfiles.write(kept, _hash(token.encode()))
    return clear


def _hash(token: bytes) -> str:
    return sha256(token).hexdigest()


def _version(path: Path) -> _Version | None:
    """Differs once the file is another one; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def _read(path: Path) -> str:
    found = keyfiles.read(path)
    if _HEX.fullmatch(found) is None:
        hint = f"restore it from a backup; or remove it and start again: it is made from {OPERATOR_FILE}"
        raise InvalidInput("this is not the sha256 of the operator's token", place=str(path), hint=hint)
    return found
