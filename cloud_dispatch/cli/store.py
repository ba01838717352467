"""`backup`, `restore`, `db ...`: care of the statestore. Only a backup may be made while a dispatcher runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloud_dispatch.cli.exitcodes import OK, TASKS_FAILED
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import emit, load_config

db = typer.Typer(help="Care of the statestore.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command()(backup)
    app.command()(restore)
    app.add_typer(db, name="db")


@db.callback()
def group() -> None:
    """Care of the statestore."""


def backup(
    target: Annotated[Path | None, typer.Argument(help="File to write; must not exist.")] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="Instead of a file: a folder, in which each copy is one of its own.")
    ] = None,
    keep: Annotated[int, typer.Option("--keep", help="With --into: so many copies stay.", min=1)] = 48,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Copy the statestore, consistent and whole, also while a dispatcher runs on it: to a file, or with --into with
    the keys and certificates that belong to it, which is all that a new control VM needs.

    Example: cloud-dispatch backup --into /backups --keep 48
    """
    if (target is None) is (into is None):
        raise typer.BadParameter("name a file, or a folder with --into")
    settings = load_config(config)
    from cloud_dispatch import bootstrap

    if into is not None:
        made = bootstrap.backup_into(settings, into.absolute(), keep)
        emit({"backup": str(made)}, as_json, lambda: print(f"The dispatcher's state was copied to {made}."))
    elif target is not None:
        bootstrap.backup(settings, target.absolute())
        emit({"backup": str(target)}, as_json, lambda: print(f"The statestore was copied to {target}."))


def restore(
    source: Annotated[Path, typer.Argument(help="A file that `backup` wrote, or a folder that it made with --into.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Make the statestore from a backup. Refused where there is one already: move it away first.

    Example: cloud-dispatch restore /backups/queue.sqlite
    """
    settings = load_config(config)
    from cloud_dispatch import bootstrap

    bootstrap.restore(settings, source.absolute())
    emit({"restored": str(source)}, as_json, lambda: print(f"The statestore is now what {source} holds."))


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
