"""The bootstrap of a VM, run for real on a local VM against a real HTTP server: fetch, verify, start the agent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cloudinit.render import render
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch_local import plugin
from tests.providers.local import driver, end_everything, living, request

pytestmark = pytest.mark.process

AGENT = b"""import json, os, sys
print('agent says', json.dumps(json.load(open(sys.argv[1]))))
print('mode', oct(os.stat(sys.argv[1]).st_mode & 0o777))
"""
VM = VmId("b00000000001-0")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_everything(tmp_path)


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """`serve(*replies)`: a URL whose agent.pyz is answered with one reply after the other, the last for ever."""
    servers = []

    def start(*replies: bytes | int) -> str:
        left = list(replies)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                reply = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(reply if isinstance(reply, int) else 200)
                self.end_headers()
                if isinstance(reply, bytes) and self.path == "/v1/agent.pyz":
                    self.wfile.write(reply)

            def log_message(self, *_: Any) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


async def boot(root: Path, url: str, good: Callable[[str], bool], **variables: Any) -> str:
    """Boot a local VM from the agent template; its console once it is good or the VM has stopped."""
    document = render(
        "agent",
        {
            **plugin.template_variables(),
            "url": url,
            "join_token": "join",
            "agent_sha256": hashlib.sha256(AGENT).hexdigest(),
            "pool": "default",
            **variables,
        },
    )
    provider = driver(root)
    await provider.launch(await request(provider, document))
    for _ in range(500):
        console = await provider.console(VM)
        if good(console) or (await provider.get(VM)).state is VmState.STOPPED:
            return await provider.console(VM)
        await asyncio.sleep(0.02)
    pytest.fail(f"the VM neither got there nor stopped: {console}")


async def test_a_vm_fetches_the_agent_and_starts_it(root: Path, serve: Callable[..., str]) -> None:
    """The agent runs with its configuration, mode 0600, which knows the VM's id and a folder to work in."""
    console = await boot(root, serve(AGENT), lambda _: False)
    (line,) = [line for line in console.splitlines() if line.startswith("agent says ")]
    config = json.loads(line.removeprefix("agent says "))
    assert (config["vm"], config["join_token"]) == (VM, "join")
    assert config["work_dir"] == str(root / "vms" / VM / "disk" / "cloud-dispatch")
    assert "mode 0o600" in console
    assert living(root) == []


async def test_a_fetch_is_tried_again(root: Path, serve: Callable[..., str]) -> None:
    """A dispatcher that answers with errors at first costs tries, not the VM."""
    console = await boot(root, serve(503, 503, AGENT), lambda _: False)
    assert "try 2 of 40" in console
    assert "agent says" in console


async def test_an_agent_that_is_another_is_not_started(root: Path, serve: Callable[..., str]) -> None:
    """What does not have the promised sha256 is never run."""
    console = await boot(root, serve(AGENT + b"#"), lambda text: "sha256 differs" in text)
    assert "sha256 differs" in console
    assert "agent says" not in console
    assert not list(root.rglob("agent.pyz"))


async def test_a_python_that_is_too_old_or_missing_is_one_line(root: Path, serve: Callable[..., str]) -> None:
    """A VM without a Python that the agent can use says so in one line and stops."""
    old = root / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.6.8\nexit 1\n')
    old.chmod(0o755)
    console = await boot(root, serve(AGENT), lambda _: False, python=str(old))
    assert f"cloud-dispatch: needs Python 3.9 or newer as {old}, found: Python 3.6.8\n" in console
    assert "agent says" not in console


async def test_a_vm_that_can_not_start_its_agent_ends_itself(root: Path, serve: Callable[..., str]) -> None:
    """Where the end of the boot commands does not end the VM, the bootstrap runs the command that does."""
    console = await boot(root, serve(AGENT), lambda _: False, vm_id_command="true", end_command="echo powering off")
    assert "cloud-dispatch: this VM can't learn its own id\npowering off\n" in console


async def test_a_boot_that_hangs_ends_with_the_timer(root: Path, serve: Callable[..., str]) -> None:
    """Before the agent was fetched, and where the end of the boot commands is the VM's end."""
    timer = {"anchor": "ab" * 32, "first_ms": 2_000, "step_ms": 1, "links": 1, "lease_ms": 1, "ends_ms": 10**15}
    console = await boot(root, serve(AGENT), lambda _: False, vm_id_command="sleep 600", timer=timer)
    assert "cloud-dispatch: the timer ended before the agent's supervisor held it" in console
    assert living(root) == []


async def test_a_boot_that_comes_too_late_ends_at_once(root: Path, serve: Callable[..., str]) -> None:
    """Past the hard end by the wall clock, the agent is not even fetched to its end."""
    timer = {"anchor": "ab" * 32, "first_ms": 10**9, "step_ms": 1, "links": 1, "lease_ms": 1, "ends_ms": 1_000}
    console = await boot(root, serve(AGENT), lambda _: False, vm_id_command="sleep 600", timer=timer)
    assert "the timer ended" in console
    assert "agent says" not in console
