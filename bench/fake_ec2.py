"""EC2 for the benchmarks of the AWS driver: the tests' own fake as a process, its back door, and who asks it.

Owns what a dispatcher is told about it, and the processes that ask it: the dispatcher with somebody who watches its
loop (``bench.watched_dispatcher``) and bare boto3 (``bench.bare_ec2``). Knows nothing of what is measured.
"""

import contextlib
import datetime
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bench.processes import BenchmarkFailed, end, running, tail, wait_until
from bench.product import ROOT, toml_value

REGION, ZONE, TYPE = "us-east-1", "us-east-1a", "m6i.large"
POOL, PROFILE = "bench", "aws"
#: An image that the fake has, and what it calls its root disk.
IMAGE, ROOT_DEVICE = "ami-0a1b2c3d4e5f60001", "/dev/xvda"
#: What the fakes of EC2 and Azure have for a key, and no file of this machine's to look for others in.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAFAKEFAKEFAKEFAKE",
    "AWS_SECRET_ACCESS_KEY": "fake-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AZURE_TENANT_ID": "11111111-2222-4333-8444-555555555555",
    "AZURE_CLIENT_ID": "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee",
    "AZURE_CLIENT_SECRET": "fake-secret",
}
FILL_SECONDS = 600.0
#: Nobody boots, and so nobody looks for the dispatcher where it is said to be. A certificate is what lets VMs prove
#: which they are, and so share a launch; nobody here proves anything. Without the allowance at most 250 of these VMs
#: would boot at once as long as none has registered. The account
#: is one that may launch a lot: the fake counts no calls, and boto3 beside it keeps to no pace.
CONFIGURATION = """
[dispatcher]
deployment = "bench"
state_dir = {state_dir}
listen = {listen}
tls = false
advertise = "https://192.0.2.1:7717"
[profiles.aws]
driver = "aws"
region = {region}
endpoint_url = {url}
instance_types = [{type}]
images = {{ x86_64 = {image} }}
zones = [{zone}]
spot = false
price_list = false
prices = {{ {type} = "0.096" }}
identity_certificate = {certificate}
launches_per_s = 100
launch_burst = 1000
guest_enforced = true
caps = {{ instances = 20000 }}
budget = {{ month = "$10000000" }}
[pools.bench]
profiles = ["aws"]
min = {least}
max_tasks_per_instance = 1
boot_allowance = "$1000"
end = {{ idle = "1h" }}
"""


@dataclass(frozen=True)
class Fake:
    """A fake that runs. `url` is where its back door is."""

    url: str
    name: str = "EC2"

    def do(self, command: str, **more: Any) -> Any:
        """Have it do something, or tell something, at its back door."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", "/_control", json.dumps({"do": command, **more}))
            answer = connection.getresponse()
            document = json.loads(answer.read())
        if answer.status != 200:
            raise BenchmarkFailed(f"the fake {self.name} refused {command}: {document}")
        return document

    def slow_down(self, latency_ms: int) -> None:
        """From now on every answer takes so long at least."""
        self.do("faults", faults=[{"kind": "slow", "amount": latency_ms}])

    def check(self) -> None:
        """BenchmarkFailed where something was asked of it that it does not have."""
        problems = self.do("problems")
        if any(problems.values()):
            raise BenchmarkFailed(f"the fake {self.name} has not what was asked of it: {problems}")

    def calls(self) -> dict[str, int]:
        """How often each operation was asked for."""
        calls: dict[str, int] = self.do("calls")
        return calls


@contextlib.contextmanager
def fake_ec2(folder: Path, latency_ms: int) -> Iterator[Fake]:
    """A fake without quotas and throttling, empty, whose every answer takes so long at least."""
    with fake(folder, "EC2", {"latency_ms": latency_ms, "types": [TYPE]}) as started:
        yield started


@contextlib.contextmanager
def fake(folder: Path, name: str, settings: Mapping[str, Any]) -> Iterator[Fake]:
    """The fake of this name as a process."""
    log = folder / f"fake-{name.lower()}.log"
    log.unlink(missing_ok=True)
    argv = [sys.executable, "-m", f"tests.fakes.{name.lower()}", "--settings", json.dumps(settings)]
    with running(argv, log, cwd=ROOT) as process:
        told = lambda: log.read_text().endswith("\n")  # noqa: E731
        wait_until(told, f"fake {name}", timeout_seconds=60, watch={log: process})
        url = log.read_text().split()[0]
        if not url.startswith("http://"):
            raise BenchmarkFailed(f"the fake {name} did not start\n{tail(log)}")
        yield Fake(url, name)


def configure(folder: Path, url: str, port: int, least: int = 0) -> Path:
    """A dispatcher's configuration in ``folder``: one profile of one type in one zone, one VM a task, or ``least`` VMs
    whatever waits."""
    path = folder / "config.toml"
    values = {
        "state_dir": str(folder / "state"),
        "listen": f"127.0.0.1:{port}",
        "region": REGION,
        "url": url,
        "type": TYPE,
        "zone": ZONE,
        "image": IMAGE,
        "certificate": certificate(),
    }
    text = CONFIGURATION.format(least=least, **{name: toml_value(value) for name, value in values.items()})
    path.write_text(text)
    return path


def certificate() -> str:
    """One of nobody's, in PEM."""
    key, name = rsa.generate_private_key(65537, 2048), x509.Name([])
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(day)
        .not_valid_after(day + datetime.timedelta(days=36_500))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def made(module: str, *arguments: str, log: Path) -> None:
    """Have something made by a process that ends with it; BenchmarkFailed where that does not work."""
    argv = [sys.executable, "-m", module, *arguments]
    with log.open("wb") as out:
        done = subprocess.run(argv, env=environment(), stdout=out, stderr=out, cwd=ROOT, timeout=FILL_SECONDS)
    if done.returncode:
        raise BenchmarkFailed(f"{module} did not make what it should\n{tail(log)}")


class Helper:
    """A process of ours that is told what to do by lines, and answers with lines of JSON."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        self._module, self.log = module, log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=environment(),
                text=True,
                start_new_session=True,
            )

    def say(self, word: str = "go") -> None:
        """One line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def hear(self) -> Mapping[str, Any]:
        """Its next line; BenchmarkFailed when it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise BenchmarkFailed(f"{self._module} ended\n{tail(self.log)}")
        document: Mapping[str, Any] = json.loads(line)
        return document


@contextlib.contextmanager
def helper(module: str, *arguments: str, log: Path) -> Iterator[Helper]:
    """A helper, gone at exit with all that it has started."""
    started = Helper(module, *arguments, log=log)
    try:
        yield started
    finally:
        end(started.process)
        for pipe in (started.process.stdin, started.process.stdout):
            if pipe is not None:
                pipe.close()


def environment() -> dict[str, str]:
    """Of processes that ask the fake."""
    paths = [str(ROOT), str(ROOT / "providers"), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, **CREDENTIALS, "PYTHONPATH": os.pathsep.join(paths)}
