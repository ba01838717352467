"""The command `cloud-dispatch`. Owns the list of commands and the one place where errors become exit codes.

Command modules import nothing heavy at the top: what a command needs is loaded when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cloud_dispatch import collector
from cloud_dispatch.cli import (
    boot_documents,
    breakers,
    budget,
    config_file,
    cost,
    demo,
    iam_policy,
    install,
    instances,
    logs,
    offers,
    operator_token,
    outputs,
    plan,
    prices,
    recover,
    replay,
    simulate,
    stop,
    store,
    submit,
    tasks,
    up,
    upgrade,
)
from cloud_dispatch.cli.exitcodes import INTERNAL, INTERRUPTED, OK, TABLE, UNAVAILABLE, UNREAD, USAGE, code_of
from cloud_dispatch.domain.errors import DispatchError

DEBUG_KEY = "CLOUD_DISPATCH_DEBUG"
_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in TABLE.items()) + "."
#: Typer keeps click to itself: its base of all usage errors is found through the one that it shows.
_UsageProblem: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="cloud-dispatch",
    help="Give it a queue of work: it rents the cheapest machines that can do it, and gives them back.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for module in (
    up, submit, tasks, logs, outputs, instances, plan, replay, offers, prices, simulate, config_file, iam_policy,
    boot_documents, store, recover, budget, cost, breakers, stop, operator_token, install, upgrade, demo,
):  # fmt: skip
    module.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        from cloud_dispatch import __version__

        print(f"cloud-dispatch {__version__}")
        raise typer.Exit(OK)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Give it a queue of work: it rents the cheapest machines that can do it, and gives them back."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Errors are told on stderr in a line or two, never as a traceback."""
    try:
        result = app(list(arguments), prog_name="cloud-dispatch", standalone_mode=False)
        sys.stdout.flush()  # what can't be written is told here, not by the interpreter as it ends
    except DispatchError as error:
        print(f"cloud-dispatch: {error}", file=sys.stderr)
        return code_of(error)
    except (typer.Abort, KeyboardInterrupt):
        print("cloud-dispatch: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _UsageProblem as error:
        error.show()  # type: ignore[attr-defined]
        return USAGE
    except (BrokenPipeError, SystemExit) as end:
        # typer ends with 1 where the reader of a pipe has seen enough: a 1 of ours would say that tasks have failed
        if not isinstance(end, BrokenPipeError) and not isinstance(end.__context__, BrokenPipeError):
            raise
        return UNREAD
    except OSError as error:  # the machine's: a folder of somebody else, a file in the way, a disk that is full
        if os.environ.get(DEBUG_KEY):
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"cloud-dispatch: {place}{error.strerror or error} ({DEBUG_KEY}=1 shows where)", file=sys.stderr)
        return UNAVAILABLE
    except Exception as error:
        if os.environ.get(DEBUG_KEY):
            raise
        print(f"cloud-dispatch: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"This is a bug; {DEBUG_KEY}=1 shows where it happened.", file=sys.stderr)
        return INTERNAL
    return result if isinstance(result, int) else OK


def _open_what_is_closed() -> None:
    """Standard streams that whoever started us has closed: the next file that is opened would have their number, and
    get what anybody prints. From 0 on, since a new file has the lowest number that is free."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def _drop_what_is_unwritten() -> None:
    """Of the output, where nobody reads it or there is no room: the interpreter would try once more as it ends, say so
    in words of its own, and end with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point of the console script."""
    collector.spare()
    _open_what_is_closed()
    try:
        code = run(sys.argv[1:])
    finally:
        _drop_what_is_unwritten()
    sys.exit(code)
