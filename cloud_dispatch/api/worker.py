"""The routes of agents, in raw ASGI: register, sync, logs, outputs, and the agent itself for VMs that boot.

Owns what each of them demands of its caller. An agent can speak for its own instance only. The log and the outputs of a
claim are written by its own task token, or by an agent whose instance holds it; both while it is held.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from cloud_dispatch.api.auth import Claim
from cloud_dispatch.api.expiry import Expiry
from cloud_dispatch.api.http import (
    ClientGone,
    answer,
    answer_failure,
    declared_length,
    decode_json,
    header,
    read_body,
    too_large,
)
from cloud_dispatch.api.limiter import RateLimiter
from cloud_dispatch.api.policy import bare, policy_for
from cloud_dispatch.api.services import Script, Services
from cloud_dispatch.api.sync import Departure, SyncService
from cloud_dispatch.api.task_files import TaskFiles
from cloud_dispatch.api.translate import SyncIn
from cloud_dispatch.domain.errors import Denied, InvalidInput, StaleLease
from cloud_dispatch.domain.ids import BatchId, FencingToken, InstanceId, TaskId, VmId
from cloud_dispatch.ports.fleet import BootWord
from cloud_dispatch.wire.messages import (
    AGENT_PATH,
    BOOT_PATH,
    LOGS_PATH,
    OUTPUTS_PATH,
    PROTOCOL,
    REGISTER_PATH,
    SYNC_PATH,
    BootReport,
    RegisterReply,
    RegisterRequest,
)

#: POST: the scripts of the pool, for a VM whose user data has no room for them.
SCRIPTS_PATH = "/v1/boot/scripts"

Route = Callable[[Scope, Receive, Send], Awaitable[None]]


class ScriptsRequest(msgspec.Struct):
    """Sent by the boot script with the join token as bearer. `vm` as in a `BootReport`."""

    vm: str = ""


class ScriptsReply(msgspec.Struct):
    """In the order in which they are to run."""

    scripts: list[Script]


_SYNC: msgspec.json.Decoder[SyncIn] = msgspec.json.Decoder(SyncIn)
_REGISTER: msgspec.json.Decoder[RegisterRequest] = msgspec.json.Decoder(RegisterRequest)
_BOOT: msgspec.json.Decoder[BootReport] = msgspec.json.Decoder(BootReport)
_SCRIPTS: msgspec.json.Decoder[ScriptsRequest] = msgspec.json.Decoder(ScriptsRequest)
_PHASE = re.compile(r"[a-z][a-z0-9-]{0,31}")
_encode = msgspec.json.Encoder().encode
_REGISTER_BYTES = 65_536
_PROOF_CHARS = 32_768
_BOOT_BYTES = 32_768
#: So many reports at once of all VMs of a batch, and one a second in the long run: each becomes an event.
_BOOT_BURST = 256
#: A log may be finished for so long after the end of its attempt is told.
_LOG_GRACE_MS = 60_000


class WorkerRoutes:
    """One method a route; `table` says which is which."""

    def __init__(self, services: Services, sync: SyncService, expiry: Expiry) -> None:
        self._s = services
        self._expiry = expiry
        self._sync = sync
        self._files = TaskFiles(services)
        self._limiter = RateLimiter(services.limits.register_burst, services.limits.register_per_second)
        self._booting = RateLimiter(services.limits.register_burst, services.limits.register_per_second)
        self._booting_batches = RateLimiter(_BOOT_BURST, 1)
        self.table: dict[tuple[str, str], Route] = {
            ("POST", SYNC_PATH): self.sync,
            ("POST", REGISTER_PATH): self.register,
            ("POST", BOOT_PATH): self.boot,
            ("POST", SCRIPTS_PATH): self.scripts,
            ("POST", LOGS_PATH): self.logs,
            ("PUT", OUTPUTS_PATH): self.outputs,
            ("GET", AGENT_PATH): self.agent,
        }

    async def __call__(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        """Run `route`; what it raises is answered."""
        try:
            await route(scope, receive, send)
        except ClientGone:
            return
        except Exception as error:
            await answer_failure(send, error, scope["path"])

    def _caller(self, scope: Scope) -> InstanceId:
        return self._s.tokens.instance_of(header(scope, b"authorization"), self._expiry.now())

    async def sync(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One round trip of an agent."""
        self._caller(scope)  # before the body is read
        body = await read_body(scope, receive, self._s.limits.sync_bytes)

        def departure(gone: Callable[[], object]) -> Callable[[], object]:
            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                gone()

            return asyncio.create_task(watch()).cancel

        await answer(send, await self.sync_answer(header(scope, b"authorization"), body, departure))

    def sync_answer(self, authorization: bytes, body: bytes, departure: Departure) -> Awaitable[bytes]:
        """The body that answers the sync `body` of whoever `authorization` speaks for; also `api.lane`'s route."""
        instance, token = self._s.tokens.speaker(authorization, self._expiry.now(), self._s.clock.now())
        if len(body) > self._s.limits.sync_bytes:
            raise too_large(self._s.limits.sync_bytes)
        request: SyncIn = decode_json(_SYNC, body)
        return self._sync.answer(instance, request, departure, token)

    async def register(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A VM's agent presents its join token and becomes the compute service of its slot."""
        self._limiter.take((scope.get("client") or ("",))[0], self._s.clock.monotonic())
        join = self._s.tokens.verify_join(header(scope, b"authorization"), self._expiry.now())
        request: RegisterRequest = decode_json(_REGISTER, await read_body(scope, receive, _REGISTER_BYTES))
        if request.protocol != PROTOCOL:
            hint = "end this VM; a new one gets the agent that belongs to this dispatcher"
            raise Denied(
                f"the agent speaks protocol {request.protocol}, this is {PROTOCOL}", place="protocol", hint=hint
            )
        if not 0 < len(request.vm) <= 512 or not request.vm.isprintable():
            raise InvalidInput("the VM's id is missing or odd", place="vm", hint="the provider's id of this VM")
        if not 0 < len(request.incarnation) <= 64:
            raise InvalidInput("an incarnation has 1 to 64 characters", place="incarnation")
        if len(request.proof) > _PROOF_CHARS:
            raise InvalidInput(f"a proof of identity has at most {_PROOF_CHARS} characters", place="proof")
        instance = await self._s.fleet.admit(join.batch, VmId(request.vm), request.incarnation, request.proof)
        terms = self._s.terms()
        self._sync.sessions.registered(instance.id, request.incarnation, terms, bare=bare(instance))
        policy = policy_for(instance, terms)
        reply = RegisterReply(instance.id, self._s.tokens.service(instance.id, self._s.clock.now()), policy)
        await answer(send, _encode(reply))

    async def boot(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A VM that boots says how far it is, or why it can't; what it may do with that is fail its own boot."""
        batch = self._booting_batch(scope)
        said: BootReport = decode_json(_BOOT, await read_body(scope, receive, _BOOT_BYTES))
        _check_vm(said.vm)
        if not _PHASE.fullmatch(said.phase):
            raise InvalidInput("expected a word of a-z, 0-9 and '-', at most 32 long", place="phase")
        if not -255 <= said.exit_code <= 255:
            raise InvalidInput("expected an exit code", place="exit_code")
        await self._s.fleet.boot_said(batch, BootWord(said.vm, said.phase, said.failed, said.exit_code, said.log))
        await answer(send, b"{}")

    async def scripts(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The operator's scripts for a VM that boots, which are no secret to its batch; not once it has registered."""
        batch = self._booting_batch(scope)
        said: ScriptsRequest = decode_json(_SCRIPTS, await read_body(scope, receive, _BOOT_BYTES))
        _check_vm(said.vm)
        row = self._s.fleet.booting(batch, said.vm)
        await answer(send, _encode(ScriptsReply(list(self._s.terms().scripts.get(row.pool, ())))))

    def _booting_batch(self, scope: Scope) -> BatchId:
        """Whose VM calls, by its join token; bounded by address and by batch."""
        now = self._s.clock.monotonic()
        self._booting.take((scope.get("client") or ("",))[0], now)
        join = self._s.tokens.verify_join(header(scope, b"authorization"), self._expiry.now())
        self._booting_batches.take(join.batch, now)
        return join.batch

    async def logs(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Append a chunk to an attempt's log; answers {"offset": N}, where the next one starts."""
        claim, query, _ = self._claim(scope)
        offset = _number(query, "offset")
        await self._check_log(claim)
        chunk = await read_body(scope, receive, self._s.limits.chunk_bytes)
        size = self._s.logs.append(claim.task, claim.token, offset, chunk)
        await answer(send, b'{"offset":%d}' % size)

    async def outputs(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep a file of an attempt; answers {"path", "size", "sha256"} of what arrived. What a task token brings has
        to be declared, or a task could fill the disk."""
        claim, query, own = self._claim(scope)

        def guard() -> None:
            if not self._s.store.holds(*claim):
                raise _stale(claim)

        path = query.get("path", "")
        guard()
        if own:
            await self._files.check_output(claim, path)
        declared = declared_length(scope)
        stored = await self._s.outputs.store(claim.task, claim.token, path, _chunks(receive), guard, declared)
        await answer(send, _encode(stored))

    async def agent(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The agent as a zipapp: this one's, unless a former one is asked for by its sha256. No token: it holds no
        secret."""
        bundle = self._s.agent
        asked = _query(scope).get("sha256", "")
        sha256 = asked if asked in bundle.former else bundle.sha256
        headers = ((b"etag", b'"%s"' % sha256.encode()), (b"x-sha256", sha256.encode()))
        body = bundle.former.get(sha256, bundle.body)
        await answer(send, body, content=(b"content-type", b"application/zip"), headers=headers)

    def _claim(self, scope: Scope) -> tuple[Claim, dict[str, str], bool]:
        """The claim that the request is for, held or not; the query; whether a task token says so. That is for its own
        claim alone, and then the query need not name it; an agent names one of its own instance."""
        own = self._s.tokens.claim_of(header(scope, b"authorization"))
        if own is None:
            instance = self._caller(scope)
            query = _query(scope)
            claim = Claim(TaskId(_number(query, "task")), FencingToken(_number(query, "token")), instance)
            return claim, query, False
        query = _query(scope)
        for name, mine in (("task", own.task), ("token", own.token)):
            if name in query and _number(query, name) != mine:
                hint = f"leave {name} out: the token says it"
                raise Denied(f"this is the token of task {own.task} under {own.token}", place=name, hint=hint)
        return own, query, True

    async def _check_log(self, claim: Claim) -> None:
        """StaleLease unless the claim is the caller's, or was until a moment ago: an attempt that has just ended may
        finish its own log, which can touch nothing else. The store knows it, so that a restart in between costs no
        output."""
        if self._s.store.holds(*claim):
            return
        since = self._s.clock.now() - _LOG_GRACE_MS
        for attempt in await self._s.store.attempts(claim.task):
            same = attempt.token == claim.token and attempt.instance == claim.instance
            if same and attempt.told_ms >= since:
                return
        raise _stale(claim)


def _check_vm(vm: str) -> None:
    """InvalidInput for what is no provider's id; "" for a VM that can't learn its own."""
    if len(vm) > 512 or (vm and not vm.isprintable()):
        raise InvalidInput("the VM's id is odd", place="vm", hint="the provider's id of this VM")


def _stale(claim: Claim) -> StaleLease:
    message = f"instance {claim.instance} does not hold task {claim.task} under token {claim.token}"
    return StaleLease(message, place="token", hint="stop this attempt and drop what it made")


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The parts of the body as they come; ClientGone when the client leaves before its end."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        more = message.get("more_body", False)
        yield message.get("body", b"")


def _query(scope: Scope) -> dict[str, str]:
    try:
        pairs = parse_qsl(scope["query_string"].decode(), keep_blank_values=True, errors="strict", max_num_fields=16)
    except ValueError:
        raise InvalidInput("the query is not percent-encoded UTF-8 of at most 16 fields", place="query") from None
    return dict(pairs)


def _number(query: dict[str, str], name: str) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput(f"{name}={text[:40]!r} is not a number", place=name, hint=f"?{name}=N in the query")
    return int(text)
