"""`token new`: another operator's token. On the control VM, with or without a dispatcher that runs."""

from __future__ import annotations

import typer

from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import emit, load_config

token = typer.Typer(help="The operator's token.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(token, name="token")


@token.callback()
def group() -> None:
    """The operator's token."""


@token.command()
def new(config: ConfigFile = None, as_json: Json = False) -> None:
    """Make another operator's token. The former one is void at once, also for a dispatcher that runs.

    It is written to the state folder that the configuration names, as its owner's; a dispatcher has to have run there.

    Example: cloud-dispatch token new
    """
    settings = load_config(config)
    from cloud_dispatch.adapters.entropy import SystemEntropy
    from cloud_dispatch.api import operator_token

    path = operator_token.renew(settings.state_dir, SystemEntropy())
    emit({"token_file": str(path)}, as_json, lambda: print(f"The operator's token is now the one in {path}."))
