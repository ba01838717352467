"""A fake Compute Engine that listens, in a thread of the test's own process."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fakes.clock import Clock
from tests.fakes.control import PATH, answered, filling
from tests.fakes.gce.cloud import Cloud
from tests.fakes.gce.commands import commands
from tests.fakes.gce.gateway import Gateway
from tests.fakes.gce.settings import PROJECT, Settings
from tests.fakes.google.oauth import key_file
from tests.fakes.server import Reply, Request, Server

_YEARS_MS = 10**12


class FakeGce(Cloud):
    """`with FakeGce() as gce: InstancesClient(**gce.client())`; leaving fails where `problems` are."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None, *, port: int = 0) -> None:
        super().__init__(settings, clock)
        self._gateway = Gateway(self)
        self._commands = {**commands(self), "fill": filling(self._gateway.handle, self._token)}
        self._server = Server(self._receive, port=port, tick=self.tick)

    @property
    def url(self) -> str:
        """For `api_endpoint` of every client, billing too; its tokens are at /token, its certificates at
        /oauth2/v1/certs (PEM) and /oauth2/v3/certs (JWKS)."""
        return self._server.url

    @property
    def key(self) -> dict[str, str]:
        """What a key file of the caller's service account says."""
        return key_file(self.settings.caller, PROJECT, f"{self.url}/token")

    def write_key(self, folder: Path) -> Path:
        """That key file."""
        path = folder / "key.json"
        path.write_text(json.dumps(self.key))
        return path

    def credentials(self, *, own_jwt: bool = False) -> Any:
        """The real credentials of that key. By default they trade for access tokens at the fake's /token; with
        `own_jwt` they sign tokens themselves."""
        from google.oauth2 import service_account

        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        made = service_account.Credentials.from_service_account_info(self.key, scopes=scopes)
        return at_home(made.with_always_use_jwt_access(own_jwt))

    def client(self) -> dict[str, Any]:
        """The arguments of a client of compute_v1."""
        return {"credentials": _bearer(self), "client_options": {"api_endpoint": self.url}}

    def start(self) -> FakeGce:
        """Listen."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Hang up and end the thread."""
        self._server.stop()

    def _token(self) -> str:
        with self.lock:
            return self.tokens.new(self.settings.caller, self.timers.now)

    def _receive(self, request: Request) -> Reply:
        return answered(request, self._commands) if request.target == PATH else self._gateway.handle(request)

    def __enter__(self) -> FakeGce:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.stop()
        if kind is None:
            self.check()


def at_home(made: Any) -> Any:
    """These credentials, kept from asking Google's own hosts: beside each call google-auth asks them, in the
    background, in which regions credentials may be used."""
    kind = type(made)  # clients make copies of what they are given
    made.__class__ = type(kind.__name__, (kind,), {"_is_regional_access_boundary_lookup_required": lambda self: False})
    return made


def _bearer(fake: FakeGce) -> Any:
    """A token that is good at once and for years, without a trade: what most tests want."""
    from google.oauth2.credentials import Credentials

    with fake.lock:
        return Credentials(fake.tokens.new(fake.settings.caller, fake.timers.now, _YEARS_MS))
