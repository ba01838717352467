"""What the tests of the Google Cloud driver share: settings, offerings, launches, tokens as Google signs them."""

from __future__ import annotations

import base64
import datetime
import json
from dataclasses import replace
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName, instance_id
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider.spi import LaunchRequest
from cloud_dispatch_gcp.settings import GcpSettings

PROJECT, REGION, ZONE = "fake-project", "us-central1", "us-central1-a"
ACCOUNT = f"worker@{PROJECT}.iam.gserviceaccount.com"
NOW_MS = 1_795_000_000_000
BATCH = BatchId("b00000000001")
TAGS = VmTags("contract", "store-1", PoolName("default"), BATCH, 97_118_000, NOW_MS + 3_600_000).encode()


def settings(**more: Any) -> GcpSettings:
    base = {"project": PROJECT, "regions": [REGION], "instance_types": ["n2-*", "n1-*", "g2-*", "e2-*", "t2a-*"]}
    return GcpSettings.model_validate({**base, **more})


def offering(type_name: str = "n2-standard-2", market: Market = Market.ON_DEMAND, **more: Any) -> Offering:
    made = InstanceType(type_name, Resources(2_000, 8 * GIB, 30 * GIB), family="N2_CPUS")
    rate = Rate(97_118_000)
    base = Offering(ProfileName("gcp"), made, ZONE, market, rate, max_rate=rate, region=REGION)
    return replace(base, **more)


def request(slots: int = 1, market: Market = Market.ON_DEMAND, **more: Any) -> LaunchRequest:
    instances = tuple(instance_id(BATCH, slot) for slot in range(slots))
    base = LaunchRequest(
        BATCH, slots, offering(market=market), TAGS, "#cloud-config\n", NOW_MS + 3_600_000, instances=instances
    )
    return replace(base, **more)


@cache
def signer(name: str = "key-1") -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def certificate(name: str = "key-1") -> str:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(signer(name).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(day)
        .not_valid_after(day + datetime.timedelta(days=36_500))
        .sign(signer(name), hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def claims(**more: Any) -> dict[str, Any]:
    """What Google says of a VM, in a token that was made an instant ago."""
    vm = {
        "project_id": PROJECT, "project_number": 123456789012, "zone": ZONE, "instance_id": "4242",
        "instance_name": f"{BATCH}-0", "instance_creation_timestamp": NOW_MS // 1000,
        **more.pop("vm", {}),
    }  # fmt: skip
    return {
        "iss": "https://accounts.google.com", "aud": f"cloud-dispatch-{BATCH}", "iat": NOW_MS // 1000,
        "exp": NOW_MS // 1000 + 3600, "sub": "1", "google": {"compute_engine": vm}, **more,
    }  # fmt: skip


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def token(said: dict[str, Any], key: str = "key-1", **header: Any) -> str:
    """A token that `key` has signed."""
    text = f"{part({'alg': 'RS256', 'kid': key, 'typ': 'JWT', **header})}.{part(said)}"
    signature = signer(key).sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
