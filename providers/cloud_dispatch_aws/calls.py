"""boto3, as coroutines that raise the SPI's errors. Owns sessions, clients, how long a call may take and how often it
is sent.

A session looks for credentials once, and its clients keep what it found, or that it found none. So both are forgotten
where credentials are refused: the next call finds those that there are by then.

What the dispatcher repeats by itself (launches above all: boto3 takes InsufficientInstanceCapacity, a 500, for a reason
to try again, whatever its mode) is sent once. Only the slow reads behind offerings, prices and quotas are sent up to
three times, as the SDK does it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import boto3
from botocore import session as botocore_session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    AssumeRoleWithWebIdentityCredentialFetcher,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError
from botocore.loaders import Loader
from botocore.utils import FileWebIdentityTokenLoader

from cloud_dispatch.provider.blocking import BlockingCalls, still_wanted
from cloud_dispatch.provider.errors import Transient
from cloud_dispatch_aws.errors import Asked, of_credentials, of_exception
from cloud_dispatch_aws.settings import AwsSettings

#: Calls under way at once.
THREADS = 64
#: The price list is a service of a few regions only; this one has the prices of all.
_PRICES_AT = "us-east-1"
_CONNECT_S, _ANSWER_S = 5, 45
#: A listing of more pages than this is no listing of VMs of ours.
MAX_PAGES = 1_000
#: So long a session is kept, whatever is said to it: where there are no credentials to be found, looking for them takes
#: seconds, and each call would.
LEAST_MS = 5_000


class Calls:
    """The services of one account in one region. Clients are made at their first use, in a thread: that reads models
    of megabytes. `now` gives milliseconds."""

    def __init__(self, settings: AwsSettings, name: str, now: Callable[[], int]) -> None:
        self._settings = settings
        self._now = now
        self._threads = BlockingCalls(f"aws-{name}", THREADS)
        self._making = threading.Lock()
        self._signing: _Signing | None = None

    async def once(self, asked: Asked, operation: str, **parameters: Any) -> Mapping[str, Any]:
        """An answer of EC2 to a request that is sent once."""
        return await self._threads.run(self._call, asked, "ec2", False, operation, parameters)

    async def patiently(self, asked: Asked, service: str, operation: str, **parameters: Any) -> Mapping[str, Any]:
        """An answer to a request that may be sent again."""
        return await self._threads.run(self._call, asked, service, True, operation, parameters)

    async def pages(
        self, asked: Asked, service: str, operation: str, key: str, *, patient: bool = True, **parameters: Any
    ) -> list[Any]:
        """All that is listed under `key`, whole; raises where one page is missing."""
        found: list[Any] = []
        token = ""
        for _ in range(MAX_PAGES):
            more = {"NextToken": token} if token else {}
            page = await self._threads.run(self._call, asked, service, patient, operation, {**parameters, **more})
            found += page.get(key, ())
            token = page.get("NextToken") or ""
            if not token:
                return found
        raise Transient(f"{asked.call}: no end after {MAX_PAGES} pages")

    def close(self) -> None:
        self._threads.close(self._close)

    def _close(self) -> None:
        if self._signing is not None:
            self._signing.close()

    def _call(
        self, asked: Asked, service: str, patient: bool, operation: str, parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        try:
            signing = self._signed_by()
            client = signing.client(service, patient)
        except Exception as error:
            raise of_exception(error, Asked(asked.call)) from error
        _HERE.left = False
        try:
            answer: Mapping[str, Any] = getattr(client, operation)(**parameters)
        except Exception as error:
            # Credentials are renewed by requests of their own: what becomes of these is not this one's fate.
            told = of_exception(error, asked if _HERE.left else Asked(asked.call))
            if of_credentials(told):
                self._forget(signing)
            raise told from error
        return answer

    def _signed_by(self) -> _Signing:
        with self._making:
            if self._signing is None:
                self._signing = _Signing(self._settings, self._now())
            return self._signing

    def _forget(self, signing: _Signing) -> None:
        """Once, however many calls were refused with it. Calls that are under way still get their answers."""
        with self._making:
            # The clock may have been set back meanwhile.
            if self._signing is not signing or abs(self._now() - signing.made_ms) < LEAST_MS:
                return
            self._signing = None
        signing.close()


class _Signing:
    """A session, and the clients that ask with its credentials."""

    def __init__(self, settings: AwsSettings, made_ms: int) -> None:
        self.made_ms = made_ms
        self._settings = settings
        self._session = session(settings)
        self._making = threading.Lock()
        self._clients: dict[tuple[str, bool], Any] = {}

    def client(self, service: str, patient: bool) -> Any:
        with self._making:
            known = self._clients.get((service, patient))
            if known is None:
                region = _PRICES_AT if service == "pricing" else self._settings.region
                known = self._session.client(
                    service,
                    region_name=region,
                    endpoint_url=self._settings.endpoint_url or None,
                    config=config_of(3 if patient else 1),
                )
                known.meta.events.register("before-send", _leaves)
                self._clients[service, patient] = known
            return known

    def close(self) -> None:
        with self._making:
            for client in self._clients.values():
                client.close()


class _Here(threading.local):
    """Of this thread: whether the request that it makes has left."""

    left = False


_HERE = _Here()


def _leaves(**_: Any) -> None:
    """The last thing before a request leaves, once its credentials have been renewed."""
    still_wanted()
    _HERE.left = True


def session(settings: AwsSettings) -> Any:
    """A boto3 session with the credentials that the settings name, renewed by the SDK as they expire."""
    own = _plain(settings)
    if not settings.role_arn:
        return boto3.Session(botocore_session=own, region_name=settings.region)

    def sts(name: str, **more: Any) -> Any:
        more = {**more, "region_name": settings.region, "endpoint_url": settings.endpoint_url or None}
        more["config"] = config_of(3).merge(more["config"]) if more.get("config") else config_of(3)
        return own.create_client(name, **more)

    extra = {"RoleSessionName": "cloud-dispatch"}
    if settings.external_id:
        extra["ExternalId"] = settings.external_id
    fetcher: Any
    if settings.web_identity_token_file is not None:
        loader = FileWebIdentityTokenLoader(str(settings.web_identity_token_file))
        fetcher = AssumeRoleWithWebIdentityCredentialFetcher(sts, loader, settings.role_arn, extra_args=extra)
    else:
        own_credentials = own.get_credentials() or _NoCredentials()
        fetcher = AssumeRoleCredentialFetcher(sts, own_credentials, settings.role_arn, extra_args=extra)
    assumed = _plain(settings)
    assumed._credentials = DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)
    return boto3.Session(botocore_session=assumed, region_name=settings.region)


class _NoCredentials:
    """What a role is assumed with where there is nothing: the SDK takes it for granted that there is something."""

    def get_frozen_credentials(self) -> Any:
        raise NoCredentialsError


def _plain(settings: AwsSettings) -> Any:
    made = botocore_session.Session(profile=settings.named_profile or None)
    made.register_component("data_loader", _models())
    return made


@cache
def _models() -> Loader:
    """The SDK's models, read once a process: EC2's alone takes half a second."""
    return Loader()


def config_of(attempts: int) -> Config:
    """What every client is told: a request that gets no answer is made so many times."""
    return Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_ANSWER_S,
        max_pool_connections=THREADS,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        user_agent_extra="cloud-dispatch",
    )
