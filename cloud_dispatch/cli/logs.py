"""`logs`: what a task wrote, once or as it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import connect, json_text, pause, say, seconds
from cloud_dispatch.cli.waits import say_away
from cloud_dispatch.domain.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from cloud_dispatch.client import Client, LogChunk

_WAIT_MS = 20_000
#: The same before there is an attempt: whoever waits for that may have something to say.
_FIRST_WAIT_MS = 2_000
_PAUSE_S = 0.5


def register(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    task: Annotated[int, typer.Argument(help="Number of the task.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the task has ended.")] = False,
    attempt: Annotated[
        str, typer.Option("--attempt", help="Number of an attempt, or its token; without it the last.")
    ] = "",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Print what a task wrote to stdout and stderr. With --json, one JSON object a piece.

    Example: cloud-dispatch logs -f 17
    """
    with connect(config) as client:
        if follow and not attempt:
            try:
                follow_log(client, task, as_json=as_json, patience_s=60.0)
            except KeyboardInterrupt:
                say(f"task {task} goes on; end it with `cloud-dispatch cancel {task}`")
                raise
        else:
            _rest(client, task, attempt, 0, as_json)


def _rest(client: Client, task: int, attempt: str, offset: int, as_json: bool) -> int:
    """Print an attempt's log from `offset` to where it ends now; the offset there."""
    while True:
        chunk = client.logs(task, offset=offset, attempt=attempt)
        _write(task, chunk, as_json)
        offset = chunk.offset
        if chunk.complete or not chunk.body:
            return offset


def follow_log(
    client: Client, task: int, *, as_json: bool, patience_s: float, silence: Callable[[], None] = lambda: None
) -> None:
    """Print a task's log until it has ended. A new attempt begins with a line on stderr; a dispatcher that is away for
    less than `patience_s` is waited for, which is said. `silence` is called whenever a while has brought nothing."""
    offset, attempt, away_since = 0, "", 0.0
    while True:
        try:
            wait_ms = _FIRST_WAIT_MS if attempt in ("", "0") else _WAIT_MS
            chunk = client.logs(task, offset=offset, wait_ms=wait_ms)
        except Unavailable as error:
            if not away_since:
                away_since = seconds()
                say_away(error, patience_s)
            if seconds() - away_since > patience_s:
                raise
            pause(_PAUSE_S)
            continue
        away_since = 0.0
        if attempt not in ("", "0", chunk.attempt):
            try:
                _rest(client, task, attempt, offset, as_json)
            except NotFound as error:  # what it printed long ago is no longer kept: the new attempt's is
                say(error.message)
            say(f"-- task {task}: attempt under token {attempt} ended, now follows {chunk.attempt}")
            offset, attempt = 0, chunk.attempt
            continue
        attempt = chunk.attempt
        _write(task, chunk, as_json)
        offset = chunk.offset
        if chunk.complete:
            return
        if not chunk.body:
            silence()
            pause(0.01)  # an answer that was not held back (the dispatcher ends) must not make a busy loop


def _write(task: int, chunk: LogChunk, as_json: bool) -> None:
    if not as_json:
        sys.stdout.flush()
        sys.stdout.buffer.write(chunk.body)
        sys.stdout.buffer.flush()
        return
    piece = {
        "task": task,
        "attempt": chunk.attempt,
        "offset": chunk.offset - len(chunk.body),
        "complete": chunk.complete,
        "text": chunk.body.decode("utf-8", "replace"),
    }
    print(json_text(piece), flush=True)
