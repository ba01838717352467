"""What an HTTP request goes through: signature, model, throttling, faults, permission, and then its operation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.aws import answers, auth, requests
from tests.fakes.aws.errors import AwsError, Unmodelled
from tests.fakes.aws.model import Operation, service
from tests.fakes.ec2 import operations
from tests.fakes.ec2.cloud import Cloud
from tests.fakes.ec2.session import Handled, Session, unheeded
from tests.fakes.ec2.targets import targets
from tests.fakes.faults import Struck
from tests.fakes.server import Fate, Reply, Request

#: Botocore's names of the services, by the name that is signed.
_SIGNED = {
    "ec2": "ec2", "ssm": "ssm", "sts": "sts", "servicequotas": "service-quotas", "pricing": "pricing",
}  # fmt: skip
_UNSIGNED = "AssumeRoleWithWebIdentity"
_JSON = "application/x-amz-json-"


class Gateway:
    """The way in. One request at a time: the cloud's lock is held over each."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._numbers = itertools.count(1)

    def handle(self, request: Request) -> Reply:
        """Answer one request."""
        with self._cloud.lock:
            self._cloud.tick()
            request_id = f"fa4e0000-0000-4000-8000-{next(self._numbers):012x}"
            protocol = _protocol(request)
            try:
                return self._answer(request, request_id)
            except Unmodelled as error:
                self._cloud.unmodelled.append(error.message)
                return _error(protocol, error, request_id)
            except AwsError as error:
                return _error(protocol, error, request_id)
            except Exception as error:
                self._cloud.bugs.append(f"{type(error).__name__}: {error}")
                told = AwsError("InternalFailure", f"a bug of the fake: {type(error).__name__}: {error}", 500)
                return _error(protocol, told, request_id)

    def _answer(self, request: Request, request_id: str) -> Reply:
        operation, fields = self._operation(request)
        self._cloud.calls[operation.name] += 1
        session = self._session(request, operation)
        self._throttle(session)
        handled = operations.OPERATIONS.get((operation.service.name, operation.name))
        if handled is None:
            raise Unmodelled(f"{operation.service.name} {operation.name}")
        if fields is None:
            params = requests.parse_json(operation, request.body)
        else:
            params = requests.parse_query(operation, fields)
        passed_over = unheeded(handled, params)
        if passed_over:
            raise Unmodelled(f"the parameter {passed_over} of {operation.name}")
        struck = self._cloud.faults.strike(handled.call(session, params), self._cloud.clock.now())
        latency = self._cloud.settings.latencies_ms.get(operation.name, self._cloud.settings.latency_ms)
        try:
            body = self._run(session, handled, params, struck, request_id)
        except AwsError as error:
            if isinstance(error, Unmodelled):
                raise
            reply = _error(operation.service.protocol, error, request_id)
            return _meet(reply, struck, latency)
        return _meet(Reply(200, body, _content_type(operation)), struck, latency)

    def _run(
        self, session: Session, handled: Handled, params: dict[str, Any], struck: Struck, request_id: str
    ) -> bytes:  # fmt: skip
        operation = session.operation
        if struck.refused is not None:
            raise AwsError(struck.refused.code, f"{operation.name} was refused by a fault of the fake")
        action = f"{operation.service.name}:{operation.name}"
        if action in self._cloud.denied:
            raise _not_allowed(operation, session, action)
        named = targets(session, params) if params.get("DryRun") or action in self._cloud.scoped else []
        if action in self._cloud.scoped and any(not one.carries(*self._cloud.scoped[action]) for one in named):
            raise _not_allowed(operation, session, action)
        if params.get("DryRun"):
            for one in named:
                one.check()
            raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
        body = _rendered(operation, handled.run(session, params), request_id)
        if struck.lost is not None and struck.lost.code:
            raise AwsError(struck.lost.code, f"{operation.name} was carried out, and the answer says otherwise")
        return body

    def _operation(self, request: Request) -> tuple[Operation, dict[str, str] | None]:
        """Which operation of which service is wanted, and the fields of a query."""
        scope = auth.scope_of(request.headers)
        target = request.headers.get("x-amz-target")
        if target is not None:
            if scope is None or scope["service"] not in _SIGNED:
                raise AwsError("MissingAuthenticationTokenException", "the request is not signed for a known service")
            model = service(_SIGNED[scope["service"]])
            prefix, _, name = target.rpartition(".")
            found = model.operation(name)
            if prefix != model.target_prefix or found is None:
                raise AwsError("UnknownOperationException", f"{target} is no operation of {model.name}")
            return found, None
        if urlsplit(request.target).query or request.method != "POST":
            raise Unmodelled("requests that are no POST of a form")
        fields = requests.fields_of(request.body)
        name = fields.get("Action", "")
        signed = scope["service"] if scope else "sts" if name == _UNSIGNED else ""
        if signed not in _SIGNED:
            raise AwsError(
                "MissingAuthenticationToken", f"the request is not signed for a known service: {signed}", 403
            )
        model = service(_SIGNED[signed])
        found = model.operation(name)
        if found is None or fields.get("Version") != model.version:
            raise AwsError("InvalidAction", f"The action {name} is not valid for this web service.")
        return found, fields

    def _session(self, request: Request, operation: Operation) -> Session:
        if operation.name == _UNSIGNED:
            return Session(self._cloud, operation, self._cloud.region(), None)
        caller = auth.caller_of(
            self._cloud.keys, request.method, request.target, request.headers, request.body, self._cloud.clock.now()
        )
        return Session(self._cloud, operation, self._cloud.region(caller.region, caller.key.account), caller.key)

    def _throttle(self, session: Session) -> None:
        name = session.operation.name
        for bucket in self._cloud.settings.buckets:
            if bucket.operation == name:
                self._cloud.throttle(session.region, name, bucket)


def _rendered(operation: Operation, values: Mapping[str, Any], request_id: str) -> bytes:
    if operation.service.protocol == "json":
        return answers.json_of(operation, values)
    return answers.xml_of(operation, values, request_id)


def _protocol(request: Request) -> str:
    if "x-amz-target" in request.headers:
        return "json"
    scope = auth.scope_of(request.headers)
    return "ec2" if scope is not None and scope["service"] == "ec2" else "query"


def _content_type(operation: Operation) -> str:
    model = operation.service
    return f"{_JSON}{model.json_version}" if model.protocol == "json" else "text/xml;charset=UTF-8"


def _error(protocol: str, error: AwsError, request_id: str) -> Reply:
    kind = f"{_JSON}1.1" if protocol == "json" else "text/xml;charset=UTF-8"
    return Reply(error.status, answers.error_body(protocol, error, request_id), kind)


def _not_allowed(operation: Operation, session: Session, action: str) -> AwsError:
    if operation.service.name == "ec2":
        return AwsError("UnauthorizedOperation", "You are not authorized to perform this operation.")
    code = "AccessDeniedException" if operation.service.protocol == "json" else "AccessDenied"
    who = session.key.arn if session.key else "nobody"
    return AwsError(code, f"User: {who} is not authorized to perform: {action}")


def _meet(reply: Reply, struck: Struck, latency_ms: int) -> Reply:
    """The answer with what the faults make of it."""
    fate = Fate.SENT
    if struck.never:
        fate = Fate.NEVER
    elif struck.lost is not None and not struck.lost.code:
        fate = Fate.DROPPED
    return Reply(reply.status, reply.body, reply.content_type, reply.headers, fate, latency_ms + struck.late_ms)
