"""Copies in a cloud's bucket. Owns the addresses of buckets, the names of copies in them, and how a bucket is asked.

A copy is one object, which is there as a whole or not at all. Its name is its moment and the id of the statestore that
it is of: only copies of the same statestore make room for each other, so that one that was begun anew by mistake does
not push out those of the one that was lost. Nothing else in the bucket is looked at.

S3, Google Cloud Storage and Azure's Blob Storage through `obstore`, which finds the identity of the machine by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from cloud_dispatch.config.places import BUCKET, BUCKET_FORMS
from cloud_dispatch.domain.errors import InvalidInput, NotFound, Unavailable
from cloud_dispatch.domain.masking import masked
from cloud_dispatch.install.copies import too_many

LATEST = "latest"
_NAME = re.compile(r"(\d{8}T\d{6}Z)-([A-Za-z0-9_-]+)\.tar\.gz")
_MOMENT = "%Y%m%dT%H%M%SZ"
_CONNECT, _REQUEST = "10s", "120s"
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=120)}
#: A place with more objects than this is no place of copies: each hour all of them would be listed.
_MOST = 100_000
_UNSENT = "error sending request"
#: In what is shown for debugging: a cause with words, and what is wrong with a certificate.
_CAUSE = re.compile(r'(?:message|error): "([^"]+)"')
_CERTIFICATE = re.compile(r"InvalidCertificate\((?:\s*Other\w*\()*\s*(\w+)")
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Copy:
    """One that is there. `size` in bytes."""

    name: str
    size: int

    @property
    def at(self) -> str:
        return self.name.partition("-")[0]

    @property
    def store(self) -> str:
        """Of which statestore it is."""
        found = _NAME.fullmatch(self.name)
        return found[2] if found else ""


def is_address(text: str) -> bool:
    """Whether it names a place in a bucket."""
    return BUCKET.fullmatch(text) is not None


def split(text: str) -> tuple[str, str]:
    """The place and the name of a copy (or `latest`, where none is named) of an address."""
    place, _, last = text.rstrip("/").rpartition("/")
    if is_address(place) and (last == LATEST or _NAME.fullmatch(last)):
        return place, last
    return text.rstrip("/"), LATEST


def name_of(now_ms: int, store: str) -> str:
    """What a copy that is made now is called."""
    return f"{moment(now_ms)}-{store}.tar.gz"


def moment(now_ms: int) -> str:
    """How a copy's name begins that is made now."""
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):{_MOMENT}}"


class Bucket:
    """The copies at `address`. `region`: of a bucket in S3; "": as the environment says. Its methods raise Unavailable
    where the bucket can't be asked."""

    def __init__(self, address: str, region: str = "") -> None:
        self.address = address.rstrip("/")
        self._store = _asked(lambda: _opened(address, region), address)

    def copies(self) -> list[Copy]:
        """Those that are there, the oldest first. InvalidInput where there is too much else."""
        return _asked(lambda: sorted(_listed(self._store, self.address)), self.address)

    def send(self, file: Path, name: str) -> None:
        """The file as the copy of this name, whole."""
        import obstore

        _asked(lambda: obstore.put(self._store, name, file), self.address)

    def fetch(self, name: str, file: Path) -> str:
        """The copy `name` (or the latest one) into a new file, which nobody else may read; its name. NotFound where it
        is not there, InvalidInput where copies of several statestores are and none is named."""
        import obstore

        found = chosen(self.copies(), name, self.address)
        file.touch(mode=0o600, exist_ok=False)

        pieces = _asked(lambda: iter(obstore.get(self._store, found).stream()), self.address)
        with file.open("wb") as into:  # what this machine has no room for is not the bucket's fault
            while (piece := _asked(lambda: next(pieces, None), self.address)) is not None:
                into.write(piece)
        return found

    def prune(self, made: str, keep: int) -> list[str]:
        """Delete all but `made`, which was sent just now, and the newest copies of the same statestore; their names."""
        import obstore

        store = Copy(made, 0).store
        old = too_many([one.name for one in self.copies() if one.store == store], made, keep)
        for name in old:
            _asked(lambda name=name: obstore.delete(self._store, name), self.address)  # type: ignore[misc]
        return old


def chosen(there: Iterable[Copy], name: str, address: str) -> str:
    """Which of the copies is meant by `name`."""
    names = [one.name for one in there]
    if name != LATEST:
        if name not in names:
            raise NotFound(f"{address} has no copy {name}", hint="`cloud-dispatch backups` lists what is there")
        return name
    if not names:
        raise NotFound(f"{address} has no copies")
    last = {Copy(one, 0).store: one for one in sorted(names)}
    if len(last) > 1:
        hint = f"name one: {', '.join(f'{address}/{one}' for one in last.values())}"
        raise InvalidInput(f"{address} has copies of {len(last)} statestores", hint=hint)
    return next(iter(last.values()))


def _listed(store: Any, address: str) -> Iterable[Copy]:
    import obstore

    seen = 0
    for part in obstore.list(store, chunk_size=1000):
        seen += len(part)
        if seen > _MOST:
            raise InvalidInput(f"{address} has more than {_MOST} objects", hint="give the copies a prefix of their own")
        for one in part:
            if _NAME.fullmatch(one["path"]):
                yield Copy(one["path"], one["size"])


def _opened(address: str, region: str) -> Any:
    """Over plain HTTP only where the environment names such an endpoint of its own."""
    from obstore.store import AzureStore, GCSStore, S3Store

    place = BUCKET.fullmatch(address)
    if place is None:
        raise InvalidInput(f"{address} is no place in a bucket", hint=BUCKET_FORMS)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    options: Any = {"connect_timeout": _CONNECT, "timeout": _REQUEST}
    retries: Any = _RETRIES
    if place["az"]:
        prefix = place["folder"] or None
        return AzureStore(
            place["container"], account_name=place["account"], prefix=prefix, client_options=options,
            retry_config=retries,
        )  # fmt: skip
    prefix = place["prefix"] or None
    if place["kind"] == "gs":
        return GCSStore(place["bucket"], prefix=prefix, client_options=options, retry_config=retries)
    own: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    where = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if where:
        own["region"] = where
    options["allow_http"] = endpoint.startswith("http://")
    return S3Store(place["bucket"], prefix=prefix, client_options=options, retry_config=retries, **own)


def _asked(work: Callable[[], T], address: str) -> T:
    """What `work` answers; what goes wrong with the bucket as Unavailable, in one line."""
    try:
        from obstore.exceptions import BaseError
    except ImportError:
        hint = "pip install 'cloud-dispatch[bucket]'"
        raise Unavailable("copies in a bucket need obstore, which is not installed", hint=hint) from None
    try:
        return work()
    except (BaseError, OSError) as error:
        raise Unavailable(f"{address}: {masked(_told(error))[:500]}", hint=_HINT) from None


def _told(error: BaseException) -> str:
    """What went wrong, in one line. Of a request that could not be sent the library says why only in what it shows for
    debugging: the innermost of its causes."""
    text, _, debug = str(error).partition("Debug source:")
    said = " ".join(text.split())
    if not said.endswith(_UNSENT):
        return said
    certificate = _CERTIFICATE.search(debug)
    causes = [f"its certificate: {certificate[1]}"] if certificate else _CAUSE.findall(debug)
    return f"{said}: {causes[-1]}" if causes else said


_HINT = (
    "see that the bucket is there and of the region that is set (backup.region), and that the identity of this machine"
    " may list, read, write and delete in it"
)
