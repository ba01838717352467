"""`budget list`, `budget reconcile`: how the spending limits stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import connect, console, emit

budget = typer.Typer(help="Spending limits.", no_args_is_help=True)
_UNSURE = "The statestore came back from a backup on {}: what was open then counts as spent until `budget reconcile`."


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


@budget.command()
def reconcile(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """After a restore: say that the ledger is the truth, though it may lack what was spent since the backup.

    Look at the providers' bills first, and lower the limits by what it lacks. Example: cloud-dispatch budget reconcile
    """
    if not yes:
        typer.confirm(
            "Does the ledger have all that was spent, or are the limits lowered by what it lacks?", abort=True
        )
    with connect(config) as client:
        found = client.reconcile_budgets()
    emit(found, as_json, lambda: _render(found))


def _render(found: Mapping[str, Any]) -> None:
    if not found["budgets"]:
        print("No spending limits are set.")
        return
    rows = [
        (one["name"], *(show.dollars(one[part]) for part in ("limit", "spent", "committed")), _left(one["left"]))
        for one in found["budgets"]
    ]
    console().print(show.table(("budget", "limit", "spent", "committed", "left"), rows))
    if found["unsure_since_ms"] is not None:
        print(_UNSURE.format(show.moment(found["unsure_since_ms"])))


def _left(micro: int) -> str:
    return show.dollars(micro) if micro >= 0 else f"-{show.dollars(-micro)}"
