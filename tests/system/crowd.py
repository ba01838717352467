"""Workers that claim and finish tasks as an agent would, without running anything: for tests of the queue alone.

Stands in for the agent's process handling only; registration, tokens, syncs and claims are the dispatcher's real ones.
The VMs are the benchmark's `seats` driver, which boots nothing.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from contextlib import closing
from pathlib import Path

from bench.seats import write_entry_point
from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import (
    REGISTER_PATH,
    SYNC_PATH,
    RegisterReply,
    RegisterRequest,
    Result,
    SyncReply,
    SyncRequest,
)
from tests.system.house import House

JOIN_TOKEN = re.compile(r"cdj1(?:\.[\w-]+){4}")
CONFIG = """
[dispatcher]
deployment = "{deployment}"
state_dir = "{state}"
listen = "127.0.0.1:{port}"
tls = false

[timing]
heartbeat = "5s"
poll = "1s"
lease = "60s"

[profiles.seats]
driver = "seats"
folder = "{state}/../seats"
cpus = 64

[pools.default]
profiles = ["seats"]
min = {cap}
caps = {{ instances = {cap} }}
boot_deadline = "5m"
{pool}
[pools.default.end]
idle = "{idle}"
"""


def seats_house(house: House) -> None:
    """Make `house` one whose instances are seats (before it is started)."""
    (house.folder / "seats").mkdir()
    house.python_path.append(str(write_entry_point(house.folder / "plugins")))


class Worker(threading.Thread):
    """One instance: claims up to 100 tasks a sync, and says in the next that they succeeded, until stopped."""

    def __init__(self, house: House, seat: Path) -> None:
        super().__init__(daemon=True)
        said = json.loads(seat.read_text())
        found = JOIN_TOKEN.search(said["user_data"])
        assert found is not None, said
        self._join, self._vm, self._port = found[0], said["vm"], house.port
        self._ending = threading.Event()
        self.done: list[int] = []
        self.errors: list[BaseException] = []

    def stop(self) -> None:
        self._ending.set()
        self.join(30)

    def run(self) -> None:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
                self._work(connection)
        except BaseException as error:
            self.errors.append(error)

    def _work(self, connection: http.client.HTTPConnection) -> None:
        request = RegisterRequest(vm=self._vm, proof=self._vm, incarnation="crowd")
        token = codec.decode(RegisterReply, self._post(connection, REGISTER_PATH, self._join, request)).token
        sequence, results = 0, []
        while not self._ending.is_set():
            sequence += 1
            sync = SyncRequest(incarnation="crowd", seq=sequence, results=results, want=100, wait_ms=500)
            reply = codec.decode(SyncReply, self._post(connection, SYNC_PATH, token, sync))
            assert {r.token for r in results} == set(reply.settled), "a result was not settled"
            self.done += [r.task for r in results]
            results = [Result(task=c.task, token=c.token, cause="success", exit_code=0, ran_ms=0) for c in reply.claims]

    def _post(self, connection: http.client.HTTPConnection, path: str, token: str, message: object) -> bytes:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", path, codec.encode(message), headers)
        reply = connection.getresponse()
        body = reply.read()
        assert reply.status == 200, body
        return body
