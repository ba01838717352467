"""A small dispatcher that follows the REST reference over real HTTP, so that commands are tested up to their exit code.

It runs nothing: tests say how tasks end. The true dispatcher is tested by tests/system.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from cloud_dispatch.cli.main import run
from cloud_dispatch.demand.submission import parse
from cloud_dispatch.domain.errors import InvalidInput

TOKEN = "operator-secret"
ENDED = ("succeeded", "failed", "cancelled")


@dataclass
class Refusal(Exception):
    """An answer that is not 2xx."""

    status: int
    code: str
    message: str
    place: str = ""
    hint: str = ""


@dataclass
class StubDispatcher:
    """Tasks and instances in memory. `plays` is called with each submitted task's view and may change it at once;
    `on_poll` is called before each answer about tasks."""

    tasks: dict[int, dict[str, Any]] = field(default_factory=dict)
    logs: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)
    #: What lies under each output that `store` has made.
    stored: dict[tuple[int, str], bytes] = field(default_factory=dict)
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: dict[str, dict[str, Any]] = field(default_factory=dict)
    submitted: list[dict[str, Any]] = field(default_factory=list)
    budgets: dict[str, Any] = field(default_factory=lambda: {"budgets": [], "unsure_since_ms": None})
    breakers: list[dict[str, Any]] = field(default_factory=list)
    stopped: dict[str, Any] = field(default_factory=lambda: {"level": "nothing", "why": "", "since_ms": 0})
    #: How many VMs of each other statestore were seen.
    foreign: dict[str, int] = field(default_factory=dict)
    limits_asked: list[dict[str, Any]] = field(default_factory=list)
    #: Pages of `GET /v1/costs` by their `after`, and answers about one task.
    costs: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Stored plans by number: each with its `record`, as `GET /v1/plans/N` gives it, and its `actions`.
    plans: dict[int, dict[str, Any]] = field(default_factory=dict)
    offers_asked: list[dict[str, str]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    plays: Callable[[dict[str, Any]], None] = lambda task: task.update(state="succeeded", cause="success")
    on_poll: Callable[[], None] = lambda: None
    refuse: Refusal | None = None
    url: str = ""

    def refusal(self, status: int, code: str, message: str, place: str = "") -> Refusal:
        """An answer other than 2xx, for tests to set or raise."""
        return Refusal(status, code, message, place)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[Any, dict[str, str]]:
        """The JSON value (or bytes) for a request, and extra headers; raises Refusal."""
        if self.refuse is not None:
            raise self.refuse
        parts = [unquote(part) for part in path.split("/")[2:]]
        match method, parts:
            case "POST", ["tasks"]:
                return self._told(self._submit(body["tasks"]), body["tasks"]), {}
            case "GET", ["tasks"]:
                self.on_poll()
                return self._page(query), {}
            case "POST", ["tasks", "cancel"]:
                return {"cancelled": self._cancel(body)}, {}
            case "POST", ["tasks", "rerun"]:
                ended = self._chosen(body)
                again = self._submit([{"command": "again"}] * len(ended))
                rows = [{"task": t["id"], "again": a, "state": "queued"} for t, a in zip(ended, again, strict=True)]
                return {"tasks": rows}, {}
            case "GET", ["tasks", task]:
                return {**self._task(task), "attempts_list": [], "spec": {}}, {}
            case "GET", ["tasks", task, "logs"]:
                return self._log(int(task), query)
            case "GET", ["tasks", task, "outputs", *names]:
                return self._output(int(task), "/".join(names)), {}
            case "POST", ["tasks", task, "priority"]:
                self._task(task)["priority"] = body["priority"]
                return self._task(task), {}
            case "GET", [("tasks" | "instances") as kind, name, "explain"]:
                state = (self._task(name) if kind == "tasks" else self._instance(name))["state"]
                event = {"at_ms": 0, "action": "task.submitted", "detail": ""}
                return {"subject": name, "state": state, "reasons": ["because"], "events": [event]}, {}
            case "GET", ["instances"]:
                wanted = [i for i in self.instances.values() if "past" in query or i["state"] != "gone"]
                return {"instances": wanted}, {}
            case "POST", ["instances", name, ("hold" | "drain" | "resume" | "kill") as verb]:
                instance = self._instance(name)
                if verb == "resume" and instance["behaviour"] == "run":
                    raise Refusal(409, "conflict", f"instance {name} is not on hold")
                instance["behaviour"] = {"hold": "hold", "drain": "drain"}.get(verb, "run")
                return instance, {}
            case "GET", ["offers"]:
                self.offers_asked.append(query)
                unseen = [{"profile": "aws", "problem": "it can't say what it offers"}]
                told = {"excluded": [], "unseen": unseen, "quotas_unknown": [], "stopped": "by holidays"}
                return {"offers": [], "more": 0, **told}, {}
            case "GET", ["plan"]:
                launch = {
                    "kind": "launch",
                    "pool": "p",
                    "offering": "o",
                    "slots": 2,
                    "rate": "$0.02/h",
                    "reason": "why",
                }
                lost = {"shape": "9 cpu", "count": 1, "reason": "too big", "nearest": "local.4"}
                short = {"pool": "spare", "missing": 3, "reason": "its minimum wants 5 instances; nothing is left"}
                return {"actions": [launch], "waiting": [], "unsatisfiable": [lost], "short": [short]}, {}
            case "GET", ["plans"]:
                known = [number for number in self.plans if number < int(query.get("before", 1 << 60))]
                wanted = sorted(known, reverse=True)[: int(query["limit"])]
                views = [{"id": n, "at_ms": 0, "actions": self.plans[n]["actions"]} for n in wanted]
                return {"plans": views}, {}
            case "GET", ["plans", number]:
                if int(number) not in self.plans:
                    raise Refusal(404, "not-found", f"there is no plan {number}")
                return self.plans[int(number)]["record"], {}
            case "PUT", ["pools", pool, "target"]:
                self.targets[pool] = body
                return body, {}
            case "DELETE", ["pools", pool, "target"]:
                if pool not in self.targets:
                    raise Refusal(404, "not-found", f"pool {pool} has no target")
                return self.targets.pop(pool), {}
            case _:
                return self._of_money(method, path, parts, query, body)

    def _of_money(
        self, method: str, path: str, parts: list[str], query: dict[str, str], body: Any
    ) -> tuple[Any, dict[str, str]]:
        """Limits, what was spent, and what stops spending."""
        match method, parts:
            case "GET", ["breakers"]:
                return {"breakers": self.breakers}, {}
            case "POST", ["breakers", "reset"]:
                self.breakers = [one for one in self.breakers if not body.get("all") and one["name"] != body["name"]]
                return {"breakers": self.breakers}, {}
            case "POST", ["adopt"]:
                others = dict(self.foreign)
                return {"store": body["store"], "vms": others.pop(body["store"], 0), "others": others}, {}
            case "GET", ["stop"]:
                return self.stopped, {}
            case "POST", ["stop"]:
                why = f"an operator says: {body['reason']}" if body["level"] != "nothing" else ""
                self.stopped = {"level": body["level"], "why": why, "since_ms": 1_700_000_000_000 if why else 0}
                return self.stopped, {}
            case "PUT", ["budgets"]:
                self.limits_asked.append(body)
                for one in self.budgets["budgets"]:
                    one["limit"] = one["configured"] if body["limit"] is None else body["limit"]
                return self.budgets, {}
            case "GET", ["budgets", "commitments"]:
                held = {
                    "instance": "b1-0", "pool": "default", "profile": "local", "state": "busy", "rate": 100_000_000,
                    "from_ms": 0, "ends_ms": 5, "until_ms": 9, "committed": 17,
                }  # fmt: skip
                return {"commitments": [held] if query["of"] == "default" else []}, {}
            case "GET", ["budgets"]:
                return self.budgets, {}
            case "POST", ["budgets", "reconcile"]:
                self.budgets["unsure_since_ms"] = None
                return self.budgets, {}
            case "GET", ["costs"]:
                return self.costs[query.get("after", "")], {}
            case "GET", ["tasks", task, "cost"]:
                return self.costs[task], {}
            case _:
                raise Refusal(404, "not-found", f"there is nothing at {path}")

    def _told(self, ids: list[int], inputs: list[dict[str, Any]]) -> dict[str, Any]:
        arrays = list(dict.fromkeys(own for i in ids if (own := self.tasks[i]["array_id"])))
        notes = {"notes": ["look out"]} if "pool" in inputs[0] else {}
        return {"ids": ids, **notes, **({"arrays": arrays} if arrays else {})}

    def _submit(self, inputs: list[dict[str, Any]]) -> list[int]:
        try:
            specs = parse(inputs, "tasks")
        except InvalidInput as error:
            raise Refusal(400, error.code, error.message, error.place, error.hint) from None
        self.submitted += inputs
        return [
            self.add(name=spec.name, command=spec.shell or " ".join(spec.argv), array_id=str(spec.array_id),
                     array_index=spec.array_index)
            for spec in specs
        ]  # fmt: skip

    def add(self, **fields: Any) -> int:
        """A new task, as `plays` has it; its number."""
        number = len(self.tasks) + 1
        task = {
            "id": number, "name": "", "command": "true", "state": "queued", "priority": 0, "project": "", "user": "",
            "array_id": "", "array_index": 0, "submitted_ms": 0, "started_ms": None, "ended_ms": None, "attempts": 0,
            "instance": None, "token": None, "cause": None, "exit_code": None, "signal": None, "detail": "",
            "outputs": [], "shape": "1 cpu", **fields,
        }  # fmt: skip
        self.tasks[number] = task
        self.plays(task)
        return number

    def store(self, task: int, path: str, body: bytes, url: str = "") -> None:
        """Let the task have succeeded with this output."""
        digest = hashlib.sha256(body).hexdigest()
        self.tasks[task]["state"] = "succeeded"
        self.tasks[task]["outputs"].append({"path": path, "url": url, "size": len(body), "sha256": digest})
        self.stored[task, path] = body

    def _page(self, query: dict[str, str]) -> dict[str, Any]:
        after, limit = int(query.get("after", 0)), int(query.get("limit", 100))
        states = query["state"].split(",") if query.get("state") else None
        found = [
            t for t in self.tasks.values() if t["id"] > after and (states is None or t["state"] in states)
            and all(t[key] == query[key] for key in ("project", "user", "name") if key in query)
        ]  # fmt: skip
        if "before" in query:
            found = [task for task in found if task["id"] < int(query["before"])]
            return {"tasks": found[-limit:], "next": found[-limit]["id"] if len(found) >= limit else None}
        return {"tasks": found[:limit], "next": found[limit - 1]["id"] if len(found) > limit else None}

    def _chosen(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        for name, value in body.items():
            if not value:
                raise Refusal(400, "invalid-input", "is empty", name)
        ids, project = body.get("ids", ()), body.get("project")
        return [t for t in self.tasks.values() if t["id"] in ids or (project is not None and t["project"] == project)]

    def _cancel(self, body: dict[str, Any]) -> list[int]:
        changed = [t for t in self._chosen(body) if t["state"] not in ENDED]
        for task in changed:
            task["state"] = "cancelled"
        return [task["id"] for task in changed]

    def _log(self, task: int, query: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        """Pieces of (attempt, bytes): as many as were written are handed out, then the log is complete."""
        self.on_poll()
        view = self._task(str(task))
        pieces = self.logs.get(task, [])
        attempt = query.get("attempt") or (pieces[-1][0] if pieces else "0")
        whole = b"".join(body for token, body in pieces if token == attempt)
        offset = int(query.get("offset", 0))
        headers = {"X-Offset": str(max(offset, len(whole))), "X-Attempt": attempt}
        if view["state"] in ENDED:
            headers["X-Complete"] = "1"
        return whole[offset:], headers

    def _output(self, task: int, path: str) -> Any:
        """The manifest of a task that has succeeded, or what one of its outputs holds."""
        if self._task(str(task))["state"] != "succeeded":
            raise Refusal(409, "conflict", f"task {task} has no accepted result")
        return self.stored[task, path] if path else {"outputs": self._task(str(task))["outputs"]}

    def _task(self, text: str) -> dict[str, Any]:
        if int(text) not in self.tasks:
            raise Refusal(404, "not-found", f"there is no task {text}")
        return self.tasks[int(text)]

    def _instance(self, name: str) -> dict[str, Any]:
        if name not in self.instances:
            raise Refusal(404, "not-found", f"there is no instance {name}")
        return self.instances[name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    dispatcher: StubDispatcher

    def _serve(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.dispatcher.requests.append((self.command, self.path))
        headers: dict[str, str] = {}
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(401, "denied", "the operator's token is wrong")
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            status, (value, headers) = 200, self.dispatcher.answer(self.command, url.path, query, body)
        except Refusal as r:
            status, value = r.status, {"code": r.code, "message": r.message, "place": r.place, "hint": r.hint}
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: requests are recorded."""


@pytest.fixture
def dispatcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubDispatcher]:
    """A dispatcher that answers, and an environment that points to it."""
    stub = StubDispatcher()
    handler = type("Handler", (_Handler,), {"dispatcher": stub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("CLOUD_DISPATCH_URL", stub.url)
    monkeypatch.setenv("CLOUD_DISPATCH_TOKEN", TOKEN)
    yield stub
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass(frozen=True)
class Ran:
    """How a command line ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Types a command line: `cli("tasks", "--json")`."""

    def typed(*words: str) -> Ran:
        code = run(words)
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return typed


@pytest.fixture
def no_dispatcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration of a dispatcher that does not run; its file."""
    monkeypatch.delenv("CLOUD_DISPATCH_URL", raising=False)
    monkeypatch.delenv("CLOUD_DISPATCH_TOKEN", raising=False)
    path = tmp_path / "config.toml"
    path.write_text('[dispatcher]\nlisten = "127.0.0.1:1"\nstate_dir = "state"\n')
    return path
