"""What an HTTP request goes through: token, route, throttling, faults, permission, and then its operation."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fakes.arm import operations
from tests.fakes.arm.authority import FUNCTION_PATH, IDENTITY_PATH
from tests.fakes.arm.cloud import Cloud
from tests.fakes.arm.errors import HELD, ArmError, Unmodelled, held, throttled
from tests.fakes.arm.routes import Answer, Route, Session
from tests.fakes.faults import Call, Fault, Struck
from tests.fakes.server import Fate, Reply, Request

_JSON = "application/json; charset=utf-8"
_THROTTLED = frozenset({"TooManyRequests", "SubscriptionRequestsThrottled", "RetryableError"})
#: What LOST_ANSWER answers with for these codes: what nobody can read, as JSON or as a page of some proxy's.
_UNREADABLE = {"cut-json": ('{"name":', _JSON), "page": ("<html>welcome</html>", "text/html")}
TOKEN, IDENTITY = "Token", "ManagedIdentity"


class Gateway:
    """The way in. One request at a time: the cloud's lock is held over each."""

    def __init__(self, cloud: Cloud, url: Callable[[], str]) -> None:
        self._cloud, self._url = cloud, url
        self._numbers = itertools.count(1)

    def handle(self, request: Request) -> Reply:
        """Answer one request to ARM, to the authority or to the price list."""
        return self._guarded(request, self._answer)

    def identity(self, request: Request) -> Reply:
        """Answer one request to the metadata service of the dispatcher's own machine, or to a function's host: they
        know identities alone."""
        return self._guarded(request, self._identity)

    def _guarded(self, request: Request, answer: Callable[[Request], Reply]) -> Reply:
        with self._cloud.lock:
            self._cloud.tick()
            try:
                return answer(request)
            except Unmodelled as error:
                self._cloud.unmodelled.append(error.message)
                return self._error(error)
            except ArmError as error:
                return self._error(error)
            except Exception as error:
                self._cloud.bugs.append(f"{type(error).__name__}: {error}")
                told = ArmError("InternalServerError", f"a bug of the fake: {type(error).__name__}: {error}")
                return self._error(told)

    def _answer(self, request: Request) -> Reply:
        if "/.well-known/" in request.target or request.target.split("?")[0].endswith("/oauth2/v2.0/token"):
            return self._authority(request)
        split = urlsplit(request.target)
        path = unquote(split.path).rstrip("/")
        found = _found(request.method, path)
        if found is None:
            self._cloud.authority.check(request.headers, self._url())
            raise Unmodelled(f"{request.method} {path}")
        route, at = found
        self._cloud.calls[route.name] += 1
        if not route.public:
            self._cloud.authority.check(request.headers, self._url())
        session = self._session(request, route, at, path, split.query)
        self._throttle(route)
        struck = self._cloud.faults.strike(route.struck_as(session), self._cloud.clock.now())
        latency = self._cloud.settings.latencies_ms.get(route.name, self._cloud.settings.latency_ms)
        try:
            reply = _garbled(self._reply(self._run(session, struck)), struck)
        except Unmodelled:
            raise
        except ArmError as error:
            reply = self._error(error)
        return _meet(reply, struck, latency)

    def _session(self, request: Request, route: Route, at: dict[str, str], path: str, query: str) -> Session:
        asked = dict(parse_qsl(query, keep_blank_values=True))
        if not route.public and "api-version" not in asked:
            raise ArmError(
                "MissingApiVersionParameter", "The api-version query parameter is required for all requests."
            )
        unknown = set(asked) - route.queries
        if unknown:
            raise Unmodelled(f"the parameters {sorted(unknown)} of {route.name}")
        body = None
        if request.body:
            try:
                body = json.loads(request.body)
            except ValueError:
                raise ArmError("InvalidRequestContent", "The request content is no JSON.") from None
        self._check_scope(at)
        return Session(self._cloud, route, at, asked, request.headers, body, path, self._url())

    def _check_scope(self, at: dict[str, str]) -> None:
        settings = self._cloud.settings
        subscription = at.get("subscription")
        if subscription is not None and subscription.lower() not in settings.subscriptions:
            raise ArmError("SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")
        group = at.get("group")
        if group is not None:
            known = next((name for name in settings.groups if name.lower() == group.lower()), None)
            if known is None:
                raise ArmError("ResourceGroupNotFound", f"Resource group '{group}' could not be found.")

    def _run(self, session: Session, struck: Struck) -> Answer:
        route = session.route
        if struck.refused is not None:
            raise _refusal(struck.refused, route.name)
        if route.action:
            session.permit(route.action)
        answer = route.run(session)
        if struck.lost is not None and struck.lost.code and struck.lost.code not in _UNREADABLE:
            raise ArmError(struck.lost.code, f"{route.name} was carried out, and the answer says otherwise")
        return answer

    def _authority(self, request: Request) -> Reply:
        self._cloud.calls[TOKEN] += 1
        struck = self._cloud.faults.strike(Call(TOKEN), self._cloud.clock.now())
        if struck.refused is not None:
            return self._error(_refusal(struck.refused, TOKEN))
        reply = self._cloud.authority.handle(request, self._url())
        if reply is None:
            raise Unmodelled(f"{request.method} {request.target} of the authority")
        return _meet(reply, struck, 0)

    def _identity(self, request: Request) -> Reply:
        self._cloud.calls[IDENTITY] += 1
        if urlsplit(request.target).path not in (IDENTITY_PATH, FUNCTION_PATH) or request.method != "GET":
            raise Unmodelled(f"{request.method} {request.target} of the metadata service")
        struck = self._cloud.faults.strike(Call(IDENTITY), self._cloud.clock.now())
        if struck.refused is not None:
            return self._error(_refusal(struck.refused, IDENTITY))
        status, document = self._cloud.authority.identity(request.target, request.headers)
        return _meet(Reply(status, json.dumps(document).encode(), _JSON), struck, 0)

    def _throttle(self, route: Route) -> None:
        for bucket in self._cloud.settings.buckets:
            if bucket.operation == route.name and not self._cloud.take(bucket):
                raise throttled("TooManyRequests", "The server rejected the request because too many requests have "
                                "been received for this subscription.", 1)  # fmt: skip

    def _reply(self, answer: Answer) -> Reply:
        return Reply(answer.status, answer.body, _JSON, (*answer.headers, self._request_id()))

    def _error(self, error: ArmError) -> Reply:
        headers = (*error.headers, self._request_id(), ("x-ms-error-code", error.code))
        return Reply(error.status, error.body, _JSON, headers)

    def _request_id(self) -> tuple[str, str]:
        return "x-ms-request-id", f"fa4e0000-0000-4000-8000-{next(self._numbers):012x}"


