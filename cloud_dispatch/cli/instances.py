"""`instances`, and `hold`, `drain`, `resume`, `kill` one."""

from __future__ import annotations

from typing import Annotated

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json, Reason
from cloud_dispatch.cli.session import connect, console, emit

Instance = Annotated[str, typer.Argument(help="Name of the instance, as `instances` prints it.")]


def register(app: typer.Typer) -> None:
    app.command()(instances)
    for verb in (hold, drain, resume, kill):
        app.command()(verb)


def instances(
    past: Annotated[bool, typer.Option("--past", help="Also those that are gone.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List instances with their state, load, times and cost.

    Example: cloud-dispatch instances --past
    """
    with connect(config) as client:
        found = client.instances(past=past)

    def render() -> None:
        columns = ("instance", "pool", "type", "market", "state", "tasks", "boot", "work", "idle", "cost", "why")
        rows = [
            (
                i["id"], i["pool"], i["type"], i["market"],
                i["state"] if i["behaviour"] == "run" else f"{i['state']} ({i['behaviour']})",
                i["tasks"], show.span(i["boot_ms"]), show.span(i["work_ms"]), show.span(i["idle_ms"]),
                show.dollars(i["cost_micro"]),
                i.get("unreachable") or i["cause"] or show.shorten(i["reason"]),
            )
            for i in found
        ]  # fmt: skip
        console().print(show.table(columns, rows, "why", right=("cost",)))

    emit({"instances": found}, as_json, render)


def hold(instance: Instance, reason: Reason = "", config: ConfigFile = None, as_json: Json = False) -> None:
    """Hand an instance no new work and do not end it, until `resume`: to look into it.

    Example: cloud-dispatch hold k3j9x0a1b2c3-0 --reason "strange disk"
    """
    _control("hold", instance, reason, config, as_json)


def drain(instance: Instance, reason: Reason = "", config: ConfigFile = None, as_json: Json = False) -> None:
    """Let an instance finish what it runs, then end it.

    Example: cloud-dispatch drain k3j9x0a1b2c3-0
    """
    _control("drain", instance, reason, config, as_json)


def resume(instance: Instance, reason: Reason = "", config: ConfigFile = None, as_json: Json = False) -> None:
    """Take back a hold, or a drain that is not finished.

    Example: cloud-dispatch resume k3j9x0a1b2c3-0
    """
    _control("resume", instance, reason, config, as_json)


def kill(instance: Instance, reason: Reason = "", config: ConfigFile = None, as_json: Json = False) -> None:
    """End an instance now. What runs on it ends as instance-lost and is retried by its rules.

    Example: cloud-dispatch kill k3j9x0a1b2c3-0
    """
    _control("kill", instance, reason, config, as_json)


def _control(verb: str, instance: str, reason: str, config: ConfigFile, as_json: bool) -> None:
    with connect(config) as client:
        changed = client.control(instance, verb, reason)

    def render() -> None:
        print(f"{instance}: {verb}; it is {changed['state']} ({changed['behaviour']}).")
        if nobody := changed.get("unreachable"):  # an older dispatcher does not say
            print(f"But {nobody}.")

    emit(changed, as_json, render)
