"""`offers`: what could be rented now for a task, cheapest first, and why the rest could not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.exitcodes import UNAVAILABLE
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.prices import hourly
from cloud_dispatch.cli.session import connect, console, emit, load_config, say
from cloud_dispatch.domain.errors import InvalidInput, Unavailable


def register(app: typer.Typer) -> None:
    app.command()(offers)


def offers(
    cpus: Annotated[str, typer.Option("--cpus", "-c", help="Cpus, fractions allowed.")] = "1",
    memory: Annotated[str, typer.Option("--memory", "-m", help="Such as 32GiB.")] = "0",
    disk: Annotated[str, typer.Option("--disk", help="Such as 20GiB.")] = "0",
    gpu: Annotated[str, typer.Option("--gpu", help="TYPE:NUMBER, TYPE or NUMBER, such as a100:1.")] = "",
    arch: Annotated[str, typer.Option("--arch", help="Such as x86_64, arm64.")] = "",
    market: Annotated[str, typer.Option("--market", help="on-demand or spot; both without.")] = "",
    pool: Annotated[str, typer.Option("--pool", help="Only what this pool may rent.")] = "",
    limit: Annotated[int, typer.Option("--limit", help="So many of the cheapest.", min=1, max=1000)] = 20,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Rank what could be rented now over all profiles, with the reason for each that could not: too small, a failure
    that is remembered, a cap, a quota, a limit. Without a dispatcher the providers are asked, and only what the
    configuration says counts. Where a profile can't say what it offers the exit code is 5, with what the others say.

    Example: cloud-dispatch offers --cpus 8 --memory 32GiB --gpu a100:1
    """
    asked = _asked(cpus, memory, disk, gpu)
    asked |= {"arch": arch, "market": market, "pool": pool, "limit": limit}
    found = _find(config, asked)
    emit(found, as_json, lambda: _render(found))
    for one in found["unseen"]:
        why = f": {one['problem']}" if one["problem"] else ""
        say(show.clean(f"profiles.{one['profile']}: no offerings are known{why}"))
    for one in found["quotas_unknown"]:
        say(show.clean(f"profiles.{one['profile']}: quotas are not known, and exclude nothing: {one['problem']}"))
    if found["unseen"]:
        raise typer.Exit(UNAVAILABLE)


def _asked(cpus: str, memory: str, disk: str, gpu: str) -> dict[str, str | int]:
    from cloud_dispatch.domain.resources import parse_bytes, parse_cpus

    kind, _, count = gpu.rpartition(":") if ":" in gpu else ("", "", gpu) if gpu.isdecimal() else (gpu, "", "1")
    if gpu and not count.isdecimal():
        raise InvalidInput(f"{gpu!r}: expected TYPE:NUMBER, TYPE or NUMBER (e.g. a100:1)", place="--gpu")
    try:
        return {
            "cpus_milli": parse_cpus(cpus),
            "memory": parse_bytes(memory),
            "disk": parse_bytes(disk),
            "gpus": int(count) if gpu else 0,
            "gpu_type": kind.lower(),
        }
    except ValueError as error:
        raise InvalidInput(str(error), hint="--cpus 8 --memory 32GiB --gpu a100:1") from None


def _find(config: Path | None, asked: dict[str, Any]) -> dict[str, Any]:
    """By the dispatcher's view; by the providers' own where none answers."""
    try:
        with connect(config) as client:
            return client.offers(**asked)
    except Unavailable:
        from cloud_dispatch import drivers

        say("no dispatcher answers: what it remembers, what runs and what is spent is not counted")
        return drivers.offers(load_config(config), asked)


def _render(found: Mapping[str, Any]) -> None:
    if found["stopped"]:
        print(show.clean(f"Nothing is launched now: {found['stopped']}"))
    if found["offers"]:
        rows = [
            (
                hourly(one["rate_nano"]), hourly(one["highest_rate_nano"]), one["profile"], one["type"], one["zone"],
                one["market"], ", ".join(one["pools"]), _says(one),
            )
            for one in found["offers"]
        ]  # fmt: skip
        head = ("price", "at most", "profile", "type", "zone", "market", "pools", "as of (UTC)")
        console().print(show.table(head, rows))
    else:
        print("Nothing could be rented now.")
    if found["more"]:
        print(f"{found['more']} more at these prices and above: --limit shows them.")
    if found["excluded"]:
        rest = [(str(len(one["offerings"])), one["offerings"][0], one["reason"]) for one in found["excluded"]]
        console().print(show.table(("excluded", "the cheapest", "why"), rest, "why"))


def _says(one: Mapping[str, Any]) -> str:
    when = show.moment(one["priced_ms"] or None)
    return f"{when}, an estimate" if one["estimated"] else when
