"""`run` and `submit`: what is typed arrives as tasks, and `run` ends as the tasks end."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cli import command_line, exitcodes, follow, logs, waits

USER = {"user": "me"}


@pytest.fixture(autouse=True)
def _me(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "me")


def succeeds(task: dict[str, Any]) -> None:
    task.update(state="succeeded", cause="success", attempts=1)


def fails(task: dict[str, Any]) -> None:
    task.update(state="failed", cause="exit-code", exit_code=3, attempts=1)


def test_words_after_dashes_are_the_command(cli: Any, dispatcher: Any) -> None:
    """Options of the command are not ours."""
    ran = cli("submit", "--", "python", "-c", "print(1)", "--json")
    assert (ran.code, ran.out) == (0, "1\n")
    assert dispatcher.submitted == [{**USER, "command": ["python", "-c", "print(1)", "--json"]}]


def test_every_option_arrives_as_its_field(cli: Any, dispatcher: Any) -> None:
    """What the command line can say is what a task file can say."""
    words = (
        "submit -c 0.5 -m 1GiB --disk 2GiB --gpus 2 --gpu-type a100 --gpu-memory 40GiB --label zone=b --pool cpu"
        " --exclusive --no-preempt --max-per-instance 3 -e A=1 -e B=x=y --cwd sub --max-runtime 2h"
        " --expected-runtime 5m --max-attempts 5 --retry timeout --retry exit-code:75 -p 7 --project night --user you"
        " --key k --name n --checkpoint-signal SIGUSR1"
        " --input in.txt=https://h/x --output out.txt --output o2=https://h/{token}/y -- true"
    )
    assert cli(*words.split()).code == 0
    assert dispatcher.submitted == [
        {
            "command": ["true"], "cpus": "0.5", "memory": "1GiB", "disk": "2GiB",
            "gpus": {"count": 2, "type": "a100", "memory": "40GiB"}, "labels": {"zone": "b"}, "pool": "cpu",
            "exclusive": True, "preemptible": False, "max_per_instance": 3, "env": {"A": "1", "B": "x=y"}, "cwd": "sub",
            "max_runtime": "2h", "expected_runtime": "5m", "checkpoint_signal": "SIGUSR1", "max_attempts": 5,
            "retry": ["timeout", "exit-code:75"],
            "priority": 7, "project": "night", "user": "you", "idempotency_key": "k", "name": "n",
            "inputs": [{"path": "in.txt", "url": "https://h/x"}],
            "outputs": ["out.txt", {"path": "o2", "url": "https://h/{token}/y"}],
        }
    ]  # fmt: skip


def test_lists_make_a_task_for_each_combination(cli: Any, dispatcher: Any) -> None:
    """Several ::: lists are a product, as in GNU parallel; names and keys are told apart."""
    ran = cli("submit", "--name", "{2}-{#}", "--key", "k", "--", "f", "{1}", "x{2}", ":::", "a", "b", ":::", "1", "2")
    assert ran.out == "1\n2\n3\n4\n"
    assert [task["command"] for task in dispatcher.submitted] == [
        ["f", "a", "x1"], ["f", "a", "x2"], ["f", "b", "x1"], ["f", "b", "x2"]
    ]  # fmt: skip
    assert [task["name"] for task in dispatcher.submitted] == ["1-1", "2-2", "1-3", "2-4"]
    assert [task["idempotency_key"] for task in dispatcher.submitted] == ["k/0", "k/1", "k/2", "k/3"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["echo", ":::", "a b"], [["echo", "a b"]]),
        (["echo", "{}", "end", ":::", "a", ":::", "b"], [["echo", "a", "b", "end"]]),
        (["echo", "<{}>", ":::", "a", ":::", "b"], [["echo", "<a b>"]]),
        (["echo {} | wc", ":::", "a'b c"], ["echo 'a'\"'\"'b c' | wc"]),
        (["wc -l", ":::", "x y"], ["wc -l 'x y'"]),
        (["x", "{.}", "{/}", "{//}", "{/.}", ":::", "a/b.tar"], [["x", "a/b", "b.tar", "a", "b"]]),
        (["x", "{2}{1.}", ":::", "a.c", ":::", "z"], [["x", "za"]]),
        (["awk", "{print}", ":::", "f"], [["awk", "{print}", "f"]]),
        (["echo hi"], ["echo hi"]),
        (["echo", "{}"], [["echo", "{}"]]),
    ],
)
def test_placeholders_follow_gnu_parallel(words: list[str], expected: list[Any]) -> None:
    """Values are one argument each in argv, and quoted where the command is for the shell."""
    assert [command for command, _ in command_line.commands(words)] == expected


def test_values_that_look_like_placeholders_stay(cli: Any, dispatcher: Any) -> None:
    """A file called {1} is passed as such."""
    cli("submit", "--", "rm", "{}", ":::", "{1}", "{}")
    assert [task["command"][1] for task in dispatcher.submitted] == ["{1}", "{}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected a command"),
        (["--", "f", ":::"], "list 1: expected at least one value"),
        (["--", "f", "{3}", ":::", "a"], "command: {3}: there are 1 lists"),
        (["-c", "0", "--", "f"], "command line: cpus: expected a number of cpus"),
        (["-c", "many", "--", "f"], "command line: cpus: expected"),
        (["-m", "4000", "--", "f"], "memory: expected at least 1MiB, got 4000 bytes (a number without a unit is bytes"),
        (
            ["--sweep", "x=1", "--sweep", "y=1", "--sweep", "x=2,3", "--", "f {x} {y}"],
            "--sweep: 'x' is there twice (all values of a name in one: --sweep x=1,2,3)",
        ),
        (["--max-attempts", "0", "--", "f"], "command line: max_attempts: expected"),
        (["--label", "x", "--", "f"], "--label: expected KEY=VALUE"),
        (["-e", "SURELY_NOT_SET", "--", "f"], "--env: 'SURELY_NOT_SET' is not in your environment"),
        (
            ["--output", "e/", "--", "f"],
            "command line: outputs[0]: expected a name without a slash at its end, got 'e/'",
        ),
        (["--output", "../x", "--", "f"], "command line: outputs[0]: expected a path below"),
        (["--nonsense", "--", "f"], "No such option"),
        (["--gpus", "-1", "--", "f"], "Invalid value for '--gpus'"),
    ],
)
def test_wrong_command_line_submits_nothing(cli: Any, dispatcher: Any, words: list[str], message: str) -> None:
    """Usage errors end with 2 and say what was expected, and no request was made."""
    ran = cli("submit", *words)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert dispatcher.requests == []


def test_task_file_with_a_bad_line_submits_nothing(cli: Any, dispatcher: Any, tmp_path: Path) -> None:
    """A mistake in line 17 is called line 17, in a line or two."""
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"command": "true"}\n' * 16 + '{"command": ["a", "b\\u0000"]}\n')
    ran = cli("run", "--file", str(file))
    assert ran.code == 2
    assert f"{file}:17: command[1]: expected text, got a NUL byte" in ran.err
    assert len(ran.err.splitlines()) <= 2
    assert dispatcher.requests == []


def test_options_fill_what_a_task_file_leaves_out(cli: Any, dispatcher: Any, tmp_path: Path) -> None:
    """A task's own word wins over the command line's."""
    file = tmp_path / "tasks.csv"
    file.write_text("command,cpus\na,2\nb,\n")
    assert cli("submit", "-f", str(file), "-c", "4", "--project", "p").code == 0
    assert [(t["command"], t["cpus"], t["project"], t["user"]) for t in dispatcher.submitted] == [
        ("a", "2", "p", "me"),
        ("b", "4", "p", "me"),
    ]


def test_tasks_come_from_standard_input_too(cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that makes tasks needs no file of its own; a mistake has its line."""

    def typed(text: str) -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return cli("submit", "--file", "-")

    assert typed('{"command": "a"}\r\n{"command": "grüße"}').out == "1\n2\n"
    assert [task["command"] for task in dispatcher.submitted] == ["a", "grüße"]
    wrong = typed('{"command": "a"}\n{"comand": "b"}\n')
    assert (wrong.code, "standard input:2: comand: no such field" in wrong.err) == (2, True)


