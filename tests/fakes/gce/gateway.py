"""What an HTTP request goes through: token, model, throttling, faults, permission, its operation, and the schema of the
answer."""

from __future__ import annotations

import json
import re
import time
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fakes.faults import Call, Struck
from tests.fakes.gce import (  # noqa: F401  (they enter their operations)
    around,
    billing,
    disks,
    images,
    instances,
    objects,
)
from tests.fakes.gce.cloud import Cloud
from tests.fakes.gce.identity import certificates
from tests.fakes.gce.operations import NotYet
from tests.fakes.gce.session import OPERATIONS, Handled, Session, unheeded
from tests.fakes.google.errors import ApiError, Unmodelled, fault_error
from tests.fakes.google.model import Document, Method, document
from tests.fakes.google.oauth import Refused
from tests.fakes.google.schemas import Rendered, Wrong
from tests.fakes.server import Fate, Reply, Request

_JSON = "application/json; charset=UTF-8"
_AGAIN_MS = 10
_MARK = re.compile(r'"\u0001(\d+)\u0001"')
_DOCUMENTS = {
    "compute": "compute.v1",
    "storage": "storage.v1",
    "cloudbilling": "cloudbilling.v1",
    "cloudresourcemanager": "cloudresourcemanager.v1",
    "iamcredentials": "iamcredentials.v1",
    "iam": "iam.v1",
}


class Gateway:
    """The way in. One request at a time: the cloud's lock is held over each."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud, self._tokens = cloud, cloud.tokens
        #: By its identity, each request that waits for an operation, and until when.
        self._waiting: dict[int, tuple[Request, float]] = {}

    def handle(self, request: Request) -> Reply:
        """Answer one request."""
        with self._cloud.lock:
            self._cloud.tick()
            try:
                return self._answer(request)
            except Unmodelled as error:
                self._cloud.unmodelled.append(error.message)
                return _error(error)
            except ApiError as error:
                return _error(error)
            except Exception as error:
                self._cloud.bugs.append(f"{type(error).__name__}: {error}")
                return _error(ApiError("internalError", f"a bug of the fake: {type(error).__name__}: {error}"))

    def _answer(self, request: Request) -> Reply:
        target = urlsplit(request.target)
        if target.path == "/token":
            return self._token(request)
        if target.path.startswith("/oauth2/"):
            return Reply(200, json.dumps(certificates(target.path)).encode(), _JSON)
        method, params = self._method(request.method, target.path)
        again = id(request) in self._waiting
        if not again:
            self._cloud.calls[method.name] += 1
        caller = self._caller(request)
        asked = method.parsed_query(parse_qsl(target.query, keep_blank_values=True))
        handled = OPERATIONS.get((_service(method.document), method.name))
        if handled is None:
            raise Unmodelled(f"method {method.name}")
        session = Session(self._cloud, method, params | asked, method.parsed_body(request.body), caller)
        passed_over = unheeded(handled.heeds, {**asked, **session.body})
        if passed_over:
            raise session.unmodelled(passed_over)
        struck = Struck()
        if not again:
            self._cloud.throttle(method.name)
            struck = self._cloud.faults.strike(handled.call(session), self._cloud.clock.now())
        try:
            text = self._run(session, handled, struck, request)
        except NotYet:
            return Reply(fate=Fate.AGAIN, late_ms=_AGAIN_MS)
        except ApiError as error:
            if isinstance(error, Unmodelled):
                raise
            return self._met(_error(error), struck, method)
        return self._met(Reply(200, text.encode(), _JSON), struck, method)

    def _run(self, session: Session, handled: Handled, struck: Struck, request: Request) -> str:
        name = session.method.name
        if struck.refused is not None:
            raise fault_error(struck.refused.code, name)
        if handled.permission:
            session.permit(handled.permission)
        try:
            answer = handled.run(session)
        except NotYet as later:
            patience = self._cloud.settings.wait_ms / 1000
            _, until = self._waiting.setdefault(id(request), (request, time.monotonic() + patience))
            if time.monotonic() < until:
                raise
            answer = later.answer
        self._waiting.pop(id(request), None)
        text = rendered(session.method, answer)
        if struck.lost is not None and struck.lost.code:
            raise fault_error(struck.lost.code, f"{name} was carried out, and")
        return text

    def _method(self, verb: str, path: str) -> tuple[Method, dict[str, Any]]:
        for name in _DOCUMENTS.values():
            found = document(name).method_of(verb, path)
            if found is not None:
                return found
        raise Unmodelled(f"path {verb} {unquote(path)}")

    def _caller(self, request: Request) -> str:
        header = request.headers.get("authorization")
        if header is None and self._cloud.settings.anonymous:
            return self._cloud.settings.caller
        caller = self._tokens.caller(header or "", self._cloud.timers.now)
        if caller is None:
            what = (
                "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other "
                "valid authentication credential."
            )
            raise ApiError("authError", what, worded=True)
        return caller

    def _token(self, request: Request) -> Reply:
        self._cloud.calls["token"] += 1
        struck = self._cloud.faults.strike(Call("token"), self._cloud.clock.now())
        try:
            if struck.refused is not None:
                raise Refused(struck.refused.code)
            told: dict[str, Any] = self._tokens.give(request.body, self._cloud.timers.now)
        except Refused as refused:
            words = {"error": str(refused), "error_description": "Invalid JWT Signature."}
            return Reply(400, json.dumps(words).encode(), _JSON)
        return _meet(Reply(200, json.dumps(told).encode(), _JSON), struck, self._cloud.settings.latency_ms)

    def _met(self, reply: Reply, struck: Struck, method: Method) -> Reply:
        settings = self._cloud.settings
        return _meet(reply, struck, settings.latencies_ms.get(method.name, settings.latency_ms))


def rendered(method: Method, answer: Any) -> str:
    """The answer as JSON, once its schema has it."""
    try:
        method.check_answer(answer)
    except Wrong as wrong:
        raise ValueError(f"the answer of {method.name} is not in its schema: {wrong}") from None
    if isinstance(answer, Rendered):
        return answer.text
    made: list[str] = []

    def mark(value: Any) -> str:
        made.append(value.text)
        return f"\u0001{len(made) - 1}\u0001"

    text = json.dumps(answer, default=mark, ensure_ascii=False)
    return _MARK.sub(lambda found: made[int(found[1])], text.replace("\\u0001", "\u0001")) if made else text


def _service(found: Document) -> str:
    name: str = found.raw["name"]
    return name


def _error(error: ApiError) -> Reply:
    return Reply(error.status, json.dumps(error.body).encode(), _JSON)


def _meet(reply: Reply, struck: Struck, latency_ms: int) -> Reply:
    """The answer with what the faults make of it."""
    fate = Fate.SENT
    if struck.never:
        fate = Fate.NEVER
    elif struck.lost is not None and not struck.lost.code:
        fate = Fate.DROPPED
    return Reply(reply.status, reply.body, reply.content_type, reply.headers, fate, latency_ms + struck.late_ms)
