"""A log is brought away, and its result waits for it no longer than it should."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.agent import uploads
from cloud_dispatch.agent.channel import Unreachable
from cloud_dispatch.agent.logs import CHUNK_BYTES, LogStream
from cloud_dispatch.agent.uploads import LogUpload
from cloud_dispatch.wire.codec import encode
from cloud_dispatch.wire.messages import ErrorReply

VIRTUAL_TIME = True


class Line:
    """Answers as it is told: a status, or nobody there (0)."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.bodies: list[bytes] = []

    async def request(self, method: str, path: str, body: bytes, bearer: str) -> tuple[int, bytes]:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if not status:
            raise Unreachable("nobody there")
        if status < 300:
            self.bodies.append(body)
        return status, b""


async def lingered(line: Any, folder: Path, *, contact: bool = True, hurry: bool = False) -> float:
    """How long a result waits for a log of one line, in seconds."""
    upload = LogUpload(LogStream(str(folder / "log"), 1000), line, 1, 1)
    upload.stream.feed(b"end")
    began = asyncio.get_running_loop().time()
    if not upload.finish():
        await upload.linger(lambda: contact, lambda: hurry)
    waited = asyncio.get_running_loop().time() - began
    upload.close()
    return waited


async def test_a_result_waits_for_its_log(tmp_path: Path) -> None:
    """The log is there before the result is told, though the dispatcher was away and the syncs had not noticed."""
    line = Line(0, 0, 0, 0, 0, 0, 200)
    assert await lingered(line, tmp_path) > uploads.LINGER_S
    assert line.bodies == [b"end"]


async def test_a_log_that_is_refused_again_and_again_holds_no_result_for_long(tmp_path: Path) -> None:
    """A full disk at the dispatcher costs the result ten seconds."""
    assert 9 < await lingered(Line(507), tmp_path) < 30


class Slow(Line):
    """Takes a part of the longest wait for each chunk."""

    async def request(self, method: str, path: str, body: bytes, bearer: str) -> tuple[int, bytes]:
        await asyncio.sleep(uploads.LAST_S / 4)
        return await super().request(method, path, body, bearer)


async def test_of_a_log_that_comes_too_slowly_the_end_is_there(tmp_path: Path) -> None:
    """What failed is said last; a line says how much is missing before it."""
    line = Slow(200)
    upload = LogUpload(LogStream(str(tmp_path / "log"), 1 << 30), line, 1, 1)
    upload.stream.feed(b"x" * (64 * CHUNK_BYTES))
    upload.stream.feed(b"what failed")
    assert not upload.finish()
    await upload.linger(lambda: True, lambda: False)
    seen = b"".join(line.bodies)
    assert upload.done.is_set()
    assert b"bytes of output were dropped here]" in seen
    assert seen.endswith(b"what failed")
    upload.close()


async def test_logs_that_never_get_through_hold_no_result_for_ever(tmp_path: Path) -> None:
    """Syncs are answered, logs find nobody: a minute."""
    assert 55 < await lingered(Line(0), tmp_path) < 100


async def test_who_is_killed_does_not_wait(tmp_path: Path) -> None:
    """Nor is a result held that must go now."""
    assert await lingered(Line(0), tmp_path, hurry=True) < 5


async def test_a_command_that_says_nothing_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all was sent nothing is done until there is more; that goes gathered, in order, and the end at once."""
    waits = 0
    timed = uploads.within

    async def counted(*words: Any) -> Any:
        nonlocal waits
        waits += 1
        return await timed(*words)

    monkeypatch.setattr(uploads, "within", counted)
    line = Line(200)
    upload = LogUpload(LogStream(str(tmp_path / "log"), 1 << 20), line, 1, 1)
    upload.stream.feed(b"one ")
    upload.fed()
    await asyncio.sleep(50 * uploads.GATHER_S)
    assert (line.bodies, waits) == ([b"one "], 0)
    for piece in (b"two ", b"three "):
        upload.stream.feed(piece)
        upload.fed()
    await asyncio.sleep(10 * uploads.GATHER_S)
    assert (line.bodies, waits) == ([b"one ", b"two three "], 1)
    upload.stream.feed(b"end")
    upload.finish()
    await asyncio.wait_for(upload.done.wait(), 5)
    assert b"".join(line.bodies) == b"one two three end"


class Forgetful:
    """Keeps a log by the protocol; `lose` cuts its end off. `ended`: whatever comes is stale."""

    def __init__(self) -> None:
        self.stored = b""
        self.refused = 0
        self.ended = False

    def lose(self, left: int) -> None:
        self.stored = self.stored[:left]

    async def request(self, method: str, path: str, body: bytes, bearer: str) -> tuple[int, bytes]:
        offset = int(path.rpartition("=")[2])
        if self.ended or offset > len(self.stored):
            self.refused += 1
            return 409, encode(ErrorReply("stale-lease") if self.ended else ErrorReply("gap"))
        self.stored += body[len(self.stored) - offset :]
        return 200, b'{"offset":%d}' % len(self.stored)


async def test_a_log_whose_end_the_dispatcher_lost_goes_on(tmp_path: Path) -> None:
    """At what is left there, with a line that says how much is missing; it ends for good where the claim has."""
    line = Forgetful()
    upload = LogUpload(LogStream(str(tmp_path / "log"), 1 << 20), line, 1, 1)
    upload.stream.feed(b"one two ")
    upload.fed()
    while not line.stored:
        await asyncio.sleep(0)
    line.lose(left=4)
    upload.stream.feed(b"three")
    upload.finish()
    await asyncio.wait_for(upload.done.wait(), 5)
    assert line.stored == b"one \n[cloud-dispatch: 4 bytes of output were lost here]\nthree"
    assert line.refused == 1


async def test_a_log_of_a_claim_that_ended_is_given_up(tmp_path: Path) -> None:
    line = Forgetful()
    line.ended = True
    assert await lingered(line, tmp_path) < 5
    assert line.refused == 1
