"""The bootstrap of a VM, run for real on a local VM against a real HTTP server: fetch, verify, start the agent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

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
#: What VMs told the dispatcher, by the port that they reached it at: the token, and what they said.
TOLD: dict[int, list[tuple[str, dict[str, Any]]]] = {}


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
                if isinstance(reply, bytes) and self.path.startswith("/v1/agent.pyz?sha256="):
                    self.wfile.write(reply)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                told = TOLD.setdefault(self.server.server_address[1], [])
                told.append((self.headers["Authorization"], body))
                self.send_response(404 if len(told) == 1 else 200)  # not known yet, at first
                self.end_headers()

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


def told(url: str) -> list[tuple[str, dict[str, Any]]]:
    return TOLD.get(int(url.rpartition(":")[2]), [])


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
    url = serve(AGENT)
    console = await boot(root, url, lambda _: False, python=str(old))
    assert f"cloud-dispatch: needs Python 3.9 or newer as {old}, found: Python 3.6.8\n" in console
    assert "agent says" not in console


@pytest.mark.parametrize("speaks", ["curl", "wget"])
def test_without_a_python_what_else_speaks_http_tells_it(root: Path, serve: Callable[..., str], speaks: str) -> None:
    """curl or wget tells the dispatcher, with the token on no command line."""
    if shutil.which(speaks) is None:
        pytest.skip(f"{speaks} is not installed")
    url, asked = serve(AGENT), root / "asked"
    done = bare_machine(root, url, speaks)
    assert "cloud-dispatch: needs Python 3.9 or newer as python3" in done.stdout
    (_, (token, said)) = told(url)
    assert token == "Bearer join-token"
    assert (said["vm"], said["phase"], said["failed"], said["exit_code"]) == ("i-1", "python", True, 1)
    assert said["log"].startswith("cloud-dispatch: needs Python 3.9 or newer as python3, found: ")
    assert "/v1/boot" in asked.read_text()
    assert "join-token" not in asked.read_text()


def test_no_stranger_is_told_where_a_certificate_is_pinned(root: Path, serve: Callable[..., str]) -> None:
    """curl and wget can't pin a certificate by its fingerprint: the console alone says it then."""
    url = serve(AGENT)
    done = bare_machine(root, url, "curl", fingerprint="ab" * 32)
    assert "cloud-dispatch: needs Python 3.9 or newer as python3" in done.stdout
    assert told(url) == []


def bare_machine(root: Path, url: str, speaks: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """The bootstrap on a machine without Python, whose only way to the network is `speaks`."""
    programs = root / "programs"
    programs.mkdir()
    for name in ("sh", "sed", "tee", "mkfifo", "rm", "tail", "tr", "cut", "head", "dirname", "echo", "cat", "grep"):
        (programs / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    (programs / speaks).write_text(f'#!/bin/sh\necho "$*" >>{root}/asked\nexec {shutil.which(speaks)} "$@"\n')
    (programs / "sleep").write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 0.3\n")  # its log may be a moment late
    for name in (speaks, "sleep"):
        (programs / name).chmod(0o755)
    given = {"url": url, "join_token": "join-token", "agent_sha256": "ab" * 32, "pool": "default"}
    own = {"base_folder": str(root), "vm_id_command": "echo i-1", "end_command": "", "service": ""}
    for file in yaml.safe_load(render("agent", given | own | variables))["write_files"]:
        Path(file["path"]).write_text(file["content"])
    return subprocess.run(
        ["/bin/sh", root / "bootstrap.sh"], env={"PATH": str(programs)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


async def test_a_vm_that_can_not_start_its_agent_ends_itself(root: Path, serve: Callable[..., str]) -> None:
    """Where the end of the boot commands does not end the VM, the bootstrap runs the command that does."""
    console = await boot(root, serve(AGENT), lambda _: False, vm_id_command="true", end_command="echo powering off")
    assert "cloud-dispatch: this VM can't learn its own id\n" in console
    assert console.splitlines().index("powering off") > 0


async def test_a_failure_is_told_to_the_dispatcher_until_it_hears(root: Path, serve: Callable[..., str]) -> None:
    """Phase, exit code and the log, under the join token; a VM that is not known yet says it again."""
    url = serve(AGENT)
    await boot(root, url, lambda _: False, vm_id_command="echo no metadata >&2; true")
    (first, (token, said)) = told(url)
    assert first[1] == said
    assert token == "Bearer join"
    assert {name: said[name] for name in ("vm", "phase", "failed", "exit_code")} == {
        "vm": "", "phase": "identity", "failed": True, "exit_code": 1,
    }  # fmt: skip
    assert said["log"].splitlines() == ["no metadata", "cloud-dispatch: this VM can't learn its own id"]


async def test_a_daemon_of_an_operators_script_does_not_hold_up_the_boot(root: Path, serve: Callable[..., str]) -> None:
    """It keeps the log open as long as it lives, for which nobody waits: not the agent, and not a failure."""
    scripts = [{"name": "daemon.sh", "content": "#!/bin/sh\nsleep 600 &\necho started\n"}]
    console = await boot(root, serve(AGENT), lambda text: "agent says" in text, scripts=scripts)
    assert "started" in console
    assert "agent says" in console


async def test_a_script_that_fails_after_a_daemon_is_told(root: Path, serve: Callable[..., str]) -> None:
    """The exit code is the script's, the log is whole."""
    scripts = [{"name": "daemon.sh", "content": "#!/bin/sh\nsleep 600 &\necho no disk\nexit 7\n"}]
    url = serve(AGENT)
    await boot(root, url, lambda _: False, scripts=scripts)
    said = [said for _, said in told(url) if said.get("failed")][-1]
    assert (said["phase"], said["exit_code"]) == ("snippets", 7)
    assert said["log"].splitlines()[-2:] == ["no disk", "cloud-dispatch: snippet snippets/01-daemon.sh failed"]


async def test_of_a_long_log_the_end_is_told(root: Path, serve: Callable[..., str]) -> None:
    """100 lines, whatever a command printed before."""
    url = serve(AGENT)
    await boot(root, url, lambda _: False, vm_id_command="seq 1 5000 >&2; true")
    lines = told(url)[-1][1]["log"].splitlines()
    assert len(lines) == 100
    assert lines[-2:] == ["5000", "cloud-dispatch: this VM can't learn its own id"]


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
