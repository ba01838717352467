"""The dispatcher's certificate: made once, kept as long as it serves, refused where it can't be used."""

from __future__ import annotations

import datetime
import hashlib
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.adapters.certificates import Certificate, given, own, public_part
from cloud_dispatch.domain.errors import InvalidInput, Unavailable

NOW = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def shown(made: Certificate) -> bytes:
    return made.certificate.read_bytes()


def test_it_is_made_once_and_its_keys_are_its_owner_s(tmp_path: Path) -> None:
    first = own(tmp_path / "tls", ["host", "10.0.0.5"], NOW)
    assert first.fingerprint == hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown(first).decode())).hexdigest()
    assert own(tmp_path / "tls", ["10.0.0.5"], NOW + DAY) == first
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()}
    assert modes == {"ca.pem": 0o644, "ca.key": 0o600, "server.pem": 0o644, "server.key": 0o600}


@pytest.mark.parametrize("why", ["another name", "it ends soon", "half made", "another CA"])
def test_it_is_made_anew_by_the_same_ca_when_it_has_to_be(tmp_path: Path, why: str) -> None:
    first = own(tmp_path, ["host"], NOW)
    before, ca = shown(first), (tmp_path / "ca.pem").read_bytes()
    if why == "half made":
        first.key.unlink()
    if why == "another CA":
        (tmp_path / "ca.pem").unlink()
    names = ["host", "10.0.0.5"] if why == "another name" else ["host"]
    again = own(tmp_path, names, NOW + 3300 * DAY if why == "it ends soon" else NOW)
    assert shown(again) != before
    assert again.fingerprint != first.fingerprint
    assert ((tmp_path / "ca.pem").read_bytes() == ca) is (why != "another CA")
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(again.certificate, again.key)


@pytest.mark.parametrize("why", ["another name", "it ends soon", "another CA"])
def test_while_vms_pin_it_it_stays_and_says_what_it_lacks(tmp_path: Path, why: str) -> None:
    first = own(tmp_path, ["host"], NOW)
    if why == "another CA":
        (tmp_path / "ca.pem").unlink()
    names = ["host", "10.0.0.5", "other"] if why == "another name" else ["host"]
    again = own(tmp_path, names, NOW + 3300 * DAY if why == "it ends soon" else NOW, pinned=True)
    assert again.fingerprint == first.fingerprint
    said = {"another name": "does not bear 10.0.0.5, other", "another CA": "is not signed by the CA beside it"}
    assert again.fault == said.get(why, "")


def test_pinned_or_not_it_is_made_where_there_is_none(tmp_path: Path) -> None:
    first = own(tmp_path, ["host"], NOW, pinned=True)
    first.key.unlink()
    assert own(tmp_path, ["host"], NOW, pinned=True).fingerprint != first.fingerprint


def test_another_machine_shows_the_same_one(tmp_path: Path) -> None:
    """It bears the name of the machine on which it was made; what a copy has brought is good on any."""
    first = own(tmp_path, ["host"], NOW, machine="first")
    assert own(tmp_path, ["host", "first"], NOW) == first
    assert own(tmp_path, ["host"], NOW, machine="second") == first


def test_names_that_are_none_do_no_harm(tmp_path: Path) -> None:
    assert own(tmp_path, ["", "a" * 300, "bücher.example", "..", "host"], NOW).fingerprint


@pytest.mark.parametrize("key", ["ca.key", "server.key"])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, key: str) -> None:
    own(tmp_path, ["host"], NOW)
    (tmp_path / key).chmod(0o640)
    with pytest.raises(InvalidInput, match="lets others read a key") as caught:
        own(tmp_path, ["another"], NOW) if key == "ca.key" else own(tmp_path, ["host"], NOW)
    assert caught.value.place == str(tmp_path / key)


@pytest.mark.parametrize("broken", ["ca.pem", "ca.key", "server.pem"])
def test_what_is_damaged_is_named(tmp_path: Path, broken: str) -> None:
    own(tmp_path, ["host"], NOW)
    (tmp_path / broken).write_text("not PEM")
    with pytest.raises(InvalidInput) as caught:
        own(tmp_path, ["another"], NOW)
    assert caught.value.place == str(tmp_path / broken)


def test_what_others_may_know_it_by_has_no_key_in_it(tmp_path: Path) -> None:
    """Our CA's certificate; of given files the certificate and its chain, though the key may be in the same file."""
    made = own(tmp_path / "own", ["host"], NOW)
    ca = (tmp_path / "own" / "ca.pem").read_text()
    assert public_part(made) == ca
    both = tmp_path / "both.pem"
    both.write_text(made.key.read_text() + "words\n" + shown(made).decode() + ca)
    both.chmod(0o600)
    assert public_part(given(both, both, NOW)) == shown(made).decode() + ca


def test_given_files_have_to_fit_and_to_be_in_force(tmp_path: Path) -> None:
    """Where they do not whoever tries again may find them renewed."""
    one, other = own(tmp_path / "one", ["host"], NOW), own(tmp_path / "other", ["host"], NOW)
    assert given(one.certificate, one.key, NOW) == replace(one, ca=None)
    with pytest.raises(Unavailable, match="can't be used with the key"):
        given(one.certificate, other.key, NOW)
    with pytest.raises(Unavailable, match="it ended at 2036"):
        given(one.certificate, one.key, NOW + 3650 * DAY)
    assert given(one.certificate, one.key, NOW + 3650 * DAY, pinned=True) == replace(one, ca=None)
    with pytest.raises(Unavailable, match="no key"):
        given(one.certificate, tmp_path / "none", NOW)
    (tmp_path / "half.pem").write_text(one.certificate.read_text()[:100])
    with pytest.raises(Unavailable, match="can't be used with the key"):
        given(tmp_path / "half.pem", one.key, NOW)
