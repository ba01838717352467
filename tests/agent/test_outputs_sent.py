"""Where outputs go, each once, and what of them is refused before any is sent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.agent import findings, transfers
from cloud_dispatch.agent.depot import TransferFailed
from cloud_dispatch.wire.messages import FileTransfer
from tests.agent.conftest import TOKEN, Carried
from tests.agent.shelf import Shelf
from tests.wire.test_places import ALIKE


def test_outputs_go_to_names_of_the_attempt_alone(shelf: Shelf, made: Callable[..., Carried], tmp_path: Path) -> None:
    """A file URL gets the token, {token} is replaced, and the manifest names what was stored."""
    (tmp_path / "attempt/r").write_bytes(b"result")
    shelf.refuse = 2
    manifest = made().take(
        [FileTransfer("r", f"file://{tmp_path}/store/r"), FileTransfer("r", f"{shelf.url}/r-{{token}}")]
    )
    digest = hashlib.sha256(b"result").hexdigest()
    assert [(entry.path, entry.size, entry.sha256) for entry in manifest] == [("r", 6, digest)] * 2
    assert manifest[0].url == f"file://{tmp_path}/store/r.{TOKEN}"
    assert (tmp_path / f"store/r.{TOKEN}").read_bytes() == b"result"
    assert shelf.files == {f"/r-{TOKEN}": b"result"}


@pytest.mark.parametrize("url", ALIKE)
def test_an_output_that_would_be_one_file_for_every_attempt_is_not_stored(
    made: Callable[..., Carried], tmp_path: Path, url: str
) -> None:
    """Whatever the dispatcher took: a late attempt would write over what a newer one has stored."""
    (tmp_path / "attempt/r").write_bytes(b"result")
    for host in ("file://", "file://{token}"):
        url = url.replace(f"{host}/", f"{host}{tmp_path}/store/")
    with pytest.raises(TransferFailed, match="output r: its URL would be the same file for every attempt"):
        made().take([FileTransfer("r", url)])
    assert not (tmp_path / "store").exists()


def test_an_output_is_read_again_from_what_was_opened(
    shelf: Shelf, made: Callable[..., Carried], tmp_path: Path
) -> None:
    """Whatever has its name when it has to be sent once more: a link may have taken its place."""
    output, secret = tmp_path / "attempt/r", tmp_path / "secret"
    output.write_bytes(b"result")
    secret.write_bytes(b"secret")

    def swap() -> None:
        output.unlink(missing_ok=True)
        output.symlink_to(secret)

    shelf.refuse, shelf.meanwhile = 2, swap
    (entry,) = made().take([FileTransfer("r", f"{shelf.url}/r-{{token}}")])
    assert entry.sha256 == hashlib.sha256(b"result").hexdigest()
    assert shelf.files == {f"/r-{TOKEN}": b"result"}


def test_patterns_and_folders_take_every_file(made: Callable[..., Carried], tmp_path: Path) -> None:
    """A URL that ends in / gets each file's own path; several files need one."""
    folder = tmp_path / "attempt/out"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "deep/c.txt", "d.bin"):
        (folder / name).write_text(name)
    store = f"file://{tmp_path}/store/"
    assert {e.path for e in made().take([FileTransfer("out/*.txt", store)])} == {"out/a.txt", "out/b.txt"}
    assert len(made().take([FileTransfer("out", store)])) == 4
    with pytest.raises(TransferFailed, match="several files"):
        made().take([FileTransfer("out/*.txt", f"file://{tmp_path}/one")])
    with pytest.raises(TransferFailed, match=r"output none\* is missing"):
        made().take([FileTransfer("none*", store)])


def test_names_that_are_too_long_for_so_many_files_fail_the_output(
    made: Callable[..., Carried], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the manifest of one attempt says is bounded, whether of its paths or of its URLs."""
    folder = tmp_path / "attempt/out"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}{'x' * 200}").write_text("x")
    store = f"file://{tmp_path}/store/"
    assert len(made().take([FileTransfer("out", store)])) == 10
    monkeypatch.setattr(transfers, "MOST_MANIFEST", 10_000)
    with pytest.raises(TransferFailed, match="output out are too long for so many files"):
        made().take([FileTransfer("out", store)])


def test_each_file_goes_once_to_each_of_its_places(shelf: Shelf, made: Callable[..., Carried], tmp_path: Path) -> None:
    """However many outputs mean it; where two name different places for it, both were asked for."""
    folder = tmp_path / "attempt/out"
    folder.mkdir(parents=True)
    for name in ("a", "b"):
        (folder / name).write_text(name)
    store, other = f"{shelf.url}/{{token}}/", f"{shelf.url}/other-{{token}}"
    wanted = [FileTransfer("out/*", store), FileTransfer("out", store), FileTransfer("out/a", f"{store}out/a")]
    manifest = made().take([*wanted, FileTransfer("./out/a", other)])
    assert [(file.path, file.url) for file in manifest] == [
        ("out/a", f"{shelf.url}/{TOKEN}/out/a"),
        ("out/b", f"{shelf.url}/{TOKEN}/out/b"),
        ("out/a", f"{shelf.url}/other-{TOKEN}"),
    ]
    assert shelf.requests == 3


def test_nothing_is_sent_of_outputs_that_can_not_all_be(
    shelf: Shelf, made: Callable[..., Carried], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many of them, one that is missing, no file or can't be looked into, two that would be one."""
    monkeypatch.setattr(transfers, "MOST_OUTPUTS", 20)
    monkeypatch.setattr(findings, "MOST_OUTPUTS", 20)
    folder = tmp_path / "attempt/out"
    folder.mkdir(parents=True)
    for number in range(20):
        (folder / str(number)).write_text("x")
    (tmp_path / "attempt/more").write_text("x")
    os.mkfifo(tmp_path / "attempt/pipe")
    store, one = f"{shelf.url}/{{token}}/", f"{shelf.url}/{{token}}"
    for second, why in (
        (FileTransfer("more", store), "more than 20 output files"),
        (FileTransfer("none", store), "output none is missing"),
        (FileTransfer("pipe", store), "output pipe is not a file"),
        (FileTransfer("..", store), "leaves the working folder"),
    ):
        with pytest.raises(TransferFailed, match=why):
            made().take([FileTransfer("out", store), second])
    with pytest.raises(TransferFailed, match="outputs out/0 and out/1 have the same URL"):
        made().take([FileTransfer("out/0", one), FileTransfer("out/1", one)])
    assert shelf.requests == 0
    assert len(made().take([FileTransfer("out", store), FileTransfer("out/*", store)])) == 20, "each counts once"


def test_a_folder_of_endless_files_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known to be too much is held in nobody's memory."""
    monkeypatch.setattr(findings, "MOST_OUTPUTS", 20)
    (tmp_path / "attempt/out").mkdir(parents=True)
    for number in range(21):
        (tmp_path / "attempt/out" / str(number)).write_text("x")
    with pytest.raises(TransferFailed, match="more than 20 output files"):
        findings.found(str(tmp_path / "attempt"), "out", lambda: None)
