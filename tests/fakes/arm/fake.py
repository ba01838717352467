"""A fake Azure that listens, in a thread of the test's own process."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from tests.fakes.arm import settings as defaults
from tests.fakes.arm.authority import FUNCTION_PATH, RESOURCES
from tests.fakes.arm.cloud import Cloud
from tests.fakes.arm.commands import commands
from tests.fakes.arm.gateway import Gateway
from tests.fakes.arm.settings import Settings
from tests.fakes.arm.tls import certificate
from tests.fakes.clock import Clock
from tests.fakes.control import PATH, answered, filling
from tests.fakes.server import Reply, Request, Server

#: How long the SDK's threads may take to find that nobody answers.
_GONE_S = 5.0


class FakeArm(Cloud):
    """`with FakeArm() as azure: azure.compute().virtual_machines...`; leaving fails on what the fake has not, and
    on its bugs."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None, *, port: int = 0) -> None:
        super().__init__(settings, clock)
        context, self._ca = certificate()
        self._commands = {
            **commands(self),
            "places": lambda document: self.places(),
            "fill": filling(self.receive, lambda: str(self.authority.issue("fill", RESOURCES[0])["access_token"])),
        }
        self._gateway = Gateway(self, lambda: self.url)
        self._server = Server(self.receive, port=port, tick=self.tick, tls=context)
        self._identity = Server(self._plain)
        self._made: list[Any] = []

    @property
    def url(self) -> str:
        """ARM (`base_url`), the authority and the price list, over TLS."""
        return self._server.url

    @property
    def ca_file(self) -> str:
        """For `connection_verify`, and for REQUESTS_CA_BUNDLE."""
        return str(self._ca)

    @property
    def identity_url(self) -> str:
        """For AZURE_POD_IDENTITY_AUTHORITY_HOST: where managed identities get tokens, over plain HTTP."""
        return self._identity.url

    @property
    def prices_url(self) -> str:
        """Instead of https://prices.azure.com/api/retail/prices."""
        return f"{self.url}/api/retail/prices"

    def start(self) -> FakeArm:
        """Listen."""
        self._server.start()
        self._identity.start()
        return self

    def stop(self) -> None:
        """Hang up and end the threads, the SDK's that ask for operations too; then close the clients that came from
        here, so that none of those threads connects anew."""
        self._server.stop()
        self._identity.stop()
        for thread in threading.enumerate():
            if thread.name.startswith("LROPoller"):
                thread.join(_GONE_S)
        for made in self._made:
            made.close()

    def receive(self, request: Request) -> Reply:
        """Answer a request, however it came."""
        return self._gateway.handle(request)

    def _plain(self, request: Request) -> Reply:
        """Over plain HTTP: identities, and the back door."""
        return answered(request, self._commands) if request.target == PATH else self._gateway.identity(request)

    def places(self) -> dict[str, str]:
        """Where everything is, for who is in another process."""
        return {
            "url": self.url, "ca_file": self.ca_file, "identity_url": self.identity_url, "prices_url": self.prices_url,
        }  # fmt: skip

    def check(self) -> None:
        """Fail where a request asked for what the fake has not, or met a bug of it."""
        if self.problems:
            raise AssertionError("; ".join(self.problems))

    def environment(self) -> dict[str, str]:
        """What EnvironmentCredential and DefaultAzureCredential look for."""
        return {
            "AZURE_TENANT_ID": self.settings.tenant,
            "AZURE_CLIENT_ID": defaults.CLIENT,
            "AZURE_CLIENT_SECRET": defaults.SECRET,
            "AZURE_AUTHORITY_HOST": self.url,
            "REQUESTS_CA_BUNDLE": self.ca_file,
        }

    def function_environment(self) -> dict[str, str]:
        """What a function's host and its settings tell the reaper of the group that there is from the start."""
        return {
            "IDENTITY_ENDPOINT": f"{self.identity_url}{FUNCTION_PATH}",
            "IDENTITY_HEADER": self.settings.identity_header,
            "CLIENT": defaults.IDENTITY_CLIENT,
            "GROUP": f"/subscriptions/{self.settings.subscriptions[0]}/resourceGroups/{self.settings.groups[0]}",
            "ARM": self.url,
            "SSL_CERT_FILE": self.ca_file,
        }

    def credential(self, client: str = defaults.CLIENT, secret: str = defaults.SECRET) -> Any:
        """The SDK's ClientSecretCredential for the fake's authority."""
        from azure.identity import ClientSecretCredential

        made = ClientSecretCredential(
            self.settings.tenant, client, secret, authority=self.url, disable_instance_discovery=True,
            connection_verify=self.ca_file, retry_total=0,
        )  # fmt: skip
        self._made.append(made)
        return made

    def compute(self, credential: Any = None, **more: Any) -> Any:
        """A ComputeManagementClient that makes no retries and polls without a pause."""
        from azure.mgmt.compute import ComputeManagementClient

        return self._client(ComputeManagementClient, credential, more)

    def network(self, credential: Any = None, **more: Any) -> Any:
        """A NetworkManagementClient likewise."""
        from azure.mgmt.network import NetworkManagementClient

        return self._client(NetworkManagementClient, credential, more)

    def _client(self, kind: Any, credential: Any, more: dict[str, Any]) -> Any:
        options = {
            "base_url": self.url, "connection_verify": self.ca_file, "retry_total": 0, "polling_interval": 0,
            "subscription_id": self.settings.subscriptions[0],
        }  # fmt: skip
        made = kind(credential or self.credential(), **{**options, **more})
        self._made.append(made)
        return made

    def __enter__(self) -> FakeArm:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.stop()
        if kind is None:
            self.check()
