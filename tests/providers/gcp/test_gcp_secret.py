"""Secret Manager: its documented answers over real HTTP, asked with Google's own ways to a token."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.errors import Unavailable
from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest, Transient
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch_gcp import secret
from tests.fakes.gce import FakeGce
from tests.fakes.server import Reply, Request, Server

NAME = "projects/p-1/secrets/queue-db/versions/latest"
_JSON = "application/json; charset=UTF-8"


def _said(status: int, document: Any) -> Reply:
    return Reply(status, json.dumps(document).encode(), _JSON)


class Store:
    """Secret Manager with one version, open to whoever `admits`."""

    def __init__(self, admits: Callable[[str], bool]) -> None:
        self.value = b"hunter2"
        self.answer: Reply | None = None
        self.admits = admits
        self.server = Server(self._handle)

    def _handle(self, request: Request) -> Reply:
        if self.answer is not None:
            return self.answer
        if not self.admits(request.headers.get("authorization", "")):
            return _said(401, {"error": {"code": 401, "message": "no such token", "status": "UNAUTHENTICATED"}})
        if (request.method, request.target) != ("GET", f"/v1/{NAME}:access"):
            said = {"code": 404, "message": f"Secret [{request.target}] not found", "status": "NOT_FOUND"}
            return _said(404, {"error": said})
        return _said(200, {"name": NAME, "payload": {"data": base64.b64encode(self.value).decode()}})


class Machine:
    """The metadata service of a machine with an account."""

    def __init__(self) -> None:
        self.server = Server(self._handle)

    def _handle(self, request: Request) -> Reply:
        assert request.headers["metadata-flavor"] == "Google"
        _, _, path = request.target.partition("?")[0].partition("/computeMetadata/v1/")
        told: Any = {
            "": "", "project/project-id": "p-1", "universe/universe-domain": "googleapis.com",
            "instance/service-accounts/default/": {"email": "control@p-1", "scopes": ["all"], "aliases": ["default"]},
            "instance/service-accounts/default/token": {"access_token": "of-machine", "expires_in": 3599},
        }.get(path)  # fmt: skip
        assert told is not None or not path, request.target
        body = told if isinstance(told, str) else json.dumps(told)
        kind = "application/text" if isinstance(told, str) else "application/json"
        return Reply(200, body.encode(), kind, (("Metadata-Flavor", "Google"),))


@pytest.fixture
def store(fake: FakeGce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Open to a service account, whose key is where Google's libraries look."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(fake.write_key(tmp_path)))
    made = Store(lambda header: fake.tokens.caller(header, fake.timers.now) is not None)
    made.server.start()
    monkeypatch.setenv(secret.ELSEWHERE, made.server.url)
    yield made
    made.server.stop()


def test_the_account_of_the_machine_itself_is_enough(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its token comes from the metadata service, to a process of its own: the library looks once where that is."""
    machine = Machine()
    machine.server.start()
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, machine.server.url.removeprefix("http://"))
    store.admits = lambda header: header == "Bearer of-machine"
    try:
        assert plugin("gcp").secret(NAME) == "hunter2"
    finally:
        machine.server.stop()


def test_the_text_of_a_version_is_read(store: Store) -> None:
    """As it is now, by a key."""
    assert plugin("gcp").secret(NAME) == "hunter2"
    store.value = "änders".encode()
    assert secret.value(NAME) == "änders"


def test_what_is_not_there_or_no_text_is_settled(store: Store) -> None:
    with pytest.raises(InvalidRequest, match="NOT_FOUND"):
        secret.value(NAME.replace("latest", "7"))
    store.value = b"\xff\xfe"
    with pytest.raises(InvalidRequest, match="it is no text"):
        secret.value(NAME)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (_said(403, {"error": {"message": "denied on it", "status": "PERMISSION_DENIED"}}), CredentialsRejected),
        (_said(400, {"error": {"message": "it is DISABLED", "status": "FAILED_PRECONDITION"}}), InvalidRequest),
        (_said(503, {"error": {"message": "later", "status": "UNAVAILABLE"}}), Transient),
        (Reply(502, b"<html>", "text/html"), Transient),
        (_said(200, {"payload": {}}), InvalidRequest),
    ],
)  # fmt: skip
def test_refusals_are_told_apart(store: Store, reply: Reply, kind: type[Exception]) -> None:
    store.answer = reply
    with pytest.raises(kind):
        secret.value(NAME)


def test_a_store_that_can_not_be_reached_may_be_asked_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(secret.ELSEWHERE, "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="ConnectionError"):
        plugin("gcp").secret(NAME)
