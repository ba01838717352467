"""Inputs and outputs by URL, over real files and a real HTTP server."""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_dispatch.agent import connections, transfers
from cloud_dispatch.agent.depot import FULL, Depot, NoRoom, Stop, TransferFailed, TransferStopped
from cloud_dispatch.agent.reach import Reach
from cloud_dispatch.agent.transfers import Transfers
from cloud_dispatch.wire.messages import FileTransfer
from tests.agent.conftest import TOKEN, Carried, RunningAgent, carried, until
from tests.agent.shelf import Shelf, opened
from tests.agent.stub import StubDispatcher
from tests.agent.test_deposit import NO, WORDS, server


def test_inputs_arrive_whole_under_their_names(shelf: Shelf, made: Callable[..., Carried], tmp_path: Path) -> None:
    """From http and from files, folders made as needed."""
    shelf.files["/a"] = b"x" * 3_000_000
    (tmp_path / "b c").write_bytes(b"b")
    made().bring([FileTransfer("in/a", f"{shelf.url}/a"), FileTransfer("b", f"file://{tmp_path}/b%20c")])
    assert (tmp_path / "attempt/in/a").read_bytes() == shelf.files["/a"]
    assert (tmp_path / "attempt/b").read_bytes() == b"b"


@pytest.mark.parametrize("number", FULL)
def test_an_input_that_the_disk_has_no_room_for_says_what_the_inputs_need(
    shelf: Shelf, made: Callable[..., Carried], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """All that are here and the one that comes, as it was promised or as far as it came. It is tried again first."""
    shelf.files.update({"/a": bytes(1_000), "/b": bytes(100_000)})
    (tmp_path / "c").write_bytes(bytes(3_000_000))
    true, tries = Reach.written, []

    @contextmanager
    def full(reach: Reach, target: str, suffix: str) -> Iterator[Any]:
        with true(reach, target, suffix) as file:
            if target.endswith("/a"):
                yield file
                return

            def write(block: bytes) -> None:
                tries.append(len(block))
                raise OSError(number, os.strerror(number))

            yield SimpleNamespace(write=write)

    monkeypatch.setattr(Reach, "written", full)
    for url, least, most in ((f"{shelf.url}/b", 101_000, 101_000), (f"file://{tmp_path}/c", 1_001, 3_001_000)):
        tries.clear()
        with pytest.raises(NoRoom, match=f"input b from .*{os.strerror(number)}") as caught:
            made().bring([FileTransfer("a", f"{shelf.url}/a"), FileTransfer("b", url)])
        assert least <= caught.value.needs <= most
        assert len(tries) == transfers.ATTEMPTS


def test_the_token_goes_to_the_dispatcher_and_to_nobody_else(shelf: Shelf, made: Callable[..., Carried]) -> None:
    """Not to another host, not to one whose URL only begins like the dispatcher's, not where that one sends us on."""
    shelf.files["/a"] = b"x"
    with opened() as other:
        other.files["/a"] = b"x"
        made(dispatcher=shelf.url).bring([FileTransfer("a", f"{shelf.url}/a"), FileTransfer("b", f"{other.url}/a")])
        made(dispatcher=other.url[:-1]).bring([FileTransfer("a", f"{other.url}/a")])
        shelf.elsewhere = other.url
        made(dispatcher=shelf.url).bring([FileTransfer("a", f"{shelf.url}/a")])
    assert shelf.bearers == ["Bearer t", "Bearer t"]
    assert other.bearers == [None, None, None]


def test_an_input_that_was_cut_off_is_tried_again(shelf: Shelf, made: Callable[..., Carried], tmp_path: Path) -> None:
    """Half a file is never under the final name."""
    shelf.files["/a"] = b"x" * 100_000
    shelf.cut, shelf.refuse = 2, 1
    made().bring([FileTransfer("a", f"{shelf.url}/a")])
    assert (tmp_path / "attempt/a").stat().st_size == 100_000
    shelf.cut = 100
    with pytest.raises(TransferFailed, match="input b from"):
        made().bring([FileTransfer("b", f"{shelf.url}/a")])
    assert {path.name for path in (tmp_path / "attempt").iterdir()} == {"a"}


@pytest.mark.parametrize(
    "url", ["ftp://h/x", "no-url", "http://127.0.0.1:1/none", "file:///no/such/file", "http://[x/y", "http://h:p/y"]
)
def test_an_input_that_is_not_to_be_had_says_so(shelf: Shelf, made: Callable[..., Carried], url: str) -> None:
    """The message names the input and its URL."""
    with pytest.raises(TransferFailed, match=r"input a"):
        made().bring([FileTransfer("a", url)])


def test_a_missing_page_is_not_asked_for_again(shelf: Shelf, made: Callable[..., Carried]) -> None:
    """404 is final."""
    with pytest.raises(TransferFailed, match="404"):
        made().bring([FileTransfer("a", f"{shelf.url}/none")])
    assert shelf.requests == 1


def test_the_dispatcher_s_words_for_a_missing_input_are_told(shelf: Shelf, made: Callable[..., Carried]) -> None:
    """It knows which task lacks it; of others only the status is told, and where words can't be read."""
    url = f"{shelf.url}/v1/tasks/7/outputs/a"
    said = {"code": "not-found", "message": "the result of task 7 has no output 'a'", "hint": "look"}
    for words, dispatcher, told in (
        (json.dumps(said).encode(), shelf.url, r"input a from .*: the result of task 7 has no output 'a' \(look\)$"),
        (json.dumps(said).encode(), "http://127.0.0.1:9", r"HTTP Error 404: Not Found$"),
        (b"<html>", shelf.url, r"HTTP Error 404: Not Found$"),
    ):
        shelf.words, shelf.requests = words, 0
        with pytest.raises(TransferFailed, match=told):
            made(dispatcher=dispatcher).bring([FileTransfer("a", url)])
        assert shelf.requests == 1


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "", ".", "in/../../x", "link/x"])
def test_paths_that_leave_the_folder_are_refused(made: Callable[..., Carried], tmp_path: Path, path: str) -> None:
    """For inputs and outputs, by dots, by root and by a link."""
    (tmp_path / "x").write_text("secret")
    (tmp_path / "attempt/link").symlink_to(tmp_path)
    with pytest.raises(TransferFailed):
        made().bring([FileTransfer(path, f"file://{tmp_path}/x")])
    with pytest.raises(TransferFailed):
        made().take([FileTransfer(path, f"file://{tmp_path}/out")])
    assert (tmp_path / "x").read_text() == "secret"


