"""`cost`: what was spent, by whom and on what."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cloud_dispatch.cli import show
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import connect, console, emit
from cloud_dispatch.domain.errors import InvalidInput

_BY = "project"
_PARTS = ("work", "retry", "idle", "total")
_DAY = "a day of UTC (2026-10-05), or 7d: so many days, today being the last."
Row = Mapping[str, Any]


def register(app: typer.Typer) -> None:
    app.command()(cost)


def cost(
    by: Annotated[
        str,
        typer.Option("--by", help="Any of project, user, pool, provider, profile, day, task; several with commas."),
    ] = _BY,
    since: Annotated[str, typer.Option("--since", help=f"From the start of {_DAY}")] = "",
    until: Annotated[str, typer.Option("--until", help="To the end of a day.")] = "",
    project: Annotated[str, typer.Option("--project", help="Only of this project.")] = "",
    user: Annotated[str, typer.Option("--user", help="Only of this user.")] = "",
    pool: Annotated[str, typer.Option("--pool", help="Only of this pool.")] = "",
    task: Annotated[
        int | None, typer.Option("--task", help="The attempts of this task, each with its VM.", min=1)
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV on stdout: dollars with six decimals.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show what was spent: on work that counted, on attempts that had to be made again, and on VMs that were idle.

    Example: cloud-dispatch cost --by project,day --since 7d
    """
    if as_csv and as_json:
        raise InvalidInput("--csv and --json are two answers to one question", hint="give one of them")
    if task is not None and (by != _BY or since or until or project or user or pool):
        raise InvalidInput("--task shows all attempts of one task", hint="leave out --by and what chooses")
    with connect(config) as client:
        if task is not None:
            found = client.cost_of_task(task)
        else:
            keys = [word.strip() for word in by.split(",")]
            found = client.all_costs(by=keys, since=since, until=until, project=project, user=user, pool=pool)
    if as_csv:
        _write_csv(_task_columns() if task else _columns(found), found["attempts"] if task else found["rows"])
    else:
        emit(found, as_json, lambda: _render_task(found) if task else _render(found))


def _columns(found: Row) -> list[tuple[str, Any]]:
    """Titles, and what to write for a row."""
    return [
        *((key, lambda row, key=key: "" if row[key] is None else row[key]) for key in found["by"]),
        *((part, lambda row, part=part: _decimal(row[part], 6)) for part in _PARTS),
    ]


def _task_columns() -> list[tuple[str, Any]]:
    return [
        *((name, lambda row, name=name: row[name]) for name in ("number", "instance")),
        *((name, lambda row, name=name: _iso(row[f"{name}_ms"])) for name in ("started", "ended")),
        ("cause", lambda row: row["cause"] or ""),
        ("rate", lambda row: _decimal(row["rate_nano"], 9)),
        *((part, lambda row, part=part: _decimal(row[part], 6)) for part in _PARTS),
    ]


def _write_csv(columns: Sequence[tuple[str, Any]], rows: Iterable[Row]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow([title for title, _ in columns])
    out.writerows([of(row) for _, of in columns] for row in rows)


def _render(found: Row) -> None:
    by, rows, total = found["by"], list(found["rows"]), found["total"]
    if not rows:
        print("Nothing was spent.")
    else:
        if "day" not in by:
            rows.sort(key=lambda row: -row["total"])
        cells = [(*(_name(row[key]) for key in by), *(show.dollars(row[part]) for part in _PARTS)) for row in rows]
        cells.append(("total", *("" for _ in by[1:]), *(show.dollars(total[part]) for part in _PARTS)))
        console().print(_with_total((*by, *_PARTS), cells))
        print(_shares(total))
    if found["running"]:
        print(f"{_vms(found['running'])} still alive: counted up to now.")
    if found["unpriced"]:
        print(f"{_vms(found['unpriced'])} without a known price: counted as nothing.")


def _render_task(found: Row) -> None:
    columns = ("attempt", "instance", "started", "ran", "price", "ended", *_PARTS)
    cells: list[tuple[object, ...]] = [
        (
            one["number"], one["instance"], show.moment(one["started_ms"]),
            show.span(_ran_ms(one)), one["rate"], one["cause"] or "-",
            *(show.dollars(one[part]) for part in _PARTS),
        )
        for one in found["attempts"]
    ]  # fmt: skip
    if not cells:
        print(f"Task {found['task']} has not been tried: it has cost nothing.")
        return
    cells.append(("total", "", "", "", "", "", *(show.dollars(found["total"][part]) for part in _PARTS)))
    console().print(_with_total(columns, cells))
    print(_shares(found["total"]))
    if any(one["ended_ms"] is None for one in found["attempts"]):
        print("An attempt still runs: counted up to now.")
    if any(one["work"] is None for one in found["attempts"]):
        print("What is unknown was on VMs that are past retention.")


def _with_total(columns: Sequence[str], cells: Sequence[Sequence[object]]) -> show.Listing:
    """The last line set apart, amounts to the right."""
    return show.table(columns, cells, right=_PARTS, total=True)


def _shares(total: Row) -> str:
    """Which part was not work that counted."""
    whole = max(total["total"], 1)
    retry, idle = (total[part] * 1000 // whole for part in ("retry", "idle"))
    return (
        f"{retry // 10}.{retry % 10}% for attempts made again, {idle // 10}.{idle % 10}% for VMs that booted or idled."
    )


def _name(value: object) -> object:
    return "-" if value in (None, "") else value


def _vms(count: int) -> str:
    return f"{count} VM{'' if count == 1 else 's'}"


def _ran_ms(attempt: Row) -> int | None:
    if attempt["started_ms"] is None or attempt["ended_ms"] is None:
        return None
    return int(attempt["ended_ms"] - attempt["started_ms"])


def _decimal(value: int | None, digits: int) -> str:
    """Exact text; nothing for what is unknown."""
    return "" if value is None else f"{value // 10**digits}.{value % 10**digits:0{digits}d}"


def _iso(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