def test_missing_task_file_is_not_found(cli: Any, dispatcher: Any, tmp_path: Path) -> None:
    """A file that is not there ends with 3."""
    ran = cli("submit", "-f", str(tmp_path / "absent.csv"))
    assert (ran.code, "there is no task file" in ran.err) == (3, True)


def test_refusal_of_the_dispatcher_keeps_its_place(cli: Any, dispatcher: Any) -> None:
    """What only the dispatcher can know is told as it says it."""
    dispatcher.refuse = dispatcher.refusal(
        400, "invalid-input", "the key is taken by another task", "tasks[0].idempotency_key"
    )
    ran = cli("submit", "--", "true")
    assert ran.code == 2
    assert ran.err == "cloud-dispatch: tasks[0].idempotency_key: the key is taken by another task\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [("tasks[1].cpus", "tasks.jsonl:3: cpus"), ("tasks[0]", "tasks.jsonl:1"), ("tasks[2]", "tasks[2]")],
)
def test_refusal_of_the_dispatcher_names_the_line_of_a_file(
    cli: Any, dispatcher: Any, tmp_path: Path, said: str, told: str
) -> None:
    """Whoever has submitted a file is not told which of its tasks it is by counting."""
    (tmp_path / "tasks.jsonl").write_text('{"command": "a"}\n\n{"command": "b"}\n')
    dispatcher.refuse = dispatcher.refusal(400, "invalid-input", "taken", said)
    ran = cli("submit", "--file", str(tmp_path / "tasks.jsonl"))
    assert (ran.code, ran.err.replace(f"{tmp_path}/", "")) == (2, f"cloud-dispatch: {told}: taken\n")


