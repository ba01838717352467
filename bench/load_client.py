"""The load of the ``claims`` benchmark: many agents' worth of *sync* calls from one process, over real HTTP.

Each connection is one registered instance. Every call says what a real agent's sync says (the very bytes of
``cloud_dispatch.wire``): the results of the claims that the last answer brought, and how many more it wants. Only the
tasks themselves are left out: they succeed as soon as they are claimed. Lean on purpose, a bare asyncio protocol, so
that the dispatcher is what is measured.

``python -m bench.load_client`` reads one JSON line (a ``Plan``) from standard input, registers, prints ``ready``, waits
for an empty line, drains the queue, and prints one JSON line (an ``Answer``).
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import cast

import msgspec
import uvloop

from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import REGISTER_PATH, SYNC_PATH, RegisterRequest, Result, SyncRequest

WARM_UP_FRACTION = 0.05
STALL_SECONDS = 30.0
REGISTER_TRIES = 20
REGISTER_PAUSE_SECONDS = 0.25
TASK_MARK, TOKEN_MARK, SEQ_MARK = 10**17 + 1, 10**17 + 2, 10**17 + 3


class Seat(msgspec.Struct):
    """What an instance registers with: its join token and its provider's id of the VM."""

    join_token: str
    vm: str


class Plan(msgspec.Struct):
    """The whole load. Every seat becomes one keep-alive connection; ``want`` claims a call until ``tasks`` are done."""

    host: str
    port: int
    seats: list[Seat]
    want: int
    tasks: int
    poll_ms: int = 20_000


class Answer(msgspec.Struct):
    """``seconds`` and ``counted`` tasks from the moment 5 % were settled to the end; ``settled`` in all."""

    seconds: float
    counted: int
    settled: int
    calls: int


class ClaimSeen(msgspec.Struct):
    """The part of a claim that a result repeats."""

    task: int
    token: int


class SyncReplySeen(msgspec.Struct):
    """The part of a reply to a sync that this client acts on."""

    claims: list[ClaimSeen] = []
    settled: list[int] = []
    kill: list[int] = []
    end: bool = False


class RegisterReplySeen(msgspec.Struct):
    """The part of a reply to a registration that this client keeps."""

    instance: str
    token: str


class LoadFailed(Exception):
    """The dispatcher answered something that a benchmark must not go on after."""


@dataclass
class Progress:
    """Counts of the whole drain, shared by all connections."""

    tasks: int
    done: asyncio.Event
    claimed: int = 0
    settled: int = 0
    calls: int = 0
    warm_at: int = 0
    warm_count: int = 0
    warm_time: float = 0.0
    end_time: float = 0.0
    problem: str = ""

    def settle(self, count: int) -> None:
        """Count results that the dispatcher has committed."""
        self.settled += count
        if not self.warm_time and self.settled >= self.warm_at:
            self.warm_count, self.warm_time = self.settled, time.perf_counter()
        if self.settled >= self.tasks:
            self.end_time = time.perf_counter()
            self.done.set()

    def fail(self, problem: str) -> None:
        """Stop everything for this reason."""
        self.problem = self.problem or problem
        self.done.set()


class SyncBodies:
    """Builds the body of a sync: what the wire's codec makes of the messages, with the numbers put in."""

    def __init__(self, incarnation: str, want: int, poll_ms: int) -> None:
        result = codec.encode(Result(task=TASK_MARK, token=TOKEN_MARK, cause="success", exit_code=0, ran_ms=1))
        self._task_first, rest = result.split(str(TASK_MARK).encode())
        self._between, self._last = rest.split(str(TOKEN_MARK).encode())
        self._working = self._around(SyncRequest(incarnation, SEQ_MARK, "busy", want=want, wait_ms=poll_ms))
        # Nothing is left to claim: a call that only reports must not be held back.
        self._reporting = self._around(SyncRequest(incarnation, SEQ_MARK, "busy"))

    @staticmethod
    def _around(request: SyncRequest) -> tuple[bytes, bytes, bytes]:
        before, rest = codec.encode(request).split(str(SEQ_MARK).encode())
        middle, after = rest.split(b'"results":[]')
        return before, middle + b'"results":[', b"]" + after

    def body(self, seq: int, claims: list[ClaimSeen], *, working: bool) -> bytes:
        """The request that reports ``claims`` as succeeded and, when ``working``, asks for more."""
        before, middle, after = self._working if working else self._reporting
        results = b",".join(
            b"%b%d%b%d%b" % (self._task_first, claim.task, self._between, claim.token, self._last) for claim in claims
        )
        return b"%b%d%b%b%b" % (before, seq, middle, results, after)


