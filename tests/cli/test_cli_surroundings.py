"""Commands on a machine that is in their way: streams that are closed, files that are not what they should be."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloud_dispatch.adapters import certificates
from cloud_dispatch.cli import exitcodes
from tests.cli.conftest import StubDispatcher

COMMAND = [sys.executable, "-m", "cloud_dispatch"]
CLOSED = "<&- >&- 2>&-"


def buffered() -> dict[str, str]:
    """The environment as users have it, whoever runs the tests: what is short is written at the end."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def shell(words: list[str], redirected: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.join([*COMMAND, *words])} {redirected}"
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60, env=buffered())


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text('[dispatcher]\nstate_dir = "state"\n')
    return file


def test_streams_that_are_closed_are_open_to_nowhere(configuration: Path) -> None:
    """As where cron or a daemon starts us: nothing is said, and no file that is opened gets what is printed."""
    code = (
        "import os, sys\nfrom cloud_dispatch.cli import main\n"
        "main.run = lambda words: print('said') or print('told', file=sys.stderr) or sys.stdin.read() or "
        "[os.readlink(f'/proc/self/fd/{n}') for n in range(3)] != [os.devnull] * 3\n"
        "main.main()"
    )
    line = f"{shlex.join([sys.executable, '-c', code])} {CLOSED}"
    assert subprocess.run(["/bin/sh", "-c", line], timeout=60).returncode == 0


