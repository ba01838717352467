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
Text = str | None
Texts = list[str] | None


def _in(panel: str, *names: str, help: str, min: int | None = None) -> Any:  # noqa: A002  (typer's own words)
    """An option in a panel of the help."""
    return typer.Option(*names, help=help, min=min, rich_help_panel=panel)


def task_options(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="Tasks from a .jsonl, .json, .csv or .toml file, or from - (JSON lines); the options below fill in.",
        ),
    ] = None,
    name: Annotated[Text, typer.Option("--name", "-n", help="Name to show; {} works here too.")] = None,
    cpus: Annotated[Text, _in(_ASK, "--cpus", "-c", help="Cpus, fractions allowed [1].")] = None,
    memory: Annotated[Text, _in(_ASK, "--memory", "-m", help="Such as 2GiB [512MiB].")] = None,
    disk: Annotated[Text, _in(_ASK, "--disk", help="Such as 20GiB.")] = None,
    gpus: Annotated[int, _in(_ASK, "--gpus", help="Number of GPUs.", min=0)] = 0,
    gpu_type: Annotated[Text, _in(_ASK, "--gpu-type", help="Such as a100.")] = None,
    gpu_memory: Annotated[Text, _in(_ASK, "--gpu-memory", help="Memory of each GPU.")] = None,
    label: Annotated[
        Texts,
        _in(_ASK, "--label", help="KEY=VALUE that the instance must have; repeatable."),
    ] = None,
    pool: Annotated[Text, _in(_ASK, "--pool", help="Only instances of this pool.")] = None,
    exclusive: Annotated[bool, _in(_ASK, "--exclusive", help="The instance for itself.")] = False,
    no_preempt: Annotated[bool, _in(_ASK, "--no-preempt", help="Never on spot machines.")] = False,
    max_per_instance: Annotated[
        int,
        _in(_ASK, "--max-per-instance", help="At most so many of these at once on an instance.", min=0),
    ] = 0,
    env: Annotated[
        Texts,
        _in(_LIFE, "--env", "-e", help="NAME=VALUE, or NAME to pass yours on; repeatable."),
    ] = None,
    cwd: Annotated[Text, _in(_LIFE, "--cwd", help="Working folder on the instance.")] = None,
    max_runtime: Annotated[Text, _in(_LIFE, "--max-runtime", help="Such as 90s, 2h; then it is killed.")] = None,
    expected_runtime: Annotated[
        Text, _in(_LIFE, "--expected-runtime", help="Helps to plan how many instances.")
    ] = None,
    checkpoint_signal: Annotated[
        Text,
        _in(_LIFE, "--checkpoint-signal", help="Such as SIGUSR1: sent when the instance is about to go."),
    ] = None,
    max_attempts: Annotated[int | None, _in(_LIFE, "--max-attempts", help="Attempts in all [3].")] = None,
    retry: Annotated[
        Texts,
        _in(
            _LIFE,
            "--retry",
            help="Cause to retry on (timeout, exit-code:75 ...) instead of the machine's faults; repeatable.",
        ),
    ] = None,
    priority: Annotated[int, _in(_LIFE, "--priority", "-p", help="Higher runs first [0].")] = 0,
    project: Annotated[Text, _in(_LIFE, "--project", help="Project to count it under.")] = None,
    user: Annotated[Text, _in(_LIFE, "--user", help="User to count it under; default: you.")] = None,
    key: Annotated[
        Text,
        _in(_LIFE, "--key", help="Idempotency key: submitting it again gives the same tasks."),
    ] = None,
    array: Annotated[int | None, _in(_LIFE, "--array", help="So many copies; {index} is their number.")] = None,
    sweep: Annotated[
        Texts,
        _in(_LIFE, "--sweep", help="NAME=A,B,C: one task a value, {NAME} stands for it; repeatable."),
    ] = None,
    inputs: Annotated[
        Texts,
        _in(_FILES, "--input", help="PATH=URL to fetch before; repeatable."),
    ] = None,
    outputs: Annotated[
        Texts,
        _in(_FILES, "--output", help="PATH or PATH=URL to keep after; repeatable."),
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
