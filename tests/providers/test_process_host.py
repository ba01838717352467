"""A driver in a process of its own: the same answers and errors, and a death that loses nothing but an answer."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog
from pydantic import BaseModel, SecretStr

from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.domain.ids import BatchId, ProfileName, VmId, instance_id
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.provider import codec, process_host
from cloud_dispatch.provider.errors import (
    InDoubt,
    InvalidRequest,
    QuotaExceeded,
    RateLimited,
    Scope,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.funnel import Call
from cloud_dispatch.provider.process_child import serve
from cloud_dispatch.provider.process_host import ProcessHost, spawn
from cloud_dispatch.provider.spi import (
    LaunchRequest,
    LaunchResult,
    Operation,
    ProfileContext,
    Provider,
    Traits,
    Vm,
    VmState,
)
from tests import procfs
from tests.providers.local import NOW_MS
from tests.providers.odd import OddSettings
from tests.providers.test_local_contract import LocalContract, LocalFaults, context_of

ODD = "tests.providers.odd:plugin"
VM = Vm(VmId("v"), VmState.RUNNING, "t", "z", {"key": "value"}, 5, 2, "10.0.0.1", True, True, "taken back")
OFFERING = Offering(ProfileName("p"), InstanceType("t", Resources(1)), "z", Market.SPOT, None, labels=(("a", "b"),))
REQUEST = LaunchRequest(
    BatchId("b"), 1, OFFERING, {"k": "v"}, "#cloud-config", 7, (instance_id(BatchId("b"), 0),), min_slots=1
)


class InThread:
    """A child that is a thread: the whole protocol without the start of an interpreter."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock.dup()
        self._sock.setblocking(False)
        self._thread = threading.Thread(target=lambda: asyncio.run(serve(self._sock)), daemon=True)
        self._thread.start()

    def poll(self) -> object | None:
        return None if self._thread.is_alive() else 0

    def wait(self, timeout: float) -> object:
        self._thread.join(timeout)
        return self.poll()

    def kill(self) -> None:
        if self._sock.fileno() >= 0:
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


@pytest.mark.process
class TestLocalInProcess(LocalContract):
    """The public suite, with every value and error sent through the codec."""

    @pytest.fixture
    def connect(self, faults: LocalFaults) -> Callable[[], Provider]:
        return lambda: ProcessHost("cloud_dispatch_local:plugin", context_of(faults), spawn=InThread)


def context(folder: Path, **settings: object) -> ProfileContext:
    return ProfileContext(ProfileName("odd"), OddSettings(**settings), folder, now=lambda: NOW_MS)  # type: ignore[arg-type]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[ProcessHost]:
    made = ProcessHost(ODD, context(tmp_path))
    yield made
    await made.close()


async def pid_of(host: ProcessHost) -> int:
    return int(await host.console(VmId("pid")))


async def ends(pid: int) -> bool:
    """Whether the process is gone, or a zombie, within five seconds."""
    for _ in range(250):
        if not procfs.alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (Call.LAUNCH, LaunchResult((VM,), RateLimited("m", code="c", scope=Scope(family="f"), retry_after_ms=9))),
        (Call.RESUME, LaunchResult((), pending=(Operation("t", BatchId("b"), REQUEST.instances),))),
        (Call.OFFERINGS, [OFFERING]),
        (Call.GET, VM),
        (Call.TERMINATE, None),
    ],
)
def test_results_travel_unchanged(call: Call, value: object) -> None:
    """What is decoded equals what was encoded; a shortfall keeps its class, scope and times."""
    reply = codec.read(codec.frame(codec.Reply(1, codec.raw(value)))[codec.HEADER :], codec.Reply)
    found = codec.result(call, reply.value)
    if isinstance(value, LaunchResult) and value.shortfall is not None:
        assert type(found.shortfall) is type(value.shortfall)
        assert vars(found.shortfall) == vars(value.shortfall)
        assert found.vms == value.vms
    else:
        assert found == value


def test_arguments_travel_unchanged() -> None:
    """A launch request arrives as it was sent, offering and all."""
    assert codec.arguments(Call.LAUNCH, codec.raw((REQUEST,))) == (REQUEST,)


def test_a_frame_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be longer is refused on the side that makes it, and is nonsense on the side that reads it."""
    monkeypatch.setattr(codec, "MAX_FRAME", 100)
    with pytest.raises(InvalidRequest, match="at most 100"):
        codec.frame("x" * 101)
    with pytest.raises(ValueError, match="frame of"):
        codec.length(b"\xff\xff\xff\xff")


@pytest.mark.process
async def test_the_driver_lives_in_another_process(host: ProcessHost) -> None:
    """Its traits are known without asking, its calls run elsewhere, and its arguments tell nothing of its settings."""
    assert host.traits == Traits(max_batch=7)
    pid = await pid_of(host)
    assert pid != os.getpid()
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert command[1:4] == [b"-P", b"-m", b"cloud_dispatch.provider.process_child"]
    assert not [word for word in command if b"odd" in word]


@pytest.mark.process
async def test_errors_cross_the_process_as_they_are(host: ProcessHost) -> None:
    """A provider's error is the same error; a bug of the driver is a RuntimeError, and the child lives on."""
    with pytest.raises(QuotaExceeded) as caught:
        await host.get(VmId("quota"))
    assert (caught.value.code, caught.value.scope, caught.value.retry_after_ms) == ("Q", Scope(region="r"), 5)
    before = await pid_of(host)
    with pytest.raises(RuntimeError, match="KeyError"):
        await host.get(VmId("bug"))
    assert await pid_of(host) == before


