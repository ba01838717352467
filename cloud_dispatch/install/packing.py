"""A copy of the state as one file. Owns its form: a compressed tar whose last member has the SHA-256 of each other.

So what was cut off, damaged or put together by somebody else is seen before anything of it is used. Only what copies
have is taken out: plain files, in the folders of a copy, of a bounded size.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import IO

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.install.copies import FOLDERS, STORE

SUMS = "SHA256SUMS"
_NAME = re.compile(rf"{re.escape(STORE)}|(?:{'|'.join(FOLDERS)})/[A-Za-z0-9._-]+")
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
_PIECE = 1 << 20
#: More than any copy has beside the statestore.
_MOST_FILES = 1_000


def pack(folder: Path, file: Path) -> None:
    """Everything in the copy `folder` into `file`, which nobody else may read."""
    file.touch(mode=0o600)
    lines = []
    with tarfile.open(file, "w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as into:
        for one in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = str(one.relative_to(folder))
            member = tarfile.TarInfo(name)
            member.size, member.mode = one.stat().st_size, 0o600
            with one.open("rb") as body:
                lines.append(f"{hashlib.file_digest(body, 'sha256').hexdigest()}  {name}")
                body.seek(0)
                into.addfile(member, body)
        sums = "".join(f"{line}\n" for line in lines).encode()
        last = tarfile.TarInfo(SUMS)
        last.size, last.mode = len(sums), 0o600
        into.addfile(last, io.BytesIO(sums))


def unpack(file: Path, folder: Path) -> None:
    """The copy in `file` as the new `folder`, which nobody else may read. InvalidInput where it is not whole, and then
    there is no `folder`."""
    folder.mkdir(mode=0o700)
    try:
        with tarfile.open(file, "r:gz") as out:
            found, told = _taken_out(out, folder)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        shutil.rmtree(folder)
        raise InvalidInput(f"{file.name} is no copy of a dispatcher's state: {error}", hint=_HINT) from None
    except BaseException:
        shutil.rmtree(folder)
        raise
    if told is None or found != told:
        shutil.rmtree(folder)
        why = "its end is missing" if told is None else "a checksum does not fit"
        raise InvalidInput(f"{file.name} is damaged: {why}", hint=_HINT)


def _taken_out(out: tarfile.TarFile, folder: Path) -> tuple[dict[str, str], dict[str, str] | None]:
    """The sums of what is there, and those that it says itself."""
    found: dict[str, str] = {}
    for member in out:
        body = out.extractfile(member) if member.isreg() else None
        if body is not None and member.name == SUMS and member.size < _PIECE:
            lines = (_LINE.fullmatch(line) for line in body.read().decode("utf-8", "replace").splitlines())
            return found, {line[2]: line[1] for line in lines if line is not None}
        if body is None or not _NAME.fullmatch(member.name) or member.name in found or len(found) >= _MOST_FILES:
            raise tarfile.TarError(f"it has {member.name[:100]!r} in it")
        target = folder / member.name
        target.parent.mkdir(mode=0o700, exist_ok=True)
        found[member.name] = _written(body, target)
    return found, None


def _written(body: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    target.touch(mode=0o600)
    with target.open("wb") as into:
        while piece := body.read(_PIECE):
            digest.update(piece)
            into.write(piece)
    return digest.hexdigest()


_HINT = "take another copy: `cloud-dispatch backups` lists them"
