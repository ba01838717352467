"""`plans` and `replay`: what was decided, and whether it would be decided again. Owns the words; the planner plans."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.exitcodes import TASKS_FAILED
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.plan import line_of_action
from cloud_dispatch.cli.session import connect, console, emit

if TYPE_CHECKING:
    from cloud_dispatch.planner.again import Changes, Replay
    from cloud_dispatch.planner.replay import Record

#: Larger files are no record of a plan.
_MOST_BYTES = 256 * 1024 * 1024
_SUBJECT = "Number of a plan, or a file that `replay --json` has written; - is stdin."


def register(app: typer.Typer) -> None:
    app.command()(plans)
    app.command()(replay)


def plans(
    limit: Annotated[int, typer.Option("--limit", help="So many of the newest.", min=1, max=1000)] = 20,
    before: Annotated[Optional[int], typer.Option("--before", help="Those older than this plan.", min=1)] = None,  # noqa: UP045
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """List the plans that launched or ended something, newest first; `replay` shows one of them.

    Example: cloud-dispatch plans --limit 5
    """
    with connect(config) as client:
        found = client.plans(limit=limit, before=before)

    def render() -> None:
        rows = [(p["id"], show.moment(p["at_ms"]), _summary(p["actions"]), _first_reason(p["actions"])) for p in found]
        console().print(show.table(("plan", "when (UTC)", "what", "why, the first"), rows, "why, the first"))

    emit({"plans": found}, as_json, render)


def _summary(actions: list[dict[str, Any]]) -> str:
    """Such as `launch 12, drain 3`; `launch 2 of 12` where no more was begun."""
    counts: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for action in actions:
        counts[action["kind"]] += action.get("slots", 1)
        done[action["kind"]] += action.get("begun", action.get("slots", 1))
    return ", ".join(
        f"{kind} {count}" if done[kind] == count else f"{kind} {done[kind]} of {count}"
        for kind, count in counts.items()
    )


def _first_reason(actions: list[dict[str, Any]]) -> str:
    """Of the first action; why less was launched than was planned stands before it."""
    reasons = [action["why"] for action in actions if action.get("why")] + [action["reason"] for action in actions]
    return reasons[0] if reasons else ""


def replay(
    subject: Annotated[
        str,
        typer.Argument(
            help="Number of a plan, or the file that `replay --json` wrote; - is stdin.", metavar="PLAN|FILE"
        ),
    ],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show a plan of the past: what it was made from, and each action with its reason. Then plan again on the same,
    here, and say whether that is what comes out; if not, the exit code is 1. A file needs no dispatcher.

    Examples: cloud-dispatch replay 17

    cloud-dispatch replay 17 --json > plan-17.json

    cloud-dispatch replay plan-17.json
    """
    from cloud_dispatch.planner.again import again
    from cloud_dispatch.planner.replay import decode_record

    if subject.isascii() and subject.isdecimal():
        with connect(config) as client:
            text = client.record_of_plan(int(subject))
    else:
        text = _read(subject)
    found = decode_record(text)
    told = again(found)
    emit(_as_json(found, told) if as_json else None, as_json, lambda: _render(found, told))
    if not told.same:
        raise typer.Exit(TASKS_FAILED)


def _read(name: str) -> bytes:
    """The bytes of a file, or of stdin."""
    from cloud_dispatch.domain.errors import InvalidInput, NotFound

    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as source:
            text = source.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no file {name}", hint="the number of a plan: `cloud-dispatch plans`") from None
    except OSError as error:
        raise InvalidInput(f"can't be read: {error.strerror}", place=name) from None
    if len(text) > _MOST_BYTES:
        raise InvalidInput(f"it has more than {_MOST_BYTES} bytes", place=name)
    return text


def _as_json(found: Record, told: Replay) -> dict[str, Any]:
    """The record, which `replay` takes again, and what came of it here."""
    import json

    from cloud_dispatch import __version__
    from cloud_dispatch.planner.plain import plain

    stored = {"snapshot": json.loads(bytes(found.snapshot)), "plan": json.loads(bytes(found.plan))}
    again = {"version": __version__, "same": told.same, **plain(told.again)}
    return {"id": found.id, "at_ms": found.at_ms, **stored, "decided": _decided(found, told), "again": again}


def _decided(found: Record, told: Replay) -> dict[str, Any]:
    """What was decided then, with what became of it."""
    from cloud_dispatch.planner.plain import plain, plain_actions
    from cloud_dispatch.planner.replay import decode_begun

    return {**plain(told.decided), "actions": plain_actions(told.decided, decode_begun(bytes(found.plan)))}


def _render(found: Record, told: Replay) -> None:
    from cloud_dispatch import __version__
    from cloud_dispatch.planner.again import only_in

    print(f"Plan {found.id}, made {show.moment(found.at_ms)} UTC from {_seen(told)}.")
    for line in _lines(_decided(found, told)):
        print(show.clean(line))
    print()
    if told.same:
        print(f"Planned again by cloud-dispatch {__version__}: the same.")
        return
    print(f"Planned again by cloud-dispatch {__version__}: not the same (- then, + now).")
    gone, come = only_in(told.decided, told.again), only_in(told.again, told.decided)
    for mark, changes in (("-", gone), ("+", come)):
        for line in _changed(changes):
            print(show.clean(f"{mark} {line}"))
    if not gone and not come:
        print("The order alone differs.")


def _seen(told: Replay) -> str:
    """What the plan was made from, in numbers."""
    snapshot = told.snapshot
    tasks, shapes = sum(item.count for item in snapshot.demand), len({item.shape for item in snapshot.demand})
    states = Counter(str(supply.state) for supply in snapshot.supply)
    instances = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    waiting, offerings = show.count(tasks, "waiting task"), show.count(len(snapshot.offerings), "offering")
    return f"{waiting} (shapes: {shapes}), {offerings}, instances: {instances}"


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    yield from map(line_of_action, plan["actions"])
    for answers in ("waiting", "unsatisfiable", "short"):
        yield from map(_line_of_answer, plan[answers])


def _line_of_answer(answer: dict[str, Any]) -> str:
    if "missing" in answer:
        return f"pool {answer['pool']} has {answer['missing']} fewer than wanted: {answer['reason']}"
    count = answer["count"]
    verb = "can't run" if "nearest" in answer else "waits" if count == 1 else "wait"
    return f"{show.count(count, 'task')} of {answer['shape']} {verb}: {answer['reason']}"


def _changed(changes: Changes) -> Iterator[str]:
    from cloud_dispatch.planner.plain import plain_action, plain_answer

    yield from (line_of_action(plain_action(action)) for action in changes.actions)
    yield from (_line_of_answer(plain_answer(answer)) for answer in changes.answers)
