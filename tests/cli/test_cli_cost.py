"""`cost`: tables with a total, exact CSV and JSON, all pages as one answer."""

from __future__ import annotations

from typing import Any


def row(work: int, retry: int = 0, idle: int = 0, **keys: Any) -> dict[str, Any]:
    return {**keys, "work": work, "retry": retry, "idle": idle, "total": work + retry + idle}


def page(*rows: dict[str, Any], by: str, **more: Any) -> dict[str, Any]:
    total = {part: sum(one[part] for one in rows) for part in ("work", "retry", "idle", "total")}
    return {"by": by.split(","), "rows": rows, "total": total, "running": 0, "unpriced": 0, "next": None, **more}


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_a_table_has_the_dearest_first_and_a_total(cli: Any, dispatcher: Any) -> None:
    """What lives, what has no price and what is nobody's is said."""
    dispatcher.costs[""] = page(
        row(1_000_000, project="genes"), row(0, idle=250_000, project=""), row(2_000_000, 750_000, project="stars"),
        by="project", running=2, unpriced=1,
    )  # fmt: skip
    out = cli("cost", "--since", "7d", "--pool", "big").out
    table = lines(out)
    assert table[0] == ["project", "work", "retry", "idle", "total"]
    assert [line[0] for line in table[2:6]] == ["stars", "genes", "-", "total"]
    assert table[5][1:] == ["$3.000000", "$0.750000", "$0.250000", "$4.000000"]
    assert "18.7% for attempts made again, 6.2% for VMs that booted or idled." in out
    assert "2 VMs still alive: counted up to now." in out
    assert "1 VM without a known price: counted as nothing." in out
    (method, path) = dispatcher.requests[-1]
    assert method == "GET"
    assert all(word in path for word in ("by=project", "since=7d", "pool=big"))


def test_days_stand_in_their_order(cli: Any, dispatcher: Any) -> None:
    rows = [row(n, day=f"2026-10-0{n}") for n in (1, 2, 3)]
    dispatcher.costs[""] = page(*rows, by="day")
    assert [line[0] for line in lines(cli("cost", "--by", "day").out)[2:5]] == [one["day"] for one in rows]


def test_all_pages_are_one_answer(cli: Any, dispatcher: Any) -> None:
    """A task that ran on two instances stands on two pages and is one row."""
    dispatcher.costs[""] = page(row(10, 1, task=7), row(1, task=None), by="task", running=1, next="more")
    dispatcher.costs["more"] = page(row(5, task=3), row(20, 2, task=7), by="task", running=None, unpriced=None)
    whole = cli("cost", "--by", "task", "--json").json()
    assert whole["rows"] == [row(5, task=3), row(30, 3, task=7), row(1, task=None)]
    assert (whole["total"], whole["running"], whole["unpriced"]) == (row(36, 3), 1, 0)
    assert cli("cost", "--by", "task", "--csv").out.splitlines() == [
        "task,work,retry,idle,total",
        "3,0.000005,0.000000,0.000000,0.000005",
        "7,0.000030,0.000003,0.000000,0.000033",
        ",0.000001,0.000000,0.000000,0.000001",
    ]


def test_csv_is_quoted_and_exact_beyond_what_floats_hold(cli: Any, dispatcher: Any) -> None:
    dispatcher.costs[""] = page(row(90_071_992_547_409_930_001, project='a "b", c'), by="project")
    assert cli("cost", "--csv").out.splitlines()[1].startswith('"a ""b"", c",90071992547409.930001,')


def test_nothing_spent_is_said(cli: Any, dispatcher: Any) -> None:
    dispatcher.costs[""] = page(by="project")
    assert cli("cost").out == "Nothing was spent.\n"
    assert cli("cost", "--csv").out == "project,work,retry,idle,total\n"


def test_a_task_shows_its_attempts(cli: Any, dispatcher: Any) -> None:
    """One in vain, one on a VM that nobody remembers, one that runs."""
    common = {"token": 1, "instance": "vm-0", "started_ms": 1_000, "rate_nano": 40_000_000, "rate": "$0.04/h"}
    attempts = [
        {"number": 1, "ended_ms": 61_000, "cause": "preempted", **common, **row(0, 500_000, 250_000)},
        {"number": 2, "ended_ms": 62_000, "cause": "timeout", **common, **dict.fromkeys(row(0))},
        {"number": 3, "ended_ms": None, "cause": None, **common, **row(250_000)},
    ]
    dispatcher.costs["17"] = {"task": 17, "attempts": attempts, "total": row(250_000, 500_000, 250_000)}
    out = cli("cost", "--task", "17").out
    table = lines(out)
    assert table[2] == (
        ["1", "vm-0", "1970-01-01", "00:00:01", "1m00s", "$0.04/h", "preempted", "$0.000000", "$0.500000", "$0.250000",
         "$0.750000"]
    )  # fmt: skip
    assert table[3][-4:] == ["unknown"] * 4
    assert "50.0% for attempts made again, 25.0% for VMs that booted or idled." in out
    assert "An attempt still runs: counted up to now." in out
    assert "What is unknown was on VMs that are past retention." in out
    header, first, second, third = cli("cost", "--task", "17", "--csv").out.splitlines()
    assert header == "number,instance,started,ended,cause,rate,work,retry,idle,total"
    assert first.startswith("1,vm-0,1970-01-01T00:00:01.000+00:00,1970-01-01T00:01:01.000+00:00,preempted,0.040000000,")
    assert second.endswith(",0.040000000,,,,")
    assert third.startswith("3,vm-0,1970-01-01T00:00:01.000+00:00,,,")
    dispatcher.costs["18"] = {"task": 18, "attempts": [], "total": row(0)}
    assert cli("cost", "--task", "18").out == "Task 18 has not been tried: it has cost nothing.\n"


def test_two_forms_at_once_are_refused(cli: Any, dispatcher: Any) -> None:
    assert cli("cost", "--csv", "--json").code == 2


def test_one_task_is_not_chosen_from(cli: Any, dispatcher: Any) -> None:
    """An option that would do nothing is refused: nobody shall take all attempts for those of a week."""
    for words in ("--by day", "--since 7d", "--until 2026-10-05", "--project genes", "--user ann", "--pool big"):
        assert cli("cost", "--task", "17", *words.split()).code == 2
    assert dispatcher.requests == []
