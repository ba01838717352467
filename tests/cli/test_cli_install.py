"""`install`, `backup --into` and `restore` of a folder, as an operator types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cli.exitcodes import OK, UNAVAILABLE, USAGE
from cloud_dispatch.install import host
from cloud_dispatch.install.units import SERVICE


def test_the_units_can_be_looked_at_first(
    cli: Any, no_dispatcher: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the configuration's own state folder; a step that fails is told, with what it needs."""
    done = cli("install", "--config", str(no_dispatcher), "--print", "--json")
    assert done.code == OK
    files = json.loads(done.out)["units"]
    assert f'up --config "{no_dispatcher}"' in files[SERVICE]
    assert str(no_dispatcher.parent / "state") in files[SERVICE]
    refuses = tmp_path / "bin" / "useradd"
    refuses.parent.mkdir()
    refuses.write_text("#!/bin/sh\necho useradd: Permission denied. >&2\nexit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("PATH", f"{refuses.parent}:/usr/bin:/bin")
    monkeypatch.setattr(host, "UNITS", tmp_path)
    done = cli("install", "--config", str(no_dispatcher), "--user", "nobody-of-that-name")
    assert done.code == UNAVAILABLE
    assert "Permission denied" in done.err
    assert "needs root" in done.err


def test_a_copy_goes_to_a_file_or_into_a_folder(cli: Any, no_dispatcher: Path, tmp_path: Path) -> None:
    """Not to both, and not to nowhere. tests/system restores what was copied."""
    for words in ((), (str(tmp_path / "x.sqlite"), "--into", str(tmp_path))):
        done = cli("backup", *words, "--config", str(no_dispatcher))
        assert (done.code, "a folder with --into" in done.err) == (USAGE, True)
