"""`up`: run the dispatcher."""

from __future__ import annotations

import typer

from cloud_dispatch.cli.options import ConfigFile
from cloud_dispatch.cli.session import load_config


def register(app: typer.Typer) -> None:
    app.command()(up)


def up(config: ConfigFile = None) -> None:
    """Run the dispatcher until Ctrl-C or SIGTERM. Instances live on; the next `up` takes them over. SIGHUP has it read
    its configuration anew.

    Example: cloud-dispatch up --config /etc/cloud-dispatch/config.toml
    """
    settings = load_config(config)
    from cloud_dispatch.bootstrap import serve

    raise typer.Exit(serve(settings, lambda: load_config(config)))
