"""`outputs`: what tasks have stored arrives whole, below the folder, and replaces nothing unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def stored(dispatcher: Any) -> Any:
    """Two tasks of a project that have succeeded, one that has not."""
    for _ in range(3):
        dispatcher.add(project="night", state="queued", outputs=[])
    dispatcher.tasks[3]["state"] = "failed"
    dispatcher.store(1, "out/grüße ☃.txt", b"hello")
    dispatcher.store(1, "big", bytes(3_000_000))
    dispatcher.store(2, "big", b"two")
    return dispatcher


@pytest.fixture(autouse=True)
def _succeeds_at_once(dispatcher: Any) -> None:
    dispatcher.plays = lambda task: None


def test_one_tasks_outputs_lie_in_the_folder(cli: Any, stored: Any, tmp_path: Path) -> None:
    """Each file under its own name, which is printed; what is there already is left as it is."""
    ran = cli("outputs", "1", "--into", str(tmp_path / "new"))
    assert (ran.code, ran.out.splitlines()) == (0, [f"{tmp_path}/new/out/grüße ☃.txt", f"{tmp_path}/new/big"])
    assert (tmp_path / "new/out/grüße ☃.txt").read_bytes() == b"hello"
    assert (tmp_path / "new/big").read_bytes() == bytes(3_000_000)
    asked = len(stored.requests)
    assert cli("outputs", "1", "--into", str(tmp_path / "new"), "--json").json()["outputs"][1]["file"].endswith("big")
    assert len(stored.requests) == asked + 1  # the manifest alone: nothing is fetched twice


def test_several_tasks_have_a_folder_each(cli: Any, stored: Any, tmp_path: Path) -> None:
    """A project's outputs are those of its tasks that have succeeded; a task that is named must have."""
    assert cli("outputs", "--project", "night", "--into", str(tmp_path)).code == 0
    assert (tmp_path / "1/out/grüße ☃.txt").read_bytes() == b"hello"
    assert (tmp_path / "2/big").read_bytes() == b"two"
    assert not (tmp_path / "3").exists()
    assert cli("outputs", "3", "--into", str(tmp_path)).code == 4
    assert cli("outputs", "9", "--into", str(tmp_path)).code == 3
    assert cli("outputs").code == 2


def test_no_file_is_replaced_unasked(cli: Any, stored: Any, tmp_path: Path) -> None:
    """Another file of that name stays, unless --overwrite says so."""
    (tmp_path / "big").write_bytes(b"mine")
    assert cli("outputs", "2", "--into", str(tmp_path)).code == 4
    assert (tmp_path / "big").read_bytes() == b"mine"
    assert cli("outputs", "2", "--into", str(tmp_path), "--overwrite").code == 0
    assert (tmp_path / "big").read_bytes() == b"two"


def test_what_arrives_damaged_leaves_nothing(cli: Any, stored: Any, tmp_path: Path) -> None:
    """A file has its name only once its checksum is right."""
    stored.stored[2, "big"] = b"twx"
    ran = cli("outputs", "2", "--into", str(tmp_path))
    assert (ran.code, "damaged" in ran.err, list(tmp_path.iterdir())) == (5, True, [])


@pytest.mark.parametrize("path", ["/etc/evil", "../evil", "a/../../evil"])
def test_no_output_leaves_the_folder(cli: Any, dispatcher: Any, tmp_path: Path, path: str) -> None:
    """Names of outputs are other people's."""
    dispatcher.add(outputs=[])
    dispatcher.store(1, path, b"x")
    (tmp_path / "into").mkdir()
    assert cli("outputs", "1", "--into", str(tmp_path / "into")).code == 2
    assert [found.name for found in tmp_path.rglob("*")] == ["into"]


def test_outputs_stored_elsewhere_say_where(cli: Any, dispatcher: Any, tmp_path: Path) -> None:
    """The dispatcher has none of them to give."""
    dispatcher.add(outputs=[])
    dispatcher.store(1, "far", b"x", url="https://bucket/far")
    ran = cli("outputs", "1", "--into", str(tmp_path))
    assert (ran.code, "https://bucket/far" in ran.err, list(tmp_path.iterdir())) == (0, True, [])


def test_what_is_no_folder_takes_no_outputs(cli: Any, dispatcher: Any, tmp_path: Path) -> None:
    """Told before anything is fetched."""
    (tmp_path / "file").write_text("mine")
    ran = cli("outputs", "1", "--into", str(tmp_path / "file"))
    assert (ran.code, dispatcher.requests) == (2, [])
    assert f"--into: expected a folder, and {tmp_path / 'file'} is none" in ran.err
