"""`simulate`: what the configuration would do with a workload, how long it would take and what it would cost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import typer

from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.cli import show
from cloud_dispatch.cli.advance import advancing
from cloud_dispatch.cli.exitcodes import INTERRUPTED, OK, TASKS_FAILED
from cloud_dispatch.cli.options import ConfigFile, Json
from cloud_dispatch.cli.session import console, emit, load_config
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.offering import Market

if TYPE_CHECKING:
    from cloud_dispatch.config import Config
    from cloud_dispatch.simulation.report import Parts, Report, Sample
    from cloud_dispatch.simulation.study.engine import Answer
    from cloud_dispatch.simulation.study.question import Study
    from cloud_dispatch.simulation.workload.cut import Cut
    from cloud_dispatch.simulation.workload.items import Workload
    from cloud_dispatch.simulation.workload.read import Reading

_CUT, _KNOW, _CLOUD = "How much of it", "What the workload leaves open", "The clouds"
T = TypeVar("T")
_FACTOR = re.compile(r"\d{1,9}(\.\d{1,9}|/[1-9]\d{0,8})?")
#: The options that cut a workload, by the fields of `Cut`.
_CUTS = {
    "from_ms": "--from", "until_ms": "--until", "tasks": "--tasks", "arrivals": "--scale-arrivals",
    "runtimes": "--scale-runtimes", "split_cpus_milli": "--split",
}  # fmt: skip
#: What else may be said of a workload, and of which forms ("" is the history).
_SAY: dict[str, tuple[str, ...]] = {
    "form": ("tasks", "swf", "csv"), "runtime": ("tasks", ""), "memory": ("swf", "csv"), "unit": ("csv",),
    "allocated": ("swf",),
}  # fmt: skip
_NAMES = {"memory": "--memory-per-cpu", "unit": "--time-unit"}
_FORMS = {"tasks": "a task file", "swf": "a log in SWF", "csv": "a log in CSV", "": "the history of the statestore"}
_BARS = " ▁▂▃▄▅▆▇█"
_BAR_COLUMNS = 60


def register(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(
    workload: Annotated[
        Optional[Path],  # noqa: UP045  (typer reads it at run time)
        typer.Argument(
            help="A task file, or a log as .swf or .csv, each also gzipped; without: the statestore's own history."
        ),
    ] = None,
    form: Annotated[str, typer.Option("--form", help="auto (default), tasks, swf or csv.", rich_help_panel=_KNOW)] = "",
    begin: Annotated[
        str, typer.Option("--from", help="Leave out what is before, such as 2d.", rich_help_panel=_CUT)
    ] = "",
    until: Annotated[
        str, typer.Option("--until", help="Leave out what comes then or later.", rich_help_panel=_CUT)
    ] = "",
    tasks: Annotated[int, typer.Option("--tasks", help="Only the first so many.", rich_help_panel=_CUT)] = 100_000,
    scale_arrivals: Annotated[
        str, typer.Option("--scale-arrivals", help="Multiply times between submissions.", rich_help_panel=_CUT)
    ] = "1",
    scale_runtimes: Annotated[
        str, typer.Option("--scale-runtimes", help="Multiply run times.", rich_help_panel=_CUT)
    ] = "1",
    split: Annotated[
        str, typer.Option("--split", help="Split tasks of more cpus into such of so many.", rich_help_panel=_CUT)
    ] = "",
    runtime: Annotated[
        str, typer.Option("--runtime", help="Of tasks that say none (default: 10m).", rich_help_panel=_KNOW)
    ] = "",
    memory: Annotated[
        str, typer.Option("--memory-per-cpu", help="Of logs that know none (default: 512MiB).", rich_help_panel=_KNOW)
    ] = "",
    unit: Annotated[
        str, typer.Option("--time-unit", help="Of a CSV's times: ms, s, m or h.", rich_help_panel=_KNOW)
    ] = "",
    allocated: Annotated[
        bool, typer.Option("--allocated", help="SWF: processors as allocated, not requested.", rich_help_panel=_KNOW)
    ] = False,
    boot: Annotated[
        str,
        typer.Option("--boot", help="How long instances boot: as recorded, else expected.", rich_help_panel=_CLOUD),
    ] = "",
    spot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--spot", help="CSV of spot prices: time, type, zone, price.", rich_help_panel=_CLOUD),
    ] = None,
    patience: Annotated[
        str, typer.Option("--patience", help="End the run so long after the last submission.", rich_help_panel=_CLOUD)
    ] = "7d",
    seed: Annotated[int, typer.Option("--seed", help="Decides all chance.", min=0)] = 0,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Say what this configuration would do with a workload: how long it takes, who waits, what it costs. Rents nothing.

    The real dispatcher and agents run in virtual time on simulated clouds that sell what the profiles offer now.

    Examples: cloud-dispatch simulate tasks.csv --config ./config.toml

    cloud-dispatch simulate year.swf.gz --from 30d --until 31d --split 16 --json
    """
    from cloud_dispatch.simulation import report
    from cloud_dispatch.simulation.study.engine import answer

    settings = load_config(config)
    texts = {
        "form": form, "begin": begin, "until": until, "arrivals": scale_arrivals, "runtimes": scale_runtimes,
        "split": split, "runtime": runtime, "memory": memory, "unit": unit,
    }  # fmt: skip
    reading = _reading(settings, tasks, allocated, texts)
    _check_effect(workload, reading, {**texts, "allocated": allocated})
    work = _workload(settings, workload, reading)
    asked = _study(settings, work, seed, boot, patience, spot)
    with advancing(asked.scenario.tasks, work.span_ms) as advance:
        found = answer(asked.scenario, advance)
    figures = report.report(found.record, asked.assumptions)
    value = _as_json(work, asked, seed, figures, found)
    emit(value, as_json, lambda: _render(figures, work, asked.misfits, found))
    raise typer.Exit(INTERRUPTED if found.stopped else TASKS_FAILED if figures.unfinished else OK)


