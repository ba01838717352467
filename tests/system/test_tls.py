"""TLS as users meet it: a real dispatcher with the configuration's defaults, real agents, real clients.

What is stood in for: the man in the middle is a TLS server with another certificate at the address that a VM was told.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloud_dispatch.adapters.certificates import Certificate, own
from cloud_dispatch.agent.channel import Channel, Endpoint, Unreachable
from cloud_dispatch.cli.exitcodes import UNAVAILABLE
from cloud_dispatch.client import Client
from cloud_dispatch.client.transport import trusting
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.errors import Unavailable
from cloud_dispatch.install.units import SERVICE, Place, units
from cloud_dispatch.provider.registry import plugin
from tests.adapters.test_certificates import NOW
from tests.system.house import CONFIG, House
from tests.system.test_reload import reload

pytestmark = pytest.mark.process
JOIN = re.compile(r"cdj1(?:\.[\w-]+){4}")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path, config=CONFIG.replace("tls = false\n", ""))
    house.url = house.url.replace("http:", "https:")
    house.trust = house.state / "tls" / "ca.pem"
    try:
        yield house
    finally:
        house.clean_up()


def test_everything_goes_over_tls_by_default(house: House) -> None:
    """A task is run by an agent that pinned the certificate; commands trust the file, others the CA; nobody else."""
    house.up()
    client = Client.from_config(load(TomlFile(house.config), plugin), {})
    (task,) = client.submit([{"command": ["true"]}])
    house.until(lambda: client.task(task)["state"] == "succeeded", 30, "the task is done")
    client.close()
    with Client(house.url, house.token, trust=trusting(house.trust)) as remote:
        assert remote.health()["status"] == "ok"
    with Client(house.url, house.token) as stranger, pytest.raises(Unavailable, match="not trusted here") as caught:
        stranger.health()
    assert "CLOUD_DISPATCH_CA" in caught.value.hint
    with Client(house.url.replace("https", "http"), house.token) as plain, pytest.raises(Unavailable) as caught:
        plain.health()
    assert "https://" in caught.value.hint
    environment = {"CLOUD_DISPATCH_URL": house.url, "CLOUD_DISPATCH_TOKEN": house.token}
    done = subprocess.run(
        [sys.executable, "-m", "cloud_dispatch", "tasks", "--json"], capture_output=True, text=True, check=False,
        env={**os.environ, **environment, "CLOUD_DISPATCH_CA": str(house.trust)},
    )  # fmt: skip
    assert '"succeeded"' in done.stdout, done.stderr


def test_operators_reach_it_by_its_other_names(house: House) -> None:
    """Those of `names` stand in the certificate, and others don't."""
    house.config.write_text(
        house.config.read_text().replace("[timing]", 'names = ["dispatch.example.org"]\n\n[timing]')
    )
    house.up()
    context = ssl.create_default_context(cafile=str(house.trust))

    def shown_as(name: str) -> dict[str, Any]:
        with (
            socket.create_connection(("127.0.0.1", house.port)) as plain,
            context.wrap_socket(plain, server_hostname=name) as secure,
        ):
            return dict(secure.getpeercert() or {})

    assert ("DNS", "dispatch.example.org") in shown_as("dispatch.example.org")["subjectAltName"]
    assert shown_as("127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        shown_as("other.example.org")


def test_vms_are_heard_again_by_a_dispatcher_that_is_called_otherwise(house: House) -> None:
    """The certificate that they pin stays while one of them lives, and what it lacks is told; then it is made anew."""
    house.config.write_text(house.config.read_text().replace('idle = "3s"', 'idle = "60s"'))
    house.up()
    shown = house.state / "tls" / "server.pem"
    before = shown.read_bytes()
    (task,) = house.submit({"command": ["true"]})
    house.until_ended(task)
    (vm,) = house.instances()
    house.kill()
    house.config.write_text(house.config.read_text().replace("[timing]", 'names = ["queue.example.org"]\n\n[timing]'))
    house.up()
    assert shown.read_bytes() == before
    (problem,) = house.get("/v1/health")["problems"]
    assert "does not bear queue.example.org" in problem
    (task,) = house.submit({"command": ["true"]})
    assert house.until_ended(task)["state"] == "succeeded"
    assert [one["id"] for one in house.instances()] == [vm["id"]]
    house.post(f"/v1/instances/{vm['id']}/kill", {"reason": "test"})
    house.until_no_instance()
    house.kill()
    house.up()
    assert shown.read_bytes() != before
    assert house.get("/v1/health")["problems"] == []


@pytest.mark.parametrize("pin", [False, True])
def test_a_renewed_certificate_is_shown_when_the_configuration_is_read_anew(
    house: House, tmp_path: Path, pin: bool
) -> None:
    """Unless VMs pin that of the start: then it is told that it is not, and its chain alone may be another. One
    that is of no use is refused with its place, and the old one goes on."""
    now = datetime.datetime.now(datetime.UTC)
    first, second = (own(tmp_path / name, ["127.0.0.1"], now) for name in ("first", "second"))
    shown, key = tmp_path / "shown.pem", tmp_path / "shown.key"

    def show(one: Certificate) -> None:
        shutil.copy(one.certificate, shown)
        shutil.copy(one.key, key)

    def fingerprint() -> str:
        found = ssl.get_server_certificate(("127.0.0.1", house.port))
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(found)).hexdigest()

    def shown_chain() -> int:
        asked = ["openssl", "s_client", "-connect", f"127.0.0.1:{house.port}", "-showcerts"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True, input="")
        return done.stdout.count("BEGIN CERTIFICATE")

    show(first)
    told = f'certificate = "{shown}"\nkey = "{key}"\npin = {str(pin).lower()}\n'
    house.config.write_text(house.config.read_text().replace("[timing]", told + "\n[timing]"))
    house.trust = first.ca
    house.up()
    assert fingerprint() == first.fingerprint
    shutil.copy(second.certificate, shown)  # its key is late
    action, detail = reload(house, lambda text: text)
    assert action == ("configuration.reloaded" if pin else "configuration.refused")
    assert (f"{shown}: can't be used with the key" in detail) is not pin
    assert fingerprint() == first.fingerprint
    show(second)
    house.trust = tmp_path / "both.pem"
    house.trust.write_text("".join(one.ca.read_text() for one in (first, second) if one.ca))
    action, detail = reload(house, lambda text: text)
    assert action == "configuration.reloaded"
    if pin:
        assert detail == "not the certificate: VMs trust that of the start until the next one (`dispatcher.pin`)"
        assert fingerprint() == first.fingerprint
    else:
        assert detail == "the certificate"
        assert fingerprint() == second.fingerprint
        show(own(tmp_path / "ended", ["127.0.0.1"], now - datetime.timedelta(days=4000)))
        action, detail = reload(house, lambda text: text)
        assert (action, f"{shown}: it ended at" in detail) == ("configuration.refused", True)
        assert fingerprint() == second.fingerprint
        show(first)
        assert reload(house, lambda text: text) == ("configuration.reloaded", "the certificate")
    assert first.ca
    shown.write_bytes(first.certificate.read_bytes() + first.ca.read_bytes())
    shutil.copy(first.key, key)
    assert reload(house, lambda text: text) == ("configuration.reloaded", "the certificate"), "its chain is another"
    assert shown_chain() == 2


