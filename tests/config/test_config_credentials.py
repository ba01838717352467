"""Secrets that a configuration names: found where they are said to be, by what needs them, told of by name alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.config import secrets
from cloud_dispatch.config.load import load
from cloud_dispatch.config.problems import InvalidConfig
from cloud_dispatch.config.source import Embedded
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.provider.registry import plugin

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
