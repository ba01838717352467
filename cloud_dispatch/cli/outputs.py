"""`outputs`: bring what tasks have stored. Owns where the files go; none has its name before it is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import connect, emit, say
from cloud_dispatch.cli.tasks import Array, Project
from cloud_dispatch.domain.errors import Conflict, InvalidInput, Unavailable

if TYPE_CHECKING:
    from cloud_dispatch.client import Client

_MOST = 1_000_000


def register(app: typer.Typer) -> None:
    app.command()(outputs)


def outputs(
    tasks: Annotated[Optional[list[int]], typer.Argument(help="Numbers of tasks.", metavar="[TASK]...")] = None,  # noqa: UP045
    array: Array = "",
    project: Project = "",
    into: Annotated[Path, typer.Option("--into", "-C", help="Folder, made if need be.", metavar="FOLDER")] = Path(),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="In the place of files that are there.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Fetch outputs of tasks that have succeeded: one task's into the folder, those of several into a folder each.

    Examples: cloud-dispatch outputs 17

    cloud-dispatch outputs --array k3j9x0a1b2c3 --into results
    """
    if not (tasks or array or project):
        raise InvalidInput("expected numbers of tasks, or at least one of --array, --project")
    if into.exists() and not into.is_dir():
        raise InvalidInput(f"expected a folder, and {into} is none", place="--into")
    with connect(config) as client:
        fetched = [
            _fetch(client, task, one, into / str(task) if array or project or len(tasks or ()) > 1 else into, overwrite)
            for task, found in _manifests(client, tasks or (), array, project)
            for one in found
        ]
    emit({"outputs": fetched}, as_json, lambda: _tell(fetched))


def _tell(fetched: list[dict[str, Any]]) -> None:
    for one in fetched:
        if one["file"]:
            print(show.clean(one["file"]))
        else:
            say(show.clean(f"task {one['task']} stored {one['path']} itself, at {one['url']}"))
    if not fetched:
        say("There are no outputs.")


def _manifests(
    client: Client, tasks: list[int] | tuple[int, ...], array: str, project: str
) -> Iterator[tuple[int, Any]]:
    """The outputs of each task. Conflict for one that is named and has no accepted result; others must match."""
    for task in tasks:
        yield task, client.outputs(task)["outputs"]
    if array or project:
        for found in client.all_tasks(limit=_MOST, states=("succeeded",), array=array, project=project):
            yield found["id"], found["outputs"]


def _fetch(client: Client, task: int, output: dict[str, Any], folder: Path, overwrite: bool) -> dict[str, Any]:
    """Bring one output, unless its task stored it at a URL of its own."""
    if output["url"]:
        return {"task": task, **output, "file": None}
    target = folder / _below(output["path"])
    try:
        if not target.exists() or (overwrite and not _same(target, output)):
            _bring(client, task, output, target)
        elif not _same(target, output):
            raise Conflict(f"{target} is there already", hint="--overwrite replaces it, --into takes another folder")
    except OSError as error:
        raise InvalidInput(f"{target} can't be written: {error.strerror}") from None
    return {"task": task, **output, "file": str(target)}


def _same(target: Path, output: dict[str, Any]) -> bool:
    """Whether the file is this very output: a fetch that was cut off goes on where it was."""
    if target.stat().st_size != output["size"]:
        return False
    with target.open("rb") as file:
        return bool(hashlib.file_digest(file, "sha256").hexdigest() == output["sha256"])


def _bring(client: Client, task: int, output: dict[str, Any], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part, digest = target.with_name(f".{target.name}.part"), hashlib.sha256()
    try:
        with part.open("wb") as file:
            for piece in client.output_pieces(task, output["path"]):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != output["sha256"]:
            raise Unavailable(f"output {output['path']!r} of task {task} arrived damaged", hint="try again")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _below(path: str) -> Path:
    """The output's path, which is somebody else's, if it stays below the folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise InvalidInput(f"the output {path!r} would not lie below the folder")
    return Path(*parts)
