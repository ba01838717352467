"""Output files: in under an attempt's own name, out only from the accepted result."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.agent.adapters import Carriers
from cloud_dispatch.agent.depot import Depot, Stop, TransferFailed
from cloud_dispatch.agent.transfers import Transfers
from cloud_dispatch.api import shares
from cloud_dispatch.api.files import split_path
from cloud_dispatch.api.http import TooLarge
from cloud_dispatch.api.outputs import OutputStore, Stored
from cloud_dispatch.api.room import Room
from cloud_dispatch.api.shares import LEAST_BYTES
from cloud_dispatch.domain.errors import InvalidInput, StaleLease, StoreUnavailable
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.wire.messages import OUTPUTS_PATH, FileTransfer, HeldClaim, OutputFile
from tests.api.house import Agent, House, error_of, served

NAME = "out/r\u00e9sult 1.bin"
T, K = TaskId(5), FencingToken(9)
TRAPS = [
    "", ".", "..", "../x", "a/../../x", "/etc/passwd", "//x", "a//b", "a/./b", "a/", "a\0b", "a\nb", "x" * 256,
    "y/" * 600,
]  # fmt: skip


async def running(house: House) -> tuple[Agent, HeldClaim]:
    agent = await house.agent()
    await house.submit()
    await agent.sync(want=1)
    return agent, agent.held[0]


def url(claim: HeldClaim, path: str) -> str:
    return f"{OUTPUTS_PATH}?task={claim.task}&token={claim.token}&path={quote(path, safe='')}"


async def test_a_file_comes_back_as_it_was_sent(house: House) -> None:
    """Size and sha256 are of what arrived; after the result is accepted the operator gets the very bytes."""
    agent, claim = await running(house)
    content = os.urandom(300_000)
    put = await house.http.put(url(claim, NAME), content=content, headers=agent.headers)
    digest = hashlib.sha256(content).hexdigest()
    assert put.json() == {"path": NAME, "size": 300_000, "sha256": digest}
    before = await house.op.get(f"/v1/tasks/{claim.task}/outputs")
    assert error_of(before)[:2] == (409, "conflict")
    listed = OutputFile(NAME, "", 300_000, digest)
    await agent.finish(claim, outputs=[listed, OutputFile("far", "https://example.org/far", 1, "00")])
    manifest = (await house.op.get(f"/v1/tasks/{claim.task}/outputs")).json()
    assert manifest["token"] == claim.token
    assert [output["path"] for output in manifest["outputs"]] == [NAME, "far"]
    got = await house.op.get(f"/v1/tasks/{claim.task}/outputs/{quote(NAME)}")
    assert got.content == content
    assert got.headers["x-sha256"] == digest
    far = await house.op.get(f"/v1/tasks/{claim.task}/outputs/far")
    assert error_of(far)[0] == 409
    assert "https://example.org/far" in far.json()["hint"]


async def stored(house: House, content: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[int]]:
    """The path of an output that holds `content`, and the descriptors that it is opened with from here on."""
    agent, claim = await running(house)
    put = await house.http.put(url(claim, "big"), content=content, headers=agent.headers)
    await agent.finish(claim, outputs=[OutputFile("big", "", len(content), put.json()["sha256"])])
    opened: list[int] = []
    open_output = house.services.outputs.open

    def noting(task: TaskId, token: FencingToken, path: str) -> int:
        opened.append(open_output(task, token, path))
        return opened[-1]

    monkeypatch.setattr(house.services.outputs, "open", noting)
    return f"/v1/tasks/{claim.task}/outputs/big", opened


async def test_who_asks_for_the_head_alone_has_no_file_read(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head is that of the file; not a byte of it is looked at, and it is closed."""
    path, opened = await stored(house, bytes(3 << 20), monkeypatch)
    read = os.read
    seen: list[int] = []
    monkeypatch.setattr(os, "read", lambda file, size: (seen.append(file), read(file, size))[1])
    answer = await house.op.head(path)
    assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, str(3 << 20), b"")
    assert len(opened) == 1
    assert opened[0] not in seen
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


