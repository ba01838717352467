"""Options that several commands share. Owns their names and help; imports nothing heavy, so that `--help` is quick."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar, get_type_hints

import typer

F = TypeVar("F", bound=Callable[..., Any])

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs.")]
ConfigFile = Annotated[
    Optional[Path],  # noqa: UP045  (typer reads it at run time)
    typer.Option("--config", help="Configuration file; default: $CLOUD_DISPATCH_CONFIG, /etc, your own, built-in."),
]
TaskIds = Annotated[list[int], typer.Argument(help="Numbers of tasks.", metavar="TASK...")]
Reason = Annotated[str, typer.Option("--reason", help="Kept with the event, for `explain`.")]

_ASK, _LIFE, _FILES = "What the task needs", "How it is run", "Files"


def task_options(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="Tasks from a .jsonl, .json, .csv or .toml file; the options below fill what it leaves out.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", "-n", help="Name to show; {} works here too.")] = "",
    cpus: Annotated[str, typer.Option("--cpus", "-c", help="Cpus, fractions allowed [1].", rich_help_panel=_ASK)] = "",
    memory: Annotated[str, typer.Option("--memory", "-m", help="Such as 2GiB [512MiB].", rich_help_panel=_ASK)] = "",
    disk: Annotated[str, typer.Option("--disk", help="Such as 20GiB.", rich_help_panel=_ASK)] = "",
    gpus: Annotated[int, typer.Option("--gpus", help="Number of GPUs.", min=0, rich_help_panel=_ASK)] = 0,
    gpu_type: Annotated[str, typer.Option("--gpu-type", help="Such as a100.", rich_help_panel=_ASK)] = "",
    gpu_memory: Annotated[str, typer.Option("--gpu-memory", help="Memory of each GPU.", rich_help_panel=_ASK)] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="KEY=VALUE that the instance must have; repeatable.", rich_help_panel=_ASK),
    ] = None,
    pool: Annotated[str, typer.Option("--pool", help="Only instances of this pool.", rich_help_panel=_ASK)] = "",
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="The instance for itself.", rich_help_panel=_ASK)
    ] = False,
    no_preempt: Annotated[
        bool, typer.Option("--no-preempt", help="Never on spot machines.", rich_help_panel=_ASK)
    ] = False,
    max_per_instance: Annotated[
        int,
        typer.Option(
            "--max-per-instance", help="At most so many of these at once on an instance.", min=0, rich_help_panel=_ASK
        ),
    ] = 0,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="NAME=VALUE, or NAME to pass yours on; repeatable.", rich_help_panel=_LIFE),
    ] = None,
    cwd: Annotated[str, typer.Option("--cwd", help="Working folder on the instance.", rich_help_panel=_LIFE)] = "",
    max_runtime: Annotated[
        str, typer.Option("--max-runtime", help="Such as 90s, 2h; then it is killed.", rich_help_panel=_LIFE)
    ] = "",
    expected_runtime: Annotated[
        str, typer.Option("--expected-runtime", help="Helps to plan how many instances.", rich_help_panel=_LIFE)
    ] = "",
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", help="Attempts in all [3].", rich_help_panel=_LIFE)
    ] = None,
    retry: Annotated[
        list[str] | None,
        typer.Option(
            "--retry",
            help="Cause to retry on (timeout, exit-code:75 ...) instead of the machine's faults; repeatable.",
            rich_help_panel=_LIFE,
        ),
    ] = None,
    priority: Annotated[
        int, typer.Option("--priority", "-p", help="Higher runs first [0].", rich_help_panel=_LIFE)
    ] = 0,
    project: Annotated[str, typer.Option("--project", help="Project to count it under.", rich_help_panel=_LIFE)] = "",
    user: Annotated[
        str, typer.Option("--user", help="User to count it under; default: you.", rich_help_panel=_LIFE)
    ] = "",
    key: Annotated[
        str,
        typer.Option("--key", help="Idempotency key: submitting it again gives the same tasks.", rich_help_panel=_LIFE),
    ] = "",
    array: Annotated[
        int | None, typer.Option("--array", help="So many copies; {index} is their number.", rich_help_panel=_LIFE)
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep", help="NAME=A,B,C: one task a value, {NAME} stands for it; repeatable.", rich_help_panel=_LIFE
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="PATH=URL to fetch before; repeatable.", rich_help_panel=_FILES),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", help="PATH or PATH=URL to keep after; repeatable.", rich_help_panel=_FILES),
    ] = None,
) -> None:
    """Only its parameters matter: `takes_task_options` gives them to a command."""


def takes_task_options(command: F) -> F:
    """Add the options of a task to a command, which receives them as keyword arguments in `**options`."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    shared_hints = get_type_hints(task_options, include_extras=True)
    shared = [
        parameter.replace(annotation=shared_hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(task_options).parameters.values()
    ]
    parameters = sorted([*own, *shared], key=lambda parameter: parameter.kind)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
