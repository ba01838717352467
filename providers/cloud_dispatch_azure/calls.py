"""Azure's SDK, as coroutines that raise the SPI's errors. Owns credentials, clients, how long a call may take and that
each is sent once: what makes sense to repeat the dispatcher repeats.

Answers are told as JSON documents, in ARM's own words.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
from azure.core import PipelineClient
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.policies import ContentDecodePolicy, RequestIdPolicy, SansIOHTTPPolicy, UserAgentPolicy
from azure.core.pipeline.transport import RequestsTransport
from azure.core.rest import HttpRequest
from azure.identity import (
    AzureCliCredential,
    ClientAssertionCredential,
    DefaultAzureCredential,
    EnvironmentCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.core.exceptions import ARMErrorFormat
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy, ARMHttpLoggingPolicy
from azure.mgmt.network import NetworkManagementClient
from requests.adapters import HTTPAdapter

from cloud_dispatch.provider.blocking import BlockingCalls, still_wanted
from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest, ProviderError, Transient
from cloud_dispatch_azure import federation, signin
from cloud_dispatch_azure.errors import STALE, Asked, of_document, of_exception, retry_after_ms
from cloud_dispatch_azure.settings import AzureSettings

#: Calls under way at once.
THREADS = 64
_CONNECT_S, _ANSWER_S = 5, 45
#: How often who waits for another's token looks whether its own caller still does.
_LOOK_S = 0.5
#: How credentials ask. By itself the SDK waits for five minutes, and several times. What is refused for the moment it
#: may ask again: a machine's identity is to be had no other way.
_ASKING: Mapping[str, Any] = {"connection_timeout": _CONNECT_S, "read_timeout": _ANSWER_S, "retry_read": 0}
#: A listing of more pages than this is no listing of VMs of ours.
MAX_PAGES = 1_000
ARM = "https://management.azure.com"
PRICES = "https://prices.azure.com/api/retail/prices"
Work = Callable[["Clients"], Any]
#: It warns of each place without credentials in twenty lines, each time; its error says the same, and is told whole.
logging.getLogger("azure.identity").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Clients:
    """What a piece of work asks Azure with."""

    compute: ComputeManagementClient
    network: NetworkManagementClient


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a long-running call: the document, and where to ask what becomes of it ("": it is done)."""

    document: Mapping[str, Any]
    poll: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """What has become of a long-running call. `code` and `message` of one that has failed."""

    done: bool
    failed: bool = False
    code: str = ""
    message: str = ""


