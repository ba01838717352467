"""Credentials that are not there, and those that are replaced: what is said of them, and when they are read anew."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from azure.core.pipeline import transport

from cloud_dispatch.provider.blocking import BlockingCalls
from cloud_dispatch.provider.errors import CredentialsRejected
from cloud_dispatch_azure import signin
from cloud_dispatch_azure.calls import Calls, OneAtATime, credentials
from cloud_dispatch_azure.errors import Asked
from cloud_dispatch_azure.launching import dispatched
from tests.docs.pages import DOCS
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.gateway import TOKEN
from tests.fakes.arm.settings import CLIENT
from tests.providers.azure import scenes
from tests.providers.azure.steps import Connect
from tests.providers.giving_up import Slow, given_up

NAMES = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
CHAIN = """DefaultAzureCredential failed to retrieve a token from the included credentials.
Attempted credentials:
\tEnvironmentCredential: EnvironmentCredential authentication unavailable. Variables are not fully configured.
Visit https://example.com/troubleshoot to troubleshoot this issue.
\tManagedIdentityCredential: Authentication failed: AADSTS1: it is not. See https://example.com/more. It said so.
\tAzureCliCredential: Azure CLI not found on path
To mitigate this issue, please refer to https://example.com/guide."""


def test_each_place_is_named_with_its_reason() -> None:
    """In one line, without links."""
    text = signin.tried(CHAIN)
    assert text.startswith("no credentials in any place: EnvironmentCredential: Variables are not fully configured; ")
    assert "ManagedIdentityCredential: Authentication failed: AADSTS1: it is not. It said so; " in text
    assert "AzureCliCredential: Azure CLI not found on path" in text
    assert not [word for word in ("https", "\n", "\t") if word in text]
    assert signin.tried("It is so. Visit https://example.com/") == signin.tried("It is so.")
    assert signin.tried("").strip()
    assert len(signin.tried("x" * 10_000)) < 1_000


def test_the_page_that_is_pointed_to_has_that_section() -> None:
    page, _, section = signin.tried("x").partition("(")[2].rstrip(")").partition(", ")
    assert f"{section.strip(chr(34))}\n" in (DOCS.parent / page).read_text()


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (NAMES, ""),
        (("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_CERTIFICATE_PATH"), ""),
        (NAMES[1:], "AZURE_TENANT_ID"),
        (NAMES[:2], "AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH"),
        ((), "AZURE_TENANT_ID, no AZURE_CLIENT_ID, no AZURE_CLIENT_SECRET or"),
    ],
)
def test_variables_that_are_missing_are_named(there: tuple[str, ...], missing: str) -> None:
    said = signin.unset(dict.fromkeys(there, "x"))
    assert missing in said
    assert bool(missing) is bool(said)
    assert signin.unset({**dict.fromkeys(NAMES, "x"), "AZURE_CLIENT_ID": ""})


async def test_where_nothing_is_found_each_place_is_named(
    fake: FakeArm, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the SDK's own words of today, where its log is silenced."""
    for name in NAMES:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", fake.identity_url)
    fake.authority.identities.clear()
    with pytest.raises(CredentialsRejected) as caught:
        await connect(credential="default").list("contract")
    text = str(caught.value)
    for place in ("EnvironmentCredential: ", "WorkloadIdentityCredential: ", "AzureCliCredential: Azure CLI not found"):
        assert place in text
    assert "use-azure.md" in text
    with pytest.raises(CredentialsRejected, match=r"no AZURE_TENANT_ID, .*use-azure\.md"):
        await connect().list("contract")
    with pytest.raises(CredentialsRejected, match=r"token_file_path.*use-azure\.md"):
        await connect(credential="workload").list("contract")


async def test_a_secret_that_the_authority_refuses_is_told_in_its_words(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    for credential in ("environment", "default"):
        with pytest.raises(CredentialsRejected, match="AADSTS7000215: Invalid client secret"):
            await connect(credential=credential).list("contract")


async def test_what_is_replaced_after_the_authority_refused_it_is_found(
    fake: FakeArm, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once where no token was ever had, and where one has ended in the middle of a run."""
    driver = connect()
    secret = fake.environment()["AZURE_CLIENT_SECRET"]
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "not yet")
    with pytest.raises(CredentialsRejected, match="AADSTS"):
        await driver.list("contract")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", secret)
    assert (await driver.list("contract")).complete
    fake.authority.clients[CLIENT] = "the next one"
    fake.authority._good.clear()  # as if they had expired
    with pytest.raises(CredentialsRejected, match="AADSTS"):
        await driver.list("contract")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "the next one")
    assert (await driver.list("contract")).complete


async def test_a_change_that_was_given_up_while_its_token_was_renewed_is_never_sent(
    fake: FakeArm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slots may have been given back by then: proof of absence begins with the end of the call."""
    said = scenes.settings(endpoint_url=fake.url, authority_url=fake.url, ca_file=fake.ca_file)
    calls, slow = Calls(said, "test"), Slow()
    ask = OneAtATime.get_token_info

    def late(credential: OneAtATime, *scopes: str, **how: Any) -> Any:
        token = ask(credential, *scopes, **how)
        slow()
        return token

    monkeypatch.setattr(OneAtATime, "get_token_info", late)
    delete = dispatched("virtual_machines", "begin_delete", said.resource_group, "none")
    await given_up(calls.begin(Asked("terminate", changes=True, vm=True), delete), slow, calls._threads)
    assert {name for name, count in fake.calls.items() if count} == {TOKEN}
    calls.close()


class Silent:
    """A credential whose authority says nothing until it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = threading.Event()

    def get_token_info(self, *_: str, **__: Any) -> str:
        self.asked += 1
        self.go.wait(30)
        return "token"


async def test_who_waits_for_anothers_token_gives_up_with_its_caller() -> None:
    """Its thread is free for the next call, and an authority that is silent is not asked by each of them in turn."""
    calls, silent = BlockingCalls("test", 2), Silent()
    shared = OneAtATime(silent)
    first = asyncio.create_task(calls.run(shared.get_token_info, "scope"))
    while not silent.asked:
        await asyncio.sleep(0.01)
    second = asyncio.create_task(calls.run(shared.get_token_info, "scope"))
    await asyncio.sleep(0.05)
    second.cancel()
    async with asyncio.timeout(20):
        assert await calls.run(lambda: "served") == "served"
    silent.go.set()
    assert await first == "token"
    assert silent.asked == 1
    assert await calls.run(shared.get_token_info, "scope") == "token"
    calls.close()


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("environment", ()),
        ("managed", ("client",)),
        ("workload", ("tenant", "client")),
        ("aws", ("tenant", "client")),
        ("default", ("client",)),
    ],
)
def test_no_credential_waits_longer_than_any_other_call(
    kind: str, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever asks for its tokens: the SDK's own patience of minutes would hold every thread of the profile."""
    for name in (*NAMES, "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.setenv(name, CLIENT)
    made: list[Any] = []

    class Noted(transport.RequestsTransport):
        def __init__(self, **how: Any) -> None:
            super().__init__(**how)
            made.append(self.connection_config)

    monkeypatch.setattr(transport, "RequestsTransport", Noted)
    credentials(scenes.settings(credential=kind, **dict.fromkeys(given, CLIENT)))
    assert {(config.timeout, config.read_timeout) for config in made} == {(5, 45)}