def test_a_stopped_transfer_ends_at_once(shelf: Shelf, made: Callable[..., Carried], tmp_path: Path) -> None:
    """Nothing of it is left under any name."""
    stop = Stop()
    stop.set()
    shelf.files["/a"] = b"x"
    with pytest.raises(TransferStopped):
        made(stop).bring([FileTransfer("a", f"{shelf.url}/a")])
    assert list((tmp_path / "attempt").iterdir()) == []


class Tarpit:
    """Serves one byte after the other, for as long as somebody reads."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/x"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self._over.is_set():
            connection = self._listening.accept()[0]
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
            while not self._over.wait(0.05):
                connection.sendall(b"x")

    def close(self) -> None:
        self._over.set()
        socket.create_connection(self._listening.getsockname()).close()
        for thread in list(self._threads):
            thread.join()
        self._listening.close()


@pytest.fixture
def tarpit() -> Iterator[Tarpit]:
    made = Tarpit()
    yield made
    made.close()


@pytest.mark.parametrize("bytes_come", [True, False])
def test_a_transfer_that_waits_for_another_machine_is_stopped(
    made: Callable[..., Carried], tmp_path: Path, tarpit: Tarpit, bytes_come: bool
) -> None:
    """One that never fills a block, and one that says nothing at all: the connection ends with the attempt."""
    stop, ended = Stop(), []
    silent = socket.create_server(("127.0.0.1", 0))
    url = tarpit.url if bytes_come else f"http://127.0.0.1:{silent.getsockname()[1]}/x"

    def bring() -> None:
        try:
            made(stop).bring([FileTransfer("a", url)])
        except TransferStopped as error:
            ended.append(error)

    thread = threading.Thread(target=bring, daemon=True)
    thread.start()
    if bytes_come:
        until(lambda: (tmp_path / f"attempt/a.{TOKEN}.part").exists())
    else:
        other = silent.accept()[0]
        assert other.recv(3) == b"GET"
    stop.set()
    thread.join(30)
    assert len(ended) == 1
    assert list((tmp_path / "attempt").iterdir()) == []
    if not bytes_come:
        other.close()
    silent.close()


def test_an_input_that_trickles_for_ever_is_given_up(
    made: Callable[..., Carried], tmp_path: Path, tarpit: Tarpit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never late, and never done; the message says how fast it has to be."""
    monkeypatch.setattr(transfers, "RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(connections, "WINDOW_MS", 200)
    monkeypatch.setattr(connections, "now_ms", itertools.count(step=100).__next__)
    with pytest.raises(TransferFailed, match=r"input a from .*: too slow: \d+ bytes in 0 s, at least 1000 a second"):
        made().bring([FileTransfer("a", tarpit.url)])
    assert list((tmp_path / "attempt").iterdir()) == []


def test_a_slow_input_is_had(
    shelf: Shelf, made: Callable[..., Carried], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Window after window, as long as enough comes in each."""
    monkeypatch.setattr(connections, "WINDOW_MS", 0)
    monkeypatch.setattr(connections, "LEAST_RATE", 1)
    shelf.files["/a"] = b"x" * 3_000_000
    made().bring([FileTransfer("a", f"{shelf.url}/a")])
    assert (tmp_path / "attempt/a").stat().st_size == 3_000_000


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Reading this one would take longer than the test may."""
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 43)
    with server(NO, WORDS) as dispatcher:
        depot = Depot(f"http://127.0.0.1:{dispatcher.port}", lambda: "t", None, "")
        with pytest.raises(TransferFailed, match="output large to the dispatcher: a file has at most 1GiB"):
            carried(Transfers(str(tmp_path), 1, TOKEN, depot, Stop()).take([FileTransfer("large")]))


@pytest.mark.process
def test_a_cancelled_task_whose_input_comes_slowly_costs_no_other_its_machine(
    stub: StubDispatcher, agent: RunningAgent, tarpit: Tarpit, tmp_path: Path
) -> None:
    """Nothing of it lives, whatever the transfer waits for: it is reported, and the others go on."""
    go = tmp_path / "go"
    other = stub.submit(shell=f"while [ ! -e {go} ]; do sleep 0.05; done")
    stub.wait_started(other)
    slow = stub.submit("true", inputs=[FileTransfer("in", tarpit.url)])
    token = stub.token_of(slow)
    until(lambda: any(token == claim.token for sync in list(stub.syncs) for claim in sync.held))
    stub.change(kills=stub.kills | {token})
    assert stub.result(slow).cause == "cancelled"
    go.touch()
    assert stub.result(other).cause == "success"


@pytest.mark.process
@pytest.mark.parametrize(
    ("fields", "cause", "words"),
    [
        ({"inputs": [FileTransfer("in", "http://[x/y")]}, "cannot-start", "input in: its URL can't be read"),
        ({"inputs": [FileTransfer("a\0b", "file:///x")]}, "cannot-start", "failed unexpectedly: ValueError"),
        ({"outputs": [FileTransfer("f", "http://[x/{token}")]}, "output-failed", "output f: its URL can't be read"),
    ],
)
def test_whatever_goes_wrong_with_a_transfer_ends_its_attempt_alone(
    stub: StubDispatcher, agent: RunningAgent, fields: dict[str, Any], cause: str, words: str
) -> None:
    """What nobody has thought of, too: the agent lives, and says why."""
    other = stub.submit("sleep", "3")
    stub.wait_started(other)
    result = stub.result(stub.submit(shell="echo > f", **fields))
    assert result.cause == cause
    assert words in result.detail
    assert stub.result(other).cause == "success"


@pytest.mark.process
def test_a_task_has_its_inputs_and_its_outputs_are_kept(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """Through a real agent: in by file URL, out to the dispatcher, with a manifest; names with odd characters too."""
    (tmp_path / "in").write_text("hello")
    task = stub.submit(
        shell="tr a-z A-Z < word > 'größe & so.txt'",
        inputs=[FileTransfer("word", f"file://{tmp_path}/in")],
        outputs=[FileTransfer("*.txt")],
    )
    result = stub.result(task)
    assert result.cause == "success"
    assert stub.outputs == {(result.token, "größe & so.txt"): b"HELLO"}
    assert [(entry.path, entry.url, entry.size) for entry in result.outputs] == [("größe & so.txt", "", 5)]


@pytest.mark.process
def test_an_output_survives_a_restart_of_the_dispatcher(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """While the dispatcher is away the output waits with the attempt."""
    go = tmp_path / "go"
    task = stub.submit(shell=f"while [ ! -e {go} ]; do sleep 0.05; done; echo x > o", outputs=[FileTransfer("o")])
    token = stub.wait_started(task)
    stub.stop()
    go.touch()
    threading.Event().wait(1.5)
    stub.start()
    assert stub.result(task).cause == "success"
    assert stub.outputs == {(token, "o"): b"x\n"}


@pytest.mark.process
def test_no_task_brings_its_agent_down_by_what_it_leaves(stub: StubDispatcher, agent: RunningAgent) -> None:
    """Others on its VM go on: the very program that ran them is the one that reports both."""
    other = stub.submit(shell="sleep 3; echo here")
    stub.wait_started(other)
    for shell in (r"mkfifo $(printf 'a\377b')", r"echo > $(printf 'a\377b')"):
        assert stub.result(stub.submit(shell=shell, outputs=[FileTransfer("a*")])).cause == "output-failed"
    deep = "i=0; while [ $i -lt 1500 ]; do mkdir d; cd d; i=$((i+1)); done; echo > f"
    result = stub.result(stub.submit(shell=deep, outputs=[FileTransfer("d")]))
    assert (result.cause, result.outputs) == ("output-failed", [])
    assert stub.result(other).cause == "success"


@pytest.mark.process
@pytest.mark.parametrize(
    ("fields", "cause", "words"),
    [
        ({"outputs": [FileTransfer("none")]}, "output-failed", "output none is missing"),
        ({"inputs": [FileTransfer("i", "file:///no/such")]}, "cannot-start", "input i from file:///no/such"),
    ],
)
def test_a_failed_transfer_has_its_own_cause(
    stub: StubDispatcher, agent: RunningAgent, fields: dict[str, Any], cause: str, words: str
) -> None:
    """A command that succeeded without its output did not succeed; one without its input never started."""
    result = stub.result(stub.submit("true", **fields))
    assert result.cause == cause
    assert words in result.detail


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@127.0.0.1:1/in.txt",
        "http://127.0.0.1:1/in.txt?X-Amz-Signature=hunter2",
        "http://127.0.0.1:1/in.txt?bad signature=hunter2",
        "http://user:hunter2@127.0.0.1:no-port/in.txt",
        "s3://key:hunter2@bucket/in.txt",
        "FILE",
    ],
)
def test_a_failed_transfer_tells_no_secret_of_its_url(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Who is named in a URL and how it was signed is not in the text that is stored and shown; the file's name is."""
    monkeypatch.setattr(transfers, "ATTEMPTS", 1)
    depot = Depot(shelf.url, lambda: "token", None, "")
    given = f"{shelf.url}/in.txt?sig=hunter2" if url == "FILE" else url
    with pytest.raises(TransferFailed) as caught:
        carried(Transfers(str(tmp_path), 1, TOKEN, depot, Stop()).bring([FileTransfer("in.txt", given)]))
    assert "in.txt" in str(caught.value)
    assert "hunter2" not in str(caught.value)
