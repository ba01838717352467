"""How long transfers put up with others that are away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cloud_dispatch.agent import transfers
from cloud_dispatch.agent.adapters import Carriers
from cloud_dispatch.agent.depot import Stop, TransferFailed
from cloud_dispatch.wire.messages import FileTransfer, OutputFile
from tests.agent.conftest import Carried


class Store(ThreadingHTTPServer):
    """Has one file, and takes any; it is `away` for so many requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.away = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Store

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.away -= 1
        self.send_response(503 if self.server.away >= 0 else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(transfers, "RETRY_FIRST_S", 0.01)
    with Store() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_store_that_is_away_for_a_while_loses_nobody_s_work(
    store: Store, made: Callable[..., Carried], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four tries are over within seconds: an input and an output are tried again as long as patience lasts."""
    for name in ("INPUT_PATIENCE_MS", "OUTPUT_PATIENCE_MS"):
        monkeypatch.setattr(transfers, name, 60_000)
    store.away = transfers.ATTEMPTS + 1
    made().bring([FileTransfer("a", f"{store.url}/a")])
    store.away = transfers.ATTEMPTS + 1
    (entry,) = made().take([FileTransfer("a", f"{store.url}/a-{{token}}")])
    assert entry.size == 0


def test_what_time_does_not_mend_is_not_waited_for(
    made: Callable[..., Carried], tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL that can't be used, and a folder where the file should be."""
    monkeypatch.setattr(transfers, "INPUT_PATIENCE_MS", 3_600_000)
    (tmp_path / "attempt/folder").mkdir()
    for path, url in (("a", "http://h:p/y"), ("folder", f"{store.url}/a")):
        with pytest.raises(TransferFailed, match=f"input {path} from"):
            made().bring([FileTransfer(path, url)])


def test_the_dispatcher_may_be_away_while_its_inputs_are_brought(store: Store, made: Callable[..., Carried]) -> None:
    """As while outputs are stored with it: others are tried less often."""
    store.away = transfers.ATTEMPTS + 1
    made(dispatcher=store.url).bring([FileTransfer("a", f"{store.url}/a")])
    store.away = transfers.ATTEMPTS + 1
    with pytest.raises(TransferFailed, match="503"):
        made().bring([FileTransfer("b", f"{store.url}/a")])


async def test_a_store_that_is_away_holds_up_no_other_transfer(
    store: Store, made: Callable[..., Carried], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though there is one place, and outputs for the dead store are tried for minutes."""
    monkeypatch.setattr(transfers, "OUTPUT_PATIENCE_MS", 60_000)
    monkeypatch.setattr(transfers, "RETRY_FIRST_S", 5.0)
    carriers, stop = Carriers(most=1, many=1), Stop()
    made().bring([FileTransfer("a", f"{store.url}/a")])
    store.away = 2

    def take(url: str) -> asyncio.Task[list[OutputFile]]:
        wanted = made(stop)
        return asyncio.create_task(carriers.carry(lambda: wanted.transfers.take([FileTransfer("a", url)])))

    dead = [take(f"{store.url}/{number}-{{token}}") for number in range(2)]
    async with asyncio.timeout(4):
        (entry,) = await take(f"{store.url}/a-{{token}}")
    assert (entry.size, store.away) == (0, -1)
    stop.set()
    for each in dead:
        each.cancel()
    await asyncio.gather(*dead, return_exceptions=True)
    assert all(each.cancelled() for each in dead)
