"""The load client says what an agent says, over real HTTP, and counts truthfully."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.claims import run_client
from bench.load_client import ClaimSeen, LoadFailed, Plan, Progress, Seat, SyncBodies, connect, content_length, drain
from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import REGISTER_PATH, SYNC_PATH, Order, Policy, RegisterReply, SyncReply, SyncRequest

TASKS = 500


class Queue:
    """A dispatcher of a few lines, on the wire's own messages: hands out each task once, settles what it handed out."""

    def __init__(self, tasks: int) -> None:
        self.waiting = list(range(1, tasks + 1))
        self.claimed: dict[int, int] = {}
        self.settled: list[int] = []
        self.largest_want = 0

    def answer(self, path: str, bearer: str, body: bytes) -> Any:
        """The reply to one request."""
        if path == REGISTER_PATH:
            return RegisterReply(instance="i", token=f"service-{bearer}", policy=Policy())
        assert path == SYNC_PATH
        assert bearer.startswith("service-join")
        request = codec.decode(SyncRequest, body)
        self.largest_want = max(self.largest_want, request.want)
        for result in request.results:
            assert self.claimed.pop(result.task) == result.token
            assert (result.cause, result.exit_code) == ("success", 0)
            self.settled.append(result.task)
        taken, self.waiting = self.waiting[: request.want], self.waiting[request.want :]
        self.claimed.update({task: task * 7 for task in taken})
        claims = [Order(task=task, token=task * 7) for task in taken]
        return SyncReply(seq=request.seq, claims=claims, settled=[result.token for result in request.results])


@asynccontextmanager
async def listening(answer: Callable[[str, str, bytes], Any], status: str = "200 OK") -> AsyncIterator[int]:
    """An HTTP server around `answer`; yields its port. What is connected at its end is cut off: from Python 3.12 on a
    server waits for that."""
    connected: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
                body = await reader.readexactly(int(lines["Content-Length"]))
                reply = codec.encode(answer(head.split()[1], lines["Authorization"].removeprefix("Bearer "), body))
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(reply)}\r\n\r\n".encode())
                await writer.drain()
                writer.write(reply)
                if lines.get("Connection") == "close":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            for writer in connected:
                writer.close()


def plan_of(port: int, want: int, seats: int) -> Plan:
    """A load of TASKS tasks."""
    return Plan("127.0.0.1", port, [Seat(f"join-{number}", f"vm-{number}") for number in range(seats)], want, TASKS)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine with a deadline."""
    asyncio.run(asyncio.wait_for(main(), 30))  # type: ignore[arg-type]


@pytest.mark.parametrize(("want", "seats"), [(1, 8), (100, 2)])
def test_every_task_is_claimed_and_reported_exactly_once(want: int, seats: int) -> None:
    """The queue is drained over several connections, and the answer's count is what the queue saw settled."""

    async def main() -> None:
        queue = Queue(TASKS)
        async with listening(queue.answer) as port:
            progress = Progress(TASKS, asyncio.Event(), warm_at=25)
            answer = await drain(progress, await connect(plan_of(port, want, seats), progress))
        assert sorted(queue.settled) == list(range(1, TASKS + 1))
        assert answer.settled == TASKS
        assert 0 < answer.counted <= TASKS - 25
        assert queue.largest_want == want

    run(main)


def test_load_client_runs_as_the_process_that_the_benchmark_starts(tmp_path: Path) -> None:
    """From the plan on its standard input to the answer on its standard output, on the event loop that it uses."""

    async def main() -> None:
        queue = Queue(TASKS)
        async with listening(queue.answer) as port:
            answer = await asyncio.to_thread(run_client, plan_of(port, 1, 8), tmp_path / "log")
        assert sorted(queue.settled) == list(range(1, TASKS + 1))
        assert answer.settled == TASKS

    run(main)


def test_refused_sync_fails_the_load_with_the_answer() -> None:
    """A number measured against errors would be a lie."""

    async def main() -> None:
        queue = Queue(TASKS)
        refused = listening(lambda *_: SyncReply(), status="403 Forbidden")
        async with listening(queue.answer) as port, refused as refusing:
            progress = Progress(TASKS, asyncio.Event(), warm_at=25)
            connections = await connect(plan_of(port, 1, 2), progress)
            queue.answer = lambda *_: SyncReply(end=True)  # type: ignore[method-assign]
            for connection in connections:
                await asyncio.get_running_loop().create_connection(
                    lambda made=connection: made,
                    "127.0.0.1",
                    refusing,  # type: ignore[misc]
                )
            with pytest.raises(LoadFailed, match="403 Forbidden"):
                await drain(progress, connections)

    run(main)


def test_body_is_byte_for_byte_what_the_wire_makes_of_the_messages() -> None:
    """The load client builds bodies from pieces; the pieces come from the codec."""
    bodies = SyncBodies("bench-0", 100, 20_000)
    body = bodies.body(3, [ClaimSeen(5, 50), ClaimSeen(6, 60)], working=True)
    request = codec.decode(SyncRequest, body)
    assert codec.encode(request) == body
    assert (request.seq, request.want, request.wait_ms) == (3, 100, 20_000)
    assert [(result.task, result.token) for result in request.results] == [(5, 50), (6, 60)]
    assert json.loads(bodies.body(4, [], working=False))["want"] == 0


def test_response_without_a_length_is_refused() -> None:
    """Chunked answers are not understood, so they must not be taken for empty ones."""
    assert content_length(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nx: y") == 12
    with pytest.raises(LoadFailed):
        content_length(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked")
