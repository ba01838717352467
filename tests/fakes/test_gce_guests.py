"""Guests of the fake Compute Engine: what their metadata service says to whom, and how they begin and end."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from google.auth import jwt

from tests.fakes.gce import PROJECT, FakeGce, Settings
from tests.fakes.gce.asking import SPOT, Asker
from tests.fakes.gce.metadata import ROOT, Metadata
from tests.fakes.gce.settings import ZONE
from tests.fakes.guests.gce import GceGuests
from tests.fakes.guests.host import cannot

needs_root = pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")
FLAVOR = {"Metadata-Flavor": "Google"}
AUDIENCE = "https://dispatch.example/agents"
Tell = Callable[..., tuple[int, str]]
ITEMS = {"items": [{"key": "user-data", "value": "#cloud-config\n"}, {"key": "own", "value": "1"}]}
ACCOUNT = {"serviceAccounts": [{"email": "vm@fake-project.iam.gserviceaccount.com", "scopes": []}]}


@pytest.fixture
def vm(gce: FakeGce, ask: Asker) -> Any:
    """A spot VM with an account that runs."""
    ask.insert(metadata=ITEMS, **ACCOUNT, **SPOT)
    gce.advance(20)
    return gce.instance("one")


@pytest.fixture
def tell(gce: FakeGce, vm: Any) -> Iterator[Tell]:
    """Asks the metadata service of `vm`: status and text."""
    server = Metadata(socket.create_server(("127.0.0.1", 0)), vm, gce.clock.now, gce.unmodelled.append)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()

    def asked(path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        url = f"http://127.0.0.1:{server.server_address[1]}{ROOT}{path}"
        request = urllib.request.Request(url, headers=FLAVOR if headers is None else headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""

    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_nothing_is_told_without_the_header(tell: Tell, vm: Any) -> None:
    """Nor to what was forwarded."""
    assert tell("instance/id", {}) == (403, "")
    assert tell("instance/id", {"Metadata-Flavor": "Other"}) == (403, "")
    assert tell("instance/id", {**FLAVOR, "X-Forwarded-For": "10.0.0.1"}) == (403, "")
    assert tell("instance/id") == (200, vm.id)


def test_it_says_what_the_fake_knows(tell: Tell, gce: FakeGce) -> None:
    """And a path that is not modelled is noticed; an attribute that nobody set is none."""
    assert tell("instance/attributes/user-data") == (200, "#cloud-config\n")
    assert tell("instance/attributes/") == (200, "own\nuser-data\n")
    assert tell("instance/attributes/none") == (404, "")
    assert tell("instance/zone") == (200, f"projects/123456789012/zones/{ZONE}")
    assert tell("project/project-id") == (200, PROJECT)
    assert tell("instance/maintenance-event") == (200, "NONE")
    assert gce.unmodelled == []
    assert tell("instance/disks/") == (404, "")
    assert gce.unmodelled == [f"metadata: {ROOT}instance/disks/"]
    gce.unmodelled.clear()


def test_a_preemption_is_told_to_who_waits(tell: Tell, gce: FakeGce) -> None:
    """FALSE until then; a wait ends with its time too."""
    assert tell("instance/preempted") == (200, "FALSE")
    assert tell("instance/preempted?wait_for_change=true&timeout_sec=0") == (200, "FALSE")
    waiting: list[Any] = []
    thread = threading.Thread(target=lambda: waiting.append(tell("instance/preempted?wait_for_change=true")))
    thread.start()
    time.sleep(0.1)
    gce.preempt("one")
    thread.join(5)
    assert waiting == [(200, "TRUE")]


def test_an_identity_token_proves_which_vm_it_is(tell: Tell, gce: FakeGce, vm: Any) -> None:
    """By the certificates of the fake, as the library of Google verifies it; in PEM and as JWKs."""
    assert tell("instance/service-accounts/default/identity") == (400, "")
    path = f"instance/service-accounts/default/identity?audience={quote(AUDIENCE)}"
    _, token = tell(f"{path}&format=full")
    with urllib.request.urlopen(f"{gce.url}/oauth2/v1/certs") as answer:
        certificates = json.load(answer)
    claims = jwt.decode(token, certs=certificates, audience=AUDIENCE)
    assert claims["iss"] == "https://accounts.google.com"
    assert claims["google"]["compute_engine"] == {
        "project_id": PROJECT, "project_number": 123456789012, "zone": ZONE, "instance_id": vm.id,
        "instance_name": "one", "instance_creation_timestamp": vm.created_ms // 1000, "instance_confidentiality": 0,
    }  # fmt: skip
    assert "google" not in jwt.decode(tell(path)[1], certs=certificates, audience=AUDIENCE)
    with urllib.request.urlopen(f"{gce.url}/oauth2/v3/certs") as answer:
        (key,) = json.load(answer)["keys"]
    assert (key["alg"], list(certificates)) == ("RS256", [key["kid"]])
    forged = token[:-8] + ("AAAAAAA" if token[-8:-1] != "AAAAAAA" else "BBBBBBB") + token[-1]
    with pytest.raises(ValueError, match="signature"):
        jwt.decode(forged, certs=certificates, audience=AUDIENCE)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Any]:
    """`running(command)`: a VM that runs it, with the fake and its host."""
    with FakeGce(Settings(stopping_ms=500, notice_ms=2_000)) as gce, GceGuests(gce, tmp_path, {}) as guests:

        def run(command: str, **more: Any) -> tuple[FakeGce, GceGuests]:
            data = f"#cloud-config\nwrite_files: [{{path: /var/lib/own/file, content: own}}]\nruncmd: ['{command}']\n"
            Asker(gce).insert(metadata={"items": [{"key": "user-data", "value": data}]}, **ACCOUNT, **more)
            until(lambda: "ready" in gce.instance("one").console)
            return gce, guests

        yield run


@needs_root
@pytest.mark.process
def test_a_guest_boots_what_its_metadata_says(running: Any) -> None:
    """It asks the service by its address; powering off leaves its VM TERMINATED."""
    curl = 'curl -s -H "Metadata-Flavor: Google" http://169.254.169.254/computeMetadata/v1/instance'
    command = f"cat /var/lib/own/file; echo; {curl}/name; echo; sleep 0.1; echo ready; systemctl poweroff; sleep 60"
    gce, guests = running(command.replace("'", ""))
    until(lambda: gce.instance("one").status == "TERMINATED" and not guests.running())
    vm = gce.instance("one")
    lines = vm.console.splitlines()
    assert lines[0] == f"machine: {vm.id} boots projects/debian-cloud/global/images/debian-12-bookworm-v20260801"
    assert lines[1:4] == ["own", "one", "ready"]
    assert not Path("/var/lib/own").exists()


@needs_root
@pytest.mark.process
@pytest.mark.parametrize("end", ["delete", "preempt"])
def test_a_guest_is_told_of_its_end(running: Any, end: str) -> None:
    """As by the button of a machine, and has a while."""
    gce, guests = running('trap "echo stopped; exit" TERM; echo ready; while :; do sleep 0.1; done', **SPOT)
    if end == "delete":
        assert Asker(gce)("DELETE", f"zones/{ZONE}/instances/one")[0] == 200
    else:
        gce.preempt("one")
    until(lambda: not guests.running())
    until(lambda: gce.instance("one").status == "")
    assert gce.instance("one").console.endswith("ready\nmachine: power off by its host\nstopped\n")
