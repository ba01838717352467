"""The routes of agents, in raw ASGI: register, sync, logs, outputs, and the agent itself for VMs that boot.

Owns what each of them demands of its caller. An agent can speak for its own instance only, and write to the log and the
outputs of claims that its instance holds now.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from cloud_dispatch.api.http import (
    ClientGone,
    answer,
    answer_failure,
    check_length,
    decode_json,
    header,
    read_body,
    too_large,
)
from cloud_dispatch.api.limiter import RateLimiter
from cloud_dispatch.api.policy import policy_for
from cloud_dispatch.api.services import Services
from cloud_dispatch.api.sync import Departure, SyncService
from cloud_dispatch.api.translate import SyncIn
from cloud_dispatch.domain.errors import Denied, InvalidInput, StaleLease
from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId, VmId
from cloud_dispatch.wire.messages import (
    AGENT_PATH,
    LOGS_PATH,
    OUTPUTS_PATH,
    PROTOCOL,
    REGISTER_PATH,
    SYNC_PATH,
    RegisterReply,
    RegisterRequest,
)

Route = Callable[[Scope, Receive, Send], Awaitable[None]]

_SYNC: msgspec.json.Decoder[SyncIn] = msgspec.json.Decoder(SyncIn)
_REGISTER: msgspec.json.Decoder[RegisterRequest] = msgspec.json.Decoder(RegisterRequest)
_encode = msgspec.json.Encoder().encode
_REGISTER_BYTES = 65_536
#: A log may be finished for so long after its attempt ended.
_LOG_GRACE_MS = 60_000


class WorkerRoutes:
    """One method a route; `table` says which is which."""

    def __init__(self, services: Services, sync: SyncService) -> None:
        self._s = services
        self._sync = sync
        self._limiter = RateLimiter(services.limits.register_burst, services.limits.register_per_second)
        self.table: dict[tuple[str, str], Route] = {
            ("POST", SYNC_PATH): self.sync,
            ("POST", REGISTER_PATH): self.register,
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
        return self._s.tokens.instance_of(header(scope, b"authorization"))

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
        instance = self._s.tokens.instance_of(authorization)
        if len(body) > self._s.limits.sync_bytes:
            raise too_large(self._s.limits.sync_bytes)
        request: SyncIn = decode_json(_SYNC, body)
        return self._sync.answer(instance, request, departure)

    async def register(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A VM's agent presents its join token and becomes the compute service of its slot."""
        self._limiter.take((scope.get("client") or ("",))[0], self._s.clock.monotonic())
        join = self._s.tokens.verify_join(header(scope, b"authorization"), self._s.clock.now())
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
        instance = await self._s.fleet.admit(join.batch, VmId(request.vm), request.incarnation)
        self._sync.sessions.registered(instance.id, request.incarnation)
        policy = policy_for(instance, self._s.policy, self._s.pools)
        reply = RegisterReply(instance.id, self._s.tokens.service(instance.id), policy)
        await answer(send, _encode(reply))

    async def logs(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Append a chunk to an attempt's log; answers {"offset": N}, where the next one starts."""
        instance = self._caller(scope)
        query = _query(scope)
        task, token = TaskId(_number(query, "task")), FencingToken(_number(query, "token"))
        offset = _number(query, "offset")
        await self._check_log(task, token, instance)
        chunk = await read_body(scope, receive, self._s.limits.chunk_bytes)
        size = self._s.logs.append(task, token, offset, chunk)
        await answer(send, b'{"offset":%d}' % size)

    async def outputs(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep a file of an attempt; answers {"path", "size", "sha256"} of what arrived."""
        instance = self._caller(scope)
        query = _query(scope)
        task, token = TaskId(_number(query, "task")), FencingToken(_number(query, "token"))

        def guard() -> None:
            if not self._s.store.holds(task, token, instance):
                raise _stale(task, token, instance)

        check_length(scope, self._s.limits.output_bytes)
        stored = await self._s.outputs.store(task, token, query.get("path", ""), _chunks(receive), guard)
        await answer(send, _encode(stored))

    async def agent(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The agent's zipapp; no token, there is no secret in it."""
        bundle = self._s.agent
        headers = ((b"etag", b'"%s"' % bundle.sha256.encode()), (b"x-sha256", bundle.sha256.encode()))
        await answer(send, bundle.body, content=(b"content-type", b"application/zip"), headers=headers)

    async def _check_log(self, task: TaskId, token: FencingToken, instance: InstanceId) -> None:
        """StaleLease unless the claim is the caller's, or was until a moment ago: an attempt that has just ended may
        finish its own log, which can touch nothing else. The store knows it, so that a restart in between costs no
        output."""
        if self._s.store.holds(task, token, instance):
            return
        since = self._s.clock.now() - _LOG_GRACE_MS
        for attempt in await self._s.store.attempts(task):
            if attempt.token == token and attempt.instance == instance and attempt.ended_ms >= since:
                return
        raise _stale(task, token, instance)


def _stale(task: TaskId, token: FencingToken, instance: InstanceId) -> StaleLease:
    message = f"instance {instance} does not hold task {task} under token {token}"
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