def _found(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    for route in operations.ROUTES:
        if route.method == method and (match := route.pattern.fullmatch(path)):
            return route, match.groupdict()
    return None


def _refusal(fault: Fault, name: str) -> ArmError:
    message = f"{name} was refused by a fault of the fake"
    if fault.code == "MissingSubscriptionRegistration":
        message = "The subscription is not registered to use namespace 'Microsoft.Compute'."
    retry_s = -(-fault.retry_after_ms // 1000)
    if fault.code in _THROTTLED:
        return throttled(fault.code, message, retry_s)
    if fault.code == HELD:
        return held(message, retry_s)
    return ArmError(fault.code, message, headers=(("Retry-After", str(retry_s)),) if retry_s else ())


def _garbled(reply: Reply, struck: Struck) -> Reply:
    """The answer, or in its place what can't be read, with the same status."""
    found = _UNREADABLE.get(struck.lost.code) if struck.lost is not None else None
    if found is None:
        return reply
    body, kind = found
    return replace(reply, body=body.encode(), content_type=kind)


def _meet(reply: Reply, struck: Struck, latency_ms: int) -> Reply:
    """The answer with what the faults make of it."""
    fate = Fate.SENT
    if struck.never:
        fate = Fate.NEVER
    elif struck.lost is not None and not struck.lost.code:
        fate = Fate.DROPPED
    return Reply(reply.status, reply.body, reply.content_type, reply.headers, fate, latency_ms + struck.late_ms)
