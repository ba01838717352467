"""Secrets that a configuration names: found where they are said to be, by what needs them, told of by name alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloud_dispatch.config import secrets, variables
from cloud_dispatch.config.load import Config, load
from cloud_dispatch.config.problems import InvalidConfig
from cloud_dispatch.config.source import Embedded
from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch.statestore.engine import parse_url

URL = "postgresql://dispatch:hunter2@db/queue"


def test_a_credential_is_what_systemd_hands_over_or_lies_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "cloud-dispatch_db").write_text(URL + "\n")
    (tmp_path / "db").write_text("postgresql://other/queue")
    handed = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert secrets.found("credential:db", handed, place="store.url") == URL
    assert secrets.found("credential:db", {}, place="store.url", folder=tmp_path) == "postgresql://other/queue"
    assert secrets.found("env:DB", {"DB": URL}, place="store.url") == URL
    assert secrets.found(URL, {}, place="store.url") == URL


def test_what_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="credential db can't be read") as missing:
        secrets.found("credential:db", {}, place="store.url", folder=tmp_path)
    assert (missing.value.place, str(tmp_path / "db") in str(missing.value.hint)) == ("store.url", True)
    with pytest.raises(InvalidInput, match="no DB"):
        secrets.found("env:DB", {}, place="store.url")
    for odd in ("credential:../x", "credential:", "env:A B"):
        assert not secrets.is_reference(odd)


def test_without_a_service_its_variables_are_in_its_file(tmp_path: Path) -> None:
    """A command that root types is told the same as the service; what is set counts before it."""
    file = tmp_path / "environment"
    file.write_text(f'# of the services\nOTHER=x\nDB="{URL}"\n')
    assert secrets.found("env:DB", {}, place="store.url", file=file) == URL
    assert secrets.found("env:DB", {"DB": "postgresql://set"}, place="store.url", file=file) == "postgresql://set"
    for name, where, said in (
        ("NO", file, "no NO, nor has"),
        ("DB", tmp_path / "x", "there is no"),
        ("DB", tmp_path, "can't be read"),
    ):
        with pytest.raises(InvalidInput, match=said) as missing:
            secrets.found(f"env:{name}", {}, place="store.url", file=where)
        assert f"write {name}=VALUE to {where}" in str(missing.value.hint)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("  A = b c\t ", "b c"),
        ("A=", ""),
        ("A='b \"c\" \\d'", 'b "c" \\d'),
        ('A="b \\"c\\" \\d \\$e"', 'b "c" \\d $e'),
        ("A=b\\ \\#c", "b #c"),
        ("A=b\\\nc", "bc"),
        ("A='b\nX=c'", "b\nX=c"),
        ('A=b"c"', 'b"c"'),
        ("A=1\nA=2", "2"),
        ("A=b=c#d", "b=c#d"),
        ("#A=1\n;A=2\nA\n1A=3\nA=b\r\n", "b"),
    ],
)
def test_a_file_of_variables_is_read_as_systemd_does(line: str, value: str) -> None:
    assert variables.parsed(f"Z=z\n\n{line}\nB=c") == {"Z": "z", "A": value, "B": "c"}


def test_the_store_is_found_by_who_opens_it_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who only asks the dispatcher may not read its password, and need not."""
    config = load(Embedded({"store": {"url": "env:CLOUD_DISPATCH_TEST_DB"}, **Embedded().values}), plugin)
    with pytest.raises(InvalidInput, match="CLOUD_DISPATCH_TEST_DB"):
        _ = config.store_url
    monkeypatch.setenv("CLOUD_DISPATCH_TEST_DB", URL)
    assert config.store_url == URL
    assert "hunter2" not in repr(config)
    with pytest.raises(InvalidConfig, match="credential:NAME"):
        load(Embedded({"store": {"url": "mysql://x"}, **Embedded().values}), plugin)


