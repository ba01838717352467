"""`tasks`, `task`, `rerun`, `cancel`, `priority`: look at tasks and change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import connect, console, emit, say
from cloud_dispatch.domain.errors import InvalidInput

if TYPE_CHECKING:
    from cloud_dispatch.client import TaskDetail, TaskView

_CHUNK = 1_000
_STATES = ("queued", "claimed", "running", "cancelling", "succeeded", "failed", "cancelled")
States = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--state", "-s", help=f"Only these; repeatable: {', '.join(_STATES)}."),
]
_MOST = 100
Project = Annotated[str, typer.Option("--project", help="Only of this project.")]
User = Annotated[str, typer.Option("--user", help="Only of this user.")]
Array = Annotated[str, typer.Option("--array", help="Only of this array or sweep.")]
OneProject = Annotated[Optional[str], typer.Option("--project", help="Only of this project.")]  # noqa: UP045
OneUser = Annotated[Optional[str], typer.Option("--user", help="Only of this user.")]  # noqa: UP045
OneArray = Annotated[Optional[str], typer.Option("--array", help="Only of this array or sweep.")]  # noqa: UP045


def register(app: typer.Typer) -> None:
    app.command("tasks")(list_tasks)
    app.command("task")(one)
    app.command()(rerun)
    app.command()(cancel)
    app.command()(priority)


def list_tasks(
    state: States = None,
    project: Project = "",
    user: User = "",
    array: Array = "",
    name: Annotated[str, typer.Option("--name", help="Only of this name.")] = "",
    after: Annotated[int, typer.Option("--after", help="Only those with a higher number.", min=0)] = 0,
    limit: Annotated[
        Optional[int],  # noqa: UP045  (typer reads it at run time)
        typer.Option("--limit", "-l", help="At most so many [100].", min=1, max=1_000_000),
    ] = None,
    last: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--last", "-n", help="The last so many, in place of the first.", min=1, max=1_000_000),
    ] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List tasks in order of submission.

    Examples: cloud-dispatch tasks --state failed --project night

    cloud-dispatch tasks --last 20
    """
    where = {"project": project, "user": user, "array": array, "name": name, "states": state or (), "after": after}
    if limit is not None and last is not None:
        raise InvalidInput("--limit counts from the first, --last from the last task", hint="give one of them")
    most = _MOST if limit is None else limit
    with connect(config) as client:
        found = list(client.all_tasks(limit=most, **where) if last is None else client.last_tasks(last, **where))

    def render() -> None:
        console().print(_table(found))
        if len(found) == most and last is None:
            say(f"There may be more: --after {found[-1]['id']}")

    emit({"tasks": found}, as_json, render)


def _table(tasks: Sequence[TaskView]) -> show.Listing:
    arrays = any(task["array_id"] for task in tasks)
    rows = [
        (
            task["id"],
            task["state"],
            show.outcome(task),
            task["attempts"],
            task["priority"],
            *((_place_in_array(task),) if arrays else ()),
            task["instance"] or "-",
            show.span(task["ended_ms"] - task["started_ms"]) if task["ended_ms"] and task["started_ms"] else "-",
            task["name"] or show.shorten(task["command"]),
        )
        for task in tasks
    ]
    of_arrays = ("array",) if arrays else ()
    columns = ("task", "state", "cause", "attempts", "priority", *of_arrays, "instance", "ran", "name or command")
    return show.table(columns, rows, "name or command")


def _place_in_array(task: TaskView) -> str:
    return f"{task['array_id']} [{task['array_index']}]" if task["array_id"] else ""


def one(
    task: Annotated[int, typer.Argument(help="Number of the task.")], config: ConfigFile = None, as_json: Json = False
) -> None:
    """Show one task: what it asks for, where it is, its attempts and outputs.

    Example: cloud-dispatch task 17
    """
    with connect(config) as client:
        found = client.task(task)
    emit(found, as_json, lambda: _render(found))


