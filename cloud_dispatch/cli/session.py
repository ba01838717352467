"""What a command works with: the configuration, a client of the dispatcher, and where its words go.

Owns the rule that results go to stdout (tables, or JSON with --json) and everything else to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.domain.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from cloud_dispatch.client import Client
    from cloud_dispatch.config import Config

#: A command is a composition root of its own: it picks the real clock.
_CLOCK = SystemClock()


def load_config(path: Path | None) -> Config:
    """The configuration that applies to a command."""
    from cloud_dispatch.config import find_source, load
    from cloud_dispatch.provider.registry import plugin

    return load(find_source(path, os.environ), plugin)


def connect(path: Path | None) -> Client:
    """A client of the dispatcher that the environment or the configuration names."""
    from cloud_dispatch.client import Client
    from cloud_dispatch.client.client import TOKEN_KEY, URL_KEY

    if os.environ.get(URL_KEY) and os.environ.get(TOKEN_KEY) and path is None:
        return Client.from_environment(os.environ)  # another host's: no configuration needed here
    return Client.from_config(_address(path), os.environ)


def _address(path: Path | None) -> Config:
    """The configuration, as far as it says where the dispatcher is: what else is wrong with it must not keep anybody
    from one that runs."""
    from cloud_dispatch.config import InvalidConfig, find_source, load_address

    try:
        return load_config(path)
    except InvalidConfig as error:
        try:
            found = load_address(find_source(path, os.environ))
        except InvalidConfig:
            raise _with_way_round(error) from None
        first, *more = str(error).splitlines()
        others = f", and {len(more)} more" if more else ""
        say(f"warning: {first}{others}: a dispatcher would not start so; `cloud-dispatch config check` tells all")
        return found
    except InvalidInput as error:  # no TOML, or it can't be read
        raise _with_way_round(error) from None


def _with_way_round(error: InvalidInput) -> InvalidInput:
    """The error, with how a dispatcher that runs is reached nevertheless."""
    from cloud_dispatch.client.client import TOKEN_KEY, URL_KEY
    from cloud_dispatch.client.transport import CA_KEY

    variables = f"${URL_KEY}, ${TOKEN_KEY} and ${CA_KEY}"
    error.hint = f"a dispatcher that runs is reached by {variables} too, without --config"
    return error


def seconds() -> float:
    """Seconds on a clock that never steps back; only differences mean anything."""
    return _CLOCK.monotonic() / 1000


def pause(for_s: float) -> None:
    """Wait; the one place where commands do."""
    time.sleep(for_s)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """`value` for standard output: what its encoding may not have is in JSON's own escapes."""
    whole = (sys.stdout.encoding or "utf-8").lower() == "utf-8"
    return json.dumps(value, indent=indent, ensure_ascii=not whole)


def emit(value: Any, as_json: bool, render: Callable[[], None]) -> None:
    """A command's result: `value` as one JSON document, or what `render` prints."""
    if as_json:
        print(json_text(value, indent=2), flush=True)
    else:
        render()


def console() -> Console:
    """Where tables go."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 200  # a pipe must not cut columns at 80
    return Console(highlight=False, soft_wrap=False, width=wide)


def messages() -> Console:
    """Where progress goes."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def confirm(question: str) -> None:
    """Go on only after a yes. Whoever says no, or can't be asked, is told how to answer beforehand."""
    import typer

    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        say("")  # ends the line of the question
        agreed = False
    if not agreed:
        raise InvalidInput("it was not confirmed: nothing was done", hint="--yes answers beforehand")


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)
