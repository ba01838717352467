"""Key Vault: its documented answers over TLS, asked with the tokens of a managed identity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest, Transient
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch_azure import secret
from tests.fakes.arm.fake import FakeArm
from tests.providers.azure.vault import SECRET, Vault, said


@pytest.fixture
def vault(fake: FakeArm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vault]:
    """Its machine has an identity and nothing else."""
    audience = "https://vault.azure.net"
    made = Vault(tmp_path, lambda token: fake.authority._good.get(token, (0, ""))[1] == audience)
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", fake.identity_url)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.ca))
    monkeypatch.setenv("HTTPS_PROXY", made.proxy)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield made
    made.stop()


def test_the_secret_of_a_vault_is_read(vault: Vault) -> None:
    """In a process of its own, by the identity of the machine."""
    assert plugin("azure").secret(SECRET) == "hunter2"


def test_what_is_not_there_is_settled(vault: Vault) -> None:
    with pytest.raises(InvalidInput, match="SecretNotFound"):
        plugin("azure").secret(SECRET.replace("db", "other"))


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(403, "Forbidden", CredentialsRejected), (400, "BadParameter", InvalidRequest), (503, "Busy", Transient)],
)
def test_refusals_are_told_apart(vault: Vault, status: int, code: str, kind: type[Exception]) -> None:
    vault.answer = said(status, {"error": {"code": code, "message": "it is so"}})
    with pytest.raises(kind, match="it is so"):
        secret.value(SECRET)


def test_without_an_identity_each_place_is_named(vault: Vault, fake: FakeArm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    fake.authority.identities.clear()
    with pytest.raises(Unavailable, match="no credentials in any place"):
        plugin("azure").secret(SECRET)


def test_a_vault_that_can_not_be_reached_may_be_asked_again(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="ServiceRequestError"):
        plugin("azure").secret(SECRET)
