"""The command `cloud-dispatch`. Owns the list of commands and the one place where errors become exit codes.

Command modules import nothing heavy at the top: what a command needs is loaded when it runs. Of the modules themselves
only the one that a command line needs is loaded, since to make all commands takes longer than most of them do.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import typer

from cloud_dispatch import collector
from cloud_dispatch.cli.exitcodes import INTERNAL, INTERRUPTED, OK, TABLE, UNAVAILABLE, UNREAD, USAGE, code_of
from cloud_dispatch.domain.errors import DispatchError

DEBUG_KEY = "CLOUD_DISPATCH_DEBUG"
_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in TABLE.items()) + "."
#: Typer keeps click to itself: its base of all usage errors is found through the one that it shows.
_UsageProblem: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

#: The modules of this package that have commands, in the order of the help, each with what it registers.
MODULES: dict[str, tuple[str, ...]] = {
    "up": ("up",),
    "submit": ("run", "submit"),
    "tasks": ("tasks", "task", "rerun", "cancel", "priority"),
    "logs": ("logs",),
    "outputs": ("outputs",),
    "instances": ("instances", "hold", "drain", "resume", "kill"),
    "plan": ("plan", "explain", "target"),
    "replay": ("plans", "replay"),
    "offers": ("offers",),
    "prices": ("prices", "quota"),
    "simulate": ("simulate",),
    "config_file": ("config",),
    "iam_policy": ("iam-policy",),
    "boot_documents": ("cloud-init",),
    "store": ("backup", "backups", "restore", "db"),
    "recover": ("adopt", "reap"),
    "budget": ("budget",),
    "cost": ("cost",),
    "breakers": ("breakers",),
    "stop": ("stop",),
    "operator_token": ("token",),
    "install": ("install",),
    "upgrade": ("upgrade", "rollback"),
    "demo": ("demo",),
}
_OWNERS = {word: module for module, words in MODULES.items() for word in words}


def _version(wanted: bool) -> None:
    if wanted:
        from cloud_dispatch import __version__

        print(f"cloud-dispatch {__version__}")
        raise typer.Exit(OK)


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Give it a queue of work: it rents the cheapest machines that can do it, and gives them back."""


@cache
def program(module: str = "") -> Callable[..., Any]:
    """The commands of `module`, or all, ready to be called with the words of a line."""
    app = typer.Typer(
        name="cloud-dispatch",
        help="Give it a queue of work: it rents the cheapest machines that can do it, and gives them back.",
        epilog=_EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name in (module,) if module else MODULES:
        importlib.import_module(f"cloud_dispatch.cli.{name}").register(app)
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Errors are told on stderr in a line or two, never as a traceback."""
    try:
        needed = program(_OWNERS.get(arguments[0], "") if arguments else "")
        result = needed(list(arguments), prog_name="cloud-dispatch", standalone_mode=False)
        sys.stdout.flush()  # what can't be written is told here, not by the interpreter as it ends
    except DispatchError as error:
        return _told(code_of(error), str(error))
    except (typer.Abort, KeyboardInterrupt):
        return _told(INTERRUPTED, "interrupted")
    except _UsageProblem as error:
        with suppress(OSError):
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
        return _told(UNAVAILABLE, f"{place}{error.strerror or error} ({DEBUG_KEY}=1 shows where)")
    except Exception as error:
        if os.environ.get(DEBUG_KEY):
            raise
        where = f"This is a bug; {DEBUG_KEY}=1 shows where it happened."
        return _told(INTERNAL, f"internal error: {type(error).__name__}: {error}\n{where}")
    return result if isinstance(result, int) else OK


def _told(code: int, why: str) -> int:
    """`code`, and why, for whoever hears it: it is the same where nobody does."""
    with suppress(OSError):
        print(f"cloud-dispatch: {why}", file=sys.stderr)
    return code


def _open_what_is_closed() -> None:
    """Standard streams that whoever started us has closed: the next file that is opened would have their number, and
    get what anybody prints. From 0 on, since a new file has the lowest number that is free."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def _write_what_can_be() -> None:
    """A character that the output's encoding does not have is written as what it is in Python: a command is not lost
    for it, which may have worked for an hour. Standard error is so anyway, and UTF-8 has them all."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and (out.errors == "strict" or out.encoding.lower() != "utf-8"):
        out.reconfigure(errors="backslashreplace")


def _drop_what_is_unwritten() -> None:
    """Of the output and what is said beside it, where nobody reads it or there is no room: the interpreter would try
    once more as it ends, say so in words of its own, and end with a code of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main() -> None:
    """Entry point of the console script."""
    collector.spare()
    _open_what_is_closed()
    _write_what_can_be()
    try:
        code = run(sys.argv[1:])
    finally:
        _drop_what_is_unwritten()
    sys.exit(code)
