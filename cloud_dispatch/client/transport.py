"""HTTP to a dispatcher. Owns the connection, the token, and the way back from error replies to the error tree."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from cloud_dispatch.domain import errors
from cloud_dispatch.domain.errors import DispatchError, Unavailable

#: Above the longest long poll of the API.
TIMEOUT_S = 45.0
CONNECT_TIMEOUT_S = 5.0
CA_KEY = "CLOUD_DISPATCH_CA"
_TRUST = f"copy tls/ca.pem from the dispatcher's state folder and name it in ${CA_KEY}"
_UNKNOWN = "it may be done all the same: look before you repeat it, or submit with an idempotency key"
_BY_STATUS: Mapping[int, type[DispatchError]] = {
    400: errors.InvalidInput,
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.InvalidInput,
    429: errors.Overloaded,
    503: errors.Unavailable,
    507: errors.StoreUnavailable,
}


def trusting(ca: Path) -> ssl.SSLContext:
    """Trust what the CA in the file signs for the name that is asked for. InvalidInput where it is none."""
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise errors.InvalidInput(f"no CA that can be read: {error}", place=str(ca)) from None


def trusting_only(certificate: Path) -> ssl.SSLContext | None:
    """Trust the certificate in the file and no other, by whatever name it is reached; None where there is none yet."""
    if not certificate.exists():
        return None
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # this very certificate, whatever is above it
    return context


def _tree(root: type[DispatchError]) -> Iterator[type[DispatchError]]:
    """The classes of the domain's tree; other layers' specialisations are not for the wire."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child)


def error_from(response: httpx.Response) -> DispatchError:
    """The error that a reply other than 2xx tells of, of the class that its code (else its status) names."""
    reply: Any = None
    try:
        reply = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # not from our dispatcher: the status must do
    if not isinstance(reply, dict) or not isinstance(reply.get("message"), str):
        kind = _BY_STATUS.get(response.status_code, DispatchError)
        return kind(
            f"{response.request.method} {response.request.url} was answered with HTTP {response.status_code}",
            hint="is this URL a cloud-dispatch dispatcher?",
        )
    code = str(reply.get("code", ""))
    fallback = _BY_STATUS.get(response.status_code, DispatchError)
    error = next((kind for kind in _tree(DispatchError) if kind.code == code), fallback)(
        reply["message"], place=str(reply.get("place") or ""), hint=str(reply.get("hint") or "")
    )
    error.code = code or error.code
    return error


def _trust_at(url: str) -> ssl.SSLContext | bool:
    """The system's CAs, or nobody where a URL has no TLS: reading the CAs takes longer than the whole request."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http://") else True


def _authorization(token: str) -> dict[str, str]:
    """The header for a token, without the white space that a file or a shell puts around it. Denied, in words that do
    not repeat it, where no token is like that: HTTP's own error would show it."""
    token = token.strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        hint = "it is one line of plain ASCII: that of `operator.token` in the dispatcher's state folder"
        raise errors.Denied("what is given as the operator's token has characters that none has", hint=hint)
    return {"Authorization": f"Bearer {token}"}


class Transport:
    """One dispatcher's URL and token. Calls raise the errors of `domain.errors`, never httpx's."""

    def __init__(
        self, url: str, token: str, transport: httpx.BaseTransport | None = None, trust: ssl.SSLContext | None = None
    ) -> None:
        if "@" in url:
            hint = "the operator's token belongs into $CLOUD_DISPATCH_TOKEN"
            raise errors.InvalidInput("the URL of a dispatcher has no user and no password", hint=hint)
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers=_authorization(token),
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            verify=_trust_at(url) if trust is None else trust,
            trust_env=False,  # a proxy of the environment must not see the operator's token
        )

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: object = None,
        timeout_s: float = TIMEOUT_S,
    ) -> httpx.Response:
        """The reply, if it is 2xx. Unavailable when nobody answers: nothing may be known of what was done."""
        content = None if body is None else msgspec.json.encode(body)
        with self._told(method, path):
            response = self._http.request(
                method,
                path,
                params=params,
                content=content,
                headers={"Content-Type": "application/json"} if content is not None else None,
                timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            )
        if not response.is_success:
            raise error_from(response)
        return response

    def pieces(self, path: str) -> Iterator[bytes]:
        """The body of a reply to GET as it comes, if it is 2xx. Unavailable also where it breaks off."""
        with self._told("GET", path), self._http.stream("GET", path) as response:
            if not response.is_success:
                response.read()
                raise error_from(response)
            yield from response.iter_bytes()

    @contextmanager
    def _told(self, method: str, path: str) -> Iterator[None]:
        """httpx's errors as ours."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                said = f"{self.url} shows a certificate that is not trusted here: {error}"
                raise Unavailable(said, hint=_TRUST) from None
            raise Unavailable(
                f"no dispatcher answers at {self.url}", hint="start one with `cloud-dispatch up`"
            ) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise errors.InvalidInput(f"{self.url!r} is not the URL of a dispatcher: {error}") from None
        except httpx.HTTPError as error:
            what = str(error) or type(error).__name__
            hints = [] if self.url.startswith("https:") else ["does it speak TLS? then its URL begins with https://"]
            hints += [] if method == "GET" else [_UNKNOWN]
            said = f"the dispatcher at {self.url} did not answer {method} {path}: {what}"
            raise Unavailable(said, hint="; ".join(hints)) from None

    def json(self, method: str, path: str, **options: Any) -> Any:
        """The reply's JSON."""
        response = self.send(method, path, **options)
        try:
            return msgspec.json.decode(response.content)
        except (msgspec.DecodeError, UnicodeError):
            raise Unavailable(f"{self.url}{path} did not answer with JSON: is it a dispatcher?") from None

    def close(self) -> None:
        self._http.close()
