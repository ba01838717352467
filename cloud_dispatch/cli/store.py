"""`backup`, `backups`, `restore`, `db ...`: care of the state. Only a backup may be made while a dispatcher runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.exitcodes import OK, TASKS_FAILED
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import console, emit, load_config

db = typer.Typer(help="Care of the statestore.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command()(backup)
    app.command()(backups)
    app.command()(restore)
    app.add_typer(db, name="db")


@db.callback()
def group() -> None:
    """Care of the statestore."""


def backup(
    target: Annotated[Path | None, typer.Argument(help="A file: the statestore alone. It must not exist.")] = None,
    into: Annotated[
        str, typer.Option("--into", help="A folder, or a place in a bucket, instead of the configured one.")
    ] = "",
    keep: Annotated[int | None, typer.Option("--keep", help="So many copies stay there.", min=1)] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Copy the statestore with the keys and certificates that belong to it, which is all that a new control VM needs:
    to where `backup.into` says, consistent and whole, also while a dispatcher runs on it.

    Example: cloud-dispatch backup
    """
    if target is not None and (into or keep):
        raise typer.BadParameter("a file is one copy: --into and --keep are for places with several")
    settings = load_config(config)
    from cloud_dispatch import safekeeping
    from cloud_dispatch.adapters.clock import SystemClock

    if target is not None:
        safekeeping.to_file(settings, target.absolute())
        emit({"backup": str(target)}, as_json, lambda: print(f"The statestore was copied to {target}."))
        return
    made = safekeeping.make(settings, SystemClock(), _place(into), keep or 0)
    emit({"backup": made[-1], "copies": made}, as_json, lambda: print(f"The state was copied to {' and '.join(made)}."))


def backups(
    source: Annotated[
        str, typer.Option("--from", help="A folder, or a place in a bucket, instead of the configured one.")
    ] = "",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List the copies of the state that there are, the oldest first.

    Example: cloud-dispatch backups --from s3://lab-queue/copies
    """
    settings = load_config(config)
    from cloud_dispatch import safekeeping
    from cloud_dispatch.domain.resources import format_bytes

    found = safekeeping.listed(settings, _place(source))

    def render() -> None:
        rows = [(one.place, format_bytes(one.size), one.store or "-") for one in found]
        console().print(show.table(("copy", "size", "statestore"), rows)) if rows else print("There is no copy.")

    listed = [{"at": one.at, "copy": one.place, "bytes": one.size, "store": one.store} for one in found]
    emit({"backups": listed}, as_json, render)


def restore(
    source: Annotated[
        str,
        typer.Argument(
            help="A file or a folder that `backup` made, the address of a copy in a bucket, PLACE/latest, or `latest`"
            " of the configured place."
        ),
    ],
    keys_only: Annotated[
        bool, typer.Option("--keys-only", help="Keys and certificates alone: the database is there still.")
    ] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Make the statestore from a backup, with the keys and certificates in it. Refused where there is one already: move
    it away first.

    Example: cloud-dispatch restore s3://lab-queue/copies/latest
    """
    settings = load_config(config)
    from cloud_dispatch import safekeeping
    from cloud_dispatch.adapters.clock import SystemClock
    from cloud_dispatch.config import find_source
    from cloud_dispatch.install.alone import alone

    with alone(find_source(config, os.environ).read().folder):
        found = safekeeping.restore(settings, SystemClock(), _place(source, "latest"), keys_only=keys_only)
    emit({"restored": found}, as_json, lambda: print(f"The state is now what {found} holds."))


def _place(text: str, *words: str) -> str:
    """What is a path here is one everywhere."""
    return text if "://" in text or not text or text in words else str(Path(text).absolute())


@db.command()
def check(config: ConfigFile = None, as_json: Json = False) -> None:
    """Look for damage in the statestore: the file, the schema, and what its rows promise.

    Example: cloud-dispatch db check
    """
    settings = load_config(config)
    from cloud_dispatch import bootstrap

    problems = bootstrap.check_store(settings)
    emit({"problems": problems}, as_json, lambda: print("\n".join(problems) or "The statestore is sound."))
    raise typer.Exit(TASKS_FAILED if problems else OK)


@db.command()
def revision(config: ConfigFile = None, as_json: Json = False) -> None:
    """Say which revision the statestore's tables have; a later one of this program migrates them when it starts.

    Example: cloud-dispatch db revision
    """
    settings = load_config(config)
    from cloud_dispatch import bootstrap

    found = bootstrap.revision(settings)
    emit({"revision": found}, as_json, lambda: print(found or "There is no statestore yet."))


@db.command()
def downgrade(
    to: Annotated[str, typer.Option("--to", help="The revision, as `db revision` said it before the upgrade.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Give the statestore the tables of an earlier version, with its tasks, claims and instances, so that the program
    of that version can go on with it. What only later tables hold is lost. The dispatcher must be stopped.

    Example: cloud-dispatch db downgrade --to 0001
    """
    settings = load_config(config)
    from cloud_dispatch import bootstrap

    bootstrap.step_back(settings, to)
    emit({"revision": to}, as_json, lambda: print(f"The statestore's tables have revision {to} now."))


@db.command()
def compact(config: ConfigFile = None, as_json: Json = False) -> None:
    """Give the room of deleted rows back to the disk: SQLite's file is otherwise as large as they ever were at once.
    The dispatcher must be stopped, and there must be room for what is kept, twice: beside it and where temporary files
    are.

    Example: cloud-dispatch db compact
    """
    settings = load_config(config)
    from cloud_dispatch import bootstrap
    from cloud_dispatch.domain.resources import format_bytes

    before, after = bootstrap.compact(settings)
    found = {"bytes_before": before, "bytes": after}
    emit(found, as_json, lambda: print(f"The statestore has {format_bytes(after)} now, before {format_bytes(before)}."))


@db.command()
def restored(config: ConfigFile = None, as_json: Json = False) -> None:
    """Say that the database was brought back to an earlier moment by other means than `restore`: a snapshot of the
    disk, backups of a managed database. Before the dispatcher starts on it.

    Fencing tokens leap, so that none is used twice, and what was open counts as spent until `budget reconcile`.

    Example: cloud-dispatch db restored
    """
    settings = load_config(config)
    from cloud_dispatch import safekeeping
    from cloud_dispatch.adapters.clock import SystemClock

    safekeeping.came_back(settings, SystemClock())
    emit({"restored": True}, as_json, lambda: print("The statestore knows that it is one of before."))
