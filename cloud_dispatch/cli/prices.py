"""`prices show`, `refresh` and `diff`, `quota`: what the providers ask, and what they let an account have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.exitcodes import UNAVAILABLE
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import console, emit, load_config, say

if TYPE_CHECKING:
    from cloud_dispatch.config import Config

prices = typer.Typer(help="What machines cost, and who says so.", no_args_is_help=True)
Profiles = Annotated[
    Optional[list[str]],  # noqa: UP045  (typer reads it at run time)
    typer.Option("--profile", help="Only this profile; repeatable."),
]


def register(app: typer.Typer) -> None:
    app.add_typer(prices, name="prices")
    app.command()(quota)


@prices.callback()
def group() -> None:
    """What machines cost, and who says so."""


@prices.command("show")
def show_prices(
    profile: Profiles = None,
    types: Annotated[str, typer.Option("--types", help="Only types that match, such as m7i.*.")] = "",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show what each profile would pay an hour now, who says so (the driver, what is kept of the price service, you),
    and how old it is.

    Example: cloud-dispatch prices show --types 'm7i.*'
    """
    _asked("show", config, profile, as_json, _render_prices, types)


@prices.command()
def refresh(profile: Profiles = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Ask the price services, and keep what they say. A dispatcher does so once a day.

    Example: cloud-dispatch prices refresh
    """
    _asked("refresh", config, profile, as_json, _render_refreshed)


@prices.command()
def diff(profile: Profiles = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Ask the price services, and show what is not as it is kept. Keeps nothing.

    Example: cloud-dispatch prices diff
    """
    _asked("diff", config, profile, as_json, _render_changes)


def quota(profile: Profiles = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Show the limits of each profile's account and what is used of them, by whomever.

    Example: cloud-dispatch quota
    """
    _asked("quotas", config, profile, as_json, _render_quotas)


def _asked(
    what: str,
    config: Path | None,
    profiles: list[str] | None,
    as_json: bool,
    render: Callable[[list[dict[str, Any]]], None],
    types: str = "",
) -> None:
    """Needs no dispatcher. Not every profile could be asked: exit code 5, with what the others say."""
    from cloud_dispatch import drivers

    settings = load_config(config)
    _check(settings, profiles or ())
    found = drivers.prices(settings, drivers.PriceQuestion(what), profiles or (), types)
    emit({"profiles": found}, as_json, lambda: render(found))
    failed = [one for one in found if one["problem"]]
    for one in failed:
        say(show.clean(f"profiles.{one['profile']}: {one['problem']}"))
    if failed:
        raise typer.Exit(UNAVAILABLE)


def _check(settings: Config, profiles: Iterable[str]) -> None:
    from cloud_dispatch.domain.errors import NotFound

    for name in profiles:
        if name not in settings.profiles:
            raise NotFound(f"no such profile {name!r}", hint=f"profiles: {', '.join(sorted(settings.profiles))}")


def hourly(nano: int | None) -> str:
    """A rate as `$0.0965/h`."""
    from cloud_dispatch.domain.money import Rate, format_rate

    return "unknown" if nano is None else format_rate(Rate(nano))


def _render_prices(found: list[dict[str, Any]]) -> None:
    rows = [
        (
            one["profile"], row["type"], row["zone"], row["market"], hourly(row["rate_nano"]),
            hourly(row["highest_rate_nano"]), _who(row), show.moment(row["priced_ms"] or None),
        )
        for one in found
        for row in one["prices"]
    ]  # fmt: skip
    if rows:
        head = ("profile", "type", "zone", "market", "price", "at most", "says", "as of (UTC)")
        console().print(show.table(head, rows))
    elif not any(one["problem"] for one in found):
        print("Nothing is offered that matches.")


def _who(row: Mapping[str, Any]) -> str:
    return f"{row['source']}, an estimate" if row["estimated"] else str(row["source"])


def _render_refreshed(found: list[dict[str, Any]]) -> None:
    for one in found:
        if not one["service"]:
            print(f"profiles.{one['profile']}: its driver has no price service")
        elif not one["problem"]:
            kept = one["prices"]
            print(f"profiles.{one['profile']}: {show.count(kept, 'price')} {'is' if kept == 1 else 'are'} kept")


def _render_changes(found: list[dict[str, Any]]) -> None:
    rows = []
    for one in found:
        if not one["service"]:
            print(f"profiles.{one['profile']}: its driver has no price service")
        elif not one["problem"]:
            differ = len(one["changes"])
            kept = f"kept {show.moment(one['kept_ms'])} UTC" if one["kept_ms"] else "nothing is kept"
            verb = "differs" if differ == 1 else "differ"
            print(f"profiles.{one['profile']}: {show.count(differ, 'price')} {verb} ({kept})")
        rows += [
            (one["profile"], c["type"], c["place"], c["market"], _or_none(c["before_nano"]), _or_none(c["after_nano"]))
            for c in one["changes"]
        ]
    if rows:
        console().print(show.table(("profile", "type", "where", "market", "kept", "now"), rows))


def _or_none(nano: int | None) -> str:
    return "-" if nano is None else hourly(nano)


def _render_quotas(found: list[dict[str, Any]]) -> None:
    rows = []
    for one in found:
        if not one["told"]:
            print(f"profiles.{one['profile']}: its driver tells no quotas")
        rows += [
            (
                one["profile"],
                q["name"],
                q["scope"],
                q["unit"],
                _number(q["used"]),
                _number(q["limit"]),
                _number(q["left"]),
            )
            for q in one["quotas"]
        ]
    if rows:
        console().print(show.table(("profile", "quota", "of", "unit", "used", "limit", "left"), rows))


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)