class Vault:
    """A driver whose cloud keeps `kept`."""

    bills = False
    keeps_ends = True
    settings = object

    def __init__(self, **kept: str) -> None:
        self._kept = kept

    def check_secret(self, name: str) -> None:
        if not name.isalpha():
            raise ValueError("expected letters")

    def secret(self, name: str) -> str:
        if name not in self._kept:
            raise Unavailable("it can't be reached", hint="try again")
        return self._kept[name]


def loaded(vault: Vault, **store: str) -> Config:
    return load(
        Embedded({"store": store, **Embedded().values}), lambda name: vault if name == "vault" else plugin(name)
    )


def test_a_password_of_a_cloud_goes_into_the_url_as_it_is_when_it_is_asked_for() -> None:
    """Signs that mean something in a URL are its text; a document's text is taken out of it."""
    kept = {"plain": "p@ss/w:rd%", "document": '{"username": "dispatch", "password": "hunter2"}'}
    vault = Vault(**kept)
    config = loaded(vault, url="postgresql://dispatch@db:5432/queue?sslmode=require", password="vault-secret:plain")
    assert config.store_url == "postgresql://dispatch:p%40ss%2Fw%3Ard%25@db:5432/queue?sslmode=require"
    assert parse_url(config.store_url).password == "p@ss/w:rd%"
    vault._kept["plain"] = "changed"
    assert parse_url(config.store_url).password == "changed"
    config = loaded(vault, url="postgresql://dispatch@/queue?host=/run/db", password="vault-secret:document#password")
    assert config.store_url == "postgresql://dispatch:hunter2@/queue?host=/run/db"
    assert "hunter2" not in repr(config)
    assert config.describe()["store"]["password"] == "vault-secret:document#password"


def test_the_whole_url_may_be_what_a_cloud_keeps() -> None:
    assert loaded(Vault(whole=URL), url="vault-secret:whole").store_url == URL


@pytest.mark.parametrize(
    ("store", "place", "said"),
    [
        ({"url": "vault-secret:12"}, "store.url", "expected letters"),
        ({"url": "nosuch-secret:x"}, "store.url", "no such driver 'nosuch'"),
        ({"url": "local-secret:x"}, "store.url", "driver local knows no store of secrets"),
        ({"url": "postgresql://u@h/d", "password": "vault-secret:1"}, "store.password", "expected letters"),
        ({"url": "postgresql://u@h/d", "password": "hunter2"}, "store.password", "not the secret itself"),
        ({"password": "env:X"}, "store.password", "an SQLite file has no password"),
        ({"url": "postgresql://u:p@h/d", "password": "env:X"}, "store.password", "`url` has a password in it"),
        ({"url": "postgresql://h/d", "password": "env:X"}, "store.url", "expected a user in it"),
    ],
)
def test_a_reference_that_can_lead_nowhere_is_refused_with_its_place(
    store: dict[str, str], place: str, said: str
) -> None:
    """Before anything is asked; what somebody has written instead of a name is not shown."""
    with pytest.raises(InvalidConfig, match=re.escape(said)) as refused:
        loaded(Vault(), **store)
    assert place in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["secret:x", "aws-secret:", "aws-secret:a b", "aws-secret:x#", "AWS-secret:x"])
def test_what_is_no_reference_is_none(name: str) -> None:
    assert not secrets.is_reference(name)


def test_a_store_that_does_not_answer_is_told_by_the_place_of_its_reference() -> None:
    config = loaded(Vault(list="[1]"), url="postgresql://u@h/d", password="vault-secret:gone")
    with pytest.raises(Unavailable, match="the secret gone: it can't be reached") as told:
        _ = config.store_url
    assert (told.value.place, told.value.hint) == ("store.password", "try again")
    config = loaded(Vault(list='["hunter2"]'), url="postgresql://u@h/d", password="vault-secret:list#password")
    with pytest.raises(InvalidInput, match="no JSON object with a text 'password'") as odd:
        _ = config.store_url
    assert "hunter2" not in str(odd.value)