async def test_the_api_speaks_nothing_older_than_tls_1_2(house: House) -> None:
    await asyncio.to_thread(house.up)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", house.port, ssl=old)


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and what it was sent: a TLS server whose certificate another CA made."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None: ...

    made = own(tmp_path / "impostor", ["127.0.0.1"], NOW)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}", heard
    server.shutdown()
    thread.join()
    server.server_close()


async def test_an_agent_tells_an_impostor_nothing(house: House, impostor: tuple[str, list[str]]) -> None:
    """Its token stays with it: the pin is checked before a byte is sent. By the right pin it is told to everybody."""
    url, heard = impostor
    fingerprint = own(house.folder / "mine", ["127.0.0.1"], NOW).fingerprint
    channel = Channel(Endpoint.parse(url, fingerprint=fingerprint), lambda: "secret")
    with pytest.raises(Unreachable, match="certificate has fingerprint"):
        await channel.request("POST", "/v1/register", b"{}")
    assert heard == []
    own_pin = own(house.folder / "impostor", ["127.0.0.1"], NOW).fingerprint
    status, _ = await Channel(Endpoint.parse(url, fingerprint=own_pin), lambda: "secret").request("GET", "/x", b"")
    assert (status, heard) == (200, ["GET /x Bearer secret"])


def test_a_vm_that_meets_an_impostor_runs_nothing_of_it(house: House, impostor: tuple[str, list[str]]) -> None:
    """The address is taken over between the launch and the boot: the agent's download is refused, and said why."""
    url, heard = impostor
    text = house.config.read_text()
    house.config.write_text(text.replace("[timing]", f'advertise = "{url}"\n\n[timing]'))
    house.up()
    house.submit({"command": ["true"]})

    def refused() -> bool:
        return any(
            "shows another certificate" in path.read_text()
            for path in house.state.glob("providers/local/vms/*/console.log")
        )

    house.until(refused, 30, "the VM's console says that the certificate is another")
    assert not any("Bearer" in line for line in heard)


