"""`cloud-init render` and `cloud-init check`: what VMs would get to boot with, before any is paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_dispatch.cli.exitcodes import TASKS_FAILED
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import emit, load_config
from cloud_dispatch.domain.errors import NotFound

if TYPE_CHECKING:
    from cloud_dispatch.userdata import Specimen

group = typer.Typer(help="Look at what VMs get to boot with.", no_args_is_help=True)
_NOT_ASKED = "cloud-init is not installed here: its own schema was not asked"


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="cloud-init")


@group.callback()
def cloud_init() -> None:
    """Look at what VMs get to boot with."""


@group.command()
def render(
    pool: Annotated[str, typer.Option("--pool", help="Name of the pool.")],
    profile: Annotated[str, typer.Option("--profile", help="One of its profiles; default: the first.")] = "",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Print what a VM of a pool would get, with a placeholder where its join token stands.

    Example: cloud-dispatch cloud-init render --pool default
    """
    settings = load_config(config)
    section = settings.pool_sections.get(pool)
    if section is None:
        raise NotFound(f"no such pool {pool!r}", hint=f"pools: {', '.join(sorted(settings.pool_sections))}")
    wanted = profile or section.profiles[0]
    if wanted not in section.profiles:
        raise NotFound(f"pool {pool} has no profile {wanted!r}", hint=f"its profiles: {', '.join(section.profiles)}")
    from cloud_dispatch import bootstrap

    (found,) = (item for item in bootstrap.specimens(settings, [pool]) if item.profile == wanted)
    if found.error is not None:
        raise found.error
    value = {"pool": pool, "profile": wanted, "limit": found.limit, "user_data": found.text}
    emit(value, as_json, lambda: print(found.text, end=""))


@group.command()
def check(config: ConfigFile = None, as_json: Json = False) -> None:
    """Check what VMs of every pool would get from each of its profiles: that it renders, that it is within what the
    driver takes, and that cloud-init's own schema accepts it, where cloud-init is installed.

    Example: cloud-dispatch cloud-init check
    """
    settings = load_config(config)
    from cloud_dispatch import bootstrap
    from cloud_dispatch.cloudinit import schema

    program = schema.program()
    rows = [_judge(found, program) for found in bootstrap.specimens(settings, settings.pool_sections)]
    good = not any(row["problem"] for row in rows)

    def tell() -> None:
        for row in rows:
            said = row["problem"] or f"good, {row['bytes']} of {row['limit']} bytes"
            print(f"pool {row['pool']} on {row['profile']}: {said}")
        if program is None:
            print(f"note: {_NOT_ASKED}")

    emit({"ok": good, "schema_asked": program is not None, "documents": rows}, as_json, tell)
    if not good:
        raise typer.Exit(TASKS_FAILED)


def _judge(found: Specimen, program: str | None) -> dict[str, Any]:
    from cloud_dispatch.cloudinit import multipart, schema

    problem = str(found.error) if found.error else ""
    if not problem and program:
        said = (schema.complaint(program, document) for document in multipart.cloud_configs(found.text))
        complaint = next(filter(None, said), "")
        problem = f"cloud-init does not accept it: {complaint}" if complaint else ""
    return {
        "pool": found.pool,
        "profile": found.profile,
        "bytes": found.bytes,
        "limit": found.limit,
        "problem": problem,
    }
