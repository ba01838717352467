"""Secrets of a cloud's store, asked for in a process of its own: what comes back, and that it always does."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput, NotFound, Unavailable
from cloud_dispatch.provider import secrets
from cloud_dispatch.provider.registry import LoadedPlugin, plugin
from tests.architecture.test_lazy_sdks import sdks_loaded_by

PLUGIN = """
import os, sys, time
from cloud_dispatch.provider.errors import InvalidRequest, Transient

class Plugin:
    name = "odd"
    settings = object
    template_variables = dict

    def secret(self, name):
        print("a library says something", flush=True)
        print(name, file=sys.stderr)
        if name == "missing":
            import no_such_sdk
        if name == "none":
            raise InvalidRequest("there is none", code="NotFoundException")
        if name == "later":
            raise Transient("password=hunter2 was refused by https://who:hunter2@store")
        if name == "bug":
            raise KeyError("secret=hunter2")
        if name == "dies":
            os._exit(1)
        if name == "hangs":
            time.sleep(60)
        return name[::-1]

plugin = Plugin()
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a plugin is found that does what its secrets are called."""
    (tmp_path / "odd_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "odd_plugin:plugin"


def test_what_comes_back_is_the_secret_and_nothing_else(odd: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever a library prints stays in the other process, and what it loads too."""
    assert secrets.ask(odd, "terces") == "secret"
    assert secrets.ask(odd, "ünï \n") == "\n ïnü"
    assert capfd.readouterr() == ("", "")
    assert "odd_plugin" not in sys.modules


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("none", InvalidInput, "there is none (NotFoundException)"),
        ("later", Unavailable, "was refused"),
        ("bug", Unavailable, "KeyError"),
        ("dies", Unavailable, "the process that asks has ended"),
    ],
)
def test_why_there_is_none_is_told_without_secrets(odd: str, name: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as why:
        secrets.ask(odd, name)
    assert said in str(why.value)
    assert "hunter2" not in str(why.value)


def test_whoever_does_not_answer_is_waited_for_so_long_and_no_longer(odd: str) -> None:
    with pytest.raises(Unavailable, match=r"no answer within 0\.5 s"):
        secrets.ask(odd, "hangs", within_s=0.5)


def test_without_the_sdk_it_is_said_what_to_install(odd: str) -> None:
    """A plugin without secrets says so, before anybody is asked."""
    point = EntryPoint("odd", odd, "cloud_dispatch.providers")
    loaded = LoadedPlugin(point.load(), point)
    with pytest.raises(Unavailable, match="driver odd needs no_such_sdk"):
        loaded.secret("missing")
    with pytest.raises(NotFound, match="driver local knows no store of secrets"):
        plugin("local").check_secret("x")


@pytest.mark.parametrize(
    ("driver", "good", "bad"),
    [
        (
            "aws",
            (
                "prod/queue-Db+1",
                "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rds!cluster-1f2e-AbCdEf",
                "arn:aws-us-gov:secretsmanager:us-gov-west-1:123456789012:secret:x",
            ),
            (
                "a b",
                "arn:aws:s3:::bucket",
                "arn:aws:secretsmanager:eu-central-1:1:secret:x",
                "x" * 513,
            ),
        ),
        (
            "gcp",
            (
                "projects/p-1/secrets/queue_db/versions/latest",
                "projects/123/secrets/q/versions/7",
                "projects/p/secrets/q/versions/current",
            ),
            (
                "queue_db",
                "projects/p/secrets/q",
                "projects/p/secrets/q/versions/../x",
                "projects/p/secrets/q/versions/",
            ),
        ),
        (
            "azure",
            (
                "https://queue-vault.vault.azure.net/secrets/db",
                "https://v12.vault.azure.cn/secrets/db/0123456789abcdef0123456789abcdef",
                "https://v12.vault.usgovcloudapi.net/secrets/db",
            ),
            (
                "http://queue.vault.azure.net/secrets/db",
                "https://vault.azure.net.example.com/secrets/db",
                "https://v12.vault.azure.net/keys/db",
                "https://v12.vault.azure.net/secrets/db?x=1",
                "queue",
            ),
        ),
    ],
)
def test_the_names_of_each_cloud_are_known_without_its_sdk(
    driver: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    """A dispatcher that reads its configuration loads none."""
    for name in good:
        plugin(driver).check_secret(name)
    for name in bad:
        with pytest.raises(ValueError, match=r"^expected "):
            plugin(driver).check_secret(name)
    assert sdks_loaded_by(f"cloud_dispatch_{driver}.secret:check") == []
