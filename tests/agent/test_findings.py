"""Which files an output means: none is left out without a word, and none is from elsewhere. Over real folders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.agent import findings
from cloud_dispatch.agent.depot import TransferFailed
from cloud_dispatch.agent.folders import remove_tree
from cloud_dispatch.wire.messages import FileTransfer
from tests.agent.conftest import Carried, RunningAgent
from tests.agent.stub import StubDispatcher


def nested(folder: Path, depth: int, name: str = "d") -> None:
    """Folders within each other, deeper than a path may name, with a file in the last."""
    folder.mkdir()
    code = "import os, sys\nos.chdir(sys.argv[1])\n"
    code += "name = sys.argv[3]\nfor _ in range(int(sys.argv[2])):\n    os.mkdir(name); os.chdir(name)\n"
    code += "open('f', 'w').close()\n"
    subprocess.run([sys.executable, "-c", code, str(folder), str(depth), name], check=True)


@pytest.mark.parametrize("url", ["", "STORE"])
def test_what_a_task_has_made_that_can_not_be_named_fails_its_output_alone(
    made: Callable[..., Carried], tmp_path: Path, url: str
) -> None:
    """A name that is no text, folders that are too deep, whatever kind of output: the attempt hears of it."""
    url = url and f"file://{tmp_path}/store/"
    folder = tmp_path / "attempt"
    (folder / "odd").mkdir()
    (folder / os.fsdecode(b"odd/a\xffb")).write_text("x")
    (folder / "pipe").mkdir()
    os.mkfifo(folder / os.fsdecode(b"pipe/a\xffb"))
    nested(folder / "deep", 1500)
    with pytest.raises(TransferFailed, match=r"output odd: the name of 'odd/a.udcffb' is no UTF-8"):
        made().take([FileTransfer("odd", url)])
    with pytest.raises(TransferFailed, match="is no UTF-8"):
        made().take([FileTransfer("pipe/*", url)])
    for path in ("deep", "deep/**/f"):
        with pytest.raises(TransferFailed, match="nested too deeply"):
            made().take([FileTransfer(path, url)])
    remove_tree(str(folder))
    assert not folder.exists()


def test_no_folder_of_an_output_is_left_out_in_silence(made: Callable[..., Carried], tmp_path: Path) -> None:
    """Here one whose name has grown too long to be looked into; the file beside it is not taken for all of them."""
    nested(tmp_path / "attempt/out", 30, "d" * 200)
    (tmp_path / "attempt/out/beside").write_text("x")
    with pytest.raises(TransferFailed, match=r"output out: can't look into 'out/d.*: File name too long"):
        made().take([FileTransfer("out", f"file://{tmp_path}/store/")])
    remove_tree(str(tmp_path / "attempt"))


@pytest.mark.parametrize(
    ("pattern", "means"),
    [
        ("**", {"a", "out/.hidden", "out/b", "out/deep/c", "out-of/d"}),
        ("**/*", {"a", "out/.hidden", "out/b", "out/deep/c", "out-of/d"}),
        ("out/**", {"out/.hidden", "out/b", "out/deep/c"}),
        ("out*/**", {"out/.hidden", "out/b", "out/deep/c", "out-of/d"}),
        ("out/**/*", {"out/b", "out/deep/c"}),
    ],
)
def test_a_pattern_that_goes_down_means_each_file_once(
    made: Callable[..., Carried], tmp_path: Path, pattern: str, means: set[str]
) -> None:
    """It matches each folder and again what lies in it; the working folder itself leads nowhere out of it."""
    for name in ("a", "out/.hidden", "out/b", "out/deep/c", "out-of/d"):
        (tmp_path / "attempt" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "attempt" / name).write_text(name)
    stored = [entry.path for entry in made().take([FileTransfer(pattern, f"file://{tmp_path}/store/")])]
    assert sorted(stored) == sorted(means)


@pytest.mark.parametrize("path", ["out", "out/*"])
def test_a_linked_folder_is_what_it_leads_to(made: Callable[..., Carried], tmp_path: Path, path: str) -> None:
    """Its files are under the link's name, too; one that leads out of the working folder fails the output."""
    folder = tmp_path / "attempt"
    for name in ("out/a", "scratch/run1/deep/b"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
    (folder / "out/latest").symlink_to("../scratch/run1")
    (folder / "out/absolute").symlink_to(folder / "scratch/run1/deep")
    store = f"file://{tmp_path}/store/"
    assert {(entry.path, entry.size) for entry in made().take([FileTransfer(path, store)])} == {
        ("out/a", 5), ("out/latest/deep/b", 19), ("out/absolute/b", 19),
    }  # fmt: skip
    (folder / "out/data").symlink_to(tmp_path)
    with pytest.raises(TransferFailed, match="path 'out/data' leaves the working folder"):
        made().take([FileTransfer(path, store)])


def test_links_make_no_endless_folders(
    made: Callable[..., Carried], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by a circle nor by many ways to the same place."""
    circle, many = tmp_path / "attempt/circle/deep", tmp_path / "attempt/many"
    circle.mkdir(parents=True)
    (circle / "back").symlink_to("..")
    with pytest.raises(TransferFailed, match="output circle: 'circle/deep/back' leads back to a folder above it"):
        made().take([FileTransfer("circle")])
    monkeypatch.setattr(findings, "MOST_OUTPUTS", 100)
    for level in range(20):
        (many / str(level)).mkdir(parents=True)
        for side in "lr":
            (many / str(level) / side).symlink_to(f"../{level + 1}")
    (many / "20").mkdir()
    with pytest.raises(TransferFailed, match="output many/0: more than 100 folders"):
        made().take([FileTransfer("many/0")])


@pytest.mark.parametrize("swapped", ["out", "out/deep", "out/deep/f"])
def test_what_has_become_a_link_since_it_was_looked_at_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """Whichever part of the way: the file itself, or a folder above it."""
    for folder in ("attempt/out/deep", "elsewhere/deep"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "f").write_text(folder)
    attempt, inside = str(tmp_path / "attempt"), findings.inside

    def look(folder: str, path: str) -> str:
        place = inside(folder, path)
        (tmp_path / "attempt" / swapped).rename(tmp_path / "before")
        (tmp_path / "attempt" / swapped).symlink_to(tmp_path / swapped.replace("out", "elsewhere"))
        return place

    with findings.opened(attempt, "out/deep/f") as file:
        assert file.read() == b"attempt/out/deep"
    monkeypatch.setattr(findings, "inside", look)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        findings.opened(attempt, "out/deep/f")


def test_an_output_that_has_become_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TransferFailed, match="output pipe is not a file"):
        findings.opened(str(tmp_path), "pipe")


@pytest.mark.process
@pytest.mark.parametrize("users", ["separated"], indirect=True)
def test_a_folder_that_the_agent_may_not_look_into_fails_the_output(stub: StubDispatcher, agent: RunningAgent) -> None:
    """A success that lacks it would be none."""
    shell = "mkdir -p out/locked; echo > out/a; echo > out/locked/b; chmod 0 out/locked"
    result = stub.result(stub.submit(shell=shell, outputs=[FileTransfer("out")]))
    assert result.cause == "output-failed"
    assert result.detail == "output out: can't look into 'out/locked': Permission denied"
