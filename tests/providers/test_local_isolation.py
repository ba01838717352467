"""Isolated tasks of local VMs: when they are refused, and which folders are opened for them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch_local import isolation


def test_isolation_without_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InvalidInput, match=r"isolate_tasks needs root.*uid 1000") as caught:
        isolation.check_root("mine")
    assert caught.value.place == "profiles.mine.isolate_tasks"


def test_a_closed_folder_above_is_named_and_not_opened(tmp_path: Path) -> None:
    """It is not ours: the dispatcher does not start, rather than let everybody into somebody's home."""
    closed = tmp_path / "home"
    vms = closed / "state" / "vms"
    vms.mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(InvalidInput, match="can't get through") as caught:
        isolation.open_way(vms, vms.parent, "mine")
    assert caught.value.place == "profiles.mine.root"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_only_the_dispatchers_own_folders_are_opened(tmp_path: Path) -> None:
    """A root that the operator named is ours; what is above it is not, nor what only looks like a state's."""
    own = tmp_path / "state" / "providers" / "local"
    assert isolation.ours(own, own) == tmp_path / "state"
    assert isolation.ours(tmp_path / "elsewhere", own) == tmp_path / "elsewhere"
    assert isolation.ours(tmp_path / "x" / "y", tmp_path / "x" / "y") == tmp_path / "x" / "y"
