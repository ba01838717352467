"""The whole dispatcher but its loop, served as it serves itself, for tests that attack it: real fleet, store, files and
HTTP in a thread of its own, and a record of all that a request could change.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import requests

from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.api.admission import Admission
from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.outputs import OutputStore
from cloud_dispatch.api.patience import Patience
from cloud_dispatch.api.server import serve
from cloud_dispatch.api.services import Limits
from cloud_dispatch.assembly import Parts, Ports, Rules, assemble
from cloud_dispatch.domain.ids import BatchId, ProfileName, VmId, instance_id
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.task import Transfer
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.reconcile.settings import Settings, Timing
from cloud_dispatch.statestore import open_store
from cloud_dispatch.wire.messages import (
    Policy,
)
from tests.api.house import AGENT, POOL, Agent, House, asking
from tests.providers.odd import Odd

#: Tight, so that tests see them; what takes seconds in a test takes minutes in the product.
PATIENCE = Patience(head_s=1.0, body_s=1.0, body_bytes=1024, unread_bytes=2**20, look_s=0.1)
LIMITS = Limits(sync_bytes=65_536, chunk_bytes=65_536, register_burst=10**6, register_per_second=10**6)
HANG_S = 10.0
#: What the tasks declare, so that their tokens may write it.
OUTPUT = "out"
Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class State:
    """All that a request can change: rows by table, files, and what waits to be written."""

    rows: Rows
    files: dict[str, bytes]
    pending: tuple[str, ...]
    stops: tuple[str, ...]


class Fortress:
    """Two agents that serve, `mine` and `theirs`, each with a task that it holds; a batch with a place that is free and
    with a VM that boots, `vm`; waiting tasks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stops: list[str] = []
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self.troubles: list[str] = []
        self._thread = threading.Thread(target=self._live)
        self._thread.start()
        assert self._ready.wait(30)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        clock, entropy = SystemClock(), SystemEntropy()
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda _, context: self.troubles.append(str(context)))
        url = f"sqlite:///{self.folder / 'store.sqlite'}"
        store = await open_store(url, clock=clock, entropy=entropy, executor=Inline())
        tokens = Tokens.open(self.folder, entropy)
        logs = LogStore(self.folder / "logs", 100_000)
        outputs = OutputStore(self.folder / "outputs", 1 << 20, Inline())
        settings = Settings(
            deployment="lab", pools={POOL.name: POOL}, caps=Caps(), profile_caps={},
            providers={ProfileName("local"): Odd(self.folder)},  # whose VMs have no proofs
            user_data=lambda *_: "", timing=Timing(),
        )  # fmt: skip
        parts = assemble(
            Ports(clock, entropy, store, tokens, Inline(), logs, outputs),
            Rules(settings, Policy(poll_ms=50), AGENT, LIMITS),
            shutdown=lambda terminate, grace_ms: self.stops.append(f"{terminate} {grace_ms}"),
        )
        self.parts: Parts = parts
        address: asyncio.Future[tuple[str, int]] = self._loop.create_future()
        bounds, ready = Admission(2048, 512, clock), address.set_result
        serving = asyncio.create_task(
            serve(parts.app, "127.0.0.1:0", self._stop, bounds, ready=lambda *at: ready(at), grace_ms=1000)
        )
        self.host, self.port = await asyncio.wait_for(address, 10)
        self.url = f"http://{self.host}:{self.port}"
        async with asking(self.url) as http:
            await self._populate(http)
            self._ready.set()
            await self._stop.wait()
        await serving
        await store.close()

    async def _populate(self, http: httpx.AsyncClient) -> None:
        house = House(self.parts.app.worker._s, self.parts.app, self.parts.fleet, self.url, http)
        self._house = house
        self.mine, self.theirs = await self._agent(), await self._agent()
        await house.submit(3, outputs=(Transfer(OUTPUT),))
        await self._launch()
        self.operator = str(house.op.headers["Authorization"]).removeprefix("Bearer ")
        await house.op.aclose()

    async def _agent(self) -> Agent:
        """One that serves, with a task."""
        await self._house.submit(outputs=(Transfer(OUTPUT),))
        agent = await self._house.agent()
        await agent.sync(want=1)
        return agent

    async def _launch(self) -> None:
        """A batch of two VMs; one is known, and boots."""
        batch = await self._house.launch(2)
        self.vm = f"vm-{batch}-0"
        bound = InstanceChange(instance_id(batch, 0), InstanceEvent.BOUND, {"vm": VmId(self.vm)})
        await self._house.store.change([bound])
        self.batch, self.join = str(batch), self._house.tokens.join(batch, 2, 10**15)

    def replenish(self) -> None:
        """What requests use up is there again: a task that `mine` holds, a place that is free, a VM that boots. Where
        it is not, another agent becomes `mine`, and another batch `batch`."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._replenish(), self._loop).result(HANG_S)

    async def _replenish(self) -> None:
        store, claim = self._house.store, self.mine.held[0]
        if not store.holds(claim.task, claim.token, self.mine.instance):
            self.mine = await self._agent()
        rows = [row for row in store.instances().values() if row.batch == BatchId(self.batch)]
        if {row.state for row in rows} != {InstanceState.LAUNCHING, InstanceState.BOOTING}:
            await self._launch()

    def bearers(self) -> dict[str, str]:
        """Every good token, by whose it is: that of `mine`, of the task that it holds, of `batch`, the operator's."""
        claim = self.mine.held[0]
        task = self._house.tokens.task(claim.task, claim.token, self.mine.instance)
        return {"agent": self.mine.token, "task": task, "join": self.join, "operator": self.operator}

    # -- what it is now
    def state(self) -> State:
        with sqlite3.connect(f"file:{self.folder / 'store.sqlite'}?mode=ro", uri=True) as database:
            names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: sorted(database.execute(f'SELECT * FROM "{name}"'), key=repr) for name in names}
        database.close()
        files = {
            str(path): path.read_bytes()
            for kind in ("logs", "outputs")
            for path in (self.folder / kind).rglob("*")
            if path.is_file()
        }
        pending = tuple(map(repr, self.parts.context.pending_events))
        return State(rows, files, pending, tuple(self.stops))

    def settles(self, before: State) -> None:
        """All is as it was, in a moment: what a client that was cut off had begun goes after its connection."""
        deadline = time.monotonic() + 10
        while self.state() != before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.state() == before

    def foreign(self, before: State, after: State, own: str) -> list[str]:
        """What changed though it neither names `own` (an instance, or a batch) nor is of a task that it held, or that
        waited. Counters belong to nobody."""
        tasks = _tasks(before, own) | _tasks(after, own)
        changed = []
        for table in (before.rows.keys() | after.rows.keys()) - {"counters"}:
            rows = {*before.rows.get(table, [])} ^ {*after.rows.get(table, [])}
            by_task = {"tasks": 0, "specs": 0, "attempts": 0}.get(table)
            for row in rows:
                named = any(str(value).startswith(own) for value in row)
                if not named and (by_task is None or row[by_task] not in tasks):
                    changed.append(f"{table}: {row}")
        for name in {*before.files.items()} ^ {*after.files.items()}:
            changed += [f"file: {name[0]}"] if not any(f"/{task}" in name[0] for task in tasks) else []
        changed += [one for one in {*before.pending} ^ {*after.pending} if own not in one]
        return [*changed, *after.stops[len(before.stops) :]]

    # -- asking
    def alive(self) -> bool:
        return requests.get(f"{self.url}/v1/health", timeout=HANG_S).status_code == 200

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection((self.host, self.port), timeout=HANG_S) as sock:
            yield sock


def _tasks(state: State, own: str) -> set[int]:
    """The tasks that wait, and those that are held by `own`."""
    return {row[0] for row in state.rows["tasks"] if row[5] is None or str(row[5]).startswith(own)}
