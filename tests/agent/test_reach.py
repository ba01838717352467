"""What transfers come to on the agent's own machine: not to what is the agent's, by whatever name."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.agent.reach import Reach
from cloud_dispatch.wire.messages import FileTransfer
from tests.agent.conftest import RunningAgent
from tests.agent.stub import StubDispatcher
from tests.agent.test_separation import needs_root, separately


@pytest.fixture
def reach(tmp_path: Path) -> Reach:
    """That of an attempt whose folder is `work/own`."""
    (tmp_path / "work" / "own").mkdir(parents=True)
    (tmp_path / "work" / "secret").write_text("secret")
    (tmp_path / "open").write_text("open")
    (tmp_path / "link").symlink_to("work")
    return Reach(str(tmp_path / "work"), str(tmp_path / "work" / "own"))


def write(reach: Reach, target: Path) -> None:
    with reach.written(str(target), ".part") as file:
        file.write(b"new")


@pytest.mark.parametrize("name", ["work/secret", "link/secret", "work/own/../secret", "leads"])
def test_the_agents_own_files_are_not_read(reach: Reach, tmp_path: Path, name: str) -> None:
    """By whatever way; others are."""
    (tmp_path / "leads").symlink_to("work/secret")
    with pytest.raises(PermissionError, match="closed to transfers"):
        reach.source(str(tmp_path / name))
    with reach.source(str(tmp_path / "open")) as file:
        assert file.read() == b"open"
    with Reach().source(str(tmp_path / name)) as file:
        assert file.read() == b"secret"


def test_what_the_agent_has_open_and_what_is_no_file_is_not_read(reach: Reach, tmp_path: Path) -> None:
    """Its environment, memory and pipes by their descriptors; a pipe's other end is not waited for."""
    memory = os.memfd_create("held")
    reading, writing = os.pipe()
    os.mkfifo(tmp_path / "pipe")
    names = ["/proc/self/environ", *(f"/proc/self/fd/{number}" for number in (memory, reading)), str(tmp_path / "pipe")]
    for name in names:
        with pytest.raises(PermissionError, match=r"closed to transfers|no plain file"):
            reach.source(name)
    for number in (memory, reading, writing):
        os.close(number)


@pytest.mark.parametrize("name", ["work/secret", "work/new", "work/deep/new", "link/deep/new", "work/own/../new"])
def test_nothing_is_written_among_the_agents_own(reach: Reach, tmp_path: Path, name: str) -> None:
    """No file, no folder on its way, by whatever way."""
    with pytest.raises(PermissionError, match="closed to transfers"):
        write(reach, tmp_path / name)
    assert sorted(os.listdir(tmp_path / "work")) == ["own", "secret"]
    assert (tmp_path / "work" / "secret").read_text() == "secret"


@pytest.mark.parametrize("name", ["work/own/deep/new", "elsewhere/deep/new", "open"])
def test_a_file_is_written_whole_where_it_may_be(reach: Reach, tmp_path: Path, name: str) -> None:
    """Folders are made as needed, what is there is replaced, and nothing is left of one that failed."""
    write(reach, tmp_path / name)
    assert (tmp_path / name).read_text() == "new"
    with contextlib.suppress(ConnectionError), reach.written(str(tmp_path / name), ".part") as file:
        file.write(b"part")
        raise ConnectionError
    assert (tmp_path / name).read_text() == "new"
    assert not (tmp_path / f"{name}.part").exists()


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_a_link_in_place_of_an_unfinished_file_is_not_written_to(reach: Reach, tmp_path: Path, kind: str) -> None:
    """Where several may write, one of them may have put it there."""
    getattr(tmp_path / "new.part", kind)(tmp_path / "work" / "secret")
    write(reach, tmp_path / "new")
    assert ((tmp_path / "new").read_text(), (tmp_path / "work" / "secret").read_text()) == ("new", "secret")


@needs_root
def test_what_is_not_the_tasks_is_no_output_of_it(reach: Reach, tmp_path: Path) -> None:
    """Its own is the agent's since it was given back; a hard link is still somebody else's."""
    for name, owner in (("mine", os.geteuid()), ("other", 1001)):
        path = tmp_path / "work" / "own" / name
        path.touch()
        os.chown(path, owner, owner)
    with open(tmp_path / "work/own/mine", "rb") as mine, open(tmp_path / "work/own/other", "rb") as other:
        reach.judge(mine.fileno())
        with pytest.raises(PermissionError, match="belongs to another user"):
            reach.judge(other.fileno())


# Through a real agent


@pytest.mark.process
@separately
def test_no_task_gets_at_its_agents_own_files(stub: StubDispatcher, agent: RunningAgent, tmp_path: Path) -> None:
    """Not by the URL of an input or an output, its working folder, or a link in its place."""
    stub.result(stub.submit("true"))
    private, secret = agent.private, agent.private / "identity.json"
    was, names = secret.read_bytes(), sorted(os.listdir(private))
    (tmp_path / "source").write_text("source")
    (tmp_path / "source").chmod(0o644)
    (tmp_path / "link").symlink_to(private)
    source = f"file://{tmp_path}/source"
    swap = f"echo > f; cd ..; mv sub old; ln -s {private} sub"
    tried: list[dict[str, Any]] = [
        {"inputs": [FileTransfer("i", f"file://{secret}")]},
        {"inputs": [FileTransfer("i", f"file://{tmp_path}/link/identity.json")]},
        {"inputs": [FileTransfer("i", "file:///proc/self/status")]},
        {"cwd": str(private), "inputs": [FileTransfer("identity.json", source)]},
        {"outputs": [FileTransfer("f", f"file://{private}/{{token}}/new")]},
        {"outputs": [FileTransfer("f", f"file://{tmp_path}/link/new-{{token}}")]},
        {"cwd": "sub", "inputs": [FileTransfer("i", source)], "outputs": [FileTransfer("identity.json")]},
    ]
    for fields in tried:
        result = stub.result(stub.submit(shell=swap if "cwd" in fields else "echo > f", **fields))
        assert result.cause in ("cannot-start", "output-failed"), fields
        assert "closed to transfers" in result.detail
    assert (secret.read_bytes(), sorted(os.listdir(private)), stub.outputs) == (was, names, {})


@pytest.mark.process
def test_files_elsewhere_are_reached_as_ever(stub: StubDispatcher, agent: RunningAgent, tmp_path: Path) -> None:
    """Those that the agent's user may read, and folders that it may write to."""
    (tmp_path / "source").write_text("source")
    (tmp_path / "source").chmod(0o644)
    result = stub.result(
        stub.submit(
            shell="cat i > o",
            inputs=[FileTransfer("i", f"file://{tmp_path}/source")],
            outputs=[FileTransfer("o", f"file://{tmp_path}/store/deep/o")],
        )
    )
    assert result.cause == "success", result.detail
    assert (tmp_path / f"store/deep/o.{result.token}").read_text() == "source"
