"""`run` and `submit`: hand in tasks, and with `run` stay until they have ended."""

from __future__ import annotations

import getpass
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json, takes_task_options
from cloud_dispatch.cli.session import connect, emit, say

if TYPE_CHECKING:
    from cloud_dispatch.client import Client, Submitted
    from cloud_dispatch.demand.taskfile import TaskFile

Words = Annotated[
    Optional[list[str]],  # noqa: UP045  (typer reads it at run time)
    typer.Argument(
        help="The command, after `--`; `::: A B` makes a task a value, {} stands for it.", metavar="COMMAND"
    ),
]
_SHOWN = 5
#: A place in a submission, in the dispatcher's words.
_AT = re.compile(r"tasks\[(\d{1,9})\](?:\.(.+))?")
_WORDS_FIRST = {"allow_interspersed_args": False}


def register(app: typer.Typer) -> None:
    app.command(context_settings=_WORDS_FIRST)(run)
    app.command(context_settings=_WORDS_FIRST)(submit)


@takes_task_options
def run(
    command: Words = None,
    logs: Annotated[bool, typer.Option("--logs", help="Print what each task wrote when it ends.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Submit tasks and follow them until all have ended: 0 if all succeeded, else 1. Their numbers are on stderr.

    One task prints its output as it comes; several show a progress bar. While none of them runs it says why. A command
    of one quoted word is for the shell. Ctrl-C asks whether to leave them running, cancel them, or go on.

    Examples: cloud-dispatch run -- sha256sum {} ::: *.iso

    cloud-dispatch run -c 0.5 -m 1GiB -- python fit.py --seed {1} --size {2} ::: 1 2 3 ::: 10 100

    cloud-dispatch run --file tasks.jsonl
    """
    tasks = gather(command or [], options)
    from cloud_dispatch.cli.follow import Follow

    with connect(config) as client:
        ids = _submitted(client, tasks)["ids"]
        say(show.tasks(ids))
        raise typer.Exit(Follow(client, ids, as_json=as_json, logs=logs).until_ended())


@takes_task_options
def submit(
    command: Words = None,
    config: ConfigFile = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Submit tasks and print their numbers, one a line; the id of an array or sweep on stderr. All are taken, or none.

    Example: cloud-dispatch submit --file tasks.csv --project night --max-runtime 2h
    """
    tasks = gather(command or [], options)
    with connect(config) as client:
        done = _submitted(client, tasks)
    emit(done, as_json, lambda: print("\n".join(map(str, done["ids"]))))


def _submitted(client: Client, tasks: TaskFile) -> Submitted:
    from cloud_dispatch.domain.errors import DispatchError

    try:
        done = client.submission(tasks.inputs)
    except DispatchError as error:
        error.place = _place(error.place, tasks.places)
        raise
    for note in done["notes"]:
        say(f"note: {note}")
    if arrays := done["arrays"]:
        more = f" and {len(arrays) - _SHOWN} more" if len(arrays) > _SHOWN else ""
        say(f"array{'' if len(arrays) == 1 else 's'} {', '.join(arrays[:_SHOWN])}{more}")
    return done


def _place(said: str, places: list[str]) -> str:
    """Where in a file what the dispatcher refuses was written; else what it says."""
    match = _AT.fullmatch(said)
    if not match or int(match[1]) >= len(places):
        return said
    return f"{places[int(match[1])]}: {match[2]}" if match[2] else places[int(match[1])]


def gather(words: list[str], options: dict[str, Any]) -> TaskFile:
    """The task inputs that a command line asks for, with the places of those of a file. They are checked here so that a
    mistake has its place there.

    InvalidInput with that place; NotFound for a file that is not there.
    """
    from cloud_dispatch.cli import command_line
    from cloud_dispatch.demand.submission import parse
    from cloud_dispatch.demand.taskfile import TaskFile, read_tasks
    from cloud_dispatch.domain.errors import InvalidInput

    fields = command_line.fields_of(options, os.environ)
    fields.setdefault("user", _user())
    file: Path | None = options.get("file")
    if file is None:
        made = command_line.commands(words)
        name, key = fields.pop("name", ""), fields.pop("idempotency_key", "")
        tasks = []
        for position, (command, bindings) in enumerate(made):
            task = {**fields, "command": command}
            if name:
                task["name"] = command_line.fill_name(name, bindings)
            if key:
                task["idempotency_key"] = key if len(made) == 1 else f"{key}/{position}"
            tasks.append(task)
        parse(tasks, places=["command line"] * len(tasks))
        return TaskFile(tasks, [])
    if words:
        raise InvalidInput("expected a command or --file, got both")
    if "idempotency_key" in fields:
        raise InvalidInput("expected idempotency_key in the file's tasks", place="--key")
    found = read_tasks(file)
    filled = [{**fields, **given} if isinstance(given, dict) else given for given in found.inputs]
    parse(filled, places=found.places)
    return TaskFile(filled, found.places)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this uid
        return ""