def _as_json(work: Workload, asked: Study, seed: int, figures: Report, found: Answer) -> dict[str, Any]:
    """The whole answer for programs."""
    from cloud_dispatch.simulation.report import as_json

    return {
        "workload": {
            "origin": work.origin,
            "tasks": asked.scenario.tasks,
            "span_ms": work.span_ms,
            "misfits": asked.misfits,
        },
        "seed": seed,
        **as_json(figures),
        "billed_micro": found.billed,
        "findings": list(found.findings),
    }


def _reading(config: Config, tasks: int, allocated: bool, texts: dict[str, str]) -> Reading:
    """How to read the workload, from what was typed; InvalidInput at the option that is wrong."""
    from cloud_dispatch.demand import fields
    from cloud_dispatch.demand.settings import submission_limits
    from cloud_dispatch.domain.durations import parse_duration
    from cloud_dispatch.simulation.workload.csvlog import UNITS, CsvRules
    from cloud_dispatch.simulation.workload.read import Form, Reading
    from cloud_dispatch.simulation.workload.swf import SwfRules

    each = _read("--memory-per-cpu", fields.memory, texts["memory"] or "512MiB")
    return Reading(
        form=Form(_one_of("--form", texts["form"] or "auto", list(Form))),
        cut=_cut(tasks, texts),
        run_ms=_read("--runtime", parse_duration, texts["runtime"] or "10m"),
        swf=SwfRules(requested=not allocated, memory_per_cpu=each),
        csv=CsvRules(unit=_one_of("--time-unit", texts["unit"], list(UNITS)) if texts["unit"] else None,
                     memory_per_cpu=each),
        limits=submission_limits(config),
    )  # fmt: skip


def _cut(tasks: int, texts: dict[str, str]) -> Cut:
    from cloud_dispatch.domain.durations import parse_duration
    from cloud_dispatch.domain.resources import parse_cpus
    from cloud_dispatch.simulation.workload.cut import Cut

    values: dict[str, Any] = {
        "from_ms": _read("--from", parse_duration, texts["begin"]) if texts["begin"] else None,
        "until_ms": _read("--until", parse_duration, texts["until"]) if texts["until"] else None,
        "tasks": tasks,
        "arrivals": _read("--scale-arrivals", _factor, texts["arrivals"]),
        "runtimes": _read("--scale-runtimes", _factor, texts["runtimes"]),
        "split_cpus_milli": _read("--split", parse_cpus, texts["split"]) if texts["split"] else 0,
    }
    try:
        return Cut(**values)
    except InvalidInput as error:
        raise InvalidInput(error.message, place=_CUTS.get(error.place, error.place)) from None


def _check_effect(path: Path | None, reading: Reading, given: Mapping[str, Any]) -> None:
    """InvalidInput for what was typed and says nothing of this form of workload."""
    from cloud_dispatch.simulation.workload.read import Form, form_of

    form = "" if path is None else str(form_of(path) if reading.form is Form.AUTO else reading.form)
    for name, forms in _SAY.items():
        if given[name] and form not in forms:
            raise InvalidInput(f"has no effect on {_FORMS[form]}", place=_NAMES.get(name, f"--{name}"))


def _workload(config: Config, path: Path | None, reading: Reading) -> Workload:
    """The file's, or the statestore's own past."""
    from cloud_dispatch.simulation.study.past import read_past
    from cloud_dispatch.simulation.workload.read import from_record, read_workload

    if path is not None:
        return read_workload(path, reading)
    return from_record(read_past(config), "history of the statestore", reading)


