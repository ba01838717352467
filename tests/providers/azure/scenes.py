"""What the tests of the Azure driver share: settings, offerings, launches, and proofs of identity as Azure signs."""

from __future__ import annotations

import base64
import datetime
import json
from dataclasses import replace
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs7

from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName, instance_id
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider.spi import LaunchRequest
from cloud_dispatch_azure.settings import AzureSettings
from tests.fakes.arm import proofs
from tests.fakes.arm import settings as fake

REGION, ZONE = fake.LOCATION, f"{fake.LOCATION}-1"
SUBNET = (
    f"/subscriptions/{fake.SUBSCRIPTION}/resourceGroups/{fake.GROUP}/providers/Microsoft.Network/virtualNetworks/"
    f"{fake.NETWORK}/subnets/{fake.SUBNET}"
)
SIZE, FAMILY = "Standard_D2s_v5", "standardDSv5Family"
NOW_MS = 1_795_000_000_000
TAGS = VmTags("contract", "store-1", PoolName("default"), BatchId("b1"), 96_000_000, NOW_MS + 3_600_000).encode()
_FAR = datetime.timedelta(days=3_650)


def settings(**more: Any) -> AzureSettings:
    base = {
        "subscription": fake.SUBSCRIPTION, "resource_group": fake.GROUP, "region": REGION, "subnet": SUBNET,
        "credential": "environment", "sizes": ["Standard_D2s_v5", "Standard_D4s_v5"],
    }  # fmt: skip
    return AzureSettings.model_validate({**base, **more})


def offering(name: str = SIZE, market: Market = Market.ON_DEMAND, **more: Any) -> Offering:
    made = InstanceType(name, Resources(2_000, 8 * GIB, 32 * GIB), family=FAMILY)
    rate = Rate(96_000_000)
    base = Offering(ProfileName("azure"), made, ZONE, market, rate, max_rate=rate, region=REGION)
    return replace(base, **more)


def request(market: Market = Market.ON_DEMAND, slots: int = 1, **more: Any) -> LaunchRequest:
    batch = BatchId("b1")
    names = tuple(instance_id(batch, slot) for slot in range(slots))
    made = offering(market=market)
    base = LaunchRequest(batch, slots, made, TAGS, "#cloud-config\n", NOW_MS + 3_600_000, names)
    return replace(base, **more)


def _certificate(
    name: str, key: rsa.RSAPrivateKey, issuer: tuple[rsa.RSAPrivateKey, x509.Certificate] | None, dns: tuple[str, ...]
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    by = issuer[1].subject if issuer else subject
    signer, authority = (issuer[0], issuer[1].public_key()) if issuer else (key, key.public_key())
    begun = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + (datetime.timedelta(days=300) if dns else _FAR))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False)  # type: ignore[arg-type]
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=not dns, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=bool(dns), key_encipherment=bool(dns), content_commitment=False,
                data_encipherment=False, key_agreement=False, key_cert_sign=not dns, crl_sign=not dns,
                encipher_only=False, decipher_only=False,
            ),
            critical=True,
        )
    )  # fmt: skip
    if dns:
        names = x509.SubjectAlternativeName([x509.DNSName(one) for one in dns])
        begun = begun.add_extension(names, critical=False).add_extension(
            x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return begun.sign(signer, hashes.SHA256())


@cache
def issuer(name: str = "issuer") -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    """One who issues certificates for Azure's services, as the operator names him."""
    key = rsa.generate_private_key(65537, 2048)
    return key, _certificate(name, key, None, ())


@cache
def intermediate(by: str) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    """One whom `by` lets issue certificates."""
    key = rsa.generate_private_key(65537, 2048)
    return key, _certificate(f"between {by}", key, issuer(by), ())


@cache
def signer(dns: str = "metadata.azure.com", by: str = "issuer") -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    """The metadata service of a region, this year."""
    key = rsa.generate_private_key(65537, 2048)
    return key, _certificate(dns, key, issuer(by), (dns,))


def trusted(by: str = "issuer") -> str:
    return issuer(by)[1].public_bytes(serialization.Encoding.PEM).decode()


def stamp(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%m/%d/%y %H:%M:%S -0000")


def document(vm_id: str, nonce: str, created_ms: int, **more: Any) -> bytes:
    """An attested document, as Azure words it."""
    said = {
        "licenseType": "", "nonce": nonce, "plan": {"name": "", "product": "", "publisher": ""}, "sku": "server",
        "subscriptionId": fake.SUBSCRIPTION,
        "timeStamp": {"createdOn": stamp(created_ms), "expiresOn": stamp(created_ms + 21_600_000)}, "vmId": vm_id,
        **more,
    }  # fmt: skip
    return json.dumps(said).encode()


def signature(content: bytes, dns: str = "metadata.azure.com", by: str = "issuer", *options: pkcs7.PKCS7Options) -> str:
    """A signed message that brings its signer's certificate along, in base64."""
    return _signed(content, *signer(dns, by), options)


def _signed(
    content: bytes, key: rsa.RSAPrivateKey, own: x509.Certificate, options: tuple[pkcs7.PKCS7Options, ...] = (),
    *more: x509.Certificate,
) -> str:  # fmt: skip
    made = pkcs7.PKCS7SignatureBuilder().set_data(content).add_signer(own, key, hashes.SHA256())
    for one in more:
        made = made.add_certificate(one)
    return base64.b64encode(proofs.message(made, *options)).decode()


def proof(content: bytes, dns: str = "metadata.azure.com", by: str = "issuer", *options: pkcs7.PKCS7Options) -> str:
    """What the metadata service answers."""
    return json.dumps({"encoding": "pkcs7", "signature": signature(content, dns, by, *options)})


def proof_between(content: bytes, by: str = "issuer", *, whole: bool) -> str:
    """Of a signer whose issuer is one between; `whole`: the message brings that one's certificate too."""
    key = rsa.generate_private_key(65537, 2048)
    own = _certificate("metadata.azure.com", key, intermediate(by), ("metadata.azure.com",))
    more = (intermediate(by)[1],) if whole else ()
    return json.dumps({"encoding": "pkcs7", "signature": _signed(content, key, own, (), *more)})
