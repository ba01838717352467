"""`adopt` and `reap`: what an operator says about VMs whose statestore is lost, or whose dispatcher is dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.exitcodes import OK, TASKS_FAILED
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import connect, console, emit, load_config
from cloud_dispatch.domain.errors import InvalidInput


def register(app: typer.Typer) -> None:
    app.command()(adopt)
    app.command()(reap)


def adopt(
    store: Annotated[str, typer.Option("--store", help="Id of the statestore that made the VMs.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Take over VMs of this deployment that another statestore made: one that was lost, or that this is a copy of.

    Never while a dispatcher runs on that other statestore. Example: cloud-dispatch adopt --store s3k9x0a1b2c3d4e5
    """
    with connect(config) as client:
        found = client.adopt(store)
    emit(found, as_json, lambda: print(show.clean(_taken(store, found))))


#: Whether VMs of it are left or not.
_SPENT = "Nobody knows what it has spent: limits count as spent until `budget reconcile`."


def _taken(store: str, found: Mapping[str, Any]) -> str:
    """What came of it; nothing is refused, since a listing may show them later."""
    if found.get("vms", 1):
        return f"VMs of statestore {store} are taken over as they are found. {_SPENT}"
    said = f"No VM of statestore {store} was seen yet; one that is found is taken over. {_SPENT}"
    others = ", ".join(f"{other} ({show.count(count, 'VM')})" for other, count in sorted(found["others"].items()))
    return f"{said} VMs were seen of: {others}." if others else said


def reap(
    deployment: Annotated[
        str,
        typer.Option(
            "--deployment",
            help="Id of the deployment, as its VMs are tagged; with --overdue, default: the configured one.",
        ),
    ] = "",
    overdue: Annotated[bool, typer.Option("--overdue", help="Only VMs that are past their hard end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="End them; without it they are only listed.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List every VM that carries a deployment's tag, at all configured profiles, and end them with --yes.

    Needs no statestore and no dispatcher; a dispatcher that runs would replace what is ended. With --overdue it ends no
    VM before its time, so that it may run beside a dispatcher, and by a timer.

    Example: cloud-dispatch reap --deployment lab --yes
    """
    settings = load_config(config)
    deployment = deployment or (settings.dispatcher.deployment if overdue else "")
    if not deployment:
        # Ending everything is never done to a deployment that was not named; a random one stands in the lost store.
        raise InvalidInput("no deployment is named", place="--deployment", hint="name it as its VMs are tagged")
    from cloud_dispatch import bootstrap

    found = bootstrap.reap(settings, deployment, end=yes, overdue=overdue)
    left = [vm for vm in found if vm["state"] != "gone"]

    def render() -> None:
        columns = ("vm", "profile", "type", "zone", "state", "statestore", "pool")
        keys = ("id", "profile", "type", "zone", "state", "store", "pool")
        if not found:
            print(f"No VM {'past its hard end ' if overdue else ''}carries the tag of deployment {deployment}.")
            return
        console().print(show.table(columns, [tuple(vm[key] for key in keys) for vm in found]))
        if not yes:
            print(f"{show.count(len(found), 'VM')}. Say --yes to end what is listed.")
        elif left:
            print(f"{show.count(len(left), 'VM')} of {len(found)} not gone yet: run it again.")
        else:
            print(f"{show.count(len(found), 'VM')} gone.")

    emit({"vms": found}, as_json, render)
    raise typer.Exit(TASKS_FAILED if yes and left else OK)
