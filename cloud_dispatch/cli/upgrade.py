"""`upgrade`, `rollback`: another version of the program on a control VM."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloud_dispatch.cli.options import Json
from cloud_dispatch.cli.session import emit, load_config, pause, say

if TYPE_CHECKING:
    from cloud_dispatch.install.upgrading import Machine

_Config = Annotated[Path, typer.Option("--config", help="The dispatcher's configuration.")]
_User = Annotated[str, typer.Option("--user", help="The user that it runs as.")]
_FILE, _USER = Path("/etc/cloud-dispatch/config.toml"), "cloud-dispatch"


def register(app: typer.Typer) -> None:
    app.command()(upgrade)
    app.command()(rollback)


def upgrade(
    source: Annotated[str, typer.Argument(help="A version, such as 0.3.0, or the path of a wheel.")],
    extra: Annotated[
        list[str] | None,
        typer.Option("--extra", help="An extra to install with it; default: those that are installed now."),
    ] = None,
    config: _Config = _FILE,
    user: _User = _USER,
    as_json: Json = False,
) -> None:
    """Have another version run on this control VM, where `install` made the dispatcher a service. As root. It is
    installed beside the present one and judges the configuration; the state is copied, and then it runs. Tasks go on
    meanwhile. Where it does not come up the version of before runs again.

    Example: cloud-dispatch upgrade 0.3.0
    """
    from importlib import metadata

    from cloud_dispatch.install import upgrading, versions
    from cloud_dispatch.install.alone import alone

    def has(name: str) -> bool:
        return any(True for _ in metadata.distributions(name=name))

    installed = versions.extras(metadata.requires(versions.PACKAGE) or (), has)
    wanted = versions.Wanted.of(source, installed if extra is None else extra)
    machine = _machine(config, user)
    with alone(machine.config.parent):
        old = machine.home.current() or Path(sys.prefix)
        upgrading.upgrade(machine, wanted, old, say)
    emit({"version": wanted.name, "before": str(old)}, as_json, lambda: print(f"Version {wanted.name} runs."))


def rollback(
    copy: Annotated[
        bool,
        typer.Option("--copy/--no-copy", help="Copy the state first; not, where that is what fails."),
    ] = True,
    config: _Config = _FILE,
    user: _User = _USER,
    as_json: Json = False,
) -> None:
    """Have the version run again that ran before the last `upgrade`. As root. The statestore gets the tables that it
    knows; tasks go on. What only the present version's tables hold is lost, but for the copy that is made first.

    Example: cloud-dispatch rollback
    """
    from cloud_dispatch.install import upgrading
    from cloud_dispatch.install.alone import alone

    machine = _machine(config, user)
    with alone(machine.config.parent):
        environment = upgrading.roll_back(machine, say, copy=copy)
    emit({"environment": str(environment)}, as_json, lambda: print(f"What is in {environment} runs again."))


def _machine(config: Path, user: str) -> Machine:
    load_config(config)  # what is wrong with it is told before anything is begun
    from cloud_dispatch.config import secrets
    from cloud_dispatch.install import host
    from cloud_dispatch.install.upgrading import Machine
    from cloud_dispatch.install.versions import Home

    for name, value in secrets.services_variables().items():  # the programs of both versions open the statestore too
        os.environ.setdefault(name, value)
    return Machine(Home.around(Path(sys.prefix)), config.absolute(), user, host.run, pause)
