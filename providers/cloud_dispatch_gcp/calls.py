"""Google's services, as coroutines that raise the SPI's errors. Owns clients, how long a call may take and how often it
is sent: once. What is worth repeating the dispatcher repeats.

Only Compute Engine is asked through its client library. Of the others (billing's catalogue, rights, certificates) one
method each is needed, and a plain request in the same name has it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1
from requests.adapters import HTTPAdapter

from cloud_dispatch.provider.blocking import BlockingCalls, still_wanted
from cloud_dispatch.provider.errors import CredentialsRejected, ProviderError, Transient
from cloud_dispatch_gcp import credentials
from cloud_dispatch_gcp.errors import Asked, of_answer, of_exception
from cloud_dispatch_gcp.settings import GcpSettings

#: Calls under way at once.
THREADS = 64
#: A listing of more pages than this is no listing of VMs of ours.
MAX_PAGES = 1_000
_CONNECT_S, _ANSWER_S = 5, 45
_COMPUTE = "https://compute.googleapis.com"
_PARTIAL = {"returnPartialSuccess": "true"}
_MOST_BODY = 64 * 2**20


class Calls:
    """The services of one project. What signs is made at its first use, in a thread: that asks for credentials."""

    def __init__(self, settings: GcpSettings, name: str) -> None:
        self._settings = settings
        self._threads = BlockingCalls(f"gcp-{name}", THREADS)
        self._making = threading.Lock()
        self._signing: _Signing | None = None
        self._plain: Any = None

    async def once(self, asked: Asked, client: str, method: str, **request: Any) -> Any:
        """An answer of Compute Engine, `client` being one of its library's, without `Client`."""
        return await self._threads.run(self._call, asked, client, method, request)

    async def pages(self, asked: Asked, client: str, method: str, **request: Any) -> list[Any]:
        """All pages of a list, as plain protocol buffers; raises where one is missing."""
        return await self._threads.run(self._pages, asked, client, method, request)

    async def rest(self, asked: Asked, host: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """JSON from another service of Google's, in the name of the profile: a POST where there is a body."""
        return await self._threads.run(self._rest, asked, host, path, body)

    async def public(self, asked: Asked, host: str, path: str) -> Any:
        """JSON that anybody may read: in nobody's name."""
        return await self._threads.run(self._public, asked, host, path)

    async def who(self) -> str:
        """Whose credentials these are; CredentialsRejected for none."""
        return await self._threads.run(lambda: credentials.who(self._signed_by().credentials))

    def close(self) -> None:
        self._threads.close(self._close)

    def _close(self) -> None:
        for made in (self._signing, self._plain):
            if made is not None:
                made.close()

    def _call(self, asked: Asked, client: str, method: str, request: Mapping[str, Any]) -> Any:
        with self._signed(asked) as signing:
            send = getattr(signing.client(client), method)
            return send(request=self._request(request), retry=None, timeout=_ANSWER_S)

    def _pages(self, asked: Asked, client: str, method: str, request: Mapping[str, Any]) -> list[Any]:
        found = []
        with self._signed(asked) as signing:
            send = getattr(signing.client(client), method)
            for page in send(request=self._request(request), retry=None, timeout=_ANSWER_S).pages:
                found.append(type(page).pb(page))
                if len(found) >= MAX_PAGES:
                    raise Transient(f"{asked.call}: no end after {MAX_PAGES} pages")
        return found

    def _request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"project": self._settings.project, **request}

    def _rest(self, asked: Asked, host: str, path: str, body: Mapping[str, Any] | None) -> Any:
        url, timeout = (self._settings.endpoint_url or host) + path, (_CONNECT_S, _ANSWER_S)
        with self._signed(asked) as signing:
            session = signing.session()
            answer = (
                session.get(url, timeout=timeout) if body is None else session.post(url, json=body, timeout=timeout)
            )
            return _json(answer, asked)

    def _public(self, asked: Asked, host: str, path: str) -> Any:
        with _translated(asked):
            with self._making:
                if self._plain is None:
                    self._plain = requests.Session()
            answer = self._plain.get((self._settings.endpoint_url or host) + path, timeout=(_CONNECT_S, _CONNECT_S))
            return _json(answer, asked)

    @contextmanager
    def _signed(self, asked: Asked) -> Iterator[_Signing]:
        """What to ask with. Credentials that are refused are forgotten: the next call finds those of a file that was
        replaced meanwhile."""
        with _translated(asked):
            signing = self._signed_by()
        try:
            with _translated(asked):
                yield signing
        except CredentialsRejected:
            self._forget(signing)
            raise

    def _signed_by(self) -> _Signing:
        with self._making:
            if self._signing is None:
                self._signing = _Signing(self._settings)
            return self._signing

    def _forget(self, signing: _Signing) -> None:
        """Once, however many calls were refused with them. Calls that are under way still get their answers."""
        with self._making:
            if self._signing is not signing:
                return
            self._signing = None
        signing.close()


class _Signing:
    """Credentials, and all that asks with them; CredentialsRejected where there are none."""

    def __init__(self, settings: GcpSettings) -> None:
        self.credentials = credentials.of_settings(settings)
        self._compute = settings.endpoint_url or _COMPUTE
        self._making = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._session: Any = None

    def session(self) -> Any:
        with self._making:
            if self._session is None:
                self._session = AuthorizedSession(self.credentials)  # type: ignore[no-untyped-call]
            return self._session

    def client(self, name: str) -> Any:
        with self._making:
            client = self._clients.get(name)
            if client is None:
                kind = getattr(compute_v1, f"{name}Client")
                scheme = self._compute.partition("://")[0]
                transport = kind.get_transport_class("rest")(credentials=self.credentials, host=self._compute)
                # The library keeps ten connections: the threads would open new ones all the time.
                transport._session.mount(f"{scheme}://", _Connections(pool_maxsize=THREADS))
                client = self._clients[name] = kind(transport=transport)
            return client

    def close(self) -> None:
        with self._making:
            for client in self._clients.values():
                client.transport.close()
            if self._session is not None:
                self._session.close()


class _Connections(HTTPAdapter):
    """What a client of the library sends by. A list over all zones is asked for as far as it can be had: without that
    word one zone that is away fails it as a whole, as Google's description of these methods warns, and the library's
    requests have no field for it. The answer says which zones are missing.

    What comes here has its token, whose renewal may have taken longer than its caller waits."""

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        if request.method == "GET" and "/aggregated/" in request.path_url:
            request.prepare_url(str(request.url), _PARTIAL)
        still_wanted()
        return super().send(request, *args, **kwargs)


@contextmanager
def _translated(asked: Asked) -> Iterator[None]:
    """What the SDK raises as the SPI's errors."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        raise of_exception(error, asked) from error


def _json(answer: Any, asked: Asked) -> Any:
    """The body of an answer that is good; the error that it says otherwise."""
    if len(answer.content) > _MOST_BODY:
        raise Transient(f"{asked.call}: an answer of {len(answer.content)} bytes")
    if answer.status_code < 400:
        return answer.json()
    try:
        said = answer.json()["error"]
        reasons = [one["reason"] for one in said.get("errors", ()) if "reason" in one]
        reasons += [one["reason"] for one in said.get("details", ()) if "reason" in one]
        message = str(said.get("message", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        reasons, message = [], answer.text[:500]
    raise of_answer(
        str(reasons[0]) if reasons else "", message, answer.status_code, answer.headers.get("retry-after", ""), asked
    )