@pytest.mark.process
@pytest.mark.parametrize("full", [True, False], ids=["full disk", "pipe without a reader"])
async def test_where_its_records_go_nowhere_a_driver_answers_all_the_same(tmp_path: Path, full: bool) -> None:
    """A warning of its own, and the traceback of its bug: neither fails a call, nor leaves one without an answer."""
    into = os.open("/dev/full", os.O_WRONLY)
    if not full:
        nobody, into = os.pipe()
        os.close(nobody)
    stderr = os.dup(2)
    os.dup2(into, 2)
    try:
        host = ProcessHost(ODD, context(tmp_path))
    finally:
        os.dup2(stderr, 2)
    try:
        for _ in range(3):
            with pytest.raises(VmNotFound):
                await asyncio.wait_for(host.get(VmId("logs")), 20)
            with pytest.raises(Exception, match="a bug"):
                await asyncio.wait_for(host.get(VmId("bug")), 20)
    finally:
        await host.close()
        for descriptor in (stderr, into):
            os.close(descriptor)


async def test_calls_of_a_child_that_dies_are_in_doubt_or_had_no_effect(host: ProcessHost) -> None:
    """A launch under way may have been made, a listing had no effect; the next calls find another child."""
    pid = await pid_of(host)
    calls = [
        asyncio.create_task(host.launch(REQUEST)),
        asyncio.create_task(host.terminate(VmId("slow"))),
        asyncio.create_task(host.get(VmId("slow"))),
    ]
    await asyncio.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    with structlog.testing.capture_logs() as records:
        errors = [type(error) for error in await asyncio.gather(*calls, return_exceptions=True)]
        assert errors == [InDoubt, InDoubt, Transient]
        assert await pid_of(host) != pid
    assert [record["event"] for record in records] == ["provider.driver_died", "provider.driver_restarted"]


