"""Who may ask the fake Azure, as the real credentials do it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import ManagedIdentityCredential

from tests.fakes.arm import FakeArm, Settings
from tests.fakes.arm_asking import names, refusal


@pytest.fixture
def azure() -> Iterator[FakeArm]:
    with FakeArm() as fake:
        yield fake


def test_a_client_with_a_secret_gets_one_token_for_many_calls(azure: FakeArm) -> None:
    compute = azure.compute()
    assert names(compute) == names(compute) == []
    assert azure.calls["VirtualMachines_ListAll"] == 2
    before = azure.calls["Token"]
    names(compute)
    assert azure.calls["Token"] == before


@pytest.mark.parametrize(
    ("client", "secret", "told"), [("nobody", "x", "AADSTS700016"), ("", "wrong", "AADSTS7000215")]
)
def test_a_wrong_client_or_secret_gets_none(azure: FakeArm, client: str, secret: str, told: str) -> None:
    (known,) = azure.authority.clients
    with pytest.raises(ClientAuthenticationError, match=told):
        names(azure.compute(azure.credential(client or known, secret)))


def test_a_revoked_token_is_replaced_by_the_challenge(azure: FakeArm) -> None:
    compute = azure.compute()
    names(compute)
    azure.authority.revoke()
    assert names(compute) == []
    assert azure.calls["VirtualMachines_ListAll"] == 3


def test_an_expired_token_is_refused() -> None:
    with FakeArm(Settings(token_s=0)) as azure:
        assert refusal(lambda: names(azure.compute())) == (401, "ExpiredAuthenticationToken")


def test_a_token_for_another_resource_is_refused(azure: FakeArm) -> None:
    class Other:
        def get_token(self, *scopes: str, **_: Any) -> Any:
            from azure.core.credentials import AccessToken

            return AccessToken(azure.authority.issue("someone", "https://vault.azure.net")["access_token"], 1 << 40)

    assert refusal(lambda: names(azure.compute(Other()))) == (401, "InvalidAuthenticationTokenAudience")


def test_a_managed_identity_gets_tokens_of_its_own(azure: FakeArm, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the system, and one by its client id; not one that the machine has not."""
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", azure.identity_url)
    for more in ({}, {"client_id": azure.authority.identities[0]}):
        assert names(azure.compute(ManagedIdentityCredential(**more))) == []
    assert azure.calls["ManagedIdentity"] >= 2
    with pytest.raises(ClientAuthenticationError, match="Identity not found"):
        names(azure.compute(ManagedIdentityCredential(client_id="nobody")))


def test_rights_can_be_taken_away(azure: FakeArm) -> None:
    azure.denied.add("Microsoft.Compute/virtualMachines/read")
    assert refusal(lambda: names(azure.compute())) == (403, "AuthorizationFailed")


def test_what_the_fake_has_not_fails_loudly(azure: FakeArm) -> None:
    """501, and the test fails at its end."""
    compute = azure.compute()
    assert refusal(lambda: list(compute.galleries.list())) == (501, "UnmodelledOperation")
    with pytest.raises(AssertionError, match="galleries"):
        azure.check()
    azure.unmodelled.clear()