def test_run_of_many_ends_with_0_when_all_succeeded(cli: Any, dispatcher: Any) -> None:
    """`run` follows to the end and says how many succeeded."""
    dispatcher.plays = lambda task: None
    polls = iter(range(100))
    dispatcher.on_poll = lambda: succeeds(dispatcher.tasks[min(next(polls) + 1, 3)])
    ran = cli("run", "--", "echo", ":::", "a", "b", "c")
    assert ran.code == 0
    assert "3 of 3 tasks ended" in ran.err
    assert ran.err.splitlines()[-1] == "3 succeeded"


def test_run_ends_with_1_when_some_task_failed(cli: Any, dispatcher: Any) -> None:
    """A failed task is named with its cause."""
    dispatcher.plays = lambda task: fails(task) if task["id"] == 2 else succeeds(task)
    ran = cli("run", "--", "echo", ":::", "a", "b", "c")
    assert ran.code == 1
    assert "1 failed, 2 succeeded" in ran.err
    assert "task 2 failed: exit-code 3 (echo b)" in ran.err
    dispatcher.plays = lambda task: task.update(state="failed", cause="cannot-start", detail="no such\nfolder")
    assert "task 4 failed: cannot-start, no such folder (true)" in cli("run", "--", "true").err


def test_run_with_json_prints_one_document(cli: Any, dispatcher: Any) -> None:
    """stdout is JSON only, whatever stderr says."""
    dispatcher.plays = lambda task: fails(task) if task["id"] == 2 else succeeds(task)
    ran = cli("run", "--json", "--", "echo", ":::", "a", "b")
    assert ran.code == 1
    assert ran.json()["counts"] == {"cancelled": 0, "failed": 1, "succeeded": 1}
    assert [task["id"] for task in ran.json()["tasks"]] == [1, 2]


def test_run_follows_more_tasks_than_a_page(cli: Any, dispatcher: Any) -> None:
    """Thousands of tasks are followed page by page, in few requests."""
    ran = cli("run", "--array", "2500", "--", "true")
    assert ran.code == 0
    assert ran.err.splitlines()[-1] == "2500 succeeded"
    assert len(dispatcher.requests) < 10


def test_run_of_one_task_prints_its_output_live(cli: Any, dispatcher: Any) -> None:
    """A single task reads like a command run here: its bytes, and nothing else on stdout."""
    dispatcher.plays = lambda task: None
    pieces = iter([b"one\n", b"two\xff\n"])

    def writes_then_ends() -> None:
        piece = next(pieces, None)
        if piece is None:
            succeeds(dispatcher.tasks[1])
        else:
            dispatcher.logs.setdefault(1, []).append(("5", piece))

    dispatcher.on_poll = writes_then_ends
    ran = cli("run", "--", "talk")
    assert ran.code == 0
    assert ran.out.startswith("one\ntwo")


