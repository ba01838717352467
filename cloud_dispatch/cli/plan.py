"""`plan`, `explain`, `target`: what would be done now, why things are as they are, and wishes for instances."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import connect, console, emit
from cloud_dispatch.domain.errors import InvalidInput


def register(app: typer.Typer) -> None:
    app.command()(plan)
    app.command()(explain)
    app.command()(target)


def plan(config: ConfigFile = None, as_json: Json = False) -> None:
    """Show what would be launched and ended now, and why. Changes nothing.

    Example: cloud-dispatch plan
    """
    with connect(config) as client:
        found = client.plan()
    emit(found, as_json, lambda: _render_plan(found))


def _render_plan(found: dict[str, Any]) -> None:
    for action in found["actions"]:
        print(show.clean(line_of_action(action)))
    if not found["actions"]:
        print("Nothing would be launched or ended now.")
    for text in found.get("quarantined", ()):
        print(show.clean(f"not launched at {text}"))
    if found["waiting"]:
        rows = [(item["count"], item["shape"], item["reason"]) for item in found["waiting"]]
        console().print(show.table(("waiting", "each needs", "why"), rows, "why"))
    if found.get("short"):
        short = [(item["missing"], item["pool"], item["reason"]) for item in found["short"]]
        console().print(show.table(("missing", "instances of pool", "why"), short, "why"))
    if found["unsatisfiable"]:
        impossible = [(i["count"], i["shape"], i["reason"], i["nearest"]) for i in found["unsatisfiable"]]
        columns = ("can't run", "each needs", "why", "nearest offering")
        console().print(show.table(columns, impossible, "why"))


def line_of_action(action: dict[str, Any]) -> str:
    """What is done, to what, and why."""
    if action["kind"] == "launch":
        if "begun" in action:
            less = f"{action['begun'] or 'none'} of them {'was' if action['begun'] == 1 else 'were'}: {action['why']}"
            action = {**action, "reason": f"{action['reason']}; {less}"}
        what = f"{action['slots']} x {action['offering']} for pool {action['pool']} at {action['rate']}"
    else:
        what = f"{action['instance']} ({action['cause']})"
    return f"{action['kind']} {what}: {action['reason']}"


def explain(
    subject: Annotated[str, typer.Argument(help="Number of a task, or name of an instance.", metavar="TASK|INSTANCE")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Say why a task waits or failed, or why an instance is here or ended.

    Example: cloud-dispatch explain 17
    """
    if not subject.strip():
        raise InvalidInput("expected the number of a task or the name of an instance", place="TASK|INSTANCE")
    with connect(config) as client:
        found = client.explain_task(int(subject)) if subject.isdecimal() else client.explain_instance(subject)
    emit(found, as_json, lambda: _render_why(found))


def _render_why(found: dict[str, Any]) -> None:
    print(show.clean(f"{found['subject']} is {found['state']}"))
    for reason in found["reasons"]:
        print(show.clean(f"- {reason}"))
    if found.get("events"):
        rows = [
            (show.moment(e["at_ms"]), e["action"], e.get("detail") or "", e.get("plan") or "")
            for e in reversed(found["events"])
        ]
        console().print(show.table(("when (UTC)", "what", "detail", "plan before it"), rows, "detail"))


def target(
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    count: Annotated[Optional[int], typer.Argument(help="How many instances to have at least.", min=0)] = None,  # noqa: UP045
    drop: Annotated[bool, typer.Option("--drop", help="Take the wish back.")] = False,
    source: Annotated[str, typer.Option("--source", help="Under this name; each name has its own wish.")] = "rest",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Ask for a number of instances of a pool, whatever the queue holds.

    Examples: cloud-dispatch target default 3

    cloud-dispatch target default --drop
    """
    if drop == (count is not None):
        raise InvalidInput("expected either a number of instances or --drop")
    with connect(config) as client:
        if count is None:
            client.drop_target(pool, source=source)
        else:
            client.set_target(pool, count, source=source)
    value = {"pool": pool, "source": source, "count": count}
    wanted = f"{show.count(count or 0, 'instance')} of {pool}"
    words = f"{source} wants nothing of pool {pool} now." if drop else f"{source} wants {wanted}."
    emit(value, as_json, lambda: print(words))
