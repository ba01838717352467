"""The other commands: what they print, as tables and as JSON, and how they end."""

from __future__ import annotations

import io
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cli import exitcodes
from cloud_dispatch.cli.main import program, run
from cloud_dispatch.client import Client
from cloud_dispatch.domain import errors

ROOT = Path(__file__).resolve().parents[2]
INSTANCE = {
    "id": "abc-0", "pool": "default", "profile": "local", "type": "local.1", "zone": "here", "market": "on-demand",
    "state": "idle", "behaviour": "run", "vm": "v", "rate_nano": 1, "rate": "$0.02/h", "intended_ms": 0,
    "launched_ms": 0, "registered_ms": 0, "ended_ms": None, "tasks": 0, "cpus_milli": 1000, "memory": 1, "boot_ms": 300,
    "work_ms": 61_000, "idle_ms": 0, "cost_micro": 12, "cost": "$0.000012", "reason": "tasks wait", "cause": "",
    "unreachable": "",
}  # fmt: skip


def tree(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands that do something, by the words that they are called with."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
    for name, one in sorted((below or {}).items()):
        yield from tree(one, (*path, name))


COMMANDS = list(tree(program()))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_command_has_help_with_an_example(cli: Any, path: tuple[str, ...], command: Any) -> None:
    """--help says what a command does, every word of it, and shows one that can be typed."""
    ran = cli(*path, "--help")
    assert ran.code == 0
    assert "Example" in ran.out
    assert f"cloud-dispatch {' '.join(path)}" in ran.out
    said = "".join(ran.out.replace("│", " ").split())
    texts = [command.help, *(getattr(option, "help", None) or "" for option in command.params)]
    lost = [word for text in texts for word in text.split() if word not in said]
    assert lost == []


def test_help_documents_every_exit_code(cli: Any) -> None:
    """The table of exit codes stands in the help."""
    words = " ".join(cli("--help").out.replace("│", " ").split())
    assert all(f"{code} {meaning}" in words for code, meaning in exitcodes.TABLE.items())


def test_every_error_of_the_tree_has_a_documented_exit_code() -> None:
    """No error of the core ends with a code that the table lacks; only a programmer's error is internal."""

    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DispatchError)
    ]
    codes = {kind: exitcodes.code_of(kind("x")) for kind in kinds}
    assert len(codes) > 8
    assert set(codes.values()) <= set(exitcodes.TABLE)
    assert codes[errors.StaleLease] == exitcodes.CONFLICT
    assert codes[errors.StoreUnavailable] == exitcodes.UNAVAILABLE
    assert codes[errors.IllegalTransition] == exitcodes.INTERNAL


def test_no_dispatcher_is_told_with_what_to_start(cli: Any, no_dispatcher: Path) -> None:
    """Without a dispatcher commands end with 5 and one line."""
    ran = cli("tasks", "--config", str(no_dispatcher))
    expected = "no dispatcher answers at https://127.0.0.1:1 (start one with `cloud-dispatch up`)"
    assert (ran.code, ran.err) == (5, f"cloud-dispatch: {expected}\n")


def test_operator_token_is_found_in_the_state_folder(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On the dispatcher's machine nothing needs to be set: the configuration leads to address and token."""
    monkeypatch.delenv("CLOUD_DISPATCH_URL")
    monkeypatch.delenv("CLOUD_DISPATCH_TOKEN")
    config = tmp_path / "config.toml"
    listen = dispatcher.url.removeprefix("http://")
    config.write_text(f'[dispatcher]\nlisten = "{listen}"\ntls = false\nstate_dir = "state"\n')
    assert cli("tasks", "--config", str(config)).code == 6
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "operator.token").write_text("operator-secret\n")
    assert cli("tasks", "--config", str(config)).code == 0


def test_token_new_makes_another_and_never_shows_it(cli: Any, tmp_path: Path) -> None:
    """Neither for people nor in JSON; where it is stands there."""
    config = tmp_path / "config.toml"
    config.write_text('[dispatcher]\nstate_dir = "state"\n')
    (tmp_path / "state" / "keys").mkdir(parents=True)
    path, seen = tmp_path / "state" / "operator.token", []
    for words in ([], ["--json"]):
        ran = cli("token", "new", *words, "--config", str(config))
        seen.append(path.read_text().strip())
        assert (ran.code, str(path) in ran.out, seen[-1] in ran.out + ran.err) == (0, True, False)
    assert len(set(seen)) == 2
    kept = (tmp_path / "state" / "keys" / "operator.sha256").read_text().strip()
    assert kept == sha256(seen[-1].encode()).hexdigest()


