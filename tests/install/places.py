"""Buckets for tests, one of each cloud, over HTTP. Owns what stands in for the cloud, and how it knows the machine.

S3 is moto. Google Cloud Storage is moto as well, whose S3 answers the XML API that the library speaks with Google, and
a metadata service that gives the machine's token: what Google itself refuses is not seen. Azure's Blob Storage is
Azurite, its maker's own emulator, and a metadata service that gives the token of a managed identity; Azurite looks at
what a token says, and at no signature.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx

from bench.processes import free_port
from tests.fakes.arm import tls
from tests.fakes.server import Reply, Request, Server
from tests.providers.aws import moto_server

HERE = "eu-central-1"
#: `make test` brings it into the environment.
AZURITE = Path(sys.prefix) / "azurite" / "node_modules" / ".bin" / "azurite-blob"
BUCKET, OTHER = "labqueue", "labother"
_ACCOUNT, _STORAGE = "labqueue", "https://storage.azure.com"
_START_S = 60
_KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@dataclass
class Place:
    """A bucket that is empty. `address`: of it; `other`: of one that does not exist, for which the cloud's word is
    `no_bucket`; `environment`: by which the product finds the cloud and is known to it; `listed`: the names of all that
    is there; `put`: puts something there by another way; `asked`: what the machine's metadata service was asked."""

    address: str
    other: str
    no_bucket: str
    environment: Mapping[str, str]
    listed: Callable[[], list[str]]
    put: Callable[[str, bytes], object]
    asked: list[str]


#: Makes a place, or makes the one that it made empty again.
Fresh = Callable[[], Place]


class Metadata:
    """A metadata service that says one thing, to who sends the header that no browser sends."""

    def __init__(self, header: tuple[str, str], say: Callable[[], Mapping[str, Any]]) -> None:
        self.asked: list[str] = []
        self._header, self._say = header, say
        self._server = Server(self._handle)
        self._server.start()
        self.address = self._server.url.removeprefix("http://")

    def close(self) -> None:
        self._server.stop()

    def _handle(self, request: Request) -> Reply:
        self.asked.append(request.target)
        name, value = self._header
        if request.headers.get(name, "").lower() != value:
            return Reply(400)
        return Reply(200, json.dumps(self._say()).encode(), "application/json")


@contextlib.contextmanager
def amazon(folder: Path) -> Iterator[Fresh]:
    """S3, whose keys are in the environment."""
    with moto_server.serving() as url:
        yield lambda: _of_moto("s3", url, {"AWS_ENDPOINT_URL": url, **_KEYS}, [])


@contextlib.contextmanager
def google(folder: Path) -> Iterator[Fresh]:
    """Cloud Storage, asked as the machine's service account."""
    certificate, key = tls.written(folder)
    token = {"access_token": "of-the-machine", "expires_in": 3600, "token_type": "Bearer"}
    metadata = Metadata(("metadata-flavor", "google"), lambda: token)
    try:
        with moto_server.serving(certificate, key) as url:
            environment = {
                "GOOGLE_BASE_URL": url, "GCE_METADATA_HOST": metadata.address, "SSL_CERT_FILE": str(certificate),
            }  # fmt: skip
            yield lambda: _of_moto("gs", url, environment, metadata.asked)
    finally:
        metadata.close()


def _of_moto(kind: str, url: str, environment: Mapping[str, str], asked: list[str]) -> Place:
    verify = environment.get("SSL_CERT_FILE", False)
    s3 = boto3.client(
        "s3", region_name=HERE, endpoint_url=url, verify=verify, aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )  # fmt: skip

    def listed() -> list[str]:
        return [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())]

    if BUCKET in [one["Name"] for one in s3.list_buckets()["Buckets"]]:
        for name in listed():
            s3.delete_object(Bucket=BUCKET, Key=name)
    else:
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": HERE})
    asked.clear()
    return Place(
        f"{kind}://{BUCKET}", f"{kind}://{OTHER}", "NoSuchBucket", environment, listed,
        lambda name, body: s3.put_object(Bucket=BUCKET, Key=name, Body=body), asked,
    )  # fmt: skip


def token(*, audience: str = _STORAGE, lasts_s: int = 3600) -> str:
    """A managed identity's token, signed by nobody."""
    now = int(time.time())
    issuer = "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/"
    said = {"aud": audience, "iss": issuer, "iat": now - 60, "nbf": now - 60, "exp": now + lasts_s}
    parts = ({"alg": "RS256", "typ": "JWT"}, said)
    return ".".join([*(_base64(json.dumps(part).encode()) for part in parts), _base64(b"nobody")])


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextlib.contextmanager
def azure(folder: Path) -> Iterator[Fresh]:
    """Blob Storage, asked as the machine's managed identity."""
    certificate, key = tls.written(folder)
    metadata = Metadata(
        ("metadata", "true"),
        lambda: {"access_token": token(), "expires_on": str(int(time.time()) + 3600), "token_type": "Bearer"},
    )
    port = free_port()
    command = [
        str(AZURITE), "--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent",
        "--skipApiVersionCheck", "--disableTelemetry", "--oauth", "basic", "--cert", str(certificate),
        "--key", str(key),
    ]  # fmt: skip
    known = {**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{base64.b64encode(b'nobody has it').decode()}"}
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=known)
    url = f"https://localhost:{port}/{_ACCOUNT}"
    environment = {
        "AZURE_STORAGE_ENDPOINT": url, "SSL_CERT_FILE": str(certificate),
        "AZURE_MSI_ENDPOINT": f"http://{metadata.address}/metadata/identity/oauth2/token",
    }  # fmt: skip
    try:
        with httpx.Client(verify=ssl.create_default_context(cafile=certificate)) as client:
            _wait(client, url, server)
            yield lambda: _of_azurite(client, url, environment, metadata.asked)
    finally:
        server.kill()
        server.wait()
        metadata.close()


def _wait(client: httpx.Client, url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(_START_S * 10):
        assert server.poll() is None, "Azurite has ended"
        with contextlib.suppress(httpx.TransportError):
            client.get(url)
            return
        time.sleep(0.1)
    raise AssertionError("Azurite does not answer")


def _of_azurite(client: httpx.Client, url: str, environment: Mapping[str, str], asked: list[str]) -> Place:
    def ask(method: str, path: str, body: bytes = b"", **headers: str) -> httpx.Response:
        own = {"Authorization": f"Bearer {token()}", "x-ms-version": "2021-12-02", **headers}
        return client.request(method, f"{url}/{path}", content=body, headers=own)

    def listed() -> list[str]:
        told = ask("GET", f"{BUCKET}?restype=container&comp=list")
        assert told.status_code == 200, told.text
        return [part.partition("</Name>")[0] for part in told.text.split("<Name>")[1:]]

    made = ask("PUT", f"{BUCKET}?restype=container")
    assert made.status_code in (201, 409), made.text
    for name in listed():
        ask("DELETE", f"{BUCKET}/{name}")

    def put(name: str, body: bytes) -> None:
        told = ask("PUT", f"{BUCKET}/{name}", body, **{"x-ms-blob-type": "BlockBlob"})
        assert told.status_code == 201, told.text

    asked.clear()
    return Place(
        f"az://{_ACCOUNT}/{BUCKET}", f"az://{_ACCOUNT}/{OTHER}", "ContainerNotFound", environment, listed, put, asked
    )