@pytest.mark.parametrize("words", [("true",), ("echo", ":::", "a", "b")])
def test_run_says_once_why_nothing_runs(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Whoever waits for what can't run is told, one task or several, and not again while the reason stays."""
    monkeypatch.setattr(waits, "SOON_S", 0.0)
    monkeypatch.setattr(waits, "AGAIN_S", 0.0)
    dispatcher.plays = lambda task: None
    polls = iter(range(100))

    def end_at_last() -> None:
        if next(polls) > 3:
            for task in dispatcher.tasks.values():
                succeeds(task)

    dispatcher.on_poll = end_at_last
    ran = cli("run", "--", *words)
    assert (ran.code, ran.err.count("task 1 waits: because\n")) == (0, 1)


def test_run_says_nothing_of_what_waits_while_others_run(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that moves needs no words."""
    monkeypatch.setattr(waits, "SOON_S", 0.0)
    dispatcher.plays = lambda task: task.update(state="running") if task["id"] == 1 else None
    polls = iter(range(100))

    def end_at_last() -> None:
        if next(polls) > 3:
            for task in dispatcher.tasks.values():
                succeeds(task)

    dispatcher.on_poll = end_at_last
    assert "waits" not in cli("run", "--", "echo", ":::", "a", "b").err


def test_log_of_a_new_attempt_follows_the_rest_of_the_old(cli: Any, dispatcher: Any) -> None:
    """Nothing of an attempt that was retried is lost, and the new one starts from its beginning."""
    dispatcher.plays = lambda task: None
    dispatcher.add(state="running")
    log = dispatcher.logs[1] = [("5", b"first ")]
    polls = iter(range(100))

    def step() -> None:
        poll = next(polls)
        if poll == 1:
            log.extend([("5", b"rest\n"), ("6", b"second\n")])
        if poll > 4:
            succeeds(dispatcher.tasks[1])

    dispatcher.on_poll = step
    ran = cli("logs", "-f", "1")
    assert ran.out == "first rest\nsecond\n"
    assert "attempt under token 5 ended" in ran.err


def test_a_new_attempt_is_followed_where_the_old_log_is_no_longer_kept(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is said."""
    dispatcher.plays = lambda task: None
    dispatcher.add(state="running")
    log = dispatcher.logs[1] = [("5", b"first\n")]
    polls, told = iter(range(100)), dispatcher._log

    def step() -> None:
        if next(polls) == 1:
            log.append(("6", b"second\n"))
            succeeds(dispatcher.tasks[1])

    def pruned(task: int, query: dict[str, str]) -> Any:
        if query.get("attempt") == "5":
            raise dispatcher.refusal(404, "not-found", "the log is no longer kept", "attempt")
        return told(task, query)

    dispatcher.on_poll = step
    monkeypatch.setattr(dispatcher, "_log", pruned)
    ran = cli("logs", "-f", "1")
    assert (ran.code, ran.out) == (0, "first\nsecond\n")
    assert "the log is no longer kept" in ran.err


@pytest.mark.parametrize("option", ["--key", "--project", "--pool", "--max-runtime", "--user"])
@pytest.mark.parametrize("command", ["run", "submit"])
def test_an_option_without_a_value_is_refused(cli: Any, dispatcher: Any, command: str, option: str) -> None:
    """As a shell makes of a variable that is not set: tasks would be doubled, escape their project's limit, or run
    without the bound that was meant."""
    ran = cli(command, option, "", "--", "true")
    assert (ran.code, dispatcher.submitted) == (2, [])
    assert ran.err == f"cloud-dispatch: {option}: is empty (leave it out where it is not asked)\n"


def test_run_waits_for_a_dispatcher_that_restarts(cli: Any, dispatcher: Any) -> None:
    """A short absence does not end the following."""
    dispatcher.plays = lambda task: None
    polls = iter(range(100))

    def restart() -> None:
        if next(polls) < 3:
            raise dispatcher.refusal(503, "unavailable", "starting")
        for task in dispatcher.tasks.values():
            succeeds(task)

    dispatcher.on_poll = restart
    ran = cli("run", "--", "echo", ":::", "a", "b")
    assert ran.code == 0
    assert ran.err.count("starting: it is waited for, 60 s at most") == 1


@pytest.mark.parametrize(("status", "code", "ends"), [
    (503, "unavailable", exitcodes.UNAVAILABLE), (401, "denied", exitcodes.DENIED),
])  # fmt: skip
def test_who_gives_up_on_a_dispatcher_hears_that_the_tasks_go_on(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch, status: int, code: str, ends: int
) -> None:
    """Else the same command would be typed again, and they would run twice; also where the token became another."""

    def away() -> None:
        raise dispatcher.refusal(status, code, "starting")

    dispatcher.plays, dispatcher.on_poll = lambda task: None, away
    monkeypatch.setattr(follow, "PATIENCE_S", -1.0)
    ran = cli("run", "--", "echo", ":::", "a", "b")
    assert ran.code == ends
    assert "2 of 2 tasks, 1 to 2, go on" in ran.err


def test_who_follows_a_log_hears_that_no_dispatcher_answers(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, before the time is up."""
    told: list[str] = []

    def gives_up(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(waits, "say", told.append)
    monkeypatch.setattr(logs, "pause", gives_up)
    monkeypatch.setenv("CLOUD_DISPATCH_URL", "http://127.0.0.1:1")
    assert cli("logs", "-f", "1").code == 130
    assert told == ["no dispatcher answers at http://127.0.0.1:1: it is waited for, 60 s at most"]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "states", "code", "says"),
    [
        ("c\n", {"cancelled"}, 130, "2 tasks were cancelled"),
        ("l\n", {"queued"}, 130, "2 of 2 tasks, 1 to 2, go on"),
        ("\n", {"queued"}, 130, "2 of 2 tasks, 1 to 2, go on"),
        ("g\n", {"succeeded"}, 0, "2 succeeded"),
    ],
)
def test_ctrl_c_asks_what_to_do_with_the_tasks(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch, answer: str, states: set[str], code: int, says: str
) -> None:
    """Leaving, cancelling and going on are the user's choice; a bare return leaves them."""
    interrupts = iter([True])

    def pause(watch: follow.Watch) -> None:
        if next(interrupts, False):
            raise KeyboardInterrupt
        for task in dispatcher.tasks.values():
            succeeds(task)

    dispatcher.plays = lambda task: None
    monkeypatch.setattr(follow.Watch, "pause", pause)
    monkeypatch.setattr("sys.stdin", _Terminal(answer))
    monkeypatch.setattr("sys.stderr", screen := _Terminal())
    ran = cli("run", "--", "echo", ":::", "a", "b")
    assert ran.code == code
    assert says in screen.getvalue()
    assert {task["state"] for task in dispatcher.tasks.values()} == states


def test_ctrl_c_without_a_terminal_leaves_the_tasks(cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is interrupted must not cancel what others wait for."""

    def pause(watch: follow.Watch) -> None:
        raise KeyboardInterrupt

    dispatcher.plays = lambda task: None
    monkeypatch.setattr(follow.Watch, "pause", pause)
    monkeypatch.setattr("sys.stdin", io.StringIO("c\n"))
    ran = cli("run", "--", "echo", ":::", "a", "b")
    assert (ran.code, {task["state"] for task in dispatcher.tasks.values()}) == (130, {"queued"})
    assert "2 of 2 tasks, 1 to 2, go on" in ran.err
    assert "`cloud-dispatch cancel NUMBER...`" in ran.err


def test_ctrl_c_while_one_is_followed_says_that_it_goes_on_and_how_to_end_it(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every command that follows one, with a terminal or without."""

    def gives_up(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    dispatcher.plays = lambda task: None
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    monkeypatch.setattr(logs, "_write", gives_up)
    for words in (("run", "--", "true"), ("logs", "-f", "1")):
        ran = cli(*words)
        assert ran.code == 130
        assert "ask 1 goes on" in ran.err
        assert "`cloud-dispatch cancel 1`" in ran.err


def test_submitted_ids_as_json(cli: Any, dispatcher: Any) -> None:
    """Programs get a document."""
    ran = cli("submit", "--json", "--array", "3", "--", "true")
    array = dispatcher.tasks[1]["array_id"]
    assert ran.json() == {"ids": [1, 2, 3], "arrays": [array], "notes": []}
    assert ran.err == f"array {array}\n"
    assert json.loads(json.dumps(dispatcher.submitted[0]["array"])) == 3


def test_what_to_know_at_once_is_told_beside_the_numbers(cli: Any, dispatcher: Any) -> None:
    """Where numbers are read by a program, it is not among them."""
    ran = cli("submit", "--pool", "nope", "--", "true")
    assert (ran.out, ran.err) == ("1\n", "note: look out\n")
    ran = cli("submit", "--json", "--pool", "nope", "--", "true")
    assert (ran.json(), ran.err) == ({"ids": [2], "arrays": [], "notes": ["look out"]}, "note: look out\n")
    assert "note: look out" in cli("run", "--pool", "nope", "--", "true").err


def test_run_tells_by_which_numbers_the_tasks_are_asked_for(cli: Any, dispatcher: Any) -> None:
    """On stderr: what tasks write is all of stdout."""
    ran = cli("run", "--", "true")
    assert (ran.out, ran.err.splitlines()[0]) == ("", "task 1")
    array, numbers = cli("run", "--array", "3", "--", "true").err.splitlines()[:2]
    assert (array, numbers) == (f"array {dispatcher.tasks[2]['array_id']}", "3 tasks, 2 to 4")


def test_tasks_of_an_array_are_listed_with_its_id(cli: Any, dispatcher: Any) -> None:
    """By which they are chosen; where none is of an array there is no such column."""
    cli("submit", "--", "true")
    assert "array" not in cli("tasks").out
    cli("submit", "--array", "2", "--", "true")
    assert f"{dispatcher.tasks[3]['array_id']} [1]" in cli("tasks").out