def test_token_new_makes_no_state_folder_where_no_dispatcher_was(cli: Any, tmp_path: Path) -> None:
    """With another configuration than the dispatcher's, or elsewhere: it says so, and leaves nothing."""
    config = tmp_path / "config.toml"
    config.write_text('[dispatcher]\nstate_dir = "state"\n')
    ran = cli("token", "new", "--config", str(config))
    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path / 'state'}: this is no dispatcher's state folder" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_wrong_token_is_denied(cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong token ends with 6."""
    monkeypatch.setenv("CLOUD_DISPATCH_TOKEN", "guessed")
    ran = cli("tasks")
    assert (ran.code, ran.err) == (6, "cloud-dispatch: the operator's token is wrong\n")


@pytest.mark.parametrize("around", ["{}\n", " {}\r\n", "\t{} "])
def test_white_space_around_the_token_is_none_of_it(dispatcher: Any, around: str) -> None:
    """As the file has it, or a copy of it by another system's editor."""
    with Client(dispatcher.url, around.format("operator-secret")) as client:
        assert client.tasks()["tasks"] == []


@pytest.mark.parametrize("wrong", ["secret-wört", "secret-\x7f", "secret-\r\nX-Other: 1", "secret-\udcff"])
def test_what_can_be_no_token_is_denied_and_not_shown(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """It may be a token but for a letter, and errors end up in logs."""
    monkeypatch.setenv("CLOUD_DISPATCH_TOKEN", wrong)
    ran = cli("tasks")
    assert ran.code == exitcodes.DENIED
    assert "characters that none has" in ran.err
    assert "secret" not in ran.err
    assert dispatcher.requests == []


def test_without_tls_no_authorities_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to be checked by them, and reading them takes longer than a request."""
    read: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **where: read.append(where))
    Client("http://127.0.0.1:1", "token").close()
    assert not read
    Client("https://127.0.0.1:1", "token").close()
    assert read


def test_what_is_no_dispatcher_is_told_so(cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another web server at the address is an error in words, not a crash."""
    monkeypatch.setenv("CLOUD_DISPATCH_URL", f"{dispatcher.url}/elsewhere")
    ran = cli("instances")
    assert (ran.code, "there is nothing at" in ran.err) == (3, True)
    monkeypatch.setenv("CLOUD_DISPATCH_URL", "nonsense")
    ran = cli("instances")
    assert (ran.code, "is not the URL of a dispatcher" in ran.err) == (2, True)


def test_tasks_lists_what_matches(cli: Any, dispatcher: Any) -> None:
    """Filters reach the dispatcher; the table and the JSON show the same tasks."""
    dispatcher.plays = lambda task: None
    dispatcher.add(state="failed", cause="signal", signal=9, project="p")
    dispatcher.add(state="succeeded", project="p", name="\x1b[31mred")
    dispatcher.add(state="succeeded", project="q")
    ran = cli("tasks", "--project", "p")
    assert "signal 9" in ran.out
    assert "\x1b" not in ran.out
    assert [
        t["id"] for t in cli("tasks", "-s", "succeeded", "-s", "failed", "--project", "p", "--json").json()["tasks"]
    ] == [1, 2]
    assert [t["id"] for t in cli("tasks", "--after", "1", "--limit", "1", "--json").json()["tasks"]] == [2]


def test_task_shows_one(cli: Any, dispatcher: Any) -> None:
    """One task, or 3 when there is none."""
    dispatcher.add(name="hello", outputs=[{"path": "o", "url": "", "size": 3, "sha256": "abc"}])
    ran = cli("task", "1")
    assert "hello" in ran.out
    assert "abc" in ran.out
    assert cli("task", "1", "--json").json()["name"] == "hello"
    ran = cli("task", "7")
    assert (ran.code, ran.err) == (3, "cloud-dispatch: there is no task 7\n")


def test_logs_print_bytes_as_they_are(cli: Any, dispatcher: Any) -> None:
    """Output of a task goes to stdout unchanged; with --json as pieces with their place."""
    dispatcher.add()
    dispatcher.logs[1] = [("5", "grüße\n".encode())]
    assert cli("logs", "1").out == "grüße\n"
    assert cli("logs", "1", "--json").json() == {
        "task": 1, "attempt": "5", "offset": 0, "complete": True, "text": "grüße\n"
    }  # fmt: skip
    assert cli("logs", "9").code == 3


def test_the_last_tasks_are_listed_in_their_order(cli: Any, dispatcher: Any) -> None:
    """In pages, where they are many; and none is said to come after them."""
    for n in range(1_500):
        dispatcher.add(project="p" if n % 2 else "q")
    listed = cli("tasks", "--last", "1200", "--json").json()["tasks"]
    assert [task["id"] for task in listed] == list(range(301, 1_501))
    ran = cli("tasks", "-n", "2", "--project", "q")
    assert re.findall(r"^ *(\d+)  ", ran.out, re.MULTILINE) == ["1497", "1499"]
    assert "--after" not in ran.err
    ran = cli("tasks", "--last", "2", "--limit", "1")
    assert (ran.code, ran.out) == (2, "")
    assert len(cli("tasks", "--json").json()["tasks"]) == 100
    assert [task["id"] for task in cli("tasks", "--last", "5", "--after", "1498", "--json").json()["tasks"]] == [
        1499, 1500,
    ]  # fmt: skip


def test_priority_may_be_negative(cli: Any, dispatcher: Any) -> None:
    """A number below zero is no option."""
    dispatcher.add()
    assert cli("priority", "1", "--", "-5").code == 0
    assert dispatcher.tasks[1]["priority"] == -5
    assert cli("priority", "1", "10", "--json").json()["priority"] == 10


def test_instances_are_listed_and_controlled(cli: Any, dispatcher: Any) -> None:
    """Each verb reaches its instance; a refusal ends with 4."""
    dispatcher.instances["abc-0"] = dict(INSTANCE)
    assert "1m01s" in cli("instances").out
    for micro, shown in ((400, "$0.000400"), (1_500_000, "$1.500000"), (None, "unknown")):
        dispatcher.instances["abc-0"]["cost_micro"] = micro
        assert f" {shown} " in cli("instances").out
    assert "abc-0: hold; it is idle (hold)." in cli("hold", "abc-0", "--reason", "look").out
    assert "idle (hold)" in cli("instances").out
    assert cli("resume", "abc-0", "--json").json()["behaviour"] == "run"
    ran = cli("resume", "abc-0")
    assert (ran.code, ran.err) == (4, "cloud-dispatch: instance abc-0 is not on hold\n")
    assert [cli(verb, "abc-0").code for verb in ("drain", "kill")] == [0, 0]
    assert cli("kill", "../tasks").code == 3
    dispatcher.instances["abc-0"]["unreachable"] = "nobody can end it: profile x is not configured any more"
    assert "nobody can end it" in " ".join(cli("instances").out.split())
    assert cli("kill", "abc-0").out.endswith("But nobody can end it: profile x is not configured any more.\n")


def test_instances_of_a_dispatcher_that_does_not_say_who_is_out_of_reach(cli: Any, dispatcher: Any) -> None:
    """It is of an earlier version than the command, which reads and tells what there is."""
    dispatcher.instances["abc-0"] = {name: said for name, said in INSTANCE.items() if name != "unreachable"}
    assert "abc-0" in cli("instances").out
    assert cli("hold", "abc-0").out == "abc-0: hold; it is idle (hold).\n"


def test_plan_and_explain_say_why(cli: Any, dispatcher: Any) -> None:
    """Reasons are what these commands are for."""
    dispatcher.plays = lambda task: None
    dispatcher.add()
    dispatcher.instances["abc-0"] = dict(INSTANCE)
    ran = cli("plan")
    assert "launch 2 x o for pool p at $0.02/h: why" in ran.out
    assert "too big" in ran.out
    assert "its minimum wants 5 instances; nothing is left" in " ".join(ran.out.split())
    assert cli("plan", "--json").json()["actions"][0]["slots"] == 2
    assert cli("explain", "1").out.startswith("1 is queued\n- because\n")
    assert cli("explain", "abc-0", "--json").json()["subject"] == "abc-0"
    assert cli("explain", "nobody").code == 3


def test_target_is_set_and_dropped(cli: Any, dispatcher: Any) -> None:
    """A wish has a number, or is dropped: not both, not neither."""
    assert cli("target", "default", "3").code == 0
    assert dispatcher.targets["default"] == {"count": 3, "source": "rest", "expires_ms": None}
    assert cli("target", "default", "--drop").code == 0
    assert dispatcher.targets == {}
    assert cli("target", "default").code == 2
    assert cli("target", "default", "3", "--drop").code == 2


def test_config_check_tells_every_problem(cli: Any, tmp_path: Path) -> None:
    """Two lines for two problems, and 2; --json has them as data."""
    file = tmp_path / "c.toml"
    file.write_text("[timing]\nleese = 1\npoll = 'x'\n")
    ran = cli("config", "check", "--config", str(file))
    assert ran.code == 2
    assert f"{file}:2: timing.leese: no such key (did you mean 'lease'?)" in ran.err
    assert f"{file}:3: timing.poll: expected a duration" in ran.err
    found = cli("config", "check", "--config", str(file), "--json")
    assert [(one["file"], one["line"], one["key"]) for one in found.json()["problems"]] == [
        (str(file), 3, "timing.poll"), (str(file), 2, "timing.leese"),
    ]  # fmt: skip
    assert found.code == 2


def test_config_check_names_the_pools_whose_ceiling_hangs_on_guests(cli: Any, tmp_path: Path) -> None:
    """Accepted is not forgotten."""
    file = tmp_path / "c.toml"
    file.write_text("[profiles.l]\ndriver = 'local'\nguest_enforced = true\n[pools.p]\nprofiles = ['l']\n")
    ran = cli("config", "check", "--config", str(file))
    assert ran.code == 0
    words = "pool p: guest-enforced: its ceiling fails if the guest's timer never runs"
    assert f"note: {words}\n" in ran.out
    assert words in cli("config", "check", "--config", str(file), "--json").json()["notes"]


def test_config_show_is_itself_a_configuration(cli: Any, tmp_path: Path) -> None:
    """What is shown can be saved and means the same."""
    file = tmp_path / "c.toml"
    file.write_text("[timing]\nheartbeat = '2s'\n[dispatcher]\nstate_dir = 'state'\n")
    shown = cli("config", "show", "--config", str(file))
    assert 'timing.heartbeat = "2s"' in shown.out
    again = tmp_path / "again.toml"
    again.write_text(shown.out)
    first = cli("config", "show", "--config", str(file), "--json").json()
    assert cli("config", "show", "--config", str(again), "--json").json() == first


def test_unexpected_error_is_a_line_and_70(cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is told as one, without a traceback, unless it is asked for."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("oh no")

    monkeypatch.setattr("cloud_dispatch.cli.tasks.connect", broken)
    ran = cli("tasks")
    assert ran.code == 70
    assert "internal error: RuntimeError: oh no" in ran.err
    assert "Traceback" not in ran.err
    monkeypatch.setenv("CLOUD_DISPATCH_DEBUG", "1")
    with pytest.raises(RuntimeError, match="oh no"):
        run(["tasks"])


def test_ctrl_c_in_any_command_ends_with_130(cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted command ends at once, without a traceback."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cloud_dispatch.cli.tasks.connect", interrupted)
    ran = cli("tasks")
    assert ran.code == 130
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("typed", "found"), [("cloud-dispatch cance", "cancel"), ("cloud-dispatch tasks --sta", "--state")]
)
def test_commands_and_options_complete(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: str, found: str
) -> None:
    """A shell that has the completion installed asks so."""
    monkeypatch.setenv("_CLOUD_DISPATCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert (ended.value.code, capfd.readouterr().out.split()) == (0, [found])


def test_version_is_printed(cli: Any) -> None:
    """--version names the product and the version that is installed."""
    assert cli("--version").out == f"cloud-dispatch {version('cloud-dispatch')}\n"


def test_sources_that_are_not_installed_have_no_version() -> None:
    """They say so, and nothing fails that only imports them."""
    said = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import cloud_dispatch as it; print(it.__version__, it.__doc__)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", said], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("0+unknown cloud-dispatch: "), done.stderr


def test_budgets_are_shown_with_what_is_left_and_with_what_nobody_can_know(cli: Any, dispatcher: Any) -> None:
    """A lowered limit shows what it lacks; after a restore a line says why nothing is launched."""
    one = {
        "name": "driver aws day", "scope": "driver", "of": "aws", "window": "day", "limit": 5_000_000,
        "configured": 5_000_000, "spent": 4_000_000, "committed": 2_500_000, "left": -1_500_000,
    }  # fmt: skip
    assert "No spending limits are set." in cli("budget", "list").out
    worst = "pool p: 3 x a/t/z/on-demand at $0.10/h for 1d comes to $7.20"
    dispatcher.budgets.update(budgets=[one], unsure_since_ms=1_700_000_000_000, risk=[worst, "limits: day $5.00"])
    out = cli("budget", "list").out
    assert f"At worst, were there only the caps:\n- {worst}" in out
    assert "limits:" not in out  # the table has them
    assert "driver aws day" in out
    assert "-$1.500000" in out
    assert "2023-11-14 22:13:20" in out
    assert "came back from a backup" not in cli("budget", "reconcile", "--yes").out
    assert cli("budget", "list", "--json").json()["unsure_since_ms"] is None


def test_the_kill_switch_says_what_it_does_and_asks_before_it_ends_everything(cli: Any, dispatcher: Any) -> None:
    """Without an option it only tells; two levels at once are a mistake; `--off` lets go."""
    assert "Nothing is stopped." in cli("stop").out
    said = cli("stop", "--launches", "--reason", "conference")
    assert "Nothing is launched. What runs goes on." in said.out
    assert "2023-11-14 22:13:20 UTC: an operator says: conference." in said.out
    assert cli("stop", "--drain", "--terminate-all").code == 2
    assert dispatcher.stopped["level"] == "launches"
    assert "ended now" in cli("stop", "--terminate-all", "--yes").out
    assert cli("stop", "--json").json()["level"] == "terminate-all"
    assert "Nothing is stopped." in cli("stop", "--off").out


@pytest.mark.parametrize("answer", ["n", "", None])
def test_what_is_not_confirmed_is_not_done(
    cli: Any, dispatcher: Any, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    """Neither after a no nor where nobody can answer, as in a script; how to answer beforehand is said."""
    monkeypatch.setattr("sys.stdin", io.StringIO("" if answer is None else f"{answer}\n"))
    for command in (("stop", "--terminate-all"), ("budget", "reconcile")):
        ran = cli(*command)
        assert ran.code == 2
        assert "nothing was done (--yes answers beforehand)" in ran.err
        assert ran.out.strip() == ""
    assert dispatcher.requests == []


def test_a_limit_is_tightened_and_shown_with_what_holds_it(cli: Any, dispatcher: Any) -> None:
    """The configuration's own limit stays beside it; what is no scope and no amount never reaches the dispatcher."""
    one = {
        "name": "pool default day", "scope": "pool", "of": "default", "window": "day", "limit": 5_000_000,
        "configured": 5_000_000, "spent": 0, "committed": 0, "left": 5_000_000,
    }  # fmt: skip
    dispatcher.budgets.update(budgets=[one])
    assert "configured" not in cli("budget", "list").out
    out = cli("budget", "set", "pool:default", "day", "$2.50", "--reason", "holidays").out
    assert "$2.500000" in out
    assert "configured" in out
    assert dispatcher.limits_asked == [
        {"scope": "pool", "of": "default", "window": "day", "limit": 2_500_000, "reason": "holidays"}
    ]
    cli("budget", "set", "pool:default", "day", "--off")
    assert dispatcher.limits_asked[-1]["limit"] is None
    for words in ("moon day 1", "pool: day 1", "all day", "all day x", "all week 1"):
        assert cli("budget", "set", *words.split()).code == 2
    assert len(dispatcher.limits_asked) == 2
    shown = cli("budget", "show", "pool:default").out
    assert "b1-0" in shown
    assert "$0.10/h" in shown
    assert "There is no spending limit of pool:other" in cli("budget", "show", "pool:other").out


def test_config_check_says_what_limits_do_not_cover(cli: Any, tmp_path: Path) -> None:
    """A good configuration has notes."""
    file = tmp_path / "c.toml"
    file.write_text('[budget]\nday = "$5"\n')
    ran = cli("config", "check", "--config", str(file))
    assert ran.code == 0
    assert "note: spending limits cover VMs with their disks and addresses, not egress" in ran.out
    file.write_text("")
    assert cli("config", "check", "--config", str(file), "--json").json()["notes"] == [
        "no spending limit is set: only caps bound what is spent"
    ]


def test_breakers_are_listed_and_reset(cli: Any, dispatcher: Any) -> None:
    """What was burnt of what, when it is tried again, and with what; one is reset by its name, or all."""
    usual = {"burnt": 5_120_000, "allowance": 5_000_000, "failures": 3, "last_failure": "b-0", "trial": None}
    dispatcher.breakers = [
        {**usual, "name": "boot/aws/agent/z", "state": "open", "until_ms": 1_700_000_000_000},
        {**usual, "name": "boot/aws/agent/y", "state": "half-open", "until_ms": 1_700_000_000_000, "trial": "b-1"},
    ]
    said = cli("breakers", "list").out
    for text in ("boot/aws/agent/z", "$5.120000 of $5.000000", "2023-11-14 22:13:20", "now, with b-1"):
        assert text in " ".join(said.split())
    assert cli("breakers", "reset").code == 2
    assert "boot/aws/agent/z" not in cli("breakers", "reset", "boot/aws/agent/z").out
    assert "Nothing has failed" in cli("breakers", "reset", "--all").out
