"""`config check --online` and `iam-policy`: what the providers say before anything is launched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch import bootstrap
from cloud_dispatch.cli.exitcodes import NOT_FOUND, OK, UNAVAILABLE, USAGE
from cloud_dispatch.domain.errors import Unavailable
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.spi import Finding, Level
from cloud_dispatch.reconcile.online import Found

CONFIG = """
[dispatcher]
state_dir = "state"
deployment = "lab"
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
    assert (": good; pools" in done.out) is (code == OK)
    told_json = json.loads(cli("config", "check", "--online", "--config", config, "--json").out)
    assert told_json["ok"] is (code == OK)
    assert told_json["online"] == {"one": [{"level": level, "about": "images", "text": "ami-1 is of x86_64"}]}


def test_a_driver_that_is_not_installed_whole_is_told(cli: Any, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a note without --online: another machine may have it; else as what nobody could be asked for."""
    monkeypatch.setattr(registry.LoadedPlugin, "notes", lambda self, settings: ("driver x needs y (pip install y)",))
    done = cli("config", "check", "--config", config)
    assert (done.code, "note: profiles.one: driver x needs y (pip install y)" in done.out) == (OK, True)

    def missing(_: object) -> Sequence[Found]:
        raise Unavailable("driver x needs y", hint="pip install y")

    monkeypatch.setattr(bootstrap, "preflight", missing)
    done = cli("config", "check", "--online", "--config", config, "--json")
    assert (done.code, "pip install y" in done.err) == (UNAVAILABLE, True)
    assert json.loads(done.out)["problems"][0]["message"].startswith("driver x needs y")


def test_a_driver_without_words_for_rights_has_no_policy(cli: Any, config: str) -> None:
    """And a profile that does not exist is answered with those that do."""
    assert cli("iam-policy", "--config", config).code == NOT_FOUND
    done = cli("iam-policy", "two", "--config", config)
    assert (done.code, "profiles: one" in done.err) == (NOT_FOUND, True)


def test_a_policy_needs_the_name_that_tags_will_have(cli: Any, config: str) -> None:
    """A policy for no name would refuse every launch."""
    Path(config).write_text(CONFIG.replace('deployment = "lab"\n', ""))
    done = cli("iam-policy", "--config", config)
    assert (done.code, "dispatcher.deployment" in done.err) == (USAGE, True)


def test_the_policy_of_an_aws_profile_names_the_deployment(cli: Any, config: str) -> None:
    """As JSON that AWS takes; of several profiles one has to be named."""
    aws = """
[profiles.NAME]
driver = "aws"
region = "us-east-1"
guest_enforced = true
caps = {instances = 1}
budget = {total = "$1"}
"""
    Path(config).write_text(CONFIG + aws.replace("NAME", "east") + aws.replace("NAME", "west"))
    assert cli("iam-policy", "--config", config).code == USAGE
    policy = json.loads(cli("iam-policy", "east", "--config", config).out)
    assert policy["Version"] == "2012-10-17"
    conditions = [statement.get("Condition", {}).get("StringEquals", {}) for statement in policy["Statement"]]
    assert {"aws:RequestTag/cloud-dispatch-deployment": "lab"}.items() <= conditions[1].items()


@pytest.mark.parametrize("said", ["", 'listen = "127.0.0.1:7717"\n'])
def test_vms_elsewhere_need_an_address_that_they_can_reach(cli: Any, config: str, said: str) -> None:
    """Refused by `config check` and by `up`, before a VM is rented that would look for the dispatcher on itself."""
    aws = '[profiles.east]\ndriver = "aws"\nregion = "us-east-1"\nguest_enforced = true\n'
    aws += 'caps = {instances = 1}\nbudget = {total = "$1"}\n'
    Path(config).write_text(CONFIG.replace("[profiles.one]", f"{said}[profiles.one]") + aws)
    for words in (("config", "check"), ("up",)):
        done = cli(*words, "--config", config)
        assert (done.code, "VMs of profile east can't reach the dispatcher" in done.err) == (USAGE, True)
    reachable = 'advertise = "https://10.0.0.5:7717"\n'
    Path(config).write_text(CONFIG.replace("[profiles.one]", f"{reachable}[profiles.one]") + aws)
    assert cli("config", "check", "--config", config).code == OK
