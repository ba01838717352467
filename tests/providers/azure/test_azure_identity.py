"""Azure's attested documents: what proves which VM it is, and what proves nothing. Forgeries are planted."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs7

from cloud_dispatch.provider.errors import NotProven
from cloud_dispatch.provider.spi import Level
from cloud_dispatch_azure import identity
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.settings import SUBSCRIPTION
from tests.providers.azure import scenes
from tests.providers.azure.steps import Connect

VM_ID, NONCE = "d3e0e374-fda6-4649-bbc9-7f20dc379f34", "1234567890"
TRUSTED = identity.certificates(scenes.trusted())
NOW_MS = int(scenes.signer("metadata.azure.com", "issuer")[1].not_valid_before_utc.timestamp() * 1000) + 86_400_000
GOOD = scenes.document(VM_ID, NONCE, NOW_MS)


def judged(proof: str, **more: Any) -> identity.Document:
    said = identity.document(proof, TRUSTED, NOW_MS)
    wanted = {"subscription": SUBSCRIPTION, "nonce": NONCE, "since_ms": NOW_MS - 1_000, "now_ms": NOW_MS, **more}
    identity.check(said, **wanted)
    return said


def test_a_document_says_which_vm_it_is() -> None:
    said = judged(scenes.proof(GOOD))
    assert (said.vm_id, said.subscription, said.nonce) == (VM_ID, SUBSCRIPTION, NONCE)
    assert said.created_ms == NOW_MS // 1000 * 1000


def test_the_signer_may_be_of_a_region_and_change() -> None:
    """Whoever the issuer has certified for a name below the service's."""
    assert judged(scenes.proof(GOOD, "westeurope.metadata.azure.com")).vm_id == VM_ID
    assert judged(scenes.proof(GOOD, "*.metadata.azure.com")).vm_id == VM_ID


@pytest.mark.parametrize(
    "signed",
    [
        ("metadata.azure.com", "somebody else"),
        ("metadata.azure.com.example.org",),
        ("notmetadata.azure.com",),
        ("storage.azure.com",),
        ("metadata.azure.com", "issuer", pkcs7.PKCS7Options.NoCerts),
    ],
    ids=["another issuer", "longer", "no dot", "another service", "no certificate"],
)
def test_whoever_else_signed_it_proves_nothing(signed: tuple[Any, ...]) -> None:
    """Another service of Azure has a certificate of the same issuer: its name is what counts."""
    with pytest.raises(NotProven):
        judged(scenes.proof(GOOD, *signed))


def test_a_signer_who_is_named_himself_is_believed_while_he_is_good() -> None:
    own = scenes.signer("metadata.azure.com", "issuer")[1].public_bytes(serialization.Encoding.PEM)
    assert identity.document(scenes.proof(GOOD), (own,), NOW_MS).vm_id == VM_ID
    years = NOW_MS + 400 * 86_400_000
    for trusted in ((own,), TRUSTED):
        with pytest.raises(NotProven):
            identity.document(scenes.proof(GOOD), trusted, years)


def test_a_chain_ends_at_whom_the_operator_names() -> None:
    """At the root, where the message brings who is between; at the one between where he is named himself."""
    between = scenes.intermediate("issuer")[1].public_bytes(serialization.Encoding.PEM)
    whole, short = (scenes.proof_between(GOOD, whole=whole) for whole in (True, False))
    for proof, trusted in ((whole, TRUSTED), (whole, (between,)), (short, (between,))):
        assert identity.document(proof, trusted, NOW_MS).vm_id == VM_ID
    stranger = scenes.proof_between(GOOD, "somebody else", whole=True)
    for proof, trusted in ((short, TRUSTED), (stranger, TRUSTED), (stranger, (between,))):
        with pytest.raises(NotProven):
            identity.document(proof, trusted, NOW_MS)


def test_who_would_have_to_be_trusted_is_told() -> None:
    """Azure changes who issues, and announces it to nobody: the refusal names the one that is missing."""
    with pytest.raises(NotProven, match="vouch for: its signer's is by 'CN=between issuer'"):
        identity.document(scenes.proof_between(GOOD, whole=False), TRUSTED, NOW_MS)


async def test_certificates_that_have_ended_are_found_before_they_cost_anything(
    fake: FakeArm, connect: Connect
) -> None:
    """One VM after the other would be paid for until it has not registered in time."""
    later = fake.clock.now() + 400 * 86_400_000
    leaf = scenes.signer()[1].public_bytes(serialization.Encoding.PEM).decode()
    for said, now, level, words in (
        (scenes.trusted(), fake.clock.now(), Level.OK, "1 are good"),
        (
            scenes.trusted() + leaf,
            later,
            Level.WARNING,
            "1 of 2 have ended, and vouch for nobody (CN=metadata.azure.com)",
        ),
        (leaf, later, Level.ERROR, "all have ended (CN=metadata.azure.com): no VM can register"),
    ):
        driver = connect(now=lambda now=now: now, identity_certificates=said)
        found = [one for one in await driver.preflight("contract") if one.about == "identity_certificates"]
        assert [(one.level, one.text) for one in found] == [(level, words)]


def test_without_certificates_nothing_is_believed() -> None:
    with pytest.raises(NotProven):
        identity.document(scenes.proof(GOOD), (), NOW_MS)


@pytest.mark.parametrize(
    ("content", "more"),
    [
        (GOOD, {"subscription": "00000000-0000-0000-0000-000000000000"}),
        (GOOD, {"nonce": "0987654321"}),
        (GOOD, {"since_ms": NOW_MS + 1_000}),
        (GOOD, {"now_ms": NOW_MS + 86_400_000}),
        (scenes.document(VM_ID, "", NOW_MS), {}),
        (b"{}", {}),
        (b"[]", {}),
        (b"\xff", {}),
        (json.dumps({**json.loads(GOOD), "timeStamp": {"createdOn": "soon", "expiresOn": "?"}}).encode(), {}),
        (json.dumps({**json.loads(GOOD), "timeStamp": None}).encode(), {}),
    ],
    ids=[
        "another subscription", "another batch", "older", "expired", "no nonce", "empty", "a list", "no text",
        "no time", "no times",
    ],
)  # fmt: skip
def test_a_document_that_says_something_else_proves_nothing(content: bytes, more: dict[str, Any]) -> None:
    with pytest.raises(NotProven):
        judged(scenes.proof(content), **more)


@pytest.mark.parametrize(
    "proof", ["", "x", "{}", "[]", "null", '{"signature": 1}', '{"signature": "MII="}', "[" * 9_999]
)
def test_nonsense_proves_nothing(proof: str) -> None:
    with pytest.raises(NotProven):
        judged(proof)


def test_no_changed_byte_changes_what_is_believed() -> None:
    """Bytes all over the message in turn are others: it is refused, or says the same as before."""
    message = base64.b64decode(json.loads(scenes.proof(GOOD))["signature"])
    chance = random.Random(7)
    for at in range(0, len(message), 5):
        changed = message[:at] + bytes([message[at] ^ (1 + chance.randrange(255))]) + message[at + 1 :]
        proof = json.dumps({"signature": base64.b64encode(changed).decode()})
        try:
            assert judged(proof).vm_id == VM_ID
        except NotProven:
            continue


def test_the_setting_takes_certificates_and_nothing_else(tmp_path: Any) -> None:
    path = tmp_path / "issuers.pem"
    path.write_text("words before\n" + scenes.trusted() + scenes.trusted("second"))
    assert len(identity.certificates(str(path))) == 2
    for wrong in (str(tmp_path), "no such file", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(ValueError):
            identity.certificates(wrong)
