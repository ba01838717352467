"""What the tests of the AWS driver share: settings, offerings, launches, and proofs of identity as EC2 signs them."""

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

from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider.spi import LaunchRequest
from cloud_dispatch_aws.settings import AwsSettings

REGION, ZONE = "us-east-1", "us-east-1a"
ACCOUNT = "123456789012"
#: The quota of ordinary machines on demand.
STANDARD = "L-1216C47A"
NOW_MS = 1_795_000_000_000
#: What the tests' clients sign with. Nothing real is ever asked.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "example",
    "AWS_EC2_METADATA_DISABLED": "true",
}
TAGS = VmTags("contract", "store-1", PoolName("default"), BatchId("b1"), 96_000_000, NOW_MS + 3_600_000).encode()


def settings(**more: Any) -> AwsSettings:
    return AwsSettings.model_validate({"region": REGION, "instance_types": ["m5.*", "c5.*", "g5.*"], **more})


def offering(type_name: str = "m5.large", market: Market = Market.ON_DEMAND, **more: Any) -> Offering:
    made = InstanceType(type_name, Resources(2_000, 8 * GIB, 30 * GIB), family="standard")
    rate = Rate(96_000_000)
    base = Offering(ProfileName("aws"), made, ZONE, market, rate, max_rate=rate, region=REGION)
    return replace(base, **more)


def request(market: Market = Market.ON_DEMAND, **more: Any) -> LaunchRequest:
    base = LaunchRequest(BatchId("b1"), 2, offering(market=market), TAGS, "#cloud-config\n", NOW_MS + 3_600_000)
    return replace(base, **more)


@cache
def signer(name: str = "EC2") -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    """A key, and a certificate of it as a region has one."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, name)])
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(day)
        .not_valid_after(day + datetime.timedelta(days=36_500))
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def certificate(name: str = "EC2") -> str:
    return signer(name)[1].public_bytes(serialization.Encoding.PEM).decode()


def document(instance: str, pending: str = "2026-11-22T12:00:00Z", **more: str) -> bytes:
    """An instance identity document, as EC2 words it."""
    said = {
        "accountId": ACCOUNT, "architecture": "x86_64", "availabilityZone": ZONE, "imageId": "ami-1",
        "instanceId": instance, "instanceType": "m5.large", "pendingTime": pending, "privateIp": "10.0.0.4",
        "region": REGION, "version": "2017-09-30", **more,
    }  # fmt: skip
    return json.dumps(said, indent=2).encode()


def signed(content: bytes, name: str = "EC2", *options: pkcs7.PKCS7Options) -> bytes:
    """A signed message with its content, as `openssl smime -sign -nodetach` makes it, in DER."""
    key, own = signer(name)
    made = pkcs7.PKCS7SignatureBuilder().set_data(content).add_signer(own, key, hashes.SHA256())
    wanted = options or (pkcs7.PKCS7Options.NoCerts, pkcs7.PKCS7Options.NoCapabilities)
    return made.sign(serialization.Encoding.DER, [pkcs7.PKCS7Options.Binary, *wanted])


def proof(content: bytes, name: str = "EC2") -> str:
    """What the metadata service answers: base64 in lines."""
    return base64.encodebytes(signed(content, name)).decode().strip()