class Calls:
    """The services of one subscription. Clients are made at their first use, in a thread, and anew where Azure takes
    the token for stale: so credentials that change while the dispatcher runs are found."""

    def __init__(self, settings: AzureSettings, name: str) -> None:
        self._settings = settings
        self._threads = BlockingCalls(f"azure-{name}", THREADS)
        self._making = threading.Lock()
        self._session: requests.Session | None = None
        self._clients: Clients | None = None

    async def once(self, asked: Asked, work: Work) -> dict[str, Any]:
        """The document that `work` answers."""
        found: dict[str, Any] = await self._threads.run(self._call, asked, lambda clients: _document(work(clients)))
        return found

    async def pages(self, asked: Asked, work: Work) -> list[dict[str, Any]]:
        """All that `work` lists, whole; raises where one page is missing."""
        found: list[dict[str, Any]] = await self._threads.run(
            self._call, asked, lambda clients: [_document(one) for one in _bounded(work(clients), asked)]
        )
        return found

    async def begin(self, asked: Asked, work: Callable[..., Any]) -> Accepted:
        """Start what `work` starts, with the arguments by which its answer is told at once and not waited for."""

        def start(clients: Clients) -> Accepted:
            def told(answer: Any, made: Any, _: Any) -> Accepted:
                headers = answer.http_response.headers
                poll = headers.get("Azure-AsyncOperation") or headers.get("Location") or ""
                return Accepted(_document(made), poll)

            begun: Accepted = work(clients, polling=False, cls=told).result() or Accepted({})
            return begun

        return await self._threads.run(self._call, asked, start)

    async def progress(self, asked: Asked, poll: str) -> Progress | None:
        """One look at a long-running call; None where Azure has forgotten it, or says that it is over and not how. Only
        ARM is asked: a token goes along."""
        if not same_place(poll, self._settings.endpoint_url or ARM):
            raise InvalidRequest(f"{asked.call}: {poll[:200]!r} is no place of Azure's")

        def look(clients: Clients) -> Progress | None:
            response = clients.compute.send_request(HttpRequest("GET", poll))
            if response.status_code == 404:
                return None
            document = _told(response)
            state = str(document.get("status") or "").lower()
            if not state:
                return Progress(done=False) if response.status_code == 202 else None
            if state in ("failed", "canceled", "cancelled"):
                code, message = of_document(document)
                return Progress(True, True, code or state, message)
            return Progress(state == "succeeded")

        return await self._threads.run(self._call, asked, look)

    async def told(self, asked: Asked, path: str) -> dict[str, Any]:
        """The document that ARM has at a path of its own, in its own words."""
        base = self._settings.endpoint_url or ARM
        found: dict[str, Any] = await self._threads.run(
            self._call, asked, lambda clients: _told(clients.compute.send_request(HttpRequest("GET", base + path)))
        )
        return found

    async def listed(self, asked: Asked, path: str) -> list[dict[str, Any]]:
        """All that ARM lists at a path of its own, whole and in its own words; raises where one page is missing. The
        SDK sends and no more: its models of ten thousand VMs take longer than everything else about them."""

        def look(clients: Clients) -> list[dict[str, Any]]:
            base = self._settings.endpoint_url or ARM
            url = base + path
            found: list[dict[str, Any]] = []
            for _ in range(MAX_PAGES):
                document = _told(clients.compute.send_request(HttpRequest("GET", url)))
                found += document.get("value") or ()
                url = str(document.get("nextLink") or "")
                if not url:
                    return found
                if not same_place(url, base):  # a token goes along
                    raise Transient(f"{asked.call}: its next page is elsewhere, at {url[:200]!r}")
            raise Transient(f"{asked.call}: no end after {MAX_PAGES} pages")

        answer: list[dict[str, Any]] = await self._threads.run(self._call, asked, look)
        return answer

    async def price_pages(self, asked: Asked, query: Mapping[str, str], most: int = MAX_PAGES) -> list[str]:
        """The pages of the price service, as they come. It asks for no credentials and gets none."""

        def read(_: object) -> list[str]:
            url, pages = self._settings.prices_url or PRICES, []
            base, parameters = url, dict(query)
            client: Any = PipelineClient(url, transport=self._transport(), retry_total=0, **self._waits())
            for _page in range(most):
                response = client.send_request(HttpRequest("GET", url, params=parameters))
                if response.status_code != 200:
                    wait = retry_after_ms(response.headers)
                    raise Transient(f"{asked.call}: status {response.status_code}", retry_after_ms=wait)
                pages.append(response.text())
                url, parameters = next_page(response.json()), {}
                if not url:
                    return pages
                if not same_place(url, base):
                    raise Transient(f"{asked.call}: its next page is elsewhere, at {url[:200]!r}")
            raise Transient(f"{asked.call}: no end after {most} pages")

        return await self._threads.run(self._guarded, asked, read)

    async def text(self, asked: Asked, link: str) -> str:
        """What a link shows that Azure has signed. No token of ours goes with it."""

        def read(_: object) -> str:
            # What it shows is read as it is, whatever it says that it is.
            client: Any = PipelineClient(
                link, transport=self._transport(), policies=[UserAgentPolicy("cloud-dispatch")]
            )
            response = client.send_request(HttpRequest("GET", link), **self._waits())
            if response.status_code >= 400 and response.status_code != 404:
                raise Transient(f"{asked.call}: status {response.status_code}")
            return str(response.text()) if response.status_code < 400 else ""

        return await self._threads.run(self._guarded, asked, read)

    def close(self) -> None:
        self._threads.close(self._close)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _call(self, asked: Asked, work: Callable[[Clients], Any]) -> Any:
        """`work`, and once more with a new token where the one that it came with was refused: nothing was done."""
        try:
            return self._tried(work)
        except HttpResponseError as error:
            if not _stale(error):
                raise of_exception(error, asked) from error
        except ProviderError:
            raise
        except Exception as error:
            raise of_exception(error, asked) from error
        return self._guarded(asked, lambda _: self._tried(work))

    def _tried(self, work: Callable[[Clients], Any]) -> Any:
        """Once. What Azure or its authority refuses is read anew for the next call: it may be replaced by then."""
        clients = self._made()
        try:
            return work(clients)
        except HttpResponseError as error:
            if _stale(error) or isinstance(error, ClientAuthenticationError):
                self._forget(clients)
            raise

    def _guarded(self, asked: Asked, work: Callable[[Any], Any]) -> Any:
        try:
            return work(None)
        except ProviderError:
            raise
        except Exception as error:
            raise of_exception(error, asked) from error

    def _made(self) -> Clients:
        with self._making:
            if self._clients is None:
                settings = self._settings
                try:
                    credential = OneAtATime(credentials(settings), settings.tenant)
                except ValueError as error:  # what the environment should say it does not
                    raise CredentialsRejected(signin.tried(str(error)), code="ValueError") from error
                base, transport = settings.endpoint_url or ARM, self._transport()
                self._clients = Clients(
                    ComputeManagementClient(
                        credential, settings.subscription, base, transport=transport, policies=_policies(credential)
                    ),
                    NetworkManagementClient(
                        credential, settings.subscription, base, transport=transport, policies=_policies(credential)
                    ),
                )
            return self._clients

    def _forget(self, clients: Clients) -> None:
        with self._making:
            if self._clients is clients:
                self._clients = None

    def _transport(self) -> Any:
        """Connections for as many calls as there may be at once, shared by all clients."""
        if self._session is None:
            self._session = requests.Session()
            self._session.mount("https://", HTTPAdapter(pool_connections=8, pool_maxsize=THREADS))
        # A transport that is given heeds its own settings alone, not those of the client that it is given to.
        return RequestsTransport(session=self._session, session_owner=False, **self._waits())

    def _waits(self) -> dict[str, Any]:
        verify: str | bool = str(self._settings.ca_file) if self._settings.ca_file else True
        waits: dict[str, Any] = {"connection_timeout": _CONNECT_S, "read_timeout": _ANSWER_S}
        return {**waits, "connection_verify": verify} if self._settings.ca_file else waits


