"""`config check` and `config show`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_dispatch.cli.exitcodes import USAGE
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import emit, load_config, say

if TYPE_CHECKING:
    from cloud_dispatch.config import Config
    from cloud_dispatch.reconcile.online import Found

group = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="config")


@group.callback()
def config() -> None:
    """Look at the configuration."""


@group.command()
def check(
    config: ConfigFile = None,
    online: Annotated[
        bool,
        typer.Option(
            "--online",
            help="Also ask each profile's provider what would keep launches from working: credentials, permissions, "
            "images, networks, quotas. Makes no VM and costs nothing.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the configuration; every problem is told with file, line, key and what was expected.

    Example: cloud-dispatch config check --config ./config.toml --online
    """
    from cloud_dispatch import meaning
    from cloud_dispatch.config import InvalidConfig
    from cloud_dispatch.config.problems import render

    try:
        settings = load_config(config)
    except InvalidConfig as error:
        if not as_json:
            raise
        problems = [{"key": render(problem.path), "message": problem.message} for problem in error.problems]
        emit({"ok": False, "problems": problems}, True, lambda: None)
        say(str(error))
        raise typer.Exit(USAGE) from None
    meaning.check_reachable(settings)
    pools = sorted(settings.pool_sections)
    notes = [*settings.notes(), *_of_drivers(settings)]
    found = _online(settings, as_json=as_json) if online else []
    good = not any(one.blocked for one in found)
    value = {"ok": good, "origin": settings.origin, "pools": pools, "profiles": sorted(settings.profiles)}
    if online:
        value["online"] = {one.profile: [asdict(finding) for finding in one.findings] for one in found}

    def tell() -> None:
        verdict = "good" if good else "well-formed, and what is marked error below keeps launches from working"
        print(f"{settings.origin}: {verdict}; pools: {', '.join(pools) or 'none'}")
        for note in notes:
            print(f"note: {note}")
        for one in found:
            if not one.findings:
                print(f"profiles.{one.profile}: its driver has nothing to look at")
            for finding in one.findings:
                print(f"profiles.{one.profile}: {finding.level}: {finding.about}: {finding.text}")

    emit({**value, "notes": notes}, as_json, tell)
    if not good:
        raise typer.Exit(USAGE)


def _of_drivers(settings: Config) -> list[str]:
    """What drivers say of their profiles' keys."""
    from cloud_dispatch.provider import registry

    return [
        f"profiles.{name}: {note}"
        for name, one in sorted(settings.profiles.items())
        for note in registry.plugin(one.driver).notes(one.settings)
    ]


def _online(settings: Config, *, as_json: bool) -> Sequence[Found]:
    from cloud_dispatch import bootstrap
    from cloud_dispatch.domain.errors import Unavailable

    try:
        return bootstrap.preflight(settings)
    except Unavailable as error:  # a driver that is not installed whole: nobody was asked
        if as_json:
            emit({"ok": False, "problems": [{"key": "profiles", "message": str(error)}]}, True, lambda: None)
        raise


@group.command()
def show(config: ConfigFile = None, as_json: Json = False) -> None:
    """Print every setting with the value that applies, defaults included.

    Example: cloud-dispatch config show
    """
    settings = load_config(config)
    values = settings.describe()

    def render() -> None:
        print(f"# {settings.origin}")
        for line in _lines(values):
            print(line)

    emit(values, as_json, render)


def _lines(values: dict[str, Any], prefix: str = "") -> list[str]:
    """`timing.heartbeat = "10s"`, one line a setting; valid TOML (dotted keys)."""
    lines: list[str] = []
    for key, value in values.items():
        name = key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)
        if isinstance(value, dict) and value:
            lines += _lines(value, f"{prefix}{name}.")
        else:
            lines.append(f"{prefix}{name} = {_toml(value)}")
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
