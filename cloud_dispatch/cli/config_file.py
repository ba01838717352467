"""`config check` and `config show`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
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
        problems = [
            {"file": error.origin, "line": line, "key": render(problem.path), "message": problem.message}
            for problem, line in zip(error.problems, error.lines, strict=True)
        ]
        emit({"ok": False, "problems": problems}, True, lambda: None)
        say(str(error))
        raise typer.Exit(USAGE) from None
    meaning.check_reachable(settings)
    notes = [*settings.notes(), *_of_drivers(settings)]
    if settings.dispatcher.certificate is not None:
        from cloud_dispatch import bootstrap

        notes += bootstrap.check_certificate(settings)
    pools = sorted(settings.pool_sections)
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
def show(
    config: ConfigFile = None,
    effective: Annotated[
        bool,
        typer.Option(
            "--effective",
            help="With where each value comes from: a line of the file, the built-in profile and pool, or a default; "
            "with what is not set, what an empty value comes to, and the variables that commands heed. No secret is "
            "shown. It is TOML that reads back as the same configuration.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print every setting with the value that applies, defaults included.

    Example: cloud-dispatch config show --effective
    """
    if effective:
        _show_effective(config, as_json)
        return
    settings = load_config(config)
    values = settings.describe()

    def render() -> None:
        print(f"# {settings.origin}")
        for line in _lines(values):
            print(line)

    emit(values, as_json, render)


def _show_effective(path: Path | None, as_json: bool) -> None:
    from cloud_dispatch.config import load
    from cloud_dispatch.config.effective import effective, text
    from cloud_dispatch.config.source import find_named
    from cloud_dispatch.provider.registry import plugin

    source, named_by = find_named(path, os.environ)
    raw = source.read()
    settings = effective(load(raw, plugin), raw)
    heeded = _heeded()
    value = {
        "origin": raw.origin,
        "named_by": named_by,
        "environment": heeded,
        "settings": [{**asdict(one), "path": one.key} for one in settings],
    }

    def tell() -> None:
        print(f"# {raw.origin}, by {named_by}; a line is its own")
        for name, said in heeded.items():
            print(f"# ${name} is set: {said}")
        print(text(settings, raw.origin), end="")

    emit(value, as_json, tell)


def _heeded() -> dict[str, str]:
    """The variables that commands heed, beside the one that names the file, as far as they are set; no secret."""
    from cloud_dispatch.client.client import TOKEN_KEY, URL_KEY
    from cloud_dispatch.client.transport import CA_KEY
    from cloud_dispatch.domain.masking import masked

    url = masked(os.environ.get(URL_KEY, ""))
    said = {
        URL_KEY: f"commands that speak to a dispatcher ask {url}",
        TOKEN_KEY: "with the token in it, which is not shown",
        CA_KEY: f"trusting {os.environ.get(CA_KEY, '')}",
    }
    return {name: told for name, told in said.items() if os.environ.get(name)}


def _lines(values: dict[str, Any], prefix: str = "") -> list[str]:
    """`timing.heartbeat = "10s"`, one line a setting; valid TOML (dotted keys)."""
    from cloud_dispatch.config.effective import dotted, toml

    lines: list[str] = []
    for key, value in values.items():
        name = dotted((key,))
        if isinstance(value, dict) and value:
            lines += _lines(value, f"{prefix}{name}.")
        else:
            lines.append(f"{prefix}{name} = {toml(value)}")
    return lines
