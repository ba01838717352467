"""Secrets Manager: read over HTTP from moto's server, by the credentials that the SDK finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.provider.errors import CredentialsRejected, Transient
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch_aws import secret
from tests.fakes.server import Reply, Server
from tests.providers.aws import moto_server

pytestmark = pytest.mark.process

HERE = "eu-central-1"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server.serving() as url:
        yield url


@pytest.fixture
def keeps(moto: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Secrets Manager of a region of one's own, where the SDK looks for it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    moto_server.reset(moto)
    return boto3.client("secretsmanager", region_name=HERE, endpoint_url=moto)


def test_the_current_version_is_read_by_arn_and_by_name(keeps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ARN says its region; a name needs one from elsewhere."""
    arn = keeps.create_secret(Name="prod/queue", SecretString="hunter2")["ARN"]
    assert plugin("aws").secret(arn) == "hunter2"
    keeps.put_secret_value(SecretId=arn, SecretString="changed")
    assert plugin("aws").secret(arn) == "changed"
    with pytest.raises(InvalidInput, match="no region of its own: name the secret by its ARN"):
        plugin("aws").secret("prod/queue")
    monkeypatch.setenv("AWS_DEFAULT_REGION", HERE)
    assert plugin("aws").secret("prod/queue") == "changed"


def test_what_is_not_there_or_no_text_is_settled(keeps: Any) -> None:
    with pytest.raises(InvalidInput, match="ResourceNotFoundException"):
        plugin("aws").secret(f"arn:aws:secretsmanager:{HERE}:123456789012:secret:gone")
    arn = keeps.create_secret(Name="binary", SecretBinary=b"\x00")["ARN"]
    with pytest.raises(InvalidInput, match="it is binary"):
        plugin("aws").secret(arn)


def test_a_store_that_can_not_be_reached_may_be_asked_again(keeps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="EndpointConnectionError") as told:
        plugin("aws").secret(f"arn:aws:secretsmanager:{HERE}:123456789012:secret:x")
    assert "identity may read" in told.value.hint


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AccessDeniedException", 400, CredentialsRejected),
        ("InternalServiceError", 500, Transient),
        ("ThrottlingException", 400, Transient),
    ],
)
def test_refusals_are_told_apart(
    keeps: Any, monkeypatch: pytest.MonkeyPatch, code: str, status: int, kind: type[Exception]
) -> None:
    """As the service words them; what it says of who asked is passed on."""
    said = f'{{"__type": "{code}", "message": "User: arn:aws:iam::1:role/x is not authorized"}}'.encode()
    server = Server(lambda _: Reply(status, said, "application/x-amz-json-1.1"))
    server.start()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(kind, match="is not authorized"):
            secret.value(f"arn:aws:secretsmanager:{HERE}:123456789012:secret:x")
    finally:
        server.stop()
