"""Guests of the fake Azure: what their metadata service says to whom, and how they begin and end."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.verification import PolicyBuilder, Store

from tests.fakes.arm import FakeArm, proofs
from tests.fakes.arm.metadata import Metadata
from tests.fakes.arm.records import Power
from tests.fakes.arm.settings import GROUP, SUBSCRIPTION
from tests.fakes.arm_asking import SPOT, begin, body
from tests.fakes.clock import SetClock
from tests.fakes.guests.host import Guests, cannot
from tests.fakes.guests.sources import AZURE

needs_root = pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")
Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def azure() -> Iterator[FakeArm]:
    with FakeArm(clock=SetClock()) as fake:
        yield fake


@pytest.fixture
def vm(azure: FakeArm) -> Any:
    """A spot VM that runs."""
    wanted = body(tags={"one": "1"}, zones=["1"], userData=base64.b64encode(b"mine").decode(), **SPOT)
    begin(azure.compute(), "worker-1", {**wanted, "identity": {"type": "SystemAssigned"}})
    azure.advance(20)
    return azure.vm("worker-1")


@pytest.fixture
def ask(azure: FakeArm, vm: Any) -> Iterator[Ask]:
    """Asks the metadata service of `vm`: status and text."""
    server = Metadata(socket.create_server(("127.0.0.1", 0)), vm, proofs.signature, azure)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()

    def asked(path: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{server.server_address[1]}/metadata/{path}"
        request = urllib.request.Request(url, data, headers=headers or {"Metadata": "true"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_nothing_is_told_without_header_and_version_or_through_a_proxy(ask: Ask) -> None:
    good = "instance?api-version=2021-02-01"
    assert ask(good)[0] == 200
    assert ask(good, Accept="*/*")[0] == 400
    assert ask(good, **{"Metadata": "true", "X-Forwarded-For": "10.0.0.1"})[0] == 400
    assert ask("instance")[0] == 400


def test_it_says_what_the_fake_knows(ask: Ask, azure: FakeArm, vm: Any) -> None:
    compute = json.loads(ask("instance/compute?api-version=2021-02-01")[1])
    assert (compute["name"], compute["vmId"], compute["zone"], compute["tags"]) == ("worker-1", vm.vm_id, "1", "one:1")
    data = "instance/compute/userData?api-version=2021-02-01"
    assert base64.b64decode(ask(f"{data}&format=text")[1]) == b"mine"
    assert ask(data)[0] == 400  # a leaf is no JSON
    assert ask("versions?api-version=2021-02-01")[0] == 404
    assert azure.unmodelled == ["metadata: /metadata/versions?api-version=2021-02-01"]
    azure.unmodelled.clear()


def test_an_attested_document_is_made_out_to_a_nonce_and_signed(ask: Ask, vm: Any) -> None:
    """Its signer's certificate comes along, and is of the issuer that an operator trusts."""
    told = json.loads(ask("attested/document?api-version=2021-02-01&nonce=1234567890")[1])
    message = base64.b64decode(told["signature"])
    said = json.loads(message[message.index(b'{"licenseType"') : message.index(b'"}', message.index(b'"vmId"')) + 2])
    assert (said["nonce"], said["vmId"], said["subscriptionId"]) == ("1234567890", vm.vm_id, SUBSCRIPTION)
    (own,) = pkcs7.load_der_pkcs7_certificates(message)
    store = Store([x509.load_pem_x509_certificate(proofs.issuer_pem().encode())])
    PolicyBuilder().store(store).build_server_verifier(x509.DNSName("metadata.azure.com")).verify(own, [])
    assert told["encoding"] == "pkcs7"


def test_an_eviction_is_announced_and_may_be_approved(ask: Ask, azure: FakeArm, vm: Any) -> None:
    place = "scheduledevents?api-version=2020-07-01"
    assert json.loads(ask(place)[1])["Events"] == []
    azure.evict("worker-1")
    (event,) = json.loads(ask(place)[1])["Events"]
    assert (event["EventType"], event["Resources"], event["EventStatus"]) == ("Preempt", ["worker-1"], "Scheduled")
    assert event["NotBefore"].endswith(" GMT")
    azure.advance(1_000)
    assert vm.power is Power.RUNNING
    assert ask(place, json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode())[0] == 200
    azure.advance(20)
    assert azure.all_vms() == []


def test_a_vm_with_an_identity_gets_tokens(ask: Ask, azure: FakeArm, vm: Any) -> None:
    place = "identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com/"
    assert json.loads(ask(place)[1])["token_type"] == "Bearer"
    vm.around.pop("identity")
    assert ask(place)[0] == 400


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@needs_root
@pytest.mark.process
def test_a_guest_boots_its_custom_data(tmp_path: Path) -> None:
    """It knows its name, reaches the service at its address, and is stopped, not gone, when it powers itself off."""
    proof = "http://169.254.169.254/metadata/attested/document?api-version=2021-02-01&nonce=1"
    runs = f"cloud-init query ds.meta_data.imds.compute.name; curl -s -H Metadata:true '{proof}' | cut -c 1-20"
    script = f"{runs}; cat /var/lib/cloud/data/instance-id; systemctl poweroff; sleep 60"
    data = f"#cloud-config\nruncmd: [{json.dumps(script)}]\n"
    with FakeArm() as azure, Guests(azure, tmp_path, proofs.signature, {}, AZURE) as guests:
        begin(azure.compute(), "worker-1", body(data.encode())).result()
        until(lambda: azure.vm("worker-1").power is Power.STOPPED and not guests.running())
        vm = azure.vm("worker-1")
        assert vm.console.splitlines()[1:4] == ["worker-1", '{"encoding": "pkcs7"', vm.vm_id], guests.consoles()
        assert len(azure.billed()) == 1


@needs_root
@pytest.mark.process
def test_a_guest_that_is_deleted_is_told_to_end(tmp_path: Path) -> None:
    script = 'trap "echo stopped; exit" TERM; echo ready; while :; do sleep 0.1; done'
    data = f"#cloud-config\nruncmd: [{json.dumps(script)}]\n"
    with FakeArm() as azure, Guests(azure, tmp_path, proofs.signature, {}, AZURE) as guests:
        compute = azure.compute()
        begin(compute, "worker-1", body(data.encode())).result()
        vm = azure.vm("worker-1")
        until(lambda: "ready" in vm.console)
        compute.virtual_machines.begin_delete(GROUP, "worker-1").result()
        until(lambda: not guests.running())
        assert "stopped" in (tmp_path / "worker-1" / "console").read_text()
        assert os.listdir(tmp_path) == ["worker-1"]
