"""One command at a time changes a control VM: over processes, as locks are."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict
from cloud_dispatch.install import trial
from cloud_dispatch.install.alone import alone

_HOLDS = """\
import pathlib, sys
from cloud_dispatch.install.alone import alone
with alone(pathlib.Path(sys.argv[1])):
    print("holds", flush=True)
    sys.stdin.read()
"""

#: Has another program do something, as an upgrade has `pip`, which says when it has begun and goes on until it is told.
_HAS_DONE = """\
import pathlib, sys
from cloud_dispatch.install import host
from cloud_dispatch.install.alone import alone
with alone(pathlib.Path(sys.argv[1])):
    host.run(["sh", "-c", "echo began > $0/began; read line < $0/end", sys.argv[2]])
"""


@contextmanager
def other(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that changes it, until it ends."""
    words = [sys.executable, "-c", _HOLDS, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


def test_a_second_one_is_refused_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    """Also for who has refused before; another folder is another control VM's."""
    (tmp_path / "lab").mkdir()
    with other(tmp_path) as process:
        for _ in range(2):
            with pytest.raises(Conflict, match="nothing was done"), alone(tmp_path):
                pytest.fail("two at once")
        with alone(tmp_path / "lab"), alone(None):
            pass
        process.kill()
        process.wait(30)
        with alone(tmp_path):
            pass


def test_what_a_command_has_others_do_is_its_own_doing(tmp_path: Path) -> None:
    """An upgrade runs the new version's `install`, with what it has said to its children; afterwards nothing of it is
    left."""
    before = dict(os.environ)
    with alone(tmp_path):
        with other(tmp_path):
            pass
        foreign = {name: value for name, value in os.environ.items() if name in before}
        words = [sys.executable, "-c", _HOLDS, str(tmp_path)]
        done = subprocess.run(words, input="", capture_output=True, text=True, env=foreign, check=False, timeout=30)
        assert "another command changes" in done.stderr
    assert dict(os.environ) == before


def test_what_a_killed_one_has_begun_keeps_others_out_until_it_ends(tmp_path: Path) -> None:
    """`pip` lives on where its upgrade is killed: a second one beside it would delete what it writes, or keep a mixture
    of both."""
    folder, signs = tmp_path / "etc", tmp_path / "signs"
    for made in (folder, signs):
        made.mkdir()
    os.mkfifo(signs / "began")
    os.mkfifo(signs / "end")
    with subprocess.Popen([sys.executable, "-c", _HAS_DONE, str(folder), str(signs)]) as process:
        assert (signs / "began").read_text() == "began\n"
        process.kill()
        process.wait(30)
        with pytest.raises(Conflict, match="nothing was done") as refused, alone(folder):
            pytest.fail("beside what goes on")
        assert f"fuser {folder}" in refused.value.hint
        (signs / "end").write_text("go\n")
    for _ in range(300):  # it ends once it has read that
        try:
            with alone(folder):
                return
        except Conflict:
            time.sleep(0.1)
    pytest.fail("it holds on to it")


def test_the_services_user_is_lent_nothing_to_hold_on_to(tmp_path: Path) -> None:
    """Who judges the configuration is not root, and must not be able to keep the next upgrade out."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n! readlink /proc/self/fd/* /proc/$$/fd/* | grep -x {tmp_path}\n")
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    with alone(tmp_path):
        trial.tried(program, tmp_path / "config.toml", pwd.getpwuid(os.geteuid()).pw_name)


def test_a_file_system_without_locks_is_none_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with alone(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can be somebody else, who may read less")
def test_who_may_read_the_file_and_not_its_folder_goes_on(open_folder: Path) -> None:
    """As before there was a lock: a restore of one's own, say."""
    folder = open_folder / "closed"
    folder.mkdir(mode=0o711)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setuid(pwd.getpwnam("nobody").pw_uid)
            with alone(folder):
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
