"""Secrets that stand in a configuration, and what is said of it when it is wrong, or asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from cloud_dispatch.config import Config, InvalidConfig, TomlFile, load
from cloud_dispatch.provider.registry import plugin


class VaultSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    key: SecretStr = SecretStr("")
    pin: SecretStr = SecretStr("")


class Vault:
    """A driver's plugin whose settings hold secrets."""

    bills, keeps_ends = False, True
    settings = VaultSettings


def load_text(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text)
    return load(TomlFile(path), lambda name: Vault() if name == "vault" else plugin(name))


@pytest.mark.parametrize(
    "text",
    [
        "[store]\nurl = 'mysql://bob:hunter2@db/x'",
        "[store]\nurl = ['postgresql://bob:hunter2@db/x']",
        "[store]\nurl = {password = 'hunter2'}",
        "[store]\nurl = 'hunter2'",
        "[dispatcher]\nadvertise = 'https://bob:hunter2@h'",
        "[dispatcher]\nlisten = 'http://bob:hunter2@h:1'",
        "[pools.p]\nprofiles = ['x']\nboot.proxy.https = 'http://bob:hunter2@h:1'",
        "[[pools.p.boot.mounts]]\nkind = 'nfs'\npath = '/d'\nsource = 'h'\noptions = 'password=hunter2'",
        "[pools.p]\nprofiles = ['x']\nboot = [{password = 'hunter2'}]",
        "[profiles.p]\ndriver = 'vault'\nkey = 918273\npin = ['hunter2']",
    ],
)
def test_what_is_wrong_is_told_without_its_secret(tmp_path: Path, text: str) -> None:
    """Passwords of URLs, tables of which any value may be one, and values of types that do not print."""
    with pytest.raises(InvalidConfig) as caught:
        load_text(tmp_path, text)
    assert "hunter2" not in str(caught.value)
    assert "918273" not in str(caught.value)
    assert "expected" in str(caught.value)


def test_the_password_of_the_store_is_not_shown(tmp_path: Path) -> None:
    """Neither by `config show` nor by whatever prints the configuration; the store gets it whole."""
    url = "postgresql://bob:hunter2@db/x?sslpassword=hunter2"
    config = load_text(tmp_path, f"[store]\nurl = '{url}'")
    assert config.store_url == url
    assert config.describe()["store"]["url"] == "postgresql://bob:***@db/x?sslpassword=***"
    raw = TomlFile(tmp_path / "config.toml").read()
    for said in (repr(config), str(config), json.dumps(config.describe()), repr(raw)):
        assert "hunter2" not in said
