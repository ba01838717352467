"""Who may call. Owns the keys and the tokens made with them; must not know any route.

Keys live in files outside the database, so that agents survive its loss. Tokens of agents are stateless: an HMAC-SHA256
over what they say. A service token names one instance, and a join token one launch batch and its slots; both have an
end. A service token is renewed while it is used, so that one that leaks is soon worth nothing. A task token names one
claim: it is worth something only while the statestore says that this claim is held. No token is kept here.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from cloud_dispatch.api import keyfiles
from cloud_dispatch.api.http import Unauthenticated
from cloud_dispatch.api.operator_token import OperatorToken
from cloud_dispatch.domain.errors import Denied
from cloud_dispatch.domain.ids import BatchId, FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.ports.entropy import Entropy

_BEARER = b"Bearer "
_CACHE_LIMIT = 8192
_SERVICE, _JOIN, _TASK = "cds2", "cdj1", "cdt1"
_TASK_BEARER = _BEARER + _TASK.encode() + b"."
_JOIN_BEARER = _BEARER + _JOIN.encode() + b"."
_SERVICE_BEARER = _BEARER + _SERVICE.encode() + b"."
_KINDS = {_SERVICE: "service", _JOIN: "join", _TASK: "task"}
#: How long a service token is good for, unless agents may be silent for longer: see `service_life_ms`.
SERVICE_LIFE_MS = HOUR_MS
#: A launch call may take its time before the boot's begins.
_JOIN_GRACE_MS = 300_000


@dataclass(frozen=True, slots=True)
class Join:
    """What a join token says: up to `slots` VMs of `batch` may register until `expires_ms`."""

    batch: BatchId
    slots: int
    expires_ms: int


def join_ends_ms(now: int, boot_deadline_ms: int) -> int:
    """Until when VMs that are launched now may register: as long as they may take to boot, and their launch to be made.
    Who comes later is given up already."""
    return now + boot_deadline_ms + _JOIN_GRACE_MS


class Claim(NamedTuple):
    """What a task token says: the claim of `task` under the fencing token `token`, by `instance`."""

    task: TaskId
    token: FencingToken
    instance: InstanceId


class _Known(NamedTuple):
    """What a service token says that was verified."""

    instance: InstanceId
    expires_ms: int


def service_life_ms(silence_ms: int) -> int:
    """How long a service token is good for: it is renewed at half, and then outlives every silence that an agent
    endures."""
    return max(SERVICE_LIFE_MS, 3 * silence_ms)


class Tokens:
    """Makes and checks every token. Comparisons take the same time whatever differs."""

    def __init__(
        self, service_key: bytes, join_key: bytes, operator: OperatorToken, service_life_ms: int = SERVICE_LIFE_MS
    ) -> None:
        self._service_key = service_key
        self._join_key = join_key
        task_key = hmac.new(service_key, b"task", sha256).digest()  # no service token says that: it has dots
        self._task_mac = hmac.new(task_key, b"", sha256)  # to be copied: half of the work is done once
        self._operator = operator
        self.life_ms = service_life_ms
        self._known: dict[bytes, _Known] = {}  # verified bearers, so that a sync costs no HMAC

    @classmethod
    def open(cls, state_dir: Path, entropy: Entropy, service_life_ms: int = SERVICE_LIFE_MS) -> Tokens:
        """The tokens of a state directory; its keys and the operator's token are made at the first start.

        InvalidInput when a key file is readable by others, or is not a key.
        """
        keys = keyfiles.keys_folder(state_dir)
        return cls(
            keyfiles.secret(keys / "service.key", "service-key", entropy).encode(),
            keyfiles.secret(keys / "join.key", "join-key", entropy).encode(),
            OperatorToken.open(state_dir, entropy),
            service_life_ms,
        )

    def service(self, instance: InstanceId, now: int) -> str:
        """The bearer token that lets a compute service speak as `instance`, and as nothing else, for a while."""
        said = f"{instance}.{now + self.life_ms}"
        return f"{_SERVICE}.{said}.{_mac(self._service_key, said)}"

    def instance_of(self, authorization: bytes, now: int) -> InstanceId:
        """Whom the value of an Authorization header speaks for; Unauthenticated for anything but a service token that
        has not expired."""
        return self._good(authorization, now).instance

    def speaker(self, authorization: bytes, now: int, dated_ms: int | None = None) -> tuple[InstanceId, str]:
        """`instance_of`, and the next service token for who presents one with less than half its life left; "" for
        others. `dated_ms`: the moment from which that one lives, where it is not `now`; what is left counts from it too
        (a dispatcher that starts after the clock was set knows no other)."""
        instance, expires_ms = self._good(authorization, now)
        dated_ms = now if dated_ms is None else dated_ms
        if expires_ms - dated_ms > self.life_ms // 2:
            return instance, ""
        return instance, self.service(instance, dated_ms)

    def _good(self, authorization: bytes, now: int) -> _Known:
        known = self._known.get(authorization) or self._verified(authorization)
        if now > known.expires_ms:
            raise Unauthenticated(
                f"the service token of instance {known.instance} has expired",
                hint="it was not renewed in time: this agent was silent for too long, and its VM must end",
            )
        return known

    def _verified(self, authorization: bytes) -> _Known:
        _, instance, expires, mac = _parts(authorization, _SERVICE, 4)
        _compare(mac, _mac(self._service_key, f"{instance}.{expires}"))
        if len(self._known) >= _CACHE_LIMIT:
            self._known.clear()
        known = self._known[authorization] = _Known(InstanceId(instance), int(expires))
        return known

    def caller(self, authorization: bytes, now: int, holds: Callable[[TaskId, FencingToken, InstanceId], bool]) -> str:
        """Whose token is in an Authorization header, for whoever counts callers: a VM and its tasks are one. "" where
        none is that is good. `holds`: whether a claim is held."""
        try:
            claim = self.claim_of(authorization)
            if claim is not None:
                return f"instance {claim.instance}" if holds(*claim) else ""
            if authorization.startswith(_JOIN_BEARER):
                return f"batch {self.verify_join(authorization, now).batch}"
            if authorization.startswith(_SERVICE_BEARER):
                return f"instance {self.instance_of(authorization, now)}"
            self.check_operator(authorization)
        except Denied:
            return ""
        return "operator"

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

    def task(self, task: TaskId, token: FencingToken, instance: InstanceId) -> str:
        """The bearer token of one attempt: for its own log, outputs and inputs, and for nothing else."""
        said = f"{task}.{token}.{instance}"
        return f"{_TASK}.{said}.{self._mac_of_task(said)}"

    def claim_of(self, authorization: bytes) -> Claim | None:
        """The claim that the task token in an Authorization header names, which may be over by now; None for a token
        of another kind, Unauthenticated for one that was not made here."""
        if not authorization.startswith(_TASK_BEARER):
            return None
        _, task, token, instance, mac = _parts(authorization, _TASK, 5)
        _compare(mac, self._mac_of_task(f"{task}.{token}.{instance}"))
        return Claim(TaskId(int(task)), FencingToken(int(token)), InstanceId(instance))

    def _mac_of_task(self, said: str) -> str:
        mac = self._task_mac.copy()
        mac.update(said.encode())
        return mac.hexdigest()

    def timer(self, batch: BatchId, *terms: int) -> bytes:
        """The secret from which the words of a batch's guest timer follow, another one for other terms."""
        said = ".".join(("timer", batch, *map(str, terms)))  # four parts: no join token says that
        return hmac.new(self._join_key, said.encode(), sha256).digest()

    def check_operator(self, authorization: bytes) -> None:
        """Unauthenticated unless the Authorization header carries the operator's token."""
        if not (authorization.startswith(_BEARER) and self._operator.is_right(authorization[len(_BEARER) :])):
            hint = "send `Authorization: Bearer TOKEN` with the content of operator.token; `token new` makes another"
            raise Unauthenticated("this needs the operator's token", hint=hint)


def _mac(key: bytes, said: str) -> str:
    digest = hmac.new(key, said.encode(), sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _parts(authorization: bytes, kind: str, count: int) -> list[str]:
    if authorization.startswith(_BEARER) and authorization.isascii() and len(authorization) < 1024:
        parts = authorization[len(_BEARER) :].decode().split(".")
        if len(parts) == count and parts[0] == kind:
            return parts
    raise Unauthenticated(f"this needs a {_KINDS[kind]} token", hint="send it as `Authorization: Bearer TOKEN`")


def _compare(given: str, expected: str) -> None:
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise Unauthenticated("this token was not made here", hint="was the state directory's keys folder replaced?")
