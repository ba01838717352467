"""`simulate`, as a user types it."""

from __future__ import annotations

import asyncio
import errno
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.cli import advance, simulate
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import Store
from cloud_dispatch.statestore import open_store
from cloud_dispatch.testing.store_builders import ManualClock, spec
from tests.cli.conftest import Cli

CONFIG = """
[dispatcher]
listen = "127.0.0.1:1"
state_dir = "state"
[profiles.here]
driver = "local"
boot_delay = "20s"
[pools.default]
profiles = ["here"]
"""
TASKS = '{"command": "true", "array": 6, "expected_runtime": "2m"}\n'


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    return tmp_path


def test_json_has_every_figure(house: Path, cli: Cli) -> None:
    """Makespan, waits, the split of time and money, utilisation, instances over time, assumptions; one document."""
    ran = cli("simulate", str(house / "tasks.jsonl"), "--config", str(house / "config.toml"), "--json")
    assert ran.code == 0, ran.err
    found = ran.json()
    assert found["tasks"] == {"succeeded": 6}
    assert found["makespan_ms"] > 120_000
    assert found["wait_ms"]["count"] == 6
    for split in (found["time_ms"], found["cost_micro"]):
        assert split["boot"] + split["work"] + split["idle"] + split["lost"] == split["total"] > 0
    assert 0 < found["utilisation"]["cpus"] <= found["utilisation"]["instances"] < 1
    assert found["instances"]["over_time"]
    assert any("expected_runtime" in text for text in found["assumptions"])
    assert found["findings"] == []


def test_it_says_how_far_it_is(house: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error, in lines where that is no terminal; what is over soon says nothing."""
    (house / "tasks.jsonl").write_text(TASKS.replace("2m", "20m"))
    words = ("simulate", str(house / "tasks.jsonl"), "--config", str(house / "config.toml"), "--json")
    quiet = cli(*words)
    assert quiet.err == ""
    monkeypatch.setattr(advance, "_LINE_S", 0.0)
    ran = cli(*words)
    said = ran.err.splitlines()
    assert said[0] == "0 of 6 tasks ended, 0s simulated"
    assert len(said) >= 2
    assert re.fullmatch(r"\d of 6 tasks ended, \d+m simulated(, \d+s left at this pace)?", said[-1])
    assert ran.out == quiet.out


@pytest.mark.parametrize(
    ("ended", "virtual_ms", "left_s"),
    [
        ((0, 100), (36, 365), None),  # who can tell?
        ((50, 100), (73, 365), 40),  # most of them came early, and days take their time whatever comes
        ((10, 100), (365, 365), 90),
        ((50, 100), (730, 365), 10),  # all have come
        ((50, 100), (0, 0), 10),  # all came at once
        ((100, 100), (365, 365), 0),
    ],
)
def test_the_time_left_is_by_what_is_less_far(
    ended: tuple[int, int], virtual_ms: tuple[int, int], left_s: int | None
) -> None:
    """After ten seconds: by the tasks that have ended, or by the time until the last one comes."""
    assert advance.rest_s(10.0, ended, virtual_ms) == left_s


def test_on_a_terminal_a_bar_says_so(house: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves, and is taken away when it is done."""
    (house / "tasks.jsonl").write_text(TASKS.replace("2m", "20m"))
    drawn = StringIO()
    monkeypatch.setattr(advance, "_BAR_S", 0.0)
    monkeypatch.setattr(advance, "messages", lambda: Console(file=drawn, force_terminal=True, width=100))
    ran = cli("simulate", str(house / "tasks.jsonl"), "--config", str(house / "config.toml"), "--json")
    assert ran.code == 0, ran.err
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.getvalue())
    assert "0/6 tasks ended, 0s simulated" in shown
    assert re.search(r"\d/6 tasks ended, [1-9]\d*m simulated", shown)
    assert drawn.getvalue().endswith("\x1b[2K")
    assert ran.err == ""


SIGNALS, NAMES = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), ("Ctrl-C", "SIGTERM", "SIGHUP")