def test_a_vm_s_user_data_name_no_key(house: House) -> None:
    """The fingerprint is public; keys stay where they are."""
    house.up()
    (task,) = house.submit({"command": ["sleep", "1"]})
    texts = house.until(
        lambda: [path.read_text() for path in house.state.glob("providers/local/vms/*/user-data")],
        30,
        "a VM has its user data",
    )
    house.until_ended(task)
    assert all(JOIN.search(text) for text in texts)
    secrets = [path.read_text().strip() for path in (house.state / "keys").iterdir()] + [house.token]
    assert not [secret for text in texts for secret in secrets if secret in text]
    assert all("PRIVATE KEY" not in text for text in texts)


def test_http_is_refused_where_the_network_could_listen(house: House) -> None:
    house.config.write_text(house.config.read_text().replace("127.0.0.1", "0.0.0.0").replace(
        'log_level = "info"', "tls = false"))  # fmt: skip
    done = subprocess.run(house.command("up"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "dispatcher.tls: expected `true` where other machines can connect" in done.stderr
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{house.port}/v1/health")


def test_a_certificate_that_has_ended_keeps_no_dispatcher_from_its_vms(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever should have renewed it did not, and the dispatcher is started anew: agents that pinned it bring their
    results, their VMs end, and it is told. Without VMs a start says what is wrong instead."""
    made = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3650, seconds=-20)
    ends = made + datetime.timedelta(days=3650)
    given = own(tmp_path / "given", ["127.0.0.1"], made)
    told = f'certificate = "{given.certificate}"\nkey = "{given.key}"\n'
    house.config.write_text(house.config.read_text().replace("[timing]", told + "\n[timing]"))
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    monkeypatch.setattr(House, "verify", anyone)
    house.trust = None
    house.up()
    go = tmp_path / "go"
    (task,) = house.submit({"command": ["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"]})
    house.until(lambda: house.task(task)["state"] == "running", 30, "it runs")
    house.kill()
    house.until(lambda: datetime.datetime.now(datetime.UTC) > ends, 30, "the certificate has ended")
    house.up()
    assert any("has ended" in problem for problem in house.get("/v1/health")["problems"])
    go.touch()
    assert house.until_ended(task)["state"] == "succeeded"
    house.until_no_instance()
    house.kill(signal.SIGTERM)
    refused = subprocess.run(house.command("up"), capture_output=True, timeout=60, text=True)
    assert (refused.returncode, "it ended at" in refused.stderr) == (UNAVAILABLE, True)


def test_a_start_in_the_midst_of_a_renewal_is_no_final_one(house: House, tmp_path: Path) -> None:
    """The certificate is the new one and its key is late, or the other way round: systemd tries again unless an exit
    code says that the configuration is wrong, and then the dispatcher comes up."""
    now = datetime.datetime.now(datetime.UTC)
    first, second = (own(tmp_path / name, ["127.0.0.1"], now) for name in ("first", "second"))
    shown, key = tmp_path / "shown.pem", tmp_path / "shown.key"
    told = f'certificate = "{shown}"\nkey = "{key}"\n'
    house.config.write_text(house.config.read_text().replace("[timing]", told + "\n[timing]"))
    service = units(Place(Path("/x"), house.config, house.state))[SERVICE].splitlines()
    (final,) = (line.partition("=")[2] for line in service if line.startswith("RestartPreventExitStatus="))
    for one, other in ((first, second), (second, first), (second, None)):
        shutil.copy(one.certificate, shown)
        key.unlink(missing_ok=True)
        if other is not None:
            shutil.copy(other.key, key)
        early = subprocess.run(house.command("up"), capture_output=True, timeout=60, text=True)
        assert early.returncode == UNAVAILABLE
        assert str(early.returncode) not in final.split()
        assert "can't be used with the key" in early.stderr if other else f"{key}: no key" in early.stderr
    shutil.copy(second.key, key)
    house.trust = second.ca
    house.up()
