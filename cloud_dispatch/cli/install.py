"""`install`: make this machine a control VM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cloud_dispatch.cli.options import Json
from cloud_dispatch.cli.session import emit, load_config


def register(app: typer.Typer) -> None:
    app.command()(install)


def install(
    config: Annotated[Path, typer.Option("--config", help="The dispatcher's configuration.")] = Path(
        "/etc/cloud-dispatch/config.toml"
    ),
    user: Annotated[str, typer.Option("--user", help="The user that it runs as; made where there is none.")] = (
        "cloud-dispatch"
    ),
    start: Annotated[bool, typer.Option("--start/--no-start", help="Now; with the machine in any case.")] = True,
    show: Annotated[bool, typer.Option("--print", help="Print the units and do nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run the dispatcher as a service of systemd, with a copy of its state every hour. As root; a second time it puts
    right what has changed. What a credential of the configuration needs lies in /etc/cloud-dispatch/credentials.

    Example: cloud-dispatch install --config /etc/cloud-dispatch/config.toml
    """
    settings = load_config(config)
    from cloud_dispatch.domain.errors import InvalidInput, Unavailable
    from cloud_dispatch.install import host
    from cloud_dispatch.install.alone import alone
    from cloud_dispatch.install.trial import tried, visible
    from cloud_dispatch.install.units import Place, journal, units
    from cloud_dispatch.install.versions import PACKAGE, Home

    environment = Path(sys.prefix)
    if not (own := environment / "bin" / PACKAGE).exists():
        raise Unavailable(f"there is no {own}", hint="install cloud-dispatch into an environment of its own")
    home = Home.around(environment)
    outside = not settings.backups.is_relative_to(settings.state_dir)
    copies = settings.backups if outside else None
    try:
        place = Place(home.program, config.absolute(), settings.state_dir, user, copies=copies)
        files = units(place) | journal()
    except ValueError as error:
        raise InvalidInput(str(error), hint="systemd could not start it") from None
    if show:
        emit({"units": files}, as_json, lambda: print("\n".join(f"# {name}\n{text}" for name, text in files.items())))
        return
    visible([environment, Path(sys.base_prefix), place.config, place.state, *([copies] if copies else [])])

    def proven(place: Place) -> None:
        tried(own, place.config, place.user)
        home.point(environment)  # what is refused is not what the service starts with the next time

    with alone(place.config.parent):
        changed = host.install(place, files, start=start, attempt=proven)
    what = f"{', '.join(changed)} written" if changed else "nothing was to be changed"
    emit({"changed": changed}, as_json, lambda: print(f"The dispatcher is a service of this machine; {what}."))
