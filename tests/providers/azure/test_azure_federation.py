"""A machine of AWS asks Azure without a secret: by both SDKs; a region's STS and an authority stand in."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from cloud_dispatch.provider.errors import CredentialsRejected, Transient
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.settings import IDENTITY_CLIENT, TENANT
from tests.providers.azure import scenes
from tests.providers.azure.signing import ISSUER, ROLE, Signing
from tests.providers.azure.steps import VM, Connect

FROM_AWS = {"credential": "aws", "client": IDENTITY_CLIENT, "tenant": TENANT}


@pytest.fixture
def signing(fake: FakeArm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signing]:
    """A role of a machine, which the identity on Azure trusts; no secret is anywhere."""
    made = Signing()
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_")):
            monkeypatch.delenv(name)
    for name, value in (
        ("AWS_ENDPOINT_URL_STS", made.url), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", made.url),
        ("AWS_EC2_METADATA_DISABLED", "false"), ("AWS_ACCESS_KEY_ID", "testing"), ("AWS_SECRET_ACCESS_KEY", "testing"),
        ("AWS_CONFIG_FILE", os.devnull), ("AWS_SHARED_CREDENTIALS_FILE", os.devnull),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    fake.authority.federations[IDENTITY_CLIENT] = (ISSUER, ROLE)
    fake.authority.issuers[ISSUER] = made.key
    yield made
    made.close()


async def test_a_role_of_aws_lists_vms_of_azure(connect: Connect, signing: Signing) -> None:
    """Once for many calls: Azure's token is kept as any other."""
    driver = connect(**FROM_AWS)
    for _ in range(3):
        assert (await driver.list("contract")).complete
    assert signing.asked == [
        {"Audience.member.1": "api://AzureADTokenExchange", "SigningAlgorithm": "RS256", "DurationSeconds": "300"}
    ]
    assert signing.regions == ["eu-north-1"]  # where the machine is


async def test_the_environments_region_comes_first(
    connect: Connect, signing: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert (await connect(**FROM_AWS).list("contract")).complete
    assert signing.regions == ["eu-west-3"]


async def test_a_token_of_azure_that_has_ended_is_asked_for_anew(
    fake: FakeArm, connect: Connect, signing: Signing
) -> None:
    driver = connect(**FROM_AWS)
    await driver.list("contract")
    fake.authority._good.clear()  # as if they had expired
    assert (await driver.list("contract")).complete
    assert len(signing.asked) == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"role": "arn:aws:iam::123456789012:role/another"}, "AADSTS700213: No matching federated identity record"),
        ({"issuer": "https://another.tokens.sts.global.api.aws"}, "AADSTS700213: No matching federated"),
        ({"lasts_s": -1}, "AADSTS700024: Client assertion is not within its valid time"),
        ({"key": True}, "AADSTS5000279"),
    ],
    ids=["role", "issuer", "late", "signature"],
)
async def test_whom_the_identity_does_not_trust_is_refused_in_its_words(
    fake: FakeArm, connect: Connect, signing: Signing, monkeypatch: pytest.MonkeyPatch,
    wrong: dict[str, object], said: str,
) -> None:  # fmt: skip
    if "key" in wrong:
        other = Signing()
        other.close()
        fake.authority.issuers[ISSUER] = other.key
    if "lasts_s" in wrong:
        monkeypatch.setattr(signing, "token", lambda audience, lasts_s: Signing.token(signing, audience, -1))
    signing.role, signing.issuer = str(wrong.get("role", ROLE)), str(wrong.get("issuer", ISSUER))
    with pytest.raises(CredentialsRejected, match=said):
        await connect(**FROM_AWS).list("contract")


async def test_a_federation_that_is_off_is_told_with_what_turns_it_on(connect: Connect, signing: Signing) -> None:
    signing.refusal = ("OutboundWebIdentityFederationDisabledException", "Outbound federation is not enabled.", 400)
    with pytest.raises(CredentialsRejected, match="enable-outbound-web-identity-federation"):
        await connect(**FROM_AWS).list("contract")
    signing.refusal = ("AccessDenied", f"User: {ROLE} is not authorized to perform: sts:GetWebIdentityToken", 403)
    with pytest.raises(CredentialsRejected, match=r"\(AccessDenied\): User: .* not authorized to perform"):
        await connect(**FROM_AWS).list("contract")
    signing.refusal = None
    assert (await connect(**FROM_AWS).list("contract")).complete


async def test_a_machine_that_is_nobody_and_one_that_reaches_nobody_are_told_apart(
    connect: Connect, signing: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(CredentialsRejected, match="AWS does not know this machine"):
        await connect(**FROM_AWS).list("contract")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    with pytest.raises(Transient, match="AWS can't be asked who this machine is"):
        await connect(**FROM_AWS).list("contract")


@pytest.mark.parametrize(
    ("code", "status"), [("ServiceUnavailable", 503), ("InternalFailure", 500), ("Throttling", 400), ("", 0)]
)
async def test_what_passes_is_no_refusal_and_leaves_no_doubt(
    connect: Connect, signing: Signing, code: str, status: int
) -> None:
    """Of a change neither: without a token nothing was sent to Azure. The profile is asked again soon. With no status
    the connection is dropped."""
    if status:
        signing.refusal = (code, "Try again.", status)
    signing.drops = not status
    driver = connect(**FROM_AWS)
    for call in (driver.list("contract"), driver.terminate(VM)):
        with pytest.raises(Transient, match="AWS"):
            await call
    signing.refusal, signing.drops = None, False
    assert (await driver.list("contract")).complete


@pytest.mark.parametrize("lacks", ["client", "tenant"])
def test_both_ends_have_to_be_named(lacks: str) -> None:
    with pytest.raises(ValidationError, match="needs client and tenant"):
        scenes.settings(**{name: value for name, value in FROM_AWS.items() if name != lacks})
