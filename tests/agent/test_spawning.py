"""Starting programs: what `subprocess` would do, done by `posix_spawn`. Each case is asked of both ways."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.agent.spawning import Spawner

Run = Callable[..., bytes]


@pytest.fixture(params=["posix_spawn", "subprocess"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Start a command in a folder, by either way, and return its output."""
    spawner = Spawner()
    spawner._plain = request.param == "posix_spawn"

    def start(argv: list[str], *, cwd: Path = tmp_path, **env: str) -> bytes:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            pid = spawner.spawn(argv, {"PATH": os.defpath, **env}, str(cwd), writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        with os.fdopen(reading, "rb") as file:
            said = file.read()
        assert os.waitpid(pid, 0)[1] == 0
        return said

    return start


def script(path: Path, text: str = "#!/bin/sh\necho here\n", mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_it_runs_in_its_folder_and_the_spawner_does_not(run: Run, tmp_path: Path) -> None:
    before = Path.cwd()
    assert run(["pwd"]).decode().strip() == str(tmp_path)
    assert Path.cwd() == before


def test_it_leads_a_session_of_its_own(run: Run) -> None:
    """Its id is that of its session and group, so that all of it can be signalled."""
    said = run(["sh", "-c", "cut -d' ' -f5,6 /proc/$$/stat; printf '|%s' $$"]).split(b"|")
    assert said[0].split() == [said[1], said[1]]


def test_it_has_its_environment_and_no_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the agent")
    assert sorted(run(["env"], OWN="1").split()) == sorted([b"OWN=1", b"PATH=" + os.defpath.encode()])


def test_it_has_three_descriptors_even_where_more_were_inherited(tmp_path: Path) -> None:
    """Whoever started the agent may have left descriptors open for it; none of them reaches a task."""
    code = (
        "import os, sys; from cloud_dispatch.agent.spawning import Spawner;"
        "os.waitpid(Spawner().spawn(['ls', '/proc/self/fd'], {'PATH': os.defpath}, '/', 1), 0)"
    )
    left_open = os.open(tmp_path, os.O_RDONLY)
    said = subprocess.run(
        ["python3", "-c", code], pass_fds=[left_open], stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[2]
    ).stdout
    os.close(left_open)
    assert said.split() == [b"0", b"1", b"2", b"3"], "3 is the listing's own"


def test_its_input_is_empty_and_its_errors_are_in_its_output(run: Run) -> None:
    assert run(["sh", "-c", "cat; echo out; echo err >&2"]) == b"out\nerr\n"


def test_signals_that_python_ignores_are_as_usual(run: Run) -> None:
    """Else `yes | head` would never end."""
    ignored = int(run(["sh", "-c", "grep SigIgn /proc/self/status"]).split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))
    assert not ignored & (1 << (signal.SIGXFSZ - 1))


def test_signals_that_are_held_back_here_are_not_there(run: Run) -> None:
    """An agent that takes over starts tasks while its own signals wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    try:
        assert int(run(["grep", "SigBlk", "/proc/self/status"]).split()[1], 16) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_programs_are_looked_for_in_the_path_of_the_task(run: Run, tmp_path: Path) -> None:
    """In order; folders of that name and files that may not be run are passed by, an empty entry is the folder."""
    (tmp_path / "a" / "tool").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    script(tmp_path / "b" / "tool", mode=0o644)
    (tmp_path / "c").mkdir()
    script(tmp_path / "c" / "tool")
    path = ":".join(str(tmp_path / name) for name in "abc")
    assert run(["tool"], PATH=path) == b"here\n"
    script(tmp_path / "own", "#!/bin/sh\necho own\n")
    assert run(["own"], PATH=f"{path}:") == b"own\n"
    assert run(["./own"]) == b"own\n"
    with pytest.raises(FileNotFoundError):
        run(["own"])
    with pytest.raises(PermissionError):
        run(["tool"], PATH=str(tmp_path / "b"))


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["no-such-program"], FileNotFoundError),
        (["/no/such/program"], FileNotFoundError),
        (["/"], PermissionError),
        (["a\0b"], ValueError),
        (["true", "x\0"], ValueError),
    ],
)
def test_what_can_not_start_says_why(run: Run, argv: list[str], error: type[Exception]) -> None:
    before = Path.cwd()
    with pytest.raises(error):
        run(argv)
    assert Path.cwd() == before


def test_a_text_without_an_interpreter_and_a_missing_folder_are_errors(run: Run, tmp_path: Path) -> None:
    script(tmp_path / "text", "echo no\n")
    with pytest.raises(OSError, match="Exec format error"):
        run(["./text"])
    with pytest.raises(FileNotFoundError):
        run(["true"], cwd=tmp_path / "missing")
    with pytest.raises(ValueError, match="environment"):
        run(["true"], **{"A=B": "c"})


def test_a_c_library_without_sessions_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once told, it is not asked again."""
    asked = []

    def none(*_: object, **__: object) -> int:
        asked.append(1)
        raise NotImplementedError("setsid")

    monkeypatch.setattr(os, "posix_spawn", none)
    spawner = Spawner()
    for _ in range(2):
        pid = spawner.spawn(["true"], {"PATH": os.defpath}, str(tmp_path), 1)
        assert os.waitpid(pid, 0)[1] == 0
    assert asked == [1]
