"""When the folders of attempts are removed: nobody who waits for a sign of life waits for that."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloud_dispatch.agent import incarnation
from cloud_dispatch.agent.baggage import Baggage
from cloud_dispatch.agent.folders import TEMPORARY, Folders


class Beside:
    """What was to be run beside the loop, and is when the test says so."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def __call__(self, work: Callable[..., Any], *args: Any) -> None:
        self.work.append((work, args))

    def run(self) -> None:
        for work, args in self.work:
            work(*args)


def test_what_is_there_at_a_start_is_removed_beside_the_loop(tmp_path: Path) -> None:
    """Also what an agent before was about to remove; an attempt finds an empty folder meanwhile."""
    root = tmp_path / "attempts"
    for left in (root / "a1", tmp_path / "attempts.waste" / "old"):
        left.mkdir(parents=True)
        (left / "secret").touch()
    beside = Beside()
    folders = Folders(str(root), beside)
    assert list(root.iterdir()) == []
    assert len(list(tmp_path.rglob("secret"))) == 2, "nothing is removed at once"
    folder = Path(folders.take(False))
    beside.run()
    assert list(tmp_path.rglob("secret")) == []
    assert folder.is_dir()
    folders.clear()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_kept_of_the_program_before_is_removed_beside_the_loop(tmp_path: Path) -> None:
    """A folder that is still to be removed gives its name to no other. What that one was about to remove goes, too: its
    threads ended with it."""
    root, waste = tmp_path / "attempts", tmp_path / "attempts.waste"
    for folder in (root / "a1", root / "a2", waste / "old"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (root / "7-8.log").touch()
    beside = Beside()
    folders = Folders(str(root), beside, [str(root / "a1")])
    assert (root / "a2" / "file").exists()
    assert (waste / "old" / "file").exists()
    assert Path(folders.take(False)).name == "a3"
    beside.run()
    assert {path.name for path in root.iterdir()} == {"a1", "a3"}
    assert (root / "a1" / "file").exists()
    assert not waste.exists()


def test_an_agent_tells_its_end_before_it_clears_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes, it is not taken for hung, and started again."""
    said: list[str] = []

    class Over:
        folders = SimpleNamespace(clear=lambda: said.append("clears"))

        def __init__(self, *_: Any) -> None:
            pass

        async def run(self) -> str:
            return "idle"

    monkeypatch.setattr("cloud_dispatch.agent.shell.Shell", Over)
    monkeypatch.setattr(incarnation, "load_identity", lambda _: SimpleNamespace())
    asyncio.run(incarnation._serve(Baggage("inc"), cast(Any, None), said.append))
    assert said == ["beat", "end idle", "clears"]


def test_a_folder_that_can_not_be_made_whole_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that waits for room on a full disk asks again and again."""
    folders = Folders(str(tmp_path / "attempts"), Beside())
    made = os.mkdir

    def full(path: str, mode: int = 0o777) -> None:
        if os.path.basename(path) == TEMPORARY:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        made(path, mode)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        folders.take(False)
    assert list((tmp_path / "attempts").iterdir()) == []
