"""Copies in a bucket of each cloud, over HTTP, asked by the library of the product. `places` says what stands in."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput, NotFound, Unavailable
from cloud_dispatch.install import buckets
from cloud_dispatch.install.buckets import Bucket, Copy
from tests.fakes.arm import tls
from tests.install import places
from tests.install.places import HERE, Fresh, Place
from tests.providers.aws import moto_server

pytestmark = pytest.mark.process

NOW = 1_700_000_000_000
_NO_AZURITE = pytest.mark.skipif(not places.AZURITE.exists(), reason="Azurite is not in the environment: `make test`")
#: What else could say where a cloud is, or who asks.
_OTHERS = ("AWS_", "AZURE_", "GOOGLE_", "GCE_", "MSI_", "IDENTITY_")


@pytest.fixture(scope="module", params=["amazon", "google", pytest.param("azure", marks=_NO_AZURITE)])
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    with getattr(places, request.param)(tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(_OTHERS):
            monkeypatch.delenv(name)


@pytest.fixture
def place(fresh: Fresh, nobody: None, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty bucket, which this process finds as a control VM does."""
    made = fresh()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def test_a_copy_is_sent_found_and_fetched(place: Place, tmp_path: Path) -> None:
    """Larger than one request takes; nobody else may read what was fetched."""
    bucket = Bucket(f"{place.address}/some/copies/", HERE)
    body = bytes(range(256)) * 50_000
    (tmp_path / "made").write_bytes(body)
    name = buckets.name_of(NOW, "s3k9")
    bucket.send(tmp_path / "made", name)
    assert name == "20231114T221320Z-s3k9.tar.gz"
    assert place.listed() == [f"some/copies/{name}"]
    (found,) = bucket.copies()
    assert (found.name, found.size, found.at, found.store) == (name, len(body), "20231114T221320Z", "s3k9")
    for wanted, file in ((name, "by-name"), ("latest", "latest")):
        assert bucket.fetch(wanted, tmp_path / file) == name
        assert (tmp_path / file).read_bytes() == body
        assert stat.S_IMODE((tmp_path / file).stat().st_mode) == 0o600
    with pytest.raises(NotFound, match="has no copy 20231114T221321Z-s3k9"):
        bucket.fetch("20231114T221321Z-s3k9.tar.gz", tmp_path / "none")
    with pytest.raises(NotFound, match="has no copies"):
        Bucket(place.address, HERE).fetch("latest", tmp_path / "none")


def test_the_newest_of_its_own_store_stay_and_nothing_else_is_touched(place: Place, tmp_path: Path) -> None:
    """A store that was begun anew by mistake makes no room at the cost of the one that was lost."""
    bucket = Bucket(f"{place.address}/copies", HERE)
    (tmp_path / "made").write_bytes(b"x")
    lost = [buckets.name_of(NOW + second * 1000, "lost") for second in range(3)]
    own = [buckets.name_of(NOW + second * 1000, "own") for second in range(10, 14)]
    others = ["copies/notes.txt", "copies/20231114T221320Z-own.tar", "copies/below/20231114T221320Z-own.tar.gz", "x"]
    for name in (*lost, *own):
        bucket.send(tmp_path / "made", name)
    for name in others:
        place.put(name, b"mine")
    assert bucket.prune(own[-1], 2) == own[:2]
    assert sorted(place.listed()) == sorted([*(f"copies/{name}" for name in (*lost, *own[2:])), *others])
    assert bucket.prune(own[-1], 2) == []
    assert bucket.prune(own[2], 1) == [own[3]], "a clock that is behind costs nothing of what was just made"
    bucket.send(tmp_path / "made", own[3])
    with pytest.raises(InvalidInput, match="copies of 2 statestores") as which:
        bucket.fetch("latest", tmp_path / "none")
    assert f"{place.address}/copies/{lost[-1]}" in which.value.hint


def test_a_place_with_too_much_else_in_it_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be listed whole each hour."""
    monkeypatch.setattr(buckets, "_MOST", 3)
    for number in range(3):
        place.put(f"copies/{number}", b"mine")
    bucket = Bucket(f"{place.address}/copies", HERE)
    assert bucket.copies() == []
    place.put("elsewhere/4", b"mine")
    assert bucket.copies() == []
    place.put("copies/4", b"mine")
    with pytest.raises(InvalidInput, match="/copies has more than 3 objects") as told:
        bucket.copies()
    assert "a prefix of their own" in told.value.hint


def test_a_bucket_that_can_not_be_asked_is_told_in_one_line(place: Place) -> None:
    with pytest.raises(Unavailable, match=place.no_bucket) as told:
        Bucket(f"{place.other}/copies", HERE).copies()
    assert "\n" not in str(told.value)
    assert "backup.region" in told.value.hint


def test_a_cloud_that_does_not_answer_is_told_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT"):
        scheme = "http" if name.startswith("AWS") else "https"
        monkeypatch.setenv(name, f"{scheme}://127.0.0.1:1")
    monkeypatch.setattr(buckets, "_RETRIES", {"max_retries": 1})
    with pytest.raises(Unavailable, match="error sending request: Connection refused"):
        Bucket(f"{place.address}/copies", HERE).copies()


@pytest.mark.parametrize(("ca", "why"), [(False, "UnknownIssuer"), (True, "CaUsedAsEndEntity")])
def test_why_a_cloud_is_not_believed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ca: bool, why: str
) -> None:
    """A proxy that shows a certificate of its own, for one."""
    certificate, key = tls.written(tmp_path, ca=ca)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setattr(buckets, "_RETRIES", {"max_retries": 0})
    with moto_server.serving(certificate, key) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(Unavailable, match=f"error sending request: its certificate: {why} "):
            Bucket("s3://labqueue", HERE).copies()


def test_the_machine_is_known_by_its_metadata_service(place: Place) -> None:
    """Where a cloud has one that is asked: of AWS the keys are in the environment here."""
    Bucket(f"{place.address}/copies", HERE).copies()
    if place.address.startswith("gs:"):
        assert any(
            path.startswith("/computeMetadata/v1/instance/service-accounts/default/token") for path in place.asked
        )
    elif place.address.startswith("az:"):
        assert any("resource=https%3A%2F%2Fstorage.azure.com" in path for path in place.asked)
    else:
        assert place.asked == []


@_NO_AZURITE
def test_who_shows_another_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above means something: a token for something else than storage opens nothing."""
    with places.azure(tmp_path) as fresh:
        place = fresh()
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(places, "token", lambda true=places.token: true(audience="https://vault.azure.net"))
        with pytest.raises(Unavailable, match=r"AuthorizationFailure|AuthenticationFailed"):
            Bucket(f"{place.address}/copies").copies()


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
