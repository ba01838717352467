"""`breakers list`, `breakers reset`: what is not launched because it failed too often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import connect, console, emit
from cloud_dispatch.domain.errors import InvalidInput

breakers = typer.Typer(help="What is not launched because it failed too often.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(breakers, name="breakers")


@breakers.callback()
def group() -> None:
    """What is not launched because it failed too often."""


@breakers.command("list")
def list_breakers(config: ConfigFile = None, as_json: Json = False) -> None:
    """Show what has failed since it last succeeded, by template, image and zone, and whether it is still launched.

    Example: cloud-dispatch breakers list
    """
    with connect(config) as client:
        found = client.breakers()
    emit(found, as_json, lambda: _render(found))


@breakers.command()
def reset(
    name: Annotated[str, typer.Argument(help="A name of `breakers list`.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Launch again what a breaker keeps back: what has failed until now does not count any more.

    Example: cloud-dispatch breakers reset boot/aws/agent/us-east-1a/ami-0a1b2c3d4e5f60001
    """
    if everything == bool(name):
        raise InvalidInput("expected either the name of a breaker or --all")
    with connect(config) as client:
        found = client.reset_breakers(name)
    emit(found, as_json, lambda: _render(found))


def _render(found: Mapping[str, Any]) -> None:
    if not found["breakers"]:
        print("Nothing has failed since it last succeeded.")
        return
    rows = [
        (
            one["name"], one["state"], f"{show.dollars(one['burnt'])} of {show.dollars(one['allowance'])}",
            str(one["failures"]), _again(one), one["last_failure"],
        )
        for one in found["breakers"]
    ]  # fmt: skip
    columns = ("breaker", "state", "burnt", "VMs", "tried again", "last")
    console().print(show.table(columns, rows))


def _again(one: Mapping[str, Any]) -> str:
    if one["trial"]:
        return f"now, with {one['trial']}"
    return show.moment(one["until_ms"]) if one["state"] == "open" else ""
