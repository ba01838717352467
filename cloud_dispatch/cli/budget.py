"""`budget list`, `show`, `set`, `reconcile`: how the spending limits stand, and what an operator says about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Optional

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json, Reason
from cloud_dispatch.cli.session import confirm, connect, console, emit
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.money import Rate, TooMuch, format_rate, parse_amount
from cloud_dispatch.spend.commitment import Scope
from cloud_dispatch.spend.windows import Window

budget = typer.Typer(help="Spending limits.", no_args_is_help=True)
_UNSURE = (
    "Nobody knows what was spent until {}: the statestore came back from a backup, took the place of another one, or"
    " saw VMs of another one. What was open then counts as spent until `budget reconcile`."
)
_ALL = "all"
Whose = Annotated[str, typer.Argument(help="all, or driver:, profile:, pool:, project: or user:NAME.", metavar="WHOSE")]


def register(app: typer.Typer) -> None:
    app.add_typer(budget, name="budget")


@budget.callback()
def group() -> None:
    """Spending limits."""


@budget.command("list")
def list_budgets(config: ConfigFile = None, as_json: Json = False) -> None:
    """Show every limit with what was spent in its present window, what everything may still bill, and what is left.

    Example: cloud-dispatch budget list
    """
    with connect(config) as client:
        found = client.budgets()
    emit(found, as_json, lambda: _render(found))


@budget.command("show")
def show_budget(whose: Whose = _ALL, config: ConfigFile = None, as_json: Json = False) -> None:
    """Show the limits of one scope, and which instances hold what is committed; of a project or a user, which claims.

    Example: cloud-dispatch budget show pool:default
    """
    scope, name = _key(whose)
    with connect(config) as client:
        found = client.budgets()
        found["budgets"] = [b for b in found["budgets"] if (b["scope"], b["of"]) == (scope, name)]
        found["commitments"] = client.commitments(scope, name)
    found.pop("risk", None)

    def render() -> None:
        if found["budgets"]:
            _render(found)
        else:
            print(show.clean(f"There is no spending limit of {whose}; `budget list` shows those that there are."))
        columns = ("instance", "task", "pool", "state", "at most", "since (UTC)", "hard end (UTC)", "committed")
        rows = [
            (
                c["instance"], c.get("task") or "", c["pool"], c["state"], format_rate(Rate(c["rate"])),
                show.moment(c["from_ms"]), show.moment(c["ends_ms"]), show.dollars(c["committed"]),
            )
            for c in found["commitments"]
        ]  # fmt: skip
        if rows:
            console().print(show.table(columns, rows))

    emit(found, as_json, render)


@budget.command("set")
def set_budget(
    whose: Whose,
    window: Annotated[Window, typer.Argument(help="What the limit is for.")],
    limit: Annotated[Optional[str], typer.Argument(help="Dollars, at most what the configuration says.")] = None,  # noqa: UP045
    off: Annotated[bool, typer.Option("--off", help="Leave it to the configuration again.")] = False,
    reason: Reason = "",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Tighten a limit, at once and until `--off`. The configuration's own limit stays the highest.

    Nothing that runs is ended by it: what is committed stays so. Examples:

    cloud-dispatch budget set all day 5.00

    cloud-dispatch budget set project:genomes month 200

    cloud-dispatch budget set pool:default month --off
    """
    scope, name = _key(whose)
    if off == (limit is not None):
        raise InvalidInput("expected either an amount of dollars or --off")
    with connect(config) as client:
        found = client.set_budget(scope, name, str(window), None if limit is None else _micro(limit), reason)
    emit(found, as_json, lambda: _render(found))


@budget.command()
def reconcile(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """After a restore or a lost statestore: say that the ledger is the truth, though it lacks what was spent meanwhile.

    Look at the providers' bills first, and lower the limits by what it lacks: also by what VMs of another statestore
    cost that you neither `adopt` nor `reap`. Example: cloud-dispatch budget reconcile
    """
    if not yes:
        confirm("Does the ledger have all that was spent, or are the limits lowered by what it lacks?")
    with connect(config) as client:
        found = client.reconcile_budgets()
    emit(found, as_json, lambda: _render(found))


def _key(whose: str) -> tuple[str, str]:
    scope, _, name = whose.partition(":")
    if whose == _ALL:
        return str(Scope.DEPLOYMENT), ""
    if scope not in set(Scope) - {Scope.DEPLOYMENT} or not name:
        names = ", ".join(f"{one}:NAME" for one in Scope if one is not Scope.DEPLOYMENT)
        raise InvalidInput(f"expected {_ALL}, {names}, got {whose!r}", place="WHOSE")
    return scope, name


def _micro(limit: str) -> int:
    try:
        return parse_amount(limit)
    except TooMuch as error:
        raise InvalidInput(str(error), place="LIMIT") from None
    except ValueError:
        raise InvalidInput(f'expected dollars (e.g. "12.50"), got {limit!r}', place="LIMIT") from None


def _render(found: Mapping[str, Any]) -> None:
    if not found["budgets"]:
        print("No spending limits are set.")
        _render_risk(found)
        return
    tightened = any(one["limit"] != one["configured"] for one in found["budgets"])
    columns = ("budget", "limit", *(("configured",) if tightened else ()), "spent", "committed", "left")
    rows = []
    for one in found["budgets"]:
        said = ("none" if one["configured"] is None else show.dollars(one["configured"]),) if tightened else ()
        spent, committed = show.dollars(one["spent"]), show.dollars(one["committed"])
        rows.append((one["name"], show.dollars(one["limit"]), *said, spent, committed, _left(one["left"])))
    console().print(show.table(columns, rows))
    if found["unsure_since_ms"] is not None:
        print(_UNSURE.format(show.moment(found["unsure_since_ms"])))
    _render_risk(found)


def _render_risk(found: Mapping[str, Any]) -> None:
    if found.get("risk"):
        print("At worst, were there only the caps:")
        for line in found["risk"][:-1]:
            print(show.clean(f"- {line}"))


def _left(micro: int) -> str:
    return show.dollars(micro) if micro >= 0 else f"-{show.dollars(-micro)}"