@pytest.mark.parametrize("number", SIGNALS, ids=NAMES)
def test_a_signal_ends_the_run_and_shows_it_so_far(
    house: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """An hour of somebody's time is not thrown away; what is shown says first of all that it is not the whole."""
    (house / "log.csv").write_text("submit,run\n0,60\n0,72000\n90000,1\n")
    words = ("simulate", str(house / "log.csv"), "--config", str(house / "config.toml"))
    monkeypatch.setattr(advance, "_LINE_S", 0.0)
    monkeypatch.setattr(advance, "say", lambda text: signal.raise_signal(number) if "10m" in text else None)
    shown = cli(*words)
    assert shown.code == 130
    assert shown.out.splitlines()[0].endswith(": 1 running, 1 succeeded, 1 not submitted yet")
    assert "not all tasks ended" in shown.out
    assert shown.out.splitlines()[1] == "the run was stopped: all figures are of its first 10m alone"
    assert "finding: 2 of 3 tasks had not ended after 10m" in shown.out
    assert re.search(r"^ *turnaround +1 of 3 +\d", shown.out, re.MULTILINE)
    ran = cli(*words, "--json")
    assert (ran.code, ran.json()["unfinished"], ran.json()["makespan_ms"]) == (130, 2, None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.parametrize("second", SIGNALS, ids=NAMES)
@pytest.mark.parametrize("first", SIGNALS, ids=NAMES)
def test_a_second_one_ends_it_at_once(house: Path, first: signal.Signals, second: signal.Signals) -> None:
    """Who does not want to see it so far need not wait for it. Nothing of it stays on the machine, as it would where
    SIGTERM did what it always does."""
    program = f"""
import signal, sys
from pathlib import Path
from cloud_dispatch.cli import advance, main
from cloud_dispatch.simulation import disk

def twice(text):
    signal.raise_signal({first:d})
    signal.raise_signal({second:d})

disk._MEMORY = Path("memory")
advance._LINE_S, advance.say = 0.0, twice
sys.argv[1:] = ["simulate", "tasks.jsonl", "--config", "config.toml"]
main.main()
"""
    (house / "memory").mkdir()
    ran = subprocess.run([sys.executable, "-c", program], cwd=house, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (130, "")
    assert list((house / "memory").iterdir()) == []


@pytest.mark.parametrize("terminal", [False, True], ids=["a pipe", "a terminal"])
def test_who_goes_away_while_it_says_how_far_it_is_spoils_nothing(
    house: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """The figures go elsewhere: they are whole, and no finding speaks of it; Ctrl-C still ends the run."""

    class Gone(StringIO):
        said = 0

        def write(self, text: str) -> int:
            self.said += 1
            if self.said > 3:
                raise OSError(errno.EIO, "gone")
            return len(text)

    words = ("simulate", str(house / "tasks.jsonl"), "--config", str(house / "config.toml"), "--json")
    whole, gone = cli(*words), Gone()
    monkeypatch.setattr(advance, "_LINE_S", 0.0)
    monkeypatch.setattr(advance, "_BAR_S", 0.0)
    monkeypatch.setattr(advance, "say", gone.write)
    if terminal:
        monkeypatch.setattr(advance, "messages", lambda: Console(file=gone, force_terminal=True, width=100))
    ran = cli(*words)
    assert gone.said > 4
    assert (ran.code, ran.out) == (0, whole.out)


def test_the_seed_decides_the_answer(house: Path, cli: Cli) -> None:
    """Twice the same command line, twice the same bytes."""
    words = ("simulate", str(house / "tasks.jsonl"), "--config", str(house / "config.toml"), "--seed", "5", "--json")
    assert cli(*words).out == cli(*words).out


def test_a_table_shows_the_figures_and_what_was_assumed(house: Path, cli: Cli) -> None:
    """For people: figures first, assumptions last."""
    ran = cli("simulate", str(house / "tasks.jsonl"), "--config", str(house / "config.toml"))
    assert ran.code == 0, ran.err
    for word in ("6 succeeded", "makespan", "wait", "p99", "lost", "instances over time", "assumed:"):
        assert word in ran.out


def test_tables_fit_a_terminal_of_80_columns(house: Path, cli: Cli) -> None:
    """Time and money of the parts in tables of their own: a line a type, none folded."""
    (house / "config.toml").write_text(CONFIG.replace("here", "somewhere-else"))
    ran = cli("simulate", str(house / "tasks.jsonl"), "--config", str(house / "config.toml"))
    parts = ["boot", "work", "idle", "lost", "total"]
    lines = [line.rstrip() for line in ran.out.splitlines()]
    heads = [line.split() for line in lines if line.strip().startswith(("time of", "cost of"))]
    assert heads == [["time", "of", "count", *parts], ["cost", "of", *parts]]
    times, costs = (line for line in lines if line.strip().startswith("somewhere-else/local."))
    assert len(times.split()) == 7
    assert [len(cell.partition(".")[2]) for cell in costs.split()[1:]] == [4] * 5
    assert max(map(len, lines[1 : lines.index("assumed:")])) <= 80


@pytest.mark.parametrize(
    ("micro", "text"),
    [(0, "$0.0000"), (99, "<$0.0001"), (12_345, "$0.0123"), (1_234_567_890, "$1234.57"), (999_999, "$1.0000")],
)
def test_money_in_a_table_is_short(micro: int, text: str) -> None:
    """Four decimals below a dollar, cents above; what is not nothing does not look like it."""
    assert simulate._money(micro) == text


def test_a_table_says_by_what_tasks_failed(house: Path, cli: Cli) -> None:
    """Whoever simulates work that its instances do not outlive is told so."""
    (house / "log.csv").write_text("submit,run\n0,7200\n0,60\n")
    (house / "config.toml").write_text(CONFIG + '[pools.default.end]\nlifetime = "1h"\n')
    ran = cli("simulate", str(house / "log.csv"), "--config", str(house / "config.toml"))
    assert ran.code == 0, ran.err
    assert "1 failed, 1 succeeded" in ran.out
    assert "failed by" in ran.out
    assert "preempted 1" in ran.out


def test_a_log_is_cut_and_scaled(house: Path, cli: Cli) -> None:
    """Options choose a part of a log, split wide jobs and shrink times."""
    (house / "log.csv").write_text("submit_h,run_h,cpus\n0,1,1\n24,1,2\n25,1,8\n48,1,1\n")
    ran = cli(
        "simulate", str(house / "log.csv"), "--config", str(house / "config.toml"), "--json", "--from", "1d", "--until",
        "2d", "--split", "4", "--scale-runtimes", "1/60", "--scale-arrivals", "0.01",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.json()["tasks"] == {"succeeded": 3}
    assert ran.json()["workload"]["span_ms"] == 36_000


def test_work_that_does_not_end_is_exit_code_1(house: Path, cli: Cli) -> None:
    """The run's patience is over before the task is."""
    (house / "log.csv").write_text("submit,run_h\n0,10\n")
    ran = cli("simulate", str(house / "log.csv"), "--config", str(house / "config.toml"), "--patience", "1h", "--json")
    assert ran.code == 1
    assert ran.json()["unfinished"] == 1
    assert ran.json()["makespan_ms"] is None


def test_waits_say_of_how_many_tasks_they_are(house: Path, cli: Cli) -> None:
    """Of a task that never ended there is no turnaround, not one of zero."""
    (house / "log.csv").write_text("submit,run_h\n0,10\n")
    ran = cli("simulate", str(house / "log.csv"), "--config", str(house / "config.toml"), "--patience", "1h")
    assert re.search(r"^ *wait +1 of 1 +\d", ran.out, re.MULTILINE)
    assert re.search(r"^ *turnaround +0 of 1( +-){5} *$", ran.out, re.MULTILINE)


def test_tasks_that_fit_nothing_are_told_beside_those_that_ended(house: Path, cli: Cli) -> None:
    """First of all, and not only among what was assumed."""
    (house / "log.csv").write_text("submit,run_s,cpus\n0,10,1\n0,10,5000\n")
    words = ("simulate", str(house / "log.csv"), "--config", str(house / "config.toml"))
    ended, left = cli(*words).out.splitlines()[:2]
    assert ended.endswith("1 succeeded")
    assert left == "1 task left out: no offering of any pool fits (see what was assumed)"
    assert cli(*words, "--json").json()["workload"]["misfits"] == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--form", "xml"), "--form: expected auto, tasks, swf, csv, got 'xml'"),
        (("--split", "none"), "--split: 'none' is not a number of cpus"),
        (("--from", "soon"), "--from: expected a duration"),
        (("--scale-runtimes", "-1"), "--scale-runtimes: expected a factor"),
        (("--scale-arrivals", "1/0"), "--scale-arrivals: expected a factor"),
        (("--time-unit", "year"), "--time-unit: expected ms, s, m, h"),
        (
            ("--memory-per-cpu", "lots"),
            "--memory-per-cpu: expected a size (e.g. 512MiB, 8GiB)",
        ),
        (("--memory-per-cpu", "4096"), "--memory-per-cpu: expected at least 1MiB, got 4096 bytes"),
        (("--boot", "-1"), "--boot: expected a duration"),
        (("--from", "2d", "--until", "1d"), "--until: expected a window that ends after it begins"),
        (("--until", "0s"), "--until: expected a window"),
        (("--tasks", "0"), "--tasks: expected 1 to"),
        (("--scale-runtimes", "0"), "--scale-runtimes: expected a factor above 0"),
        (("--split", "0"), "--split: "),
        (("--time-unit", "h"), "--time-unit: has no effect on a task file"),
        (("--allocated",), "--allocated: has no effect on a task file"),
        (("--memory-per-cpu", "1GiB"), "--memory-per-cpu: has no effect on a task file"),
    ],
)
def test_a_wrong_option_is_named(house: Path, cli: Cli, words: tuple[str, ...], told: str) -> None:
    """Usage errors say which option and what was expected; nothing is simulated."""
    ran = cli("simulate", str(house / "tasks.jsonl"), "--config", str(house / "config.toml"), *words)
    assert ran.code == 2
    assert told in ran.err
    assert ran.out == ""


def test_an_option_that_says_nothing_of_a_log_or_the_history_is_refused(house: Path, cli: Cli) -> None:
    """Logs know how long their jobs ran, and only those in SWF what was allocated; the history is of no form."""
    (house / "log.csv").write_text("submit,run\n0,10\n")
    words = ("simulate", str(house / "log.csv"), "--config", str(house / "config.toml"))
    assert "--runtime: has no effect on a log in CSV" in cli(*words, "--runtime", "1m").err
    assert "--allocated: has no effect on a log in CSV" in cli(*words, "--allocated").err
    assert "--runtime: has no effect on a log in SWF" in cli(*words, "--form", "swf", "--runtime", "1m").err
    past = cli("simulate", "--config", str(house / "config.toml"), "--form", "swf")
    assert (past.code, past.out) == (2, "")
    assert "--form: has no effect on the history of the statestore" in past.err


def test_a_bad_line_is_told_with_its_place(house: Path, cli: Cli) -> None:
    """File, line and column, exit code 2; a file that is not there is 3."""
    (house / "log.csv").write_text("submit,run\n0,1\n0,never\n")
    ran = cli("simulate", str(house / "log.csv"), "--config", str(house / "config.toml"))
    assert ran.code == 2
    assert "log.csv:3: run: expected a time" in ran.err
    assert cli("simulate", str(house / "absent.swf"), "--config", str(house / "config.toml")).code == 3


def test_without_a_statestore_there_is_no_history(house: Path, cli: Cli) -> None:
    """No workload and no past: told, and no statestore is made."""
    ran = cli("simulate", "--config", str(house / "config.toml"))
    assert ran.code == 2
    assert "there is no statestore" in ran.err
    assert not (house / "state").exists()
    assert ran.out == ""


class _Names:
    """Names for a statestore that a test makes."""

    def name(self, purpose: str, length: int = 12) -> str:
        return "s" + "0" * (length - 1)

    def secret(self, purpose: str) -> str:
        return purpose

    def fraction(self, purpose: str) -> float:
        return 0.5


async def _queue(folder: Path) -> Store:
    """A statestore with three tasks that wait, open."""
    store = await open_store(
        f"sqlite:///{folder}/state/store.sqlite", clock=ManualClock(), entropy=_Names(), executor=Inline()
    )
    await store.submit([spec("a", expected_runtime_ms=60_000), spec("b"), spec("c")])
    return store


async def test_the_history_is_read_while_a_dispatcher_has_the_statestore(house: Path, cli: Cli) -> None:
    """The store is locked by its owner and is left as it is; its tasks are the workload."""
    store = await _queue(house)
    words = ("simulate", "--config", str(house / "config.toml"), "--json", "--runtime", "30s")
    ran = await asyncio.get_running_loop().run_in_executor(None, lambda: cli(*words))
    counts = store.task_counts()
    await store.close()
    assert ran.code == 0, ran.err
    assert ran.json()["tasks"] == {"succeeded": 3}
    assert "3 tasks have not run to an end: they take what they expect, else 30s" in ran.json()["assumptions"]
    assert counts[TaskState.QUEUED] == 3