def _policies(credential: Any) -> list[Any]:
    """What a request goes through, in place of what the SDK would put there: that repeats requests, follows them
    elsewhere, and where a subscription has not registered a kind of resource registers it, which is not ours to do, and
    waits for that without an end."""
    return [
        RequestIdPolicy(),
        UserAgentPolicy("cloud-dispatch"),
        ContentDecodePolicy(),
        ARMChallengeAuthenticationPolicy(credential, f"{ARM}/.default"),
        ARMHttpLoggingPolicy(),
        _StillWanted(),
    ]


class _StillWanted(SansIOHTTPPolicy[Any, Any]):
    """The last thing before a request leaves, once it has a token."""

    def on_request(self, request: Any) -> None:
        still_wanted()


class OneAtATime:
    """A credential that many threads share: the first one's token is what the others find kept. A machine's identity is
    told so often a second and no more. Who has given up asks nobody: where the authority is silent, each would do so
    for as long as it may, one after the other. `tenant` "": the one of the credential's own."""

    def __init__(self, inner: Any, tenant: str = "") -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._tenant = {"tenant_id": tenant} if tenant else {}

    def get_token(self, *scopes: str, **how: Any) -> Any:
        with self._turn():
            return self._inner.get_token(*scopes, **{**how, **self._tenant})

    def get_token_info(self, *scopes: str, options: Any = None) -> Any:
        with self._turn():
            return self._inner.get_token_info(*scopes, options={**(options or {}), **self._tenant})

    @contextmanager
    def _turn(self) -> Iterator[None]:
        while not self._lock.acquire(timeout=_LOOK_S):
            still_wanted()
        try:
            still_wanted()
            yield
        finally:
            self._lock.release()


def credentials(settings: AzureSettings) -> Any:
    """What the settings name, renewed by the SDK as it expires, which looks for secrets by itself."""
    more: dict[str, Any] = dict(_ASKING)
    if settings.ca_file:
        more["connection_verify"] = str(settings.ca_file)
    authority = {"authority": settings.authority_url, "disable_instance_discovery": True}
    if settings.authority_url:
        more.update(authority)
    client: dict[str, Any] = {"client_id": settings.client} if settings.client else {}
    tenant: dict[str, Any] = {"tenant_id": settings.tenant} if settings.tenant else {}
    others: dict[str, Any] = {"additionally_allowed_tenants": [settings.tenant]} if settings.tenant else {}
    match settings.credential:
        case "environment":
            if missing := signin.unset(os.environ):
                raise ValueError(missing)
            return EnvironmentCredential(**others, **more)
        case "managed":
            return ManagedIdentityCredential(**client, **_ASKING)
        case "workload":
            return WorkloadIdentityCredential(**client, **tenant, **more)
        case "aws":
            return ClientAssertionCredential(settings.tenant, settings.client, federation.assertion, **more)
        case "cli":
            return AzureCliCredential(tenant_id=settings.tenant)
        case _:
            if settings.client:
                more["managed_identity_client_id"] = settings.client
            return DefaultAzureCredential(exclude_interactive_browser_credential=True, **others, **more)


def _stale(error: HttpResponseError) -> bool:
    """Whether ARM has refused a token that a new one may take the place of."""
    return error.status_code == 401 and getattr(error.error, "code", "") in STALE


def same_place(url: str, base: str) -> bool:
    """Whether both are of one host and port, over TLS, however they are spelled."""

    def place(text: str) -> tuple[str, str | None, int]:
        split = urlsplit(text)
        return split.scheme, split.hostname, split.port or 443

    try:
        return place(url) == place(base)
    except ValueError:  # a port that is none
        return False


def next_page(document: Mapping[str, Any]) -> str:
    return str(document.get("NextPageLink") or "")


def _told(response: Any) -> dict[str, Any]:
    """The document of an answer that is none of the SDK's models; {} for an empty one."""
    if response.status_code >= 400:
        raise HttpResponseError(response=response, error_format=ARMErrorFormat)
    found: dict[str, Any] = response.json() if response.text().strip() else {}
    return found


def _document(made: Any) -> dict[str, Any]:
    if made is None:
        return {}
    if isinstance(made, dict):
        return made
    found: dict[str, Any] = made.as_dict()
    return found


def _bounded(found: Iterable[Any], asked: Asked) -> Iterable[Any]:
    pages = found.by_page() if hasattr(found, "by_page") else [found]
    for number, page in enumerate(pages):
        if number >= MAX_PAGES:
            raise Transient(f"{asked.call}: no end after {MAX_PAGES} pages")
        yield from page
