"""`demo`: real tasks on real input, on local instances, from start to nothing left."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_dispatch.cli.exitcodes import INTERRUPTED, OK, TASKS_FAILED
from cloud_dispatch.cli.options import Json
from cloud_dispatch.cli.session import emit, say, seconds

if TYPE_CHECKING:
    from cloud_dispatch.cli.demo.dispatcher import Dispatcher
    from cloud_dispatch.client import Client

#: The demo gives up after so long instead of waiting for ever.
DEADLINE_S = 120.0


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    tasks: Annotated[int, typer.Option("--tasks", help="How many tasks to run.", min=1, max=100_000)] = 200,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with the state and the log.")] = False,
    as_json: Json = False,
) -> None:
    """Run real tasks on local instances: hash and compress the modules of Python's standard library.

    Starts a dispatcher in a temporary folder, submits, follows, checks every result against a direct computation,
    shows what was used and what it cost, ends every instance, and proves that none is left.

    Example: cloud-dispatch demo --tasks 500
    """
    from cloud_dispatch.cli.demo.dispatcher import Dispatcher

    folder = Path(tempfile.mkdtemp(prefix="cloud-dispatch-demo-")).resolve()
    dispatcher = Dispatcher(folder)
    code = TASKS_FAILED
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = _play(dispatcher, tasks, as_json)
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        dispatcher.abandon()
        if code == OK and not keep:
            shutil.rmtree(folder, ignore_errors=True)
        elif code != OK:
            say(f"The demo did not succeed. The dispatcher's log: {dispatcher.log}")
        else:
            say(f"Kept: {folder}")
    raise typer.Exit(code)


def _interrupt(number: int, frame: object) -> None:
    """SIGTERM ends the demo as Ctrl-C does: not before its instances are gone."""
    raise KeyboardInterrupt


def _play(dispatcher: Dispatcher, count: int, as_json: bool) -> int:
    """The whole demo; its exit code."""
    from cloud_dispatch.cli.demo import display, workload

    jobs = workload.jobs(count)
    say(f"Starting a dispatcher in {dispatcher.folder}")
    begin = seconds()
    with contextlib.closing(dispatcher.start()) as client:
        try:
            ids = client.submit([job.as_task() for job in jobs])
            say(f"Submitted {len(ids)} tasks: hash and compress modules of the standard library.")
            ended = _follow(client, ids)
            problems = workload.wrong_results(client, ids, jobs, ended)
            took_s = seconds() - begin
            summary = client.summary()
        except BaseException:
            dispatcher.finish(client)  # whatever went wrong or was interrupted: leave no instance behind
            raise
        left = dispatcher.finish(client)
    value: dict[str, Any] = {"ok": not (problems or left), "problems": problems, "left": left, "summary": summary}
    emit({**value, "seconds": round(took_s, 1)}, as_json, lambda: display.print_summary(summary, took_s))
    for problem in problems[:10] + left:
        say(problem)
    if len(problems) > 10:
        say(f"and {len(problems) - 10} more")
    if not problems:
        say(f"All {len(ids)} results are as a direct computation gives them.")
    if not left:
        say("No instance is left.")
    return OK if value["ok"] else TASKS_FAILED


def _follow(client: Client, ids: list[int]) -> dict[int, Any]:
    """The ended tasks by number; at the deadline those that have ended until then."""
    from cloud_dispatch.cli.demo import display
    from cloud_dispatch.cli.follow import Watch, patiently

    watch = Watch(client, ids)
    deadline = seconds() + DEADLINE_S
    with display.progress(len(ids)) as update:
        for _ in patiently(watch):
            update(watch, client.instances())
            if seconds() > deadline:
                say(f"{len(watch.pending)} tasks have not ended after {DEADLINE_S:.0f} s.")
                break
    return dict(watch.ended)
