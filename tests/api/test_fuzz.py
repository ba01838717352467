"""Whatever is sent, the answer is an answer: never a 500, and every error has the form of errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.api.http import Unauthenticated
from cloud_dispatch.wire.messages import LOGS_PATH, OUTPUTS_PATH, REGISTER_PATH, SYNC_PATH
from tests.api.house import House, error_of, served

WORDS = [
    "tasks", "command", "ids", "array", "states", "priority", "reason", "count", "source", "expires_ms", "terminate",
    "grace_ms", "incarnation", "seq", "held", "results", "task", "token", "ran_ms", "cause", "exit_code", "outputs",
    "path", "size", "want", "ahead", "ask_end", "ending", "vm", "protocol", "env", "cpus", "memory", "sweep", "gpus",
    "labels", "retry",
]  # fmt: skip
KEYS = st.sampled_from(WORDS)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from(["success", "exit-code", "released", "idle", "busy", "\0", "{x}", "\ud800"])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=20
)
BODIES = st.one_of(
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(KEYS, VALUES, max_size=8).map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=200),
)
NUMBERS = st.one_of(st.integers(-5, 10).map(str), st.sampled_from(["", "x", "9" * 30, "9" * 5000, "1e5", "\u0664"]))
OPERATOR = [
    ("POST", "/v1/tasks"), ("POST", "/v1/tasks/cancel"), ("POST", "/v1/tasks/1/priority"),
    ("POST", "/v1/instances/b1-0/hold"), ("PUT", "/v1/pools/default/target"), ("POST", "/v1/shutdown"),
]  # fmt: skip
LISTS = ["/v1/tasks", "/v1/counts", "/v1/instances", "/v1/plans", "/v1/events", "/v1/tasks/1/logs"]
QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Line:
    """A served API on a loop of its own, asked one request at a time: hypothesis calls plain functions."""

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self._served = served(folder, poll_ms=5)
        self.house: House = self.runner.run(self._served.__aenter__())
        self.agent = self.runner.run(self.house.agent())
        self.runner.run(self.house.submit(2))

    def ask(self, client: httpx.AsyncClient, method: str, path: str, **more: Any) -> httpx.Response:
        return self.runner.run(client.request(method, path, **more))

    def close(self) -> None:
        self.runner.run(self._served.__aexit__(None, None, None))
        self.runner.close()


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path)
    yield made
    made.close()


def check(response: httpx.Response) -> None:
    """An answer, or an error in the form of errors that is the caller's."""
    assert response.status_code != 500, response.text
    if response.status_code >= 300:
        assert error_of(response)[0] < 500


@QUIET
@given(body=BODIES, route=st.sampled_from(OPERATOR))
def test_no_body_breaks_an_operator_route(line: Line, body: bytes, route: tuple[str, str]) -> None:
    """Random JSON and random bytes on every route that takes a body."""
    check(line.ask(line.house.op, *route, content=body))


@QUIET
@given(body=BODIES)
def test_no_body_breaks_sync(line: Line, body: bytes) -> None:
    """Random JSON and random bytes as a sync of a registered agent."""
    check(line.ask(line.house.http, "POST", SYNC_PATH, content=body, headers=line.agent.headers))


@QUIET
@given(body=BODIES)
def test_no_body_breaks_registration(line: Line, body: bytes) -> None:
    """Random JSON and random bytes with a good join token."""
    token = line.house.tokens.join(line.runner.run(line.house.launch()), 1, 10**15)
    response = line.ask(
        line.house.http, "POST", REGISTER_PATH, content=body, headers={"Authorization": f"Bearer {token}"}
    )
    assert response.status_code != 500, response.text


@QUIET
@given(
    name=st.sampled_from(["state", "project", "after", "limit", "offset", "attempt", "wait_ms", "task", "instance"]),
    value=NUMBERS | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    path=st.sampled_from(LISTS),
)
def test_no_query_breaks_a_list(line: Line, name: str, value: str, path: str) -> None:
    """Odd numbers and texts in every parameter."""
    if name == "wait_ms" and path.endswith("logs"):
        value = "1"
    check(line.ask(line.house.op, "GET", path, params={name: value}))


@QUIET
@given(task=NUMBERS, token=NUMBERS, third=NUMBERS | st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_no_query_breaks_an_upload(line: Line, task: str, token: str, third: str) -> None:
    """Odd numbers and paths in the queries of logs and outputs."""
    for method, path, name in (("POST", LOGS_PATH, "offset"), ("PUT", OUTPUTS_PATH, "path")):
        params = {"task": task, "token": token, name: third}
        check(line.ask(line.house.http, method, path, params=params, content=b"x", headers=line.agent.headers))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens.open(tmp_path_factory.mktemp("state"), SystemEntropy())


@settings(deadline=None)
@given(header=st.binary(max_size=80))
def test_no_bytes_break_or_open_a_door(tokens: Tokens, header: bytes) -> None:
    """Any bytes in the place of a token are refused by all checks."""
    for prefix in (b"", b"Bearer ", b"Bearer cds2.", b"Bearer cdj1.b1.1.99999999999999.", b"Bearer cdt1.1.1.b1-0."):
        for check_token in (
            lambda given: tokens.instance_of(given, 0),
            tokens.check_operator,
            lambda given: tokens.verify_join(given, 0),
        ):
            with pytest.raises(Unauthenticated):
                check_token(prefix + header)
        if prefix.startswith(b"Bearer cdt1."):
            with pytest.raises(Unauthenticated):
                tokens.claim_of(prefix + header)
