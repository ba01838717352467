"""Small files that outlive a loss of power: synced before they have their name, and their folder after."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cloud_dispatch import durable


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the name after it."""
    path, synced, real = tmp_path / "sign", [], os.fsync
    path.write_text("of before")

    def fsync(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append((folder, path.read_text()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    durable.write(path, b"of now", 0o640)
    assert synced == [(False, "of before"), (True, "of now")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_can_not_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier try has left half written is no obstacle."""
    path = tmp_path / "sign"
    path.write_text("of before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space") as told:
            durable.write(path, b"of now", 0o600)
    assert told.value.filename == str(path), "the system does not say which file found no room"
    assert (path.read_text(), list(tmp_path.iterdir())) == ("of before", [path])
    durable.write(path, b"of now", 0o600)
    assert path.read_text() == "of now"