class Connection(asyncio.Protocol):
    """One instance: a keep-alive connection with one call under way at a time."""

    def __init__(self, plan: Plan, progress: Progress, token: str, bodies: SyncBodies) -> None:
        self._plan = plan
        self._progress = progress
        self._bodies = bodies
        self._head = (
            f"POST {SYNC_PATH} HTTP/1.1\r\nHost: {plan.host}:{plan.port}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self._decode = msgspec.json.Decoder(SyncReplySeen).decode
        self._received = b""
        self._seq = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Kept until ``start``."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, error: Exception | None) -> None:
        """The dispatcher must keep the connection as long as the load lasts."""
        if not self._progress.done.is_set():
            self._progress.fail(f"the dispatcher closed a connection after {self._seq} calls: {error}")

    def start(self) -> None:
        """Send the first call, which carries no results."""
        self._call([])

    def data_received(self, data: bytes) -> None:
        """Gather one response, then send the next call."""
        self._received = received = self._received + data if self._received else data
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        start = head_end + 4
        length = content_length(received[:head_end])
        if len(received) < start + length:
            return
        self._received = b""
        if received[9:12] != b"200":
            self._progress.fail(f"a sync was refused: {received[:1000].decode(errors='replace')}")
            return
        self._answered(self._decode(received[start : start + length]))

    def _answered(self, reply: SyncReplySeen) -> None:
        progress = self._progress
        if reply.kill or reply.end:
            progress.fail(f"the dispatcher ended a claim or an instance in mid-run: {reply}")
            return
        progress.claimed += len(reply.claims)
        progress.settle(len(reply.settled))
        if not progress.done.is_set():
            self._call(reply.claims)

    def _call(self, claims: list[ClaimSeen]) -> None:
        assert self._transport is not None
        progress = self._progress
        progress.calls += 1
        self._seq += 1
        working = progress.claimed < progress.tasks
        if not working and not claims:
            return
        body = self._bodies.body(self._seq, claims, working=working)
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))


def content_length(head: bytes) -> int:
    """The Content-Length of a response's head. Raises LoadFailed where it has none (chunked is not spoken here)."""
    at = head.lower().find(b"content-length:")
    if at < 0:
        raise LoadFailed(f"a response without Content-Length: {head!r}")
    end = head.find(b"\r\n", at)
    return int(head[at + 15 : end if end >= 0 else len(head)])


async def register(plan: Plan, seat: Seat, incarnation: str) -> RegisterReplySeen:
    """Register one instance as its agent would; retried while the dispatcher does not know the VM yet."""
    body = codec.encode(RegisterRequest(vm=seat.vm, proof=seat.vm, incarnation=incarnation, version="bench"))
    head = (
        f"POST {REGISTER_PATH} HTTP/1.1\r\nHost: {plan.host}:{plan.port}\r\nAuthorization: Bearer {seat.join_token}\r\n"
        f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    answer = b""
    for _ in range(REGISTER_TRIES):
        reader, writer = await asyncio.open_connection(plan.host, plan.port)
        writer.write(head + body)
        answer = await reader.read()
        writer.close()
        if answer[9:12] == b"200":
            return msgspec.json.decode(answer[answer.index(b"\r\n\r\n") + 4 :], type=RegisterReplySeen)
        await asyncio.sleep(REGISTER_PAUSE_SECONDS)
    raise LoadFailed(f"the registration of {seat.vm} was refused: {answer[:1000].decode(errors='replace')}")


async def connect(plan: Plan, progress: Progress) -> list[Connection]:
    """Register every seat, one after another, and open its connection."""
    loop = asyncio.get_running_loop()
    connections = []
    for number, seat in enumerate(plan.seats):
        incarnation = f"bench-{number}"
        registered = await register(plan, seat, incarnation)
        bodies = SyncBodies(incarnation, plan.want, plan.poll_ms)
        connection = Connection(plan, progress, registered.token, bodies)
        await loop.create_connection(lambda made=connection: made, plan.host, plan.port)  # type: ignore[misc]
        connections.append(connection)
    return connections


async def drain(progress: Progress, connections: list[Connection]) -> Answer:
    """Run all connections until every task is settled. Raises LoadFailed when nothing moves for STALL_SECONDS."""
    for connection in connections:
        connection.start()
    before = -1
    while not progress.done.is_set():
        if progress.settled == before:
            raise LoadFailed(f"nothing settled for {STALL_SECONDS:g} s at {before} of {progress.tasks} tasks")
        before = progress.settled
        try:
            await asyncio.wait_for(progress.done.wait(), STALL_SECONDS)
        except TimeoutError:
            continue
    if progress.problem:
        raise LoadFailed(progress.problem)
    return Answer(
        seconds=progress.end_time - progress.warm_time,
        counted=progress.settled - progress.warm_count,
        settled=progress.settled,
        calls=progress.calls,
    )


async def main() -> None:
    """Speak the protocol of standard input and output that the module's docstring describes."""
    loop = asyncio.get_running_loop()
    plan = msgspec.json.decode(await loop.run_in_executor(None, sys.stdin.readline), type=Plan)
    progress = Progress(plan.tasks, asyncio.Event(), warm_at=max(1, int(plan.tasks * WARM_UP_FRACTION)))
    connections = await connect(plan, progress)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    answer = await drain(progress, connections)
    print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    try:
        uvloop.run(main())
    except (LoadFailed, OSError, msgspec.MsgspecError) as error:
        sys.exit(f"bench.load_client: {error}")
