"""One attempt and its host, without an agent around."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_dispatch.agent import attempt as attempts
from cloud_dispatch.agent import tenant
from cloud_dispatch.agent.attempt import Attempt
from cloud_dispatch.agent.depot import NoRoom
from cloud_dispatch.agent.folders import Folders
from cloud_dispatch.agent.processes import Exit
from cloud_dispatch.agent.tenant import LentFolders, LentProcesses
from cloud_dispatch.wire.messages import FileTransfer, Order, OrderSpec, Policy


class Crowded:
    """Processes of an agent that meets `number` at the first of them."""

    def __init__(self, number: int) -> None:
        self.tries = 0
        self.number = number

    def spawn(self, *_: object) -> int:
        self.tries += 1
        if self.tries == 1:
            raise OSError(self.number, os.strerror(self.number))
        return 1

    def own(self, *_: object) -> None:
        """Nothing is to be ended here."""


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN])
async def test_what_had_to_wait_for_a_descriptor_or_process_can_be_taken_over_as_any_other(
    tmp_path: Path, number: int
) -> None:
    """Once its command runs, and not before: else its agent was never replaced by another while it does."""
    started = asyncio.Event()
    processes = Crowded(number)
    folders = Folders(str(tmp_path / "attempts"), lambda *_: None)
    host: Any = SimpleNamespace(
        processes=processes, folders=folders, policy=Policy(), base_env={}, instance="i", log_pool=None,
        spill_path=lambda _: str(tmp_path / "log"), check=lambda _: None, started=lambda _: started.set(),
    )  # fmt: skip
    attempt = Attempt(Order(1, 1, 1, OrderSpec(argv=["true"])), host)
    attempt.begin()
    assert (attempt.at_rest, processes.tries) == (False, 1)
    async with asyncio.timeout(10):
        await started.wait()
    assert (attempt.at_rest, processes.tries) == (True, 2)
    attempt.discard()


class Filled(Folders):
    """Folders on a disk that is full for the first `full` of them."""

    def __init__(self, root: Path, full: int, number: int) -> None:
        super().__init__(str(root), lambda *_: None)
        self.full, self.number = full, number

    def take(self, fills: bool) -> str:
        self.full -= 1
        if self.full >= 0:
            raise OSError(self.number, os.strerror(self.number))
        return super().take(fills)


@pytest.mark.parametrize(
    ("full", "number", "causes"),
    [
        (3, errno.ENOSPC, []),
        (3, errno.EDQUOT, []),
        (1000, errno.ENOSPC, ["released"]),
        (1, errno.EROFS, ["cannot-start"]),
    ],
)
async def test_who_finds_the_disk_full_waits_for_others_to_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int, number: int, causes: list[str]
) -> None:
    """What another task has filled costs this one no attempt: where it stays so, its claim goes back, and the VM takes
    no other. Other errors do not pass."""
    monkeypatch.setattr(attempts, "_FULL_PAUSE_S", 0.001)
    over = asyncio.Event()
    results: list[Any] = []
    filled: list[str] = []

    def ended(_: Attempt, result: Any) -> None:
        results.append(result)
        over.set()

    host: Any = SimpleNamespace(
        processes=SimpleNamespace(spawn=lambda *_: 1, own=lambda *_: None),
        folders=Filled(tmp_path / "a", full, number), policy=Policy(), base_env={}, instance="i", log_pool=None,
        spill_path=lambda _: str(tmp_path / "log"),
        check=lambda _: None, started=lambda _: over.set(), ended=ended, filled=filled.append, room_at_first=1 << 30,
    )  # fmt: skip
    attempt = Attempt(Order(1, 1, 1, OrderSpec(argv=["true"])), host)
    attempt.begin()
    async with asyncio.timeout(10):
        await over.wait()
    assert [result.cause for result in results] == causes
    assert all(os.strerror(number) in result.detail for result in results)
    assert len(filled) == causes.count("released")
    attempt.discard()


@pytest.mark.parametrize(
    ("error", "cause", "leaves"),
    [
        (NoRoom("a: no room", 499), "released", ["no room on its disk for task 7: a: no room"]),
        (NoRoom("a: no room", 500), "cannot-start", []),
        (BlockingIOError(errno.EAGAIN, "a: no room"), "released", []),
        (OSError(errno.EIO, "a: no room"), "cannot-start", []),
    ],
)
async def test_an_input_that_the_machine_has_no_room_for_costs_no_attempt(
    tmp_path: Path, error: Exception, cause: str, leaves: list[str]
) -> None:
    """Of a full disk, unless it would have had little when nothing else was there, and such a machine takes no more; of
    a full table of processes."""
    over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    told: list[str] = []

    async def full(_: object) -> None:
        raise error

    host: Any = SimpleNamespace(
        folders=Folders(str(tmp_path / "a"), lambda *_: None), policy=Policy(), log_pool=None,
        carriers=SimpleNamespace(carry=full), spill_path=lambda _: str(tmp_path / "log"), check=lambda _: None,
        filled=told.append, ended=lambda _, result: over.set_result(result), room_at_first=1000,
    )  # fmt: skip
    Attempt(Order(7, 1, 1, OrderSpec(argv=["true"], inputs=[FileTransfer("a", "http://h/a")])), host).begin()
    async with asyncio.timeout(10):
        result = await over
    assert (result.cause, result.detail, told) == (cause, str(error), leaves)


def test_a_supervisor_s_full_disk_is_one(tmp_path: Path) -> None:
    """What the warden could not make is told with its number, by which the attempt knows whether to wait."""
    line: Any = SimpleNamespace(ask=lambda _: ["no", str(errno.ENOSPC)])
    folders = LentFolders(line, str(tmp_path / "lent"), str(tmp_path / "own"), lambda *_: None)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
        folders.take(False)
    assert caught.value.errno == errno.ENOSPC


def test_a_supervisor_that_has_no_process_to_spare_is_crowded(tmp_path: Path) -> None:
    """What it can't start is nothing of the command's, and costs no attempt."""
    line: Any = SimpleNamespace(ask=lambda *_: ["no"])
    folders = LentFolders(line, str(tmp_path / "lent"), str(tmp_path / "own"), lambda *_: None)
    with pytest.raises(BlockingIOError):
        LentProcesses(line, folders).spawn(["true"], {}, "/", 1, str(tmp_path / "lent/7.1"))


class Reluctant:
    """A warden that answers each wish for a folder with the next of `answers`, the last for ever."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0

    def ask(self, words: str) -> list[str]:
        assert words == "back 7"
        self.asked += 1
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]).split(" ")