def _study(config: Config, work: Workload, seed: int, boot: str, patience: str, spot: Path | None) -> Study:
    from cloud_dispatch.domain.durations import parse_duration
    from cloud_dispatch.simulation.study.offers import offers, quotas
    from cloud_dispatch.simulation.study.question import Wishes, study
    from cloud_dispatch.simulation.workload.spot import read_spot_prices

    wishes = Wishes(
        seed=seed,
        boot_ms=_read("--boot", parse_duration, boot) if boot else None,
        spot=read_spot_prices(spot) if spot is not None else (),
        patience_ms=_read("--patience", parse_duration, patience),
    )
    now = SystemClock().now()
    return study(config, asyncio.run(offers(config, now)), work, wishes, asyncio.run(quotas(config, now)))


def _read(option: str, reader: Callable[[str], T], text: str) -> T:
    """`reader(text)`; its ValueError is the option's."""
    try:
        return reader(text)
    except ValueError as error:
        raise InvalidInput(str(error), place=option) from None


def _one_of(option: str, text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise InvalidInput(f"expected {', '.join(known)}, got {text!r}", place=option)
    return text


def _factor(text: str) -> Fraction:
    if not _FACTOR.fullmatch(text):
        raise ValueError(f"expected a factor (e.g. 0.5, 1/24), got {text!r}")
    return Fraction(text)


def _render(found: Report, work: Workload, misfits: int, answer: Answer) -> None:
    """The figures as tables, then what was assumed."""
    states = [f"{count} {state}" for state, count in found.tasks.items()]
    if found.unsubmitted:
        states.append(f"{found.unsubmitted} not submitted yet")
    print(show.clean(f"{work.origin}: {', '.join(states)}"))
    findings = list(answer.findings)
    if answer.stopped:
        print(findings.pop(0))
    if misfits:
        print(f"{show.count(misfits, 'task')} left out: no offering of any pool fits (see what was assumed)")
    rows = [
        ("makespan", show.span(found.makespan_ms) if found.makespan_ms is not None else "not all tasks ended"),
        ("cost", show.dollars(found.cost.total) + (f" and {found.unpriced} unpriced" if found.unpriced else "")),
        ("instances", f"{sum(line.count for line in found.types)} in all, at most {found.most_instances} at once"),
        ("utilisation", f"instances work {found.work_permille / 10:.1f}%, cpus {found.cpu_permille / 10:.1f}%"),
    ]
    if found.failures:
        rows.append(("failed by", ", ".join(f"{cause} {count}" for cause, count in found.failures.items())))
    out = console()
    out.print(show.table(("figure", "value"), rows, "value"))
    out.print(show.table(("of a task", "tasks", "mean", "p50", "p90", "p99", "max"), _spreads(found)))
    names = [f"{own.profile}/{own.type}{' spot' * (own.market is Market.SPOT)}" for own in found.types] + ["all"]
    parts = ("boot", "work", "idle", "lost", "total")
    counts = [*(own.count for own in found.types), sum(own.count for own in found.types)]
    times = [_split(own, show.span) for own in (*(own.time for own in found.types), found.time)]
    costs = [_split(own, _money) for own in (*(own.cost for own in found.types), found.cost)]
    rows_of_time = [(name, count, *cells) for name, count, cells in zip(names, counts, times, strict=True)]
    out.print(show.table(("time of", "count", *parts), rows_of_time, right=parts, total=True))
    rows_of_cost = [(name, *cells) for name, cells in zip(names, costs, strict=True)]
    out.print(show.table(("cost of", *parts), rows_of_cost, right=parts, total=True))
    if found.curve:
        print(f"instances over time (most: {found.most_instances}):")
        print(_bars(found.curve, found.most_instances))
    for text in findings:
        print(show.clean(f"finding: {text}"))
    print("assumed:")
    for text in found.assumptions:
        print(show.clean(f"- {text}"))


def _spreads(found: Report) -> list[tuple[str, ...]]:
    """Waits and turnarounds, and of how many tasks: those that never started waited longest."""
    every = sum(found.tasks.values()) + found.unsubmitted
    return [
        (
            name,
            f"{own.count} of {every}",
            *(show.span(ms if own.count else None) for ms in (own.mean, own.p50, own.p90, own.p99, own.longest)),
        )
        for name, own in (("wait", found.wait), ("turnaround", found.turnaround))
    ]


def _split(found: Parts, text: Callable[[int], str]) -> tuple[str, ...]:
    """Each part in words, and the total."""
    return tuple(text(value) for value in (found.boot, found.work, found.idle, found.lost, found.total))


def _money(micro: int) -> str:
    """In so few characters that a table of parts fits: `$0.0123`, `$1234.57`; JSON has all of it."""
    if 0 < micro < 100:
        return "<$0.0001"
    return f"${Decimal(micro) / 1_000_000:.{2 if micro >= 1_000_000 else 4}f}"


def _bars(curve: Sequence[Sample], most: int) -> str:
    """The most instances at once, in bars over the whole run."""
    step = -(-len(curve) // _BAR_COLUMNS)
    heights = [max(sample.most for sample in curve[at : at + step]) for at in range(0, len(curve), step)]
    return "".join(_BARS[-(-height * (len(_BARS) - 1) // most)] if most else _BARS[0] for height in heights)