def test_a_command_hardly_looks_for_garbage_and_not_as_it_ends() -> None:
    """What it imports lives on: to walk that again and again, and at the end, is a third of a short command."""
    code = (
        "import atexit, gc\nfrom cloud_dispatch.cli import main\n"
        "atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 10_000))\n"
        "main.run = lambda words: 0\nmain.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == ["50000", "True"]


def test_who_serves_keeps_what_there_is_from_the_collector() -> None:
    """Also where no command has begun it, as in the benchmarks."""
    code = (
        "import gc\nfrom cloud_dispatch import collector\ncollector.keep()\n"
        "print(gc.get_threshold()[0], gc.get_freeze_count() > 1_000)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == ["50000", "True"]


def test_a_command_without_streams_ends_as_with_them(configuration: Path) -> None:
    """What it does depends on none of them."""
    words = ["config", "show", "--config", str(configuration)]
    assert shell(words, CLOSED).returncode == shell(words, "").returncode == exitcodes.OK


def test_a_file_in_the_way_is_named_and_is_no_bug(configuration: Path) -> None:
    """The state folder can't be made: where, and why."""
    (configuration.parent / "state").write_text("")
    ended = shell(["up", "--config", str(configuration)], "")
    assert (ended.returncode, ended.stderr.count("\n")) == (exitcodes.UNAVAILABLE, 1)
    assert f"{configuration.parent}/state: File exists" in ended.stderr
    assert "bug" not in ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this machine")
def test_a_full_disk_behind_the_output_is_no_bug(configuration: Path) -> None:
    """`config show > file`, and no room for the file."""
    ended = shell(["config", "show", "--json", "--config", str(configuration)], ">/dev/full")
    assert ended.returncode == exitcodes.UNAVAILABLE
    assert ended.stderr.startswith("cloud-dispatch: No space left on device")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("output", ["ascii", "ascii:surrogateescape", "latin-1", "utf-8"])
def test_an_output_that_has_not_every_character_loses_no_figures(configuration: Path, output: str) -> None:
    """As in a locale that is none of UTF-8, C's own among them: bars, and names that are somebody's. JSON is the same
    to who reads it."""
    encoding = output.partition(":")[0]
    name = "ä\N{EURO SIGN}\N{ROCKET}.csv"
    (configuration.parent / name).write_text("submit,run\n0,60\n")
    words = ["simulate", name, "--config", str(configuration)]
    shown, parsed = (
        subprocess.run(
            [*COMMAND, *words, *more], cwd=configuration.parent, capture_output=True, timeout=60,
            env={**buffered(), "PYTHONIOENCODING": output, "PYTHONUTF8": "0"},
        )
        for more in ([], ["--json"])
    )  # fmt: skip
    assert (shown.returncode, shown.stderr) == (exitcodes.OK, b"")
    assert shown.stdout.startswith(name.encode(encoding, "backslashreplace") + b": 1 succeeded")
    assert (parsed.returncode, parsed.stderr) == (exitcodes.OK, b"")
    assert json.loads(parsed.stdout.decode(encoding))["workload"]["origin"] == name


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this machine")
@pytest.mark.parametrize(
    ("words", "code"),
    [("config show --config nowhere", exitcodes.NOT_FOUND), ("config show --nope", exitcodes.USAGE)],
)
def test_what_nobody_can_be_told_ends_with_its_code(words: str, code: int) -> None:
    """The interpreter has one of its own for that: 120, or the 1 of a task that failed."""
    assert shell(words.split(), "").returncode == code
    assert shell(words.split(), "2>/dev/full").returncode == code


def test_what_was_said_to_nobody_fails_no_command() -> None:
    """`cloud-dispatch ... 2>&1 >file | head -1`: what came of it is in the file."""
    program = (
        "import contextlib, sys\nfrom cloud_dispatch.cli import main, session\n"
        "def run(words):\n    with contextlib.suppress(OSError):\n        session.say('so far')\n    return 0\n"
        "main.run = run\nmain.main()"
    )
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        ended = subprocess.run([sys.executable, "-c", program], stderr=nobody, timeout=60, env=buffered())
    assert ended.returncode == exitcodes.OK


@pytest.mark.parametrize("words", ["config show --effective --json", "config check", "--version"])
def test_a_reader_that_has_seen_enough_is_no_failure_of_tasks(configuration: Path, words: str) -> None:
    """`cloud-dispatch ... | head -1`: a code of its own and no word, be it a lot or a line that is written."""
    given = words.split() if words.startswith("-") else [*words.split(), "--config", str(configuration)]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        ended = subprocess.run(
            [*COMMAND, *given], stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=60, env=buffered()
        )
    assert (ended.returncode, ended.stderr) == (exitcodes.UNREAD, "")


def test_run_whose_reader_has_gone_says_that_its_task_goes_on(dispatcher: StubDispatcher) -> None:
    """It has not been seen to succeed, nor to fail."""
    dispatcher.plays = lambda task: None
    dispatcher.logs[1] = [("5", b"first\n")]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        words = [*COMMAND, "run", "--", "true"]
        ended = subprocess.run(words, stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=60, env=buffered())
    assert ended.returncode == exitcodes.UNREAD
    assert "Task 1 goes on." in ended.stderr


def test_run_whose_output_finds_no_room_says_that_its_task_goes_on(dispatcher: StubDispatcher) -> None:
    """Else it would be submitted again once there is room."""
    dispatcher.plays = lambda task: None
    dispatcher.logs[1] = [("5", b"first\n")]
    with open("/dev/full", "wb") as full:
        words = [*COMMAND, "run", "--", "true"]
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=buffered())
    assert ended.returncode == exitcodes.UNAVAILABLE
    assert "Task 1 goes on." in ended.stderr


def test_a_certificate_that_a_start_would_refuse_is_no_good_configuration(tmp_path: Path) -> None:
    """Told before the dispatcher is stopped for an upgrade, say; and a certificate that serves is good, with a word
    where not for long."""
    past, now = datetime(2001, 1, 1, tzinfo=UTC), datetime.now(UTC)
    old = now - timedelta(days=3640)  # of the ten years that it lasts
    for made, code in ((past, exitcodes.USAGE), (old, exitcodes.OK), (now, exitcodes.OK)):
        folder = tmp_path / str(made.year)
        own = certificates.own(folder / "tls", ["127.0.0.1"], made)
        file = folder / "config.toml"
        file.write_text(f'[dispatcher]\nstate_dir = "state"\ncertificate = "{own.certificate}"\nkey = "{own.key}"\n')
        ended = shell(["config", "check", "--config", str(file)], "")
        assert ended.returncode == code, ended.stderr
        assert ("server.pem: it ended at 20" in ended.stderr) == (code != exitcodes.OK)
        assert ("server.pem ends in 9d" in ended.stdout) == (made is old)
