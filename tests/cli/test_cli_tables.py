"""Tables in the width that there is: what is typed or reckoned with is whole, and only free text is folded."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from cloud_dispatch.cli import show

INSTANCE: dict[str, Any] = {
    "id": "lvewk3j9x0a1-12", "pool": "default", "type": "Standard_D8ads_v6", "market": "on-demand",
    "state": "out-of-contact", "behaviour": "drain", "tasks": 12, "boot_ms": 74_000, "work_ms": 7_800_000,
    "idle_ms": 61_000, "cost_micro": 12_345_678,
    "reason": "17 tasks wait for 8 cpu, and this is the cheapest", "cause": "",
    "unreachable": "",
}  # fmt: skip
IDS = ("lvewk3j9x0a1-12", "Standard_D8ads_v6", "on-demand", "out-of-contact (drain)", "1m14s", "2h10m", "$12.345678")
Terminal = Callable[[int], None]


def drawn(table: show.Listing, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Makes stdout a terminal of so many columns."""

    def made(width: int) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        for key, value in {"TERM": "dumb", "COLUMNS": str(width), "LINES": "50"}.items():
            monkeypatch.setenv(key, value)

    return made


@pytest.mark.parametrize("width", [80, 100, 160])
def test_instances_keep_their_ids_and_amounts(cli: Any, dispatcher: Any, terminal: Terminal, width: int) -> None:
    """At any usual width; the reason alone is folded, and never into a tower of words."""
    terminal(width)
    dispatcher.instances["one"] = dict(INSTANCE)
    lines = cli("instances").out.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all(any(word in line for line in lines) for word in IDS)
    assert "…" not in "".join(lines)
    assert len([line for line in lines if line.strip()]) <= 7


@pytest.mark.parametrize("width", [80, 100, 160])
def test_what_an_attempt_cost_is_whole(cli: Any, dispatcher: Any, terminal: Terminal, width: int) -> None:
    """Four amounts a line, and the line of the sums."""
    terminal(width)
    parts = {"work": 1_234_567, "retry": 0, "idle": 250_001, "total": 1_484_568}
    attempt = {
        "number": 1, "token": 7, "instance": "lvewk3j9x0a1-12", "started_ms": 1_000, "ended_ms": 61_000,
        "rate_nano": 1, "rate": "$0.407812/h", "cause": "preempted", **parts,
    }  # fmt: skip
    dispatcher.costs["17"] = {"task": 17, "attempts": [attempt], "total": parts}
    out = cli("cost", "--task", "17").out
    assert max(map(cell_len, out.splitlines()[:-1])) <= width
    assert out.count("$1.234567") == out.count("$0.250001") == out.count("$1.484568") == 2
    assert "1970-01-01 00:00:01" in out


@pytest.mark.parametrize("name", ["boot/aws/agent/us-east-1a/ami-0a1b2c3d4e5f60001", "boot/" + "x" * 60])
def test_a_breaker_can_be_named_as_it_is_listed(cli: Any, dispatcher: Any, terminal: Terminal, name: str) -> None:
    terminal(80)
    dispatcher.breakers = [
        {"name": name, "state": "open", "burnt": 5_120_000, "allowance": 5_000_000, "failures": 3,
         "last_failure": "lvewk3j9x0a1-12", "trial": None, "until_ms": 1_700_000_000_000}
    ]  # fmt: skip
    out = cli("breakers", "list").out
    for word in (name, "$5.120000 of $5.000000", "2023-11-14 22:13:20", "lvewk3j9x0a1-12"):
        assert word in out


def test_text_gets_what_the_others_leave_and_is_folded_there() -> None:
    """Also in the middle of a row; a word without a break is broken."""
    table = show.table(("id", "why", "cost"), [("abc", "a word " * 12, "$1"), ("b", "x" * 70, "$2")], "why")
    lines = drawn(table, 60)
    assert lines[2].split()[0] == "abc"
    assert lines[2].endswith("$1")
    assert all(len(line) <= 60 for line in lines)
    assert "".join(lines).count("word") == 12
    assert "".join(lines).count("x") == 70


def test_text_without_room_stands_below_its_row() -> None:
    """Fewer than twenty characters are no room."""
    table = show.table(("id", "why"), [("i" * 30, "no room is left for me")], "why")
    assert drawn(table, 58)[2:] == [f" {'i' * 30}   no room is left for me"]
    assert drawn(table, 55)[2:] == [f" {'i' * 30}   no room is left for", f" {' ' * 30}   me"]
    assert drawn(table, 50)[3:] == [f" {'i' * 30}", "   no room is left for me"]


def test_a_pipe_has_a_line_a_row(cli: Any, dispatcher: Any) -> None:
    """Whatever reads it need not know of widths."""
    dispatcher.instances["one"] = dict(INSTANCE)
    head, _, row = [line for line in cli("instances").out.splitlines() if line.strip()]
    assert head.split()[:3] == ["instance", "pool", "type"]
    assert row.rstrip().endswith(INSTANCE["reason"])
