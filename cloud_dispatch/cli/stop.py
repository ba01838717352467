"""`stop`: the kill switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json, Reason
from cloud_dispatch.cli.session import confirm, connect, emit
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.stop import StopLevel

_MEANS = {
    StopLevel.NOTHING: "Nothing is stopped.",
    StopLevel.LAUNCHES: "Nothing is launched. What runs goes on.",
    StopLevel.DRAIN: "Nothing is launched, and everything is drained: what runs finishes, then its instance ends.",
    StopLevel.TERMINATE: "Nothing is launched, and every instance is ended now.",
}


def register(app: typer.Typer) -> None:
    app.command()(stop)


def stop(
    launches: Annotated[bool, typer.Option("--launches", help="Launch nothing; what runs goes on.")] = False,
    drain: Annotated[bool, typer.Option("--drain", help="And let what runs finish, then end its instance.")] = False,
    terminate_all: Annotated[
        bool, typer.Option("--terminate-all", help="And end every instance now, held ones too.")
    ] = False,
    off: Annotated[bool, typer.Option("--off", help="Stop nothing any more.")] = False,
    reason: Reason = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Stop launching, drain everything, or end everything, until `stop --off`: it is kept over restarts.

    Without an option it says what is stopped. Where no dispatcher runs, `reap` ends what is left. Examples:

    cloud-dispatch stop --launches --reason "conference week"

    cloud-dispatch stop --terminate-all --yes
    """
    options = {
        StopLevel.LAUNCHES: launches, StopLevel.DRAIN: drain, StopLevel.TERMINATE: terminate_all, StopLevel.NOTHING: off
    }  # fmt: skip
    asked = [level for level, given in options.items() if given]
    if len(asked) > 1:
        raise InvalidInput("expected one of --launches, --drain, --terminate-all and --off")
    if asked == [StopLevel.TERMINATE] and not yes:
        confirm("End every instance now? What runs on them is lost and tried again later.")
    with connect(config) as client:
        found = client.stop(str(asked[0]), reason) if asked else client.stopped()
    emit(found, as_json, lambda: _render(found))


def _render(found: Mapping[str, Any]) -> None:
    level = StopLevel(found["level"])
    print(_MEANS[level])
    if level is not StopLevel.NOTHING:
        since = f" since {show.moment(found['since_ms'])} UTC" if found["since_ms"] else ""
        print(show.clean(f"In force{since}: {found['why']}."))
