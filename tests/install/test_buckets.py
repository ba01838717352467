"""Copies in a bucket of S3: moto's server over HTTP, asked by the library of the product."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from cloud_dispatch.domain.errors import InvalidInput, NotFound, Unavailable
from cloud_dispatch.install import buckets
from cloud_dispatch.install.buckets import Bucket, Copy
from tests.providers.aws import moto_server

pytestmark = pytest.mark.process

NOW = 1_700_000_000_000
HERE = "eu-central-1"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server.serving() as url:
        yield url


@pytest.fixture
def s3(moto: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With one empty bucket, `lab-queue`."""
    environment = {"AWS_ENDPOINT_URL": moto, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    moto_server.reset(moto)
    made = boto3.client("s3", region_name=HERE)
    made.create_bucket(Bucket="lab-queue", CreateBucketConfiguration={"LocationConstraint": HERE})
    return made


def names(s3: Any) -> list[str]:
    return [one["Key"] for one in s3.list_objects_v2(Bucket="lab-queue").get("Contents", ())]


def test_a_copy_is_sent_found_and_fetched(s3: Any, tmp_path: Path) -> None:
    """Larger than one request takes; nobody else may read what was fetched."""
    bucket = Bucket("s3://lab-queue/some/copies/", HERE)
    body = bytes(range(256)) * 50_000
    (tmp_path / "made").write_bytes(body)
    name = buckets.name_of(NOW, "s3k9")
    bucket.send(tmp_path / "made", name)
    assert name == "20231114T221320Z-s3k9.tar.gz"
    assert names(s3) == [f"some/copies/{name}"]
    (found,) = bucket.copies()
    assert (found.name, found.size, found.at, found.store) == (name, len(body), "20231114T221320Z", "s3k9")
    for wanted, file in ((name, "by-name"), ("latest", "latest")):
        assert bucket.fetch(wanted, tmp_path / file) == name
        assert (tmp_path / file).read_bytes() == body
        assert stat.S_IMODE((tmp_path / file).stat().st_mode) == 0o600
    with pytest.raises(NotFound, match="has no copy 20231114T221321Z-s3k9"):
        bucket.fetch("20231114T221321Z-s3k9.tar.gz", tmp_path / "none")
    with pytest.raises(NotFound, match="has no copies"):
        Bucket("s3://lab-queue", HERE).fetch("latest", tmp_path / "none")


def test_the_newest_of_its_own_store_stay_and_nothing_else_is_touched(s3: Any, tmp_path: Path) -> None:
    """A store that was begun anew by mistake makes no room at the cost of the one that was lost."""
    bucket = Bucket("s3://lab-queue/copies", HERE)
    (tmp_path / "made").write_bytes(b"x")
    lost = [buckets.name_of(NOW + second * 1000, "lost") for second in range(3)]
    own = [buckets.name_of(NOW + second * 1000, "own") for second in range(10, 14)]
    others = ["copies/notes.txt", "copies/20231114T221320Z-own.tar", "copies/below/20231114T221320Z-own.tar.gz", "x"]
    for name in (*lost, *own):
        bucket.send(tmp_path / "made", name)
    for key in others:
        s3.put_object(Bucket="lab-queue", Key=key, Body=b"mine")
    assert bucket.prune("own", 2) == own[:2]
    assert sorted(names(s3)) == sorted([*(f"copies/{name}" for name in (*lost, *own[2:])), *others])
    assert bucket.prune("own", 2) == []
    with pytest.raises(InvalidInput, match="copies of 2 statestores") as which:
        bucket.fetch("latest", tmp_path / "none")
    assert f"s3://lab-queue/copies/{lost[-1]}" in which.value.hint


def test_a_bucket_that_can_not_be_asked_is_told_in_one_line(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="NoSuchBucket") as told:
        Bucket("s3://lab-other/copies", HERE).copies()
    assert "\n" not in str(told.value)
    assert "backup.region" in told.value.hint
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="error sending request"):
        Bucket("s3://lab-queue/copies", HERE).copies()


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("gs://lab-queue/some/copies", ("lab-queue", "some/copies")),
        ("gs://lab-queue", ("lab-queue", None)),
        ("az://labqueue/copies/control", ("copies", "control")),
    ],
)
def test_each_cloud_has_its_own_form(
    address: str, place: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bucket is asked until there is something to be asked."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "bWFya2Vy")
    opened = Bucket(address)._store
    name = opened.config.get("bucket") or opened.config.get("container_name")
    assert (name, str(opened.prefix) if opened.prefix else None) == place


def test_addresses_are_told_from_paths() -> None:
    good = ["s3://b-1/p", "s3://b.1", "gs://b_1/p/q/", "az://account/container/p", "az://account/container"]
    assert all(buckets.is_address(one) for one in good)
    bad = ["/b/p", "s3://", "s3:/b", "az://account", "http://b/p", "s3://B/p", "s3://b/p?x", "az://a/b/c"]
    assert not [one for one in bad if buckets.is_address(one)]
    name = "20231114T221320Z-s3k9.tar.gz"
    assert buckets.split(f"s3://b-1/p/{name}") == ("s3://b-1/p", name)
    assert buckets.split("s3://b-1/p/latest") == ("s3://b-1/p", "latest")
    assert buckets.split("s3://b-1/p/") == ("s3://b-1/p", "latest")
    assert sorted([Copy("b", 1), Copy("a", 2)])[0].name == "a"
