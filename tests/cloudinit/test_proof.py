"""How a VM gets its proof of identity at boot: from a file, and from metadata services in the ways of three clouds."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from cloud_dispatch import userdata
from cloud_dispatch.cloudinit.render import render
from cloud_dispatch.domain.ids import BatchId
from cloud_dispatch.provider.spi import Challenge

CHALLENGE = Challenge(BatchId("b1"), since_ms=0)
#: What the drivers of three clouds would say in their template variables, by the clouds' documentation.
EC2 = [
    {"url": "{at}/latest/api/token", "method": "PUT", "headers": {"X-aws-ec2-metadata-token-ttl-seconds": "60"}},
    {
        "url": "{at}/latest/dynamic/instance-identity/rsa2048",
        "headers": {"X-aws-ec2-metadata-token": "{answer}"},
    },
]
GCE = [
    {
        "url": "{at}/computeMetadata/v1/instance/service-accounts/default/identity?audience={audience}&format=full",
        "headers": {"Metadata-Flavor": "Google"},
    }
]
AZURE = [
    {
        "url": "{at}/metadata/attested/document?api-version=2021-02-01&nonce={nonce}",
        "headers": {"Metadata": "true"},
    }
]


class Metadata(http.server.BaseHTTPRequestHandler):
    """A metadata service of all three, as strict as they are."""

    protocol_version = "HTTP/1.1"
    asked: list[dict[str, str]]
    broken: int
    odd: list[bytes]  # what it says first, whatever it is asked

    def do_PUT(self) -> None:
        ttl = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._say(200, "session token") if ttl == "60" else self._say(400, "")

    def do_GET(self) -> None:
        self.asked.append(dict(self.headers))
        if self.odd:
            self.wfile.write(self.odd.pop(0))
            self.close_connection = True
            return None
        if type(self).broken:
            type(self).broken -= 1
            return self._say(503, "")
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if "identity/rsa2048" in parts.path and self.headers["X-aws-ec2-metadata-token"] == "session token":
            return self._say(200, "MIIabc\nMIIdef\n")
        if "default/identity" in parts.path and self.headers["Metadata-Flavor"] == "Google":
            return self._say(200, f"jwt for {query['audience']}, {query['format']}")
        if "attested" in parts.path and self.headers["Metadata"] == "true":
            return self._say(200, f'{{"encoding":"pkcs7","signature":"for {query["nonce"]}"}}')
        return self._say(403 if "large" not in parts.path else 200, "x" * 40_000)

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def metadata() -> Iterator[type[Metadata]]:
    """A metadata service; `at` is where it is."""
    handler = type("Served", (Metadata,), {"asked": [], "broken": 0, "odd": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.at = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def prove(folder: Path, said: Any, at: str = "") -> tuple[int, dict[str, Any], str]:
    """As the boot script does it: exit code, the agent's configuration after it, what stands on the console. The steps
    go the driver's way, through the dispatcher's user data."""
    told = json.loads(json.dumps(userdata._made_out(said, CHALLENGE)).replace("{at}", at))
    variables = {"url": "http://d", "join_token": "join", "agent_sha256": "ab", "pool": "p", "proof": told}
    document = yaml.safe_load(render("agent", variables))
    for file in document["write_files"]:
        (folder / Path(file["path"]).name).write_text(file["content"])
    boot = folder / "boot.py"
    patient = boot.read_text()
    boot.write_text(patient.replace("TRIES, LIMIT, WAIT = 40,", "TRIES, LIMIT, WAIT = 3,"))
    assert boot.read_text() != patient
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "boot.py", "prove", "agent.json", "vm"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, json.loads((folder / "agent.json").read_text()), done.stderr


@pytest.mark.parametrize(
    ("said", "proof"),
    [
        (EC2, "MIIabc\nMIIdef"),
        (GCE, "jwt for cloud-dispatch-b1, full"),
        (AZURE, f'{{"encoding":"pkcs7","signature":"for {CHALLENGE.nonce}"}}'),
    ],
    ids=["ec2", "gce", "azure"],
)
def test_three_clouds_ways_to_a_proof_are_data(tmp_path: Path, metadata: type[Metadata], said: Any, proof: str) -> None:
    """A session token first, a header, an audience or a nonce: what boots needs to know none of these clouds."""
    code, config, console = prove(tmp_path, said, metadata.at)  # type: ignore[attr-defined]
    assert (code, config.get("proof")) == (0, proof), console
    assert (tmp_path / "agent.json").stat().st_mode & 0o777 == 0o600
    assert not any("Authorization" in headers for headers in metadata.asked), "a token of ours went to somebody else"


def test_what_a_proof_is_made_out_to_follows_from_the_batch() -> None:
    """Ten digits for who takes digits, plain characters for who takes text; another batch, another one."""
    other = Challenge(BatchId("b2"), since_ms=0)
    assert CHALLENGE.audience == "cloud-dispatch-b1"
    assert CHALLENGE.nonce.isdigit()
    assert len(CHALLENGE.nonce) == 10
    assert (other.audience, other.nonce) != (CHALLENGE.audience, CHALLENGE.nonce)


def test_a_metadata_service_that_is_not_ready_costs_a_try(tmp_path: Path, metadata: type[Metadata]) -> None:
    """It comes up with the VM, and not always before it."""
    metadata.broken = 2
    code, config, console = prove(tmp_path, GCE, metadata.at)  # type: ignore[attr-defined]
    assert (code, config["proof"]) == (0, "jwt for cloud-dispatch-b1, full")
    assert "try 2 of 3" in console


@pytest.mark.parametrize("odd", [b"", b"noise\r\n", b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\njwt"])
def test_half_an_answer_costs_a_try(tmp_path: Path, metadata: type[Metadata], odd: bytes) -> None:
    """Nothing, no HTTP or less than was announced: one line on the console, and not half a proof."""
    metadata.odd = [odd, odd]
    code, config, console = prove(tmp_path, GCE, metadata.at)  # type: ignore[attr-defined]
    assert (code, config["proof"]) == (0, "jwt for cloud-dispatch-b1, full"), console
    assert console.count("\n") == console.count("cloud-dispatch: proof of identity, try ") == 2


@pytest.mark.parametrize("path", ["refused", "large"])
def test_what_is_no_proof_is_not_kept(tmp_path: Path, metadata: type[Metadata], path: str) -> None:
    """A refusal, or more than a proof can be: the boot fails, and says so."""
    code, config, console = prove(tmp_path, [{"url": "{at}/" + path}], metadata.at)  # type: ignore[attr-defined]
    assert (code, "proof" in config) == (1, False)
    assert {"refused": "403", "large": "40000 characters are no proof"}[path] in console


def test_a_proof_can_lie_in_a_file(tmp_path: Path) -> None:
    """Relative to the folder that the VM boots from; an empty one is none."""
    folder = tmp_path / "disk" / "base"
    folder.mkdir(parents=True)
    (tmp_path / "identity").write_text("signed\n")
    assert prove(folder, [{"file": "../../identity"}])[1]["proof"] == "signed"
    (tmp_path / "identity").write_text("")
    code, config, console = prove(folder, [{"file": "../../identity"}])
    assert (code, "proof" in config) == (1, False)
    assert "../../identity" in console
