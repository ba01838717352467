"""A small dispatcher that speaks `wire` over real HTTP, for tests of the agent. Owns one instance and a list of tasks.

It follows the messages' contract strictly: one answer an incarnation, claims only as wanted, leases from the running
set, a stale token refused. It is not the real dispatcher; what it must never do is forgive the agent a mistake.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict, deque
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cloud_dispatch.wire.codec import decode, encode
from cloud_dispatch.wire.messages import (
    AGENT_PATH,
    LOGS_PATH,
    OUTPUTS_PATH,
    REGISTER_PATH,
    SYNC_PATH,
    Order,
    OrderSpec,
    Policy,
    Program,
    RegisterReply,
    RegisterRequest,
    Result,
    SyncReply,
    SyncRequest,
)


class StubDispatcher:
    """Start with `with StubDispatcher() as stub`; `stop()` and `start()` in between are a restart on the same port."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.lock = threading.Condition()
        self.queue: deque[tuple[int, OrderSpec]] = deque()
        self.specs: dict[int, OrderSpec] = {}
        self.given: dict[int, int] = {}  # token -> task, claims without a result
        self.confirmed: set[int] = set()  # tokens that some later running set named
        self.results: dict[int, Result] = {}  # accepted, by task
        self.released: list[Result] = []
        self.stale: list[Result] = []
        self.lost: list[int] = []  # tokens that the agent no longer held
        self.logs: dict[int, bytearray] = defaultdict(bytearray)
        self.log_moments: dict[int, float] = {}
        self.outputs: dict[tuple[int, str], bytes] = {}
        self.kills: set[int] = set()
        self.started: dict[int, float] = {}
        self.syncs: list[SyncRequest] = []
        self.registrations: list[RegisterRequest] = []
        self.keep_syncs = True
        self.sync_count = 0
        self.connections = 0
        self.drain_token = 0
        self.drain = False
        self.hold = False
        self.approve_end = False
        self.end = False
        self.new_policy: Policy | None = None
        self.program = b""  # the zipapp that an agent shall become
        self.serve_other = False  # than that
        self.timer = ""  # what a sync that asks for a word of the guest timer is told
        self.refuse_logs = False
        self.instead = b""  # what something between answers every sync with
        self.task_tokens = True  # False: a dispatcher of before, which has none
        self.knows_tokens = True  # False: an agent of before, which uses the token of its instance for all
        self.result_delay_s = 0.0
        self.mistakes: list[str] = []
        self.named: dict[str, str] = {}  # the program that each incarnation was told of
        self._newest: dict[str, int] = {}
        self._tokens = 0
        self._tasks = 0
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    # For tests

    def submit(self, *argv: str, shell: str = "", **fields: Any) -> int:
        with self.lock:
            self._tasks += 1
            self.specs[self._tasks] = OrderSpec(argv=list(argv), shell=shell, **fields)
            self.queue.append((self._tasks, self.specs[self._tasks]))
            self.lock.notify_all()
            return self._tasks

    def wait(self, predicate: Any, timeout_s: float = 60.0) -> None:
        """Until `predicate()` holds; AssertionError with what is known otherwise."""
        deadline = time.monotonic() + timeout_s
        with self.lock:
            while not predicate():
                left = deadline - time.monotonic()
                if left <= 0:
                    last = self.syncs[-1] if self.syncs else None
                    raise AssertionError(f"timed out; results {self.results}, given {self.given}, last sync {last}")
                self.lock.wait(min(left, 0.1))

    def result(self, task: int, timeout_s: float = 60.0) -> Result:
        self.wait(lambda: task in self.results, timeout_s)
        return self.results[task]

    def token_of(self, task: int, timeout_s: float = 60.0) -> int:
        self.wait(lambda: task in self.given.values(), timeout_s)
        return next(token for token, given in self.given.items() if given == task)

    def wait_started(self, task: int, timeout_s: float = 60.0) -> int:
        """The token under which the task's command runs (a claim in an abandoned answer is given anew)."""
        self.wait(lambda: any(self.given.get(token) == task for token in self.started), timeout_s)
        return next(token for token in self.started if self.given.get(token) == task)

    def change(self, **fields: Any) -> None:
        """Set attributes and wake the long polls."""
        with self.lock:
            for name, value in fields.items():
                setattr(self, name, value)
            self.lock.notify_all()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> StubDispatcher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        stub = self

        class Handler(_Handler):
            dispatcher = stub

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # agents abandon their connections by design

        self.stopping = False
        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """As a killed dispatcher: no answer to anything any more."""
        if self._server is None:
            return
        with self.lock:
            self.stopping = True
            self.lock.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = None

    # What it does

    def register(self, request: RegisterRequest) -> RegisterReply:
        with self.lock:
            self.registrations.append(request)
        return RegisterReply("batch-0", "service-token", self.policy)

    def sync(self, request: SyncRequest) -> SyncReply | None:
        """None: a newer request of the same incarnation came, or the dispatcher stops: this one gets no answer."""
        deadline = time.monotonic() + request.wait_ms / 1000
        with self.lock:
            if request.seq <= self._newest.get(request.incarnation, 0):
                return None  # an abandoned request that was overtaken on its way
            self._newest[request.incarnation] = request.seq
            self.sync_count += 1
            if self.keep_syncs:
                self.syncs.append(request)
            timer = self.timer if request.timer is not None else ""
            reply = SyncReply(request.seq, lease_ms=self.policy.lease_ms, timer=timer)
            self._note_held(request)
            for result in request.results:
                self._settle(result, reply)
            self.lock.notify_all()
            while True:
                if self.stopping or self._newest[request.incarnation] != request.seq:
                    return None
                self._fill(request, reply)
                left = deadline - time.monotonic()
                if left <= 0 or self._has_news(request, reply):
                    self.new_policy = None
                    return reply
                self.lock.wait(left)

    def _note_held(self, request: SyncRequest) -> None:
        held = {claim.token for claim in request.held}
        for claim in request.held:
            self.confirmed.add(claim.token)
            if claim.token not in self.given:
                self.kills.add(claim.token)
            elif claim.ran_ms >= 0:
                self.started.setdefault(claim.token, time.monotonic())
        reported = {result.token for result in request.results}
        for token in list(self.given):
            if token not in held and token not in reported:
                task = self.given.pop(token)
                if token in self.confirmed:
                    self.lost.append(token)
                else:  # given in an answer that was abandoned: it goes back
                    self.queue.appendleft((task, self.specs[task]))
        if request.state == "drained" and held:
            self.mistakes.append("drained with claims held")

    def _settle(self, result: Result, reply: SyncReply) -> None:
        reply.settled.append(result.token)
        self.kills.discard(result.token)
        task = self.given.pop(result.token, None)
        if task is None:
            self.stale.append(result)
        elif result.cause == "released":
            self.released.append(result)
            self.queue.append((task, self.specs[task]))
        elif task in self.results:
            self.mistakes.append(f"task {task} ended twice")
        else:
            self.results[task] = result

    def _fill(self, request: SyncRequest, reply: SyncReply) -> None:
        claiming = not (self.drain or self.hold or self.end)
        while claiming and self.queue and len(reply.claims) < request.want:
            task, spec = self.queue.popleft()
            self._tokens += 1
            self.given[self._tokens] = task
            reply.claims.append(Order(task, self._tokens, 1, spec, self.task_token(self._tokens)))
        reply.kill = sorted(self.kills)
        reply.drain_token, reply.drain, reply.hold = self.drain_token, self.drain, self.hold
        reply.end = self.end or (self.approve_end and request.ask_end)
        reply.policy = self.new_policy
        known = (request.program, self.named.get(request.incarnation))
        if self.program and sha256(self.program).hexdigest() not in known:
            self.named[request.incarnation] = sha256(self.program).hexdigest()
            reply.program = Program(self.named[request.incarnation])

    def _has_news(self, request: SyncRequest, reply: SyncReply) -> bool:
        return bool(
            reply.timer
            or reply.program
            or reply.claims
            or reply.settled
            or reply.kill
            or reply.end
            or reply.policy
            or reply.drain_token > request.drain_token
        )

    def task_token(self, token: int) -> str:
        return f"task-token-{token}" if self.task_tokens else ""

    def bearer_of(self, token: int) -> str:
        """Who may write for the attempt `token`."""
        return "Bearer " + ((self.knows_tokens and self.task_token(token)) or "service-token")

    def log(self, token: int, offset: int, body: bytes) -> int:
        with self.lock:
            if self.refuse_logs:
                return 503
            self.log_moments.setdefault(token, time.monotonic())
            if offset != len(self.logs[token]):
                if offset > len(self.logs[token]):
                    self.mistakes.append(f"hole in the log of {token} at {offset}")
                del self.logs[token][offset:]
            self.logs[token] += body
            self.lock.notify_all()
            return 200

    def output(self, token: int, path: str, body: bytes) -> None:
        with self.lock:
            self.outputs[token, path] = body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    dispatcher: StubDispatcher

    def setup(self) -> None:
        super().setup()
        self.dispatcher.connections += 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        wanted = "Bearer join-token" if parts.path == REGISTER_PATH else "Bearer service-token"
        if parts.path == LOGS_PATH:
            wanted = self.dispatcher.bearer_of(int(parse_qs(parts.query)["token"][0]))
        if self.headers.get("Authorization") != wanted:
            self._answer(401, b'{"code":"denied","message":"wrong token"}')
        elif parts.path == REGISTER_PATH:
            self._answer(200, encode(self.dispatcher.register(decode(RegisterRequest, body))))
        elif parts.path == SYNC_PATH and self.dispatcher.instead:
            self._answer(200, self.dispatcher.instead)
        elif parts.path == SYNC_PATH:
            reply = self.dispatcher.sync(decode(SyncRequest, body))
            if reply is None:
                self.close_connection = True
            else:
                self._answer(200, encode(reply))
        elif parts.path == LOGS_PATH:
            query = parse_qs(parts.query)
            self._answer(self.dispatcher.log(int(query["token"][0]), int(query["offset"][0]), body), b"{}")

    def do_GET(self) -> None:
        if urlsplit(self.path).path == AGENT_PATH and self.dispatcher.program:
            self._answer(200, self.dispatcher.program + b"?" * self.dispatcher.serve_other)
        else:
            self._answer(404, b"{}")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        wanted = self.dispatcher.bearer_of(int(query["token"][0]))
        if self.headers.get("Authorization") != wanted or parts.path != OUTPUTS_PATH:
            self._answer(401, json.dumps({"code": "denied", "message": "wrong token"}).encode())
            return
        self.dispatcher.output(int(query["token"][0]), query["path"][0], body)
        self._answer(200, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        if self.dispatcher.stopping:
            self.close_connection = True
            return
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, *_: object) -> None:
        pass
