"""Between wire messages and the ports' values. Owns bounds on what an agent may say, and the fast form of the reply.

The dispatcher speaks of tasks and tokens, the wire of numbers: nothing an agent sends gets past here unchecked.
"""

from __future__ import annotations

import msgspec

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.domain.task import Artifact, Cause, Outcome
from cloud_dispatch.ports import store as port
from cloud_dispatch.ports.fleet import Directive
from cloud_dispatch.wire import messages as wire

#: The word of a result for a claim that is handed back unstarted.
RELEASED = "released"
MOST_CLAIMS = 1024
_MOST = 2**63 - 1
_MOST_ARTIFACTS = 10_000
_DETAIL = 4096
_CAUSES = {str(cause): cause for cause in Cause}


class OrderOut(msgspec.Struct, omit_defaults=True):
    """`wire.Order` with the specification as the store has it."""

    task: int
    token: int
    attempt: int
    spec: msgspec.Raw


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


def held_of(request: wire.SyncRequest) -> tuple[port.HeldClaim, ...]:
    """The running set of `request`."""
    return tuple(
        port.HeldClaim(TaskId(claim.task), FencingToken(claim.token), None if claim.ran_ms < 0 else claim.ran_ms)
        for claim in request.held
    )


def results_of(request: wire.SyncRequest) -> tuple[port.ClaimResult, ...]:
    """The results of `request`; InvalidInput with its place for one that makes no sense."""
    return tuple(_result(result, at) for at, result in enumerate(request.results))


def _result(result: wire.Result, at: int) -> port.ClaimResult:
    ran_ms = None if result.ran_ms < 0 else result.ran_ms
    outcome = None if result.cause == RELEASED else _outcome(result, at)
    return port.ClaimResult(TaskId(result.task), FencingToken(result.token), ran_ms, outcome)


def _outcome(result: wire.Result, at: int) -> Outcome:
    cause = _CAUSES.get(result.cause)
    if cause is None:
        known = ", ".join((*_CAUSES, RELEASED))
        raise InvalidInput(f"{result.cause!r} is no cause", place=f"results[{at}].cause", hint=f"one of: {known}")
    numbers = (result.exit_code or 0, result.signal or 0, result.max_rss, result.cpu_ms, result.ran_ms)
    if max(numbers) > _MOST or min(numbers) < -_MOST:
        raise InvalidInput("a number is out of range", place=f"results[{at}]", hint="64 bits are enough for all")
    if len(result.outputs) > _MOST_ARTIFACTS:
        raise InvalidInput(f"more than {_MOST_ARTIFACTS} outputs", place=f"results[{at}].outputs")
    return Outcome(
        cause=cause,
        exit_code=result.exit_code,
        signal=result.signal,
        detail=result.detail[:_DETAIL].replace("\0", "") if result.detail else "",
        manifest=_manifest(result, at) if result.outputs else (),
        max_rss=result.max_rss,
        cpu_ms=result.cpu_ms,
    )


def _manifest(result: wire.Result, at: int) -> tuple[Artifact, ...]:
    return tuple(_artifact(file, f"results[{at}].outputs[{n}]") for n, file in enumerate(result.outputs))


def _artifact(file: wire.OutputFile, place: str) -> Artifact:
    if not 0 <= file.size <= _MOST or any("\0" in text for text in (file.path, file.url, file.sha256)):
        raise InvalidInput("a size out of range or a NUL", place=place)
    return Artifact(file.path, file.url, file.size, file.sha256)


def reply_to(
    request: wire.SyncRequest,
    done: port.SyncDone,
    directive: Directive,
    *,
    lease_ms: int,
    policy: wire.Policy | None = None,
) -> ReplyOut:
    """What `request` is answered: what the store did and what the fleet wants."""
    claims = [OrderOut(claim.task, claim.token, claim.attempt, msgspec.Raw(claim.spec)) for claim in done.claims]
    return ReplyOut(
        request.seq,
        claims,
        done.settled,
        done.kill,
        lease_ms,
        directive.drain_token,
        directive.drain,
        directive.hold,
        directive.end,
        policy,
    )