async def test_a_file_whose_client_is_gone_is_read_no_further(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes what is for nobody at once and says beside that nobody is there: others have their turns
    between the pieces, so that this is heard, and the file is closed long before its end."""
    path, opened = await stored(house, bytes(16 << 20), monkeypatch)
    gone, sent, turns = asyncio.Event(), 0, 0

    async def receive() -> dict[str, object]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        nonlocal sent
        sent += len(message.get("body", b""))  # type: ignore[arg-type]
        if sent:
            gone.set()

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    token = house.op.headers["Authorization"].encode()
    scope = {
        "type": "http", "asgi": {"spec_version": "2.3"}, "method": "GET", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "headers": [(b"authorization", token)],
    }  # fmt: skip
    other = asyncio.create_task(others())
    await house.api(scope, receive, send)  # type: ignore[arg-type]
    other.cancel()
    assert 0 < sent < 4 << 20
    assert turns
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


async def test_what_is_not_in_the_manifest_is_not_given_out(house: House) -> None:
    """A file that an attempt uploaded and did not declare, or that lies elsewhere, can't be fetched."""
    agent, claim = await running(house)
    await house.http.put(url(claim, "hidden"), content=b"x", headers=agent.headers)
    await agent.finish(claim, outputs=[OutputFile("else", "", 1, "00")])
    base = f"/v1/tasks/{claim.task}/outputs/"
    assert error_of(await house.op.get(base + "hidden"))[0] == 404
    for path in ("..%2f..%2f..%2f..%2foperator.token", "%2fetc%2fpasswd", "..%2foperator.token"):
        assert error_of(await house.op.get(base + path))[0] in (400, 404)


@pytest.mark.parametrize("path", TRAPS)
async def test_no_path_leads_out_of_the_attempts_folder(house: House, path: str) -> None:
    """Absolute, upward, empty, overlong and odd paths are refused, percent-encoded as any client can send them."""
    agent, claim = await running(house)
    response = await house.http.put(url(claim, path), content=b"x", headers=agent.headers)
    assert error_of(response) == (400, "invalid-input", "path")
    root = house.services.outputs._root
    assert [p for p in root.parent.rglob("*") if p.name in ("x", "passwd")] == []


async def test_paths_that_are_no_utf8_are_refused(house: House) -> None:
    """A broken percent-encoding is bad input, not a crash."""
    agent, claim = await running(house)
    target = f"{OUTPUTS_PATH}?task={claim.task}&token={claim.token}&path=%ff%fe"
    assert error_of(await house.http.put(target, content=b"x", headers=agent.headers))[:2] == (400, "invalid-input")


async def test_only_the_holder_of_the_claim_uploads(house: House) -> None:
    """A stale token, another instance and an ended attempt are refused: they touch nothing."""
    agent, claim = await running(house)
    other = await house.agent()
    assert error_of(await house.http.put(url(claim, "a"), content=b"x", headers=other.headers))[1] == "stale-lease"
    wrong = HeldClaim(claim.task, claim.token + 1)
    assert error_of(await house.http.put(url(wrong, "a"), content=b"x", headers=agent.headers))[1] == "stale-lease"
    await agent.finish(claim)
    assert error_of(await house.http.put(url(claim, "a"), content=b"x", headers=agent.headers))[1] == "stale-lease"
    assert files(house.services.outputs._root) == []


async def test_a_file_over_the_limit_is_refused_declared_or_not(tmp_path: Path) -> None:
    """The length that a client declares is believed when it is too large, and counted when it declares none."""
    async with served(tmp_path, output_bytes=1000) as house:
        agent, claim = await running(house)
        declared = await house.http.put(url(claim, "a"), content=b"x" * 1001, headers=agent.headers)
        assert error_of(declared)[:2] == (413, "too-large")

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(11):
                yield b"x" * 100

        counted = await house.http.put(url(claim, "a"), content=chunks(), headers=agent.headers)
        assert error_of(counted)[:2] == (413, "too-large")
        fits = await house.http.put(url(claim, "a"), content=b"x" * 1000, headers=agent.headers)
        assert fits.json()["size"] == 1000
        assert [path.name for path in files(house.services.outputs._root)] == ["a"]


async def test_an_agent_hears_at_once_why_its_file_is_refused(tmp_path: Path) -> None:
    """A file that is too large is not sent, let alone again and again: the task's user reads of the limit, not of a
    connection that broke."""
    async with served(tmp_path, output_bytes=1000) as house:
        agent, claim = await running(house)
        folder = tmp_path / "attempt"
        folder.mkdir()
        (folder / "large").write_bytes(bytes(64 << 20))
        (folder / "small").write_bytes(b"x")
        depot = Depot(house.url, lambda: agent.headers["Authorization"].removeprefix("Bearer "), None, "")
        transfers = Transfers(str(folder), claim.task, claim.token, depot, Stop())
        with pytest.raises(TransferFailed, match=r"output large to the dispatcher: .* 1000B"):
            await Carriers().carry(lambda: transfers.take([FileTransfer("small"), FileTransfer("large")]))
        assert [path.name for path in files(house.services.outputs._root)] == ["small"]


async def test_an_upload_that_lost_its_lease_on_the_way_gets_no_name(tmp_path: Path) -> None:
    """The guard is asked again when the last byte is there, before the file appears."""
    outputs = OutputStore(tmp_path, 1000, Inline())
    asked = 0

    def guard() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise StaleLease("lost")

    with pytest.raises(StaleLease):
        await outputs.store(T, K, "a", of(b"x"), guard)
    assert files(tmp_path) == []


async def test_a_failed_upload_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large, a full disk: the earlier file of that name is untouched and nothing else remains."""
    outputs = OutputStore(tmp_path, 10, Inline())
    await outputs.store(T, K, "a", of(b"old"), lambda: None)
    with pytest.raises(TooLarge):
        await outputs.store(T, K, "a", of(b"123456", b"7890123"), lambda: None)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await outputs.store(T, K, "a", of(b"new"), lambda: None)
    assert [path.read_bytes() for path in files(tmp_path)] == [b"old"]
    await outputs.store(T, K, "a", of(b"new"), lambda: None)
    assert [path.read_bytes() for path in files(tmp_path)] == [b"new"]


async def test_all_files_of_an_attempt_have_a_limit_together(tmp_path: Path) -> None:
    """Also when they come at once, are empty, or came before a restart; a file that takes the place of another counts
    once, and one that failed counts for nothing. Another attempt has a share of its own."""
    most = 10 * LEAST_BYTES
    outputs = OutputStore(tmp_path, 1 << 20, Inline(), total=most)
    for name in ("a", "b", "a"):
        await outputs.store(T, K, name, of(bytes(3 * LEAST_BYTES)), lambda: None)
    for declared in (0, 5 * LEAST_BYTES):
        with pytest.raises(TooLarge, match="40KiB together"):
            await outputs.store(T, K, "c", of(bytes(4 * LEAST_BYTES), bytes(LEAST_BYTES)), lambda: None, declared)

    again = OutputStore(tmp_path, 1 << 20, Inline(), total=most)
    for number in range(3):
        await again.store(T, K, f"empty/{number}", of(), lambda: None)
    tried = [again.store(T, K, f"more/{number}", of(b"x"), lambda: None) for number in range(3)]
    came = await asyncio.gather(*tried, return_exceptions=True)
    assert [type(one) for one in came] == [Stored, TooLarge, TooLarge]
    await again.store(T, K, "b", of(bytes(3 * LEAST_BYTES)), lambda: None, 3 * LEAST_BYTES)
    await again.store(T, K, "b", of(b"shorter"), lambda: None)
    twice = (again.store(T, K, "more/1", of(b"fits now"), lambda: None) for _ in range(2))
    await asyncio.gather(*twice)
    await again.store(T, K, "more/2", of(b"fits too"), lambda: None)
    with pytest.raises(TooLarge):
        await again.store(T, K, "more/3", of(), lambda: None)
    await again.store(T, FencingToken(K + 1), "a", of(bytes(most)), lambda: None)
    base = tmp_path / "0" / str(T) / str(K)
    sizes = {str(path.relative_to(base)): path.stat().st_size for path in files(base)}
    empty = {f"empty/{number}": 0 for number in range(3)}
    assert sizes == {"a": 3 * LEAST_BYTES, "b": 7, "more/0": 1, "more/1": 8, "more/2": 8} | empty


async def test_what_attempts_took_is_remembered_of_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that bring nothing now; whose number is forgotten is found on the disk."""
    monkeypatch.setattr(shares, "_REMEMBERED", 2)
    outputs = OutputStore(tmp_path, 1 << 20, Inline(), total=2 * LEAST_BYTES)
    for task in range(5):
        await outputs.store(TaskId(task), K, "a", of(b"x"), lambda: None)
    assert len(outputs._shares._known) <= 3
    await outputs.store(TaskId(0), K, "b", of(b"x"), lambda: None)
    with pytest.raises(TooLarge):
        await outputs.store(TaskId(0), K, "c", of(b"x"), lambda: None)


async def test_a_disk_without_room_takes_no_file(tmp_path: Path) -> None:
    """Before the first byte and amid a file; what is refused leaves nothing behind."""
    free = os.statvfs(tmp_path)
    reserve = free.f_bavail * free.f_frsize // 2
    outputs = OutputStore(tmp_path, 1 << 20, Inline(), room=Room(tmp_path, reserve))
    await outputs.store(T, K, "a", of(b"x"), lambda: None)
    short = OutputStore(tmp_path, 1 << 20, Inline(), room=Room(tmp_path, reserve * 4))
    with pytest.raises(StoreUnavailable, match="left, which are the statestore's") as caught:
        await short.store(T, K, "b", never(), lambda: None)
    assert "free space" in caught.value.hint
    shrinking = Shrinking(tmp_path)
    narrow = OutputStore(tmp_path, 1 << 20, Inline(), room=shrinking)
    with pytest.raises(StoreUnavailable):
        await narrow.store(T, K, "b", shrinking.while_sending(b"x" * 10, b"y" * 10), lambda: None)
    assert [path.name for path in files(tmp_path)] == ["a"]
    assert files(tmp_path / "incoming") == []


class Shrinking(Room):
    """Room that is gone once the second piece is on its way."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 1)
        self._gone = Room(folder, 1 << 60)
        self._left = True

    def lack(self) -> str:
        return super().lack() if self._left else self._gone.lack()

    async def while_sending(self, *pieces: bytes) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
            self._left = False


async def never() -> AsyncIterator[bytes]:
    raise AssertionError("nothing is asked for")
    yield b""


async def test_planted_links_are_not_followed(tmp_path: Path) -> None:
    """A link in place of a folder or file leads nowhere, neither for writing nor for reading."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    outputs = OutputStore(tmp_path / "outputs", 1000, Inline())
    await outputs.store(T, K, "real/a", of(b"x"), lambda: None)
    base = tmp_path / "outputs" / "0" / "5" / "9"
    (base / "link").symlink_to(outside)
    (base / "file").symlink_to(outside / "secret")
    with pytest.raises(InvalidInput):
        await outputs.store(T, K, "link/planted", of(b"x"), lambda: None)
    with pytest.raises(InvalidInput):
        outputs.open(T, K, "link/secret")
    with pytest.raises(InvalidInput):
        outputs.open(T, K, "file")
    await outputs.store(T, K, "file", of(b"mine"), lambda: None)
    assert (outside / "secret").read_text() == "secret"
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


async def test_a_file_can_be_no_folder_and_the_reverse(tmp_path: Path) -> None:
    """Names that contradict each other are bad input."""
    outputs = OutputStore(tmp_path, 1000, Inline())
    await outputs.store(T, K, "a", of(b"x"), lambda: None)
    await outputs.store(T, K, "b/c", of(b"x"), lambda: None)
    with pytest.raises(InvalidInput):
        await outputs.store(T, K, "a/b", of(b"x"), lambda: None)
    with pytest.raises(InvalidInput):
        await outputs.store(T, K, "b", of(b"x"), lambda: None)


def test_uploads_that_a_crash_cut_off_are_cleared_at_start(tmp_path: Path) -> None:
    """Parts of the former process are nobody's."""
    OutputStore(tmp_path, 1000, Inline())
    (tmp_path / "incoming" / "5-9-0").write_bytes(b"half")
    OutputStore(tmp_path, 1000, Inline())
    assert files(tmp_path) == []


def test_ordinary_paths_are_taken() -> None:
    """Unicode, spaces, dots inside names and `.part` at the end are all fine."""
    for path in ("a", "a/b/c.txt", "\u00fc \u2713", "..a", "a..", ".hidden", "x.part"):
        assert "/".join(split_path(path)) == path


async def of(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def test_old_outputs_are_pruned_a_bounded_number_a_call(tmp_path: Path) -> None:
    """Only what was last written before the moment goes, and the folders that are empty then; nothing of `incoming`."""
    store = OutputStore(tmp_path, 1000, Inline())

    async def content() -> AsyncIterator[bytes]:
        yield b"x"

    for task in (1, 2, 3, 4, 1001):
        await store.store(TaskId(task), K, "deep/file", content(), lambda: None)
        if task != 3:
            os.utime(tmp_path / str(task // 1000) / str(task) / str(K), (1, 1))
    (tmp_path / "incoming" / "half").write_bytes(b"x")
    for others in (True, True, False):
        before = len(files(tmp_path))
        assert await store.prune(2_000_000, lambda *_: False, batch=2) is others
        assert before - len(files(tmp_path)) <= 2
    left = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert left == [f"0/3/{K}/deep/file", "incoming/half"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "incoming"]
