"""Who may call. Owns the keys, the tokens made with them and the operator's token; must not know any route.

Keys live in files outside the database, so that agents survive its loss. Tokens of agents are stateless: an HMAC-SHA256
over what they say. A service token names one instance; a join token names one launch batch, its slots and its end.
"""

from __future__ import annotations

import base64
import hmac
import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cloud_dispatch.api.http import Unauthenticated
from cloud_dispatch.domain.errors import Denied, InvalidInput
from cloud_dispatch.domain.ids import BatchId, InstanceId
from cloud_dispatch.ports.entropy import Entropy

_BEARER = b"Bearer "
_CACHE_LIMIT = 8192
_KEY_LENGTH = 22  # characters of URL-safe base64 for 128 bits
_SERVICE, _JOIN = "cds1", "cdj1"


@dataclass(frozen=True, slots=True)
class Join:
    """What a join token says: up to `slots` VMs of `batch` may register until `expires_ms`."""

    batch: BatchId
    slots: int
    expires_ms: int


class Tokens:
    """Makes and checks every token. Comparisons take the same time whatever differs."""

    def __init__(self, service_key: bytes, join_key: bytes, operator: str) -> None:
        self._service_key = service_key
        self._join_key = join_key
        self._operator = operator.encode()
        self._known: dict[bytes, InstanceId] = {}  # verified bearers, so that a sync costs no HMAC

    @classmethod
    def open(cls, state_dir: Path, entropy: Entropy) -> Tokens:
        """The tokens of a state directory; its keys and the operator's token are made at the first start.

        InvalidInput when a key file is readable by others, or is not a key.
        """
        keys = state_dir / "keys"
        keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(
            _secret(keys / "service.key", "service-key", entropy).encode(),
            _secret(keys / "join.key", "join-key", entropy).encode(),
            _secret(state_dir / "operator.token", "operator-token", entropy),
        )

    def service(self, instance: InstanceId) -> str:
        """The bearer token that lets a compute service speak as `instance`, and as nothing else."""
        return f"{_SERVICE}.{instance}.{_mac(self._service_key, instance)}"

    def instance_of(self, authorization: bytes) -> InstanceId:
        """Whom the value of an Authorization header speaks for; Unauthenticated for anything but a service token."""
        known = self._known.get(authorization)
        if known is not None:
            return known
        _, instance, mac = _parts(authorization, _SERVICE, 3)
        _compare(mac, _mac(self._service_key, instance))
        if len(self._known) >= _CACHE_LIMIT:
            self._known.clear()
        self._known[authorization] = InstanceId(instance)
        return InstanceId(instance)

    def join(self, batch: BatchId, slots: int, expires_ms: int) -> str:
        """The token that the VMs of `batch` register with, until the moment `expires_ms`."""
        said = f"{batch}.{slots}.{expires_ms}"
        return f"{_JOIN}.{said}.{_mac(self._join_key, said)}"

    def verify_join(self, authorization: bytes, now: int) -> Join:
        """What the join token in an Authorization header says; Unauthenticated if forged, Denied if expired."""
        _, batch, slots, expires, mac = _parts(authorization, _JOIN, 5)
        _compare(mac, _mac(self._join_key, f"{batch}.{slots}.{expires}"))
        join = Join(BatchId(batch), int(slots), int(expires))
        if now > join.expires_ms:
            raise Denied(f"the join token of batch {batch} has expired", hint="this VM came too late and must end")
        return join

    def timer(self, batch: BatchId, *terms: int) -> bytes:
        """The secret from which the words of a batch's guest timer follow, another one for other terms."""
        said = ".".join(("timer", batch, *map(str, terms)))  # four parts: no join token says that
        return hmac.new(self._join_key, said.encode(), sha256).digest()

    def check_operator(self, authorization: bytes) -> None:
        """Unauthenticated unless the Authorization header carries the operator's token."""
        if not authorization.startswith(_BEARER) or not hmac.compare_digest(authorization[7:], self._operator):
            hint = "send `Authorization: Bearer TOKEN` with the content of STATE_DIR/operator.token"
            raise Unauthenticated("this needs the operator's token", hint=hint)


def _mac(key: bytes, said: str) -> str:
    digest = hmac.new(key, said.encode(), sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _parts(authorization: bytes, kind: str, count: int) -> list[str]:
    if authorization.startswith(_BEARER) and authorization.isascii() and len(authorization) < 1024:
        parts = authorization[7:].decode().split(".")
        if len(parts) == count and parts[0] == kind:
            return parts
    what = "service" if kind == _SERVICE else "join"
    raise Unauthenticated(f"this needs a {what} token", hint="send it as `Authorization: Bearer TOKEN`")


def _compare(given: str, expected: str) -> None:
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise Unauthenticated("this token was not made here", hint="was the state directory's keys folder replaced?")


def _secret(path: Path, purpose: str, entropy: Entropy) -> str:
    """The secret that `path` holds, made and written durably (mode 0600) when there is none yet."""
    if not path.exists():
        fresh = path.with_name(path.name + ".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(entropy.secret(purpose) + "\n")
            file.flush()
            os.fsync(descriptor)
        fresh.rename(path)  # whole or not there: a crash leaves no half key
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InvalidInput(f"mode {mode:04o} lets others read a key", place=str(path), hint=f"chmod 600 {path}")
    secret = path.read_text("ascii", errors="replace").strip()
    if len(secret) < _KEY_LENGTH or not secret.isascii():
        hint = "restore it from a backup; or remove it, then every token made with it is void"
        raise InvalidInput("this is not a key of ours", place=str(path), hint=hint)
    return secret
