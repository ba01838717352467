"""`config check --online` and `iam-policy`: what the providers say before anything is launched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch import bootstrap
from cloud_dispatch.cli.exitcodes import NOT_FOUND, OK, USAGE
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.spi import Finding, Level
from cloud_dispatch.reconcile.online import Found

CONFIG = """
[dispatcher]
state_dir = "state"
[profiles.one]
driver = "local"
[pools.default]
profiles = ["one"]
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "config.toml").write_text(CONFIG)
    return str(tmp_path / "config.toml")


def test_the_real_driver_of_each_profile_is_asked(cli: Any, config: str) -> None:
    """The local one has nothing to look at, and that is said; without the option nobody is asked."""
    done = cli("config", "check", "--online", "--config", config)
    assert (done.code, "profiles.one: its driver has nothing to look at" in done.out) == (OK, True)
    done = cli("config", "check", "--config", config, "--json")
    assert "online" not in json.loads(done.out)


@pytest.mark.parametrize(("level", "code"), [(Level.OK, OK), (Level.WARNING, OK), (Level.ERROR, USAGE)])
def test_an_error_fails_the_check_and_says_where(
    cli: Any, config: str, monkeypatch: pytest.MonkeyPatch, level: Level, code: int
) -> None:
    """Profile, level, what it is about, and the words of the driver; the same as JSON."""

    def told(_: object) -> Sequence[Found]:
        return [Found(ProfileName("one"), [Finding(level, "images", "ami-1 is of x86_64")])]

    monkeypatch.setattr(bootstrap, "preflight", told)
    done = cli("config", "check", "--online", "--config", config)
    assert (done.code, f"profiles.one: {level}: images: ami-1 is of x86_64" in done.out) == (code, True)
    told_json = json.loads(cli("config", "check", "--online", "--config", config, "--json").out)
    assert told_json["ok"] is (code == OK)
    assert told_json["online"] == {"one": [{"level": level, "about": "images", "text": "ami-1 is of x86_64"}]}


def test_a_driver_without_words_for_rights_has_no_policy(cli: Any, config: str) -> None:
    """And a profile that does not exist is answered with those that do."""
    assert cli("iam-policy", "--config", config).code == NOT_FOUND
    done = cli("iam-policy", "two", "--config", config)
    assert (done.code, "profiles: one" in done.err) == (NOT_FOUND, True)