@pytest.mark.process
async def test_restarts_keep_a_growing_distance(host: ProcessHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that keeps dying is followed after a pause; who calls before it is told for how long to wait."""
    monkeypatch.setattr(process_host, "FIRST_PAUSE_S", 500.0)
    monkeypatch.setattr(process_host, "LONGEST_PAUSE_S", 5_000.0)
    await end_child(host)
    await pid_of(host)
    await end_child(host)
    with pytest.raises(Transient) as caught:
        await pid_of(host)
    assert 0 < caught.value.retry_after_ms <= 500_001
    host._not_before = 0.0  # as if it had passed
    await pid_of(host)
    assert host._pause_s == 1_000.0


async def end_child(host: ProcessHost) -> None:
    """Kill the child, and wait until the host has seen it."""
    os.kill(await pid_of(host), signal.SIGKILL)
    assert host._reading is not None
    await asyncio.wait({host._reading}, timeout=5)


async def there(path: Path) -> None:
    """Until the driver has made the file."""
    async with asyncio.timeout(30):
        while not path.exists():
            await asyncio.sleep(0.02)


@pytest.mark.process
async def test_a_call_that_its_caller_gives_up_is_cancelled_in_the_child(host: ProcessHost, tmp_path: Path) -> None:
    """A caller's deadline reaches the driver."""
    call = asyncio.create_task(host.get(VmId("slow")))
    await there(tmp_path / "begun")
    call.cancel()
    await there(tmp_path / "cancelled")
    assert call.cancelled()


@pytest.mark.process
async def test_a_driver_that_blocks_for_good_is_replaced(
    host: ProcessHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on while it blocks, and a child that can't even take a call back is ended."""
    monkeypatch.setattr(process_host, "STUCK_S", 0.3)
    pid = await pid_of(host)
    call = asyncio.create_task(host.get(VmId("block")))
    await there(tmp_path / "begun")
    call.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert call.cancelled(), "it waits for the driver"
    await asyncio.sleep(0.4)
    assert await pid_of(host) != pid


async def test_a_call_that_is_taken_back_before_its_first_step_is_answered(tmp_path: Path) -> None:
    """Both are read at once, as after a halt of the process: the word that it is over is what shows the child well."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    serving = asyncio.create_task(serve(theirs))
    reader, writer = await asyncio.open_connection(sock=ours)
    writer.write(
        codec.frame(codec.Init(ODD, "odd", {}, str(tmp_path)))
        + codec.frame(codec.Request(1, Call.GET, codec.raw((VmId("slow"),))))
        + codec.frame(codec.Request(2, codec.CANCEL, codec.raw((1,))))
    )
    async with asyncio.timeout(10):
        await reader.readexactly(codec.length(await reader.readexactly(codec.HEADER)))
        body = await reader.readexactly(codec.length(await reader.readexactly(codec.HEADER)))
    reply: codec.Reply = codec.read(body, codec.Reply)
    assert reply.failure is not None
    assert (reply.number, reply.failure.kind) == (1, "CancelledError")
    writer.close()
    await serving


@pytest.mark.parametrize("first", ["answered", "given up"])
async def test_a_call_that_is_answered_as_it_is_given_up_leaves_nothing_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """No other word comes of it: whoever waited for one would take a child that is well for stuck, and end it."""
    monkeypatch.setattr(process_host, "STUCK_S", 0.0)
    children: list[InThread] = []

    def remember(sock: socket.socket) -> process_host.Child:
        children.append(InThread(sock))
        return children[-1]

    host = ProcessHost(ODD, context(tmp_path), spawn=remember)
    hand_out = host._hand_out

    def together(reply: codec.Reply) -> None:
        if first == "given up":
            call.cancel()
        hand_out(reply)
        call.cancel()

    monkeypatch.setattr(host, "_hand_out", together)
    call = asyncio.create_task(pid_of(host))
    with pytest.raises(asyncio.CancelledError):
        await call
    await pid_of(host)
    await host.close()
    assert len(children) == 1


@pytest.mark.process
async def test_a_closed_host_leaves_no_process_and_refuses_calls(tmp_path: Path) -> None:
    """Closing closes the driver, ends the child, may be repeated, and calls after it are Transient errors."""
    host = ProcessHost(ODD, context(tmp_path))
    pid = await pid_of(host)
    await host.close()
    await host.close()
    assert (tmp_path / "closed").exists()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(Transient, match="closed"):
        await host.list("d")


@pytest.mark.process
async def test_a_host_that_was_never_called_closes_too(tmp_path: Path) -> None:
    """A configuration check makes drivers and lets them go."""
    host = ProcessHost(ODD, context(tmp_path))
    await host.close()
    assert (tmp_path / "closed").exists()


@pytest.mark.process
@pytest.mark.parametrize("blocking", [False, True])
async def test_the_child_dies_with_its_parent(tmp_path: Path, blocking: bool) -> None:
    """A dispatcher that is killed leaves no driver behind, not even one that blocks and never sees its socket close."""
    code = (
        "import asyncio, pathlib, sys\n"
        "from tests.providers.test_process_host import ODD, ProcessHost, VmId, context, pid_of\n"
        "async def main():\n"
        "    host = ProcessHost(ODD, context(pathlib.Path(sys.argv[1])))\n"
        "    print(await pid_of(host), flush=True)\n"
        "    await host.get(VmId(sys.argv[2]))\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), "block" if blocking else "slow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(await asyncio.get_running_loop().run_in_executor(None, parent.stdout.readline))
        await asyncio.sleep(0.2)
        parent.kill()
    assert await ends(pid)


@pytest.mark.process
def test_a_driver_that_can_not_be_made_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    """A missing module is an ImportError with its name, another error a bug, and a child that dies is Unavailable."""
    children: list[subprocess.Popen[bytes]] = []

    def remember(sock: socket.socket) -> process_host.Child:
        child = spawn(sock)
        assert isinstance(child, subprocess.Popen)
        children.append(child)
        return child

    for making, error, match in (
        ("import", ImportError, "no_such_sdk"),
        ("crash", RuntimeError, "ValueError: no luck"),
        ("exit", Unavailable, "did not come up"),
    ):
        with pytest.raises(error, match=match) as caught:
            ProcessHost(ODD, context(tmp_path, making=making), spawn=remember)
        if isinstance(caught.value, ImportError):
            assert caught.value.name == "no_such_sdk"
        assert children[-1].wait(5) is not None


class Secretive(BaseModel):
    password: SecretStr = SecretStr("hunter2")


def test_settings_that_would_not_arrive_are_refused(tmp_path: Path) -> None:
    """A secret hides itself in JSON: said before any process is started."""
    with pytest.raises(InvalidInput, match="another process"):
        ProcessHost(ODD, ProfileContext(ProfileName("p"), Secretive(), tmp_path), spawn=never)


def never(_: socket.socket) -> process_host.Child:
    pytest.fail("a process was started")


@pytest.mark.process
def test_a_child_that_never_speaks_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_host, "CREATE_S", 0.3)
    stuck: list[subprocess.Popen[bytes]] = []

    def never_speaks(sock: socket.socket) -> process_host.Child:
        stuck.append(subprocess.Popen(["sleep", "60"], pass_fds=[sock.fileno()]))
        return stuck[-1]

    with pytest.raises(Unavailable, match="not within"):
        ProcessHost(ODD, context(tmp_path), spawn=never_speaks)
    assert len(stuck) == 1
    assert stuck[0].poll() is not None


@pytest.mark.process
async def test_a_drivers_process_hardly_looks_for_garbage(tmp_path: Path) -> None:
    """What its SDK brings lives as long as it does."""
    host = ProcessHost(ODD, context(tmp_path))
    try:
        assert await host.console(VmId("collector")) == "50000"
    finally:
        await host.close()
