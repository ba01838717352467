"""Between wire messages and the ports' values. Owns bounds on what agents may say, and both messages' fast forms.

The dispatcher speaks of tasks and tokens, the wire of numbers: nothing an agent sends gets past here unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.task import Artifact, Cause, Outcome
from cloud_dispatch.ports import store as port
from cloud_dispatch.ports.fleet import Directive
from cloud_dispatch.wire import messages as wire
from cloud_dispatch.wire.timer import MOST_LINKS

#: The word of a result for a claim that is handed back unstarted.
RELEASED = "released"
MOST_CLAIMS = 1024
_MOST = 2**63 - 1
_MOST_ARTIFACTS = 10_000
_DETAIL = 4096
#: What an agent keeps to (`agent.transfers.MOST_MANIFEST`).
_MOST_NAMES = 4 << 20
_SHA256 = re.compile(r"[0-9a-f]{0,64}")
_CAUSES = {str(cause): cause for cause in Cause}
_encode = msgspec.json.Encoder().encode

#: Makes the token of one attempt.
Sign = Callable[[TaskId, FencingToken, InstanceId], str]
Number = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
#: Decoded as what they are: to call a NewType for each claim of each sync costs more than to decode it.
_TaskId = Annotated[TaskId, msgspec.Meta(ge=-_MOST, le=_MOST)]
_Token = Annotated[FencingToken, msgspec.Meta(ge=-_MOST, le=_MOST)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class HeldIn(msgspec.Struct, gc=False):
    task: _TaskId = TaskId(0)
    token: _Token = FencingToken(0)
    ran_ms: Number = -1


class OutputIn(msgspec.Struct, gc=False):
    path: str = ""
    url: str = ""
    size: _Size = 0
    sha256: str = ""


class ResultIn(msgspec.Struct):
    task: _TaskId = TaskId(0)
    token: _Token = FencingToken(0)
    cause: str = ""
    exit_code: Number | None = None
    signal: Number | None = None
    detail: str = ""
    ran_ms: Number = -1
    max_rss: Number = 0
    cpu_ms: Number = 0
    outputs: Annotated[list[OutputIn], msgspec.Meta(max_length=_MOST_ARTIFACTS)] = []
    ago_ms: Number = 0


class TimerIn(msgspec.Struct, gc=False):
    age_ms: Number = 0
    step_ms: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = 0
    links: Annotated[int, msgspec.Meta(ge=1, le=MOST_LINKS)] = 0


class SyncIn(msgspec.Struct):
    """`wire.SyncRequest` as it is decoded, numbers within their bounds: same fields, same defaults (a test compares
    them). Decoding a struct and checking it there costs half of what it does with dataclasses and by hand."""

    incarnation: Annotated[str, msgspec.Meta(max_length=64)] = ""
    seq: int = 0
    state: str = "idle"
    held: list[HeldIn] = []
    results: list[ResultIn] = []
    want: int = 0
    ahead: int = 0
    wait_ms: int = 0
    drain_token: int = 0
    ask_end: bool = False
    ending: str = ""
    detail: str = ""
    disk_free: int = -1
    timer: TimerIn | None = None
    program: Annotated[str, msgspec.Meta(max_length=64)] = ""
    heard: int = -1


class OrderOut(msgspec.Struct, omit_defaults=True):
    """`wire.Order` with the specification as the store has it."""

    task: int
    token: int
    attempt: int
    spec: msgspec.Raw
    task_token: str


class ReplyOut(msgspec.Struct, omit_defaults=True):
    """`wire.SyncReply` as it is encoded: same fields, same defaults (a test compares them)."""

    seq: int = 0
    claims: list[OrderOut] = []
    settled: tuple[int, ...] = ()
    kill: tuple[int, ...] = ()
    lease_ms: int = 60_000
    drain_token: int = 0
    drain: bool = False
    hold: bool = False
    end: bool = False
    policy: wire.Policy | None = None
    timer: str = ""
    token: str = ""
    program: wire.Program | None = None


def held_of(request: SyncIn) -> tuple[port.HeldClaim, ...]:
    """The running set of `request`."""
    return tuple(
        [port.HeldClaim(claim.task, claim.token, None if claim.ran_ms < 0 else claim.ran_ms) for claim in request.held]
    )


def results_of(request: SyncIn) -> tuple[port.ClaimResult, ...]:
    """The results of `request`; InvalidInput with its place for one that makes no sense."""
    return tuple([_result(result, at) for at, result in enumerate(request.results)])


def _result(result: ResultIn, at: int) -> port.ClaimResult:
    ran_ms = result.ran_ms
    outcome = None if result.cause == RELEASED else _outcome(result, at)
    return port.ClaimResult(result.task, result.token, None if ran_ms < 0 else ran_ms, outcome, max(result.ago_ms, 0))


def _outcome(result: ResultIn, at: int) -> Outcome:
    cause = _CAUSES.get(result.cause)
    if cause is None:
        known = ", ".join((*_CAUSES, RELEASED))
        raise InvalidInput(f"{result.cause!r} is no cause", place=f"results[{at}].cause", hint=f"one of: {known}")
    return Outcome(
        cause,
        result.exit_code,
        result.signal,
        result.detail[:_DETAIL].replace("\0", "") if result.detail else "",
        _manifest(result.outputs, f"results[{at}].outputs") if result.outputs else (),
        result.max_rss,
        result.cpu_ms,
    )


def _manifest(files: list[OutputIn], place: str) -> tuple[Artifact, ...]:
    """The files of a result. Others go by their names, and keep them: a VM may not say what leads out of a folder, nor
    so much that the statestore is filled."""
    if sum(len(file.path) + len(file.url) for file in files) > _MOST_NAMES:
        raise InvalidInput(f"the names of a result's outputs have more than {_MOST_NAMES} characters", place=place)
    return tuple(_artifact(file, f"{place}[{at}]") for at, file in enumerate(files))


def _artifact(file: OutputIn, place: str) -> Artifact:
    if "\0" in file.path or "\0" in file.url:
        raise InvalidInput("a NUL in an output", place=place)
    if any(part in ("", ".", "..") for part in file.path.split("/")):
        raise InvalidInput(f"{file.path[:200]!r} is no path inside the task's folder", place=f"{place}.path")
    if not _SHA256.fullmatch(file.sha256):
        raise InvalidInput(f"{file.sha256[:80]!r} is no sha256", place=f"{place}.sha256")
    return Artifact(file.path, file.url, file.size, file.sha256)


def orders_of(claims: Sequence[port.Claimed], instance: InstanceId, sign: Sign) -> list[OrderOut]:
    """The `claims` that `instance` was handed, each with the token of its attempt."""
    return [
        OrderOut(
            claim.task, claim.token, claim.attempt, msgspec.Raw(claim.spec), sign(claim.task, claim.token, instance)
        )
        for claim in claims
    ]


def reply_to(
    request: SyncIn,
    done: port.SyncDone,
    directive: Directive,
    orders: list[OrderOut],
    *,
    lease_ms: int,
    policy: wire.Policy | None = None,
    timer: str = "",
    token: str = "",
    program: wire.Program | None = None,
) -> bytes:
    """What `request` is answered, encoded: what the store did (its claims as `orders`) and what the fleet wants."""
    reply = ReplyOut(
        request.seq,
        orders,
        done.settled,
        done.kill,
        lease_ms,
        directive.drain_token,
        directive.drain,
        directive.hold,
        directive.end,
        policy,
        timer,
        token,
        program,
    )
    return _encode(reply)
