"""`install`, `backup --into` and `restore` of a folder, as an operator types them."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cli.exitcodes import CONFLICT, OK, UNAVAILABLE, USAGE
from cloud_dispatch.config import secrets
from cloud_dispatch.install import host, trial, upgrading
from cloud_dispatch.install.units import SERVICE


def test_the_units_can_be_looked_at_first(
    cli: Any, no_dispatcher: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the configuration's own state folder; a step that fails is told, with what it needs. What is refused is not
    what the service starts with the next time."""
    done = cli("install", "--config", str(no_dispatcher), "--print", "--json")
    assert done.code == OK
    files = json.loads(done.out)["units"]
    assert f'up --config "{no_dispatcher}"' in files[SERVICE]
    assert str(no_dispatcher.parent / "state") in files[SERVICE]
    assert f"ExecStart={sys.prefix}/current/bin/cloud-dispatch up" in files[SERVICE]
    environment = tmp_path / "opt" / "versions" / "0.3.0"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "cloud-dispatch").touch()
    monkeypatch.setattr(sys, "prefix", str(environment))
    refuses = tmp_path / "bin" / "useradd"
    refuses.parent.mkdir()
    refuses.write_text("#!/bin/sh\necho useradd: Permission denied. >&2\nexit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("PATH", f"{refuses.parent}:/usr/bin:/bin")
    monkeypatch.setattr(host, "UNITS", tmp_path)
    monkeypatch.setattr(trial, "HIDDEN", (str(tmp_path),))
    done = cli("install", "--config", str(no_dispatcher), "--user", "nobody-of-that-name")
    assert (done.code, "is hidden from the service" in done.err) == (USAGE, True)
    assert not (tmp_path / "opt" / "current").exists()
    monkeypatch.setattr(trial, "HIDDEN", ())  # as if the tests' folder were none of those
    done = cli("install", "--config", str(no_dispatcher), "--user", "nobody-of-that-name")
    assert done.code == UNAVAILABLE
    assert "Permission denied" in done.err
    assert "needs root" in done.err
    assert not (tmp_path / "opt" / "current").exists()
    program = environment / "bin" / "cloud-dispatch"
    program.write_text("#!/bin/sh\necho it is no configuration >&2\nexit 2\n")
    program.chmod(0o755)
    done = cli("install", "--config", str(no_dispatcher), "--user", getpass.getuser())
    assert (done.code, "it is no configuration" in done.err) == (USAGE, True)
    assert not (tmp_path / "opt" / "current").exists()


def test_a_copy_goes_to_a_file_or_to_a_place_of_copies(cli: Any, no_dispatcher: Path, tmp_path: Path) -> None:
    """Not to both. tests/system restores what was copied."""
    for option in (("--into", str(tmp_path)), ("--keep", "3")):
        done = cli("backup", str(tmp_path / "x.sqlite"), *option, "--config", str(no_dispatcher))
        assert (done.code, "a file is one copy" in done.err) == (USAGE, True)
    none = cli("backups", "--config", str(no_dispatcher))
    assert (none.code, none.out.strip()) == (0, "There is no copy.")
    for words in (("restore", "s4://lab/x"), ("backup", "--into", "s4://lab/x"), ("backups", "--from", "s4://lab/x")):
        odd = cli(*words, "--config", str(no_dispatcher))
        assert (odd.code, "s4://lab/x is no place in a bucket" in odd.err) == (USAGE, True)


def test_a_version_that_is_none_is_refused_before_anything_is_done(
    cli: Any, no_dispatcher: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host, "run", lambda words: pytest.fail(f"{words} was run"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "opt"))
    done = cli("upgrade", "newest", "--config", str(no_dispatcher))
    assert (done.code, "is no version" in done.err) == (USAGE, True)
    done = cli("rollback", "--config", str(no_dispatcher))
    assert (done.code, "no version ran before" in done.err) == (CONFLICT, True)


@pytest.mark.parametrize("words", [("upgrade", "9.9.9"), ("rollback",)])
def test_what_systemd_tells_the_service_both_versions_are_told(
    words: tuple[str, ...], cli: Any, no_dispatcher: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They open the statestore, whose password a cloud's SDK may have to find. What is set counts before it."""
    found: list[tuple[str | None, str | None]] = []

    def done(*_: object, **__: object) -> Path:
        found.append((os.environ.get("AZURE_CLIENT_ID"), os.environ.get("HOME")))
        return tmp_path

    monkeypatch.setattr(secrets, "ENVIRONMENT", tmp_path / "environment")
    (tmp_path / "environment").write_text("AZURE_CLIENT_ID='one'\nHOME=/x\n")
    monkeypatch.setattr(os, "environ", {**os.environ, "HOME": str(tmp_path)})
    monkeypatch.setattr(upgrading, "upgrade", done)
    monkeypatch.setattr(upgrading, "roll_back", done)
    assert cli(*words, "--config", str(no_dispatcher)).code == OK
    assert found == [("one", str(tmp_path))]


@pytest.mark.parametrize(
    "words", [("upgrade", "9.9.9"), ("rollback",), ("install", "--user", "nobody-of-that-name"), ("restore", "latest")]
)
def test_every_command_that_changes_the_machine_is_refused(
    words: tuple[str, ...], cli: Any, no_dispatcher: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before it runs or writes anything."""
    monkeypatch.setattr(host, "run", lambda said: pytest.fail(f"{said} was run"))
    monkeypatch.setattr(subprocess, "run", lambda *said, **options: pytest.fail(f"{said} was run"))
    monkeypatch.setattr(trial, "HIDDEN", ())
    there = sorted(tmp_path.rglob("*"))
    folder = os.open(no_dispatcher.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        done = cli(*words, "--config", str(no_dispatcher))
    finally:
        os.close(folder)
    assert (done.code, "another command changes" in done.err) == (CONFLICT, True), done.err
    assert sorted(tmp_path.rglob("*")) == there