def _render(task: TaskDetail) -> None:
    facts = [
        ("task", task["id"]), ("name", task["name"]), ("command", task["command"]), ("state", task["state"]),
        ("cause", show.ending(task)), ("needs", task["shape"]),
        ("priority", task["priority"]), ("project", task["project"]), ("user", task["user"]),
        ("array", _place_in_array(task)),
        ("instance", task["instance"] or ""), ("submitted", show.moment(task["submitted_ms"])),
        ("started", show.moment(task["started_ms"])), ("ended", show.moment(task["ended_ms"])),
    ]  # fmt: skip
    for label, value in facts:
        if value != "":
            print(f"{label + ':':11}{show.clean(value)}")
    if task["attempts_list"]:
        rows = [
            (a["number"], a["token"], a["instance"], show.moment(a["started_ms"]), show.moment(a["ended_ms"]),
             show.outcome(a), a["detail"])
            for a in task["attempts_list"]
        ]  # fmt: skip
        columns = ("attempt", "token", "instance", "started", "ended", "cause", "detail")
        console().print(show.table(columns, rows, "detail"))
    if task["outputs"]:
        rows_out = [(o["path"], o["size"], o["sha256"], o["url"]) for o in task["outputs"]]
        console().print(show.table(("output", "bytes", "sha256", "at"), rows_out))


def _which(tasks: list[int] | None, state: list[str] | None, **texts: str | None) -> dict[str, Any]:
    """What is asked of tasks besides their numbers. InvalidInput where nothing is, and where an option is there without
    a value, which a shell makes of a variable that is not set: it would widen what is meant."""
    where: dict[str, Any] = {name: value for name, value in texts.items() if value is not None}
    for name in where:
        if not where[name]:
            raise InvalidInput(
                "is empty: no task is meant", place=f"--{name}", hint="leave it out where it is not asked"
            )
    if not (tasks or state or where):
        raise InvalidInput("expected numbers of tasks, or at least one of --state, --project, --user, --array")
    return {**where, "states": state} if state else where


def rerun(
    tasks: Annotated[Optional[list[int]], typer.Argument(help="Numbers of tasks.", metavar="[TASK]...")] = None,  # noqa: UP045
    state: States = None,
    project: OneProject = None,
    user: OneUser = None,
    array: OneArray = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Submit tasks that have ended once more: by number, or all that match and failed, unless --state says others.
    Each is a new task with the same specification, in the same array. One that was run again already is not doubled.

    Examples: cloud-dispatch rerun 17 18

    cloud-dispatch rerun --array k3j9x0a1b2c3
    """
    where = _which(tasks, state, project=project, user=user, array=array)
    with connect(config) as client:
        done = client.rerun(tasks or None, **where)

    def render() -> None:
        if not done:
            print("Nothing to run again.")
            return
        rows = [(one["task"], one["again"], one["state"]) for one in done]
        console().print(show.table(("task", "again as", "state"), rows))

    emit({"tasks": done}, as_json, render)


def cancel(
    tasks: Annotated[Optional[list[int]], typer.Argument(help="Numbers of tasks.", metavar="[TASK]...")] = None,  # noqa: UP045
    state: States = None,
    project: OneProject = None,
    user: OneUser = None,
    array: OneArray = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Cancel tasks by number, or all that match. Queued ones end at once, running ones are ended on their instance.

    Examples: cloud-dispatch cancel 17 18

    cloud-dispatch cancel --project night --state queued
    """
    where = _which(tasks, state, project=project, user=user, array=array)
    chunks = [tasks[i : i + _CHUNK] for i in range(0, len(tasks), _CHUNK)] if tasks else [None]
    with connect(config) as client:
        done: list[int] = []
        for ids in chunks:
            done += client.cancel(ids, **where)
    emit({"cancelled": done}, as_json, lambda: print(f"{len(done)} cancelled." if done else "Nothing to cancel."))


def priority(
    task: Annotated[int, typer.Argument(help="Number of the task.")],
    number: Annotated[int, typer.Argument(help="The new priority; higher runs first.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Change a task's priority, effective at the next claim. A negative one goes after `--`.

    Example: cloud-dispatch priority 17 10
    """
    with connect(config) as client:
        changed = client.prioritise(task, number)
    emit(changed, as_json, lambda: print(f"Task {task} now has priority {changed['priority']}."))