def reluctant(tmp_path: Path, *answers: str) -> tuple[LentFolders, Any, str]:
    line: Any = Reluctant(*answers)
    folders = LentFolders(line, str(tmp_path / "lent"), str(tmp_path / "own"), lambda *_: None)
    return folders, line, str(tmp_path / "lent/7.1")


async def test_a_full_table_of_processes_costs_no_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a process that was ended before it had given the folder back; it is asked for as long as an output is
    tried to be stored."""
    monkeypatch.setattr(tenant, "_BACK_FIRST_S", 0.001)
    monkeypatch.setattr(tenant, "_BACK_MOST_S", 0.001)
    folders, line, folder = reluctant(tmp_path, *["no"] * 200, "pid 11", "pid 12")
    reclaiming = asyncio.create_task(folders.reclaim(folder))
    async with asyncio.timeout(20):
        for pid, status in ((11, 9), (12, 0)):
            while pid not in folders._returning:
                await asyncio.sleep(0.001)
            folders.returned(Exit(pid, status, 0, 0))
        await reclaiming
    assert line.asked == 202


@pytest.mark.parametrize(("answer", "why"), [("no", "does not give"), ("pid 11", "could not give")])
async def test_a_folder_that_can_not_be_had_back_fails_the_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, why: str
) -> None:
    """The task is not left without an end."""
    monkeypatch.setattr(tenant, "_BACK_MS", 100)
    monkeypatch.setattr(tenant, "_BACK_FIRST_S", 0.01)
    folders, _, folder = reluctant(tmp_path, answer)
    reclaiming = asyncio.create_task(folders.reclaim(folder))
    while not reclaiming.done():
        folders.returned(Exit(11, 256, 0, 0))
        await asyncio.sleep(0.01)
    with pytest.raises(OSError, match=why):
        await reclaiming


async def test_tasks_take_no_descriptor_that_their_agent_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has filled all but a few waits for others, as what finds none; the rest is for what is done about tasks."""
    newest = os.open("/dev/null", os.O_RDONLY)
    os.close(newest)
    asked = []

    def limit(which: int) -> tuple[int, int]:
        asked.append(which)
        most = newest + 3 if len(asked) == 1 else resource.RLIM_INFINITY if len(asked) == 2 else 1_000_000
        return most, most

    monkeypatch.setattr(resource, "getrlimit", limit)
    for tries in (2, 1):
        started = asyncio.Event()
        host: Any = SimpleNamespace(
            processes=SimpleNamespace(spawn=lambda *_: 1, own=lambda *_: None), policy=Policy(), base_env={},
            folders=Folders(str(tmp_path / "attempts"), lambda *_: None), instance="i", log_pool=None,
            spill_path=lambda _: str(tmp_path / "log"), check=lambda _: None,
            started=lambda _, told=started: told.set(),
        )  # fmt: skip
        before, attempt = len(asked), Attempt(Order(1, 1, 1, OrderSpec(argv=["true"])), host)
        attempt.begin()
        async with asyncio.timeout(10):
            await started.wait()
        assert (len(asked) - before, set(asked)) == (tries, {resource.RLIMIT_NOFILE})
        attempt.discard()
