"""Guests of the fake EC2: what their metadata service says to whom, and how they begin and end. What boots is real."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.asking import launch
from tests.fakes.clock import SetClock
from tests.fakes.ec2 import FakeEc2
from tests.fakes.ec2.metadata import Metadata
from tests.fakes.ec2.records import State
from tests.fakes.guests.host import Guests, cannot

TTL, HEADER = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
SPOT = {"MarketType": "spot"}
needs_root = pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")
Ask = Callable[..., tuple[int, str]]


def sign(said: bytes) -> str:
    return f"signed: {said.decode()}"


@pytest.fixture
def vm(aws: FakeEc2, ec2: Any) -> Any:
    """A spot instance that runs."""
    (made,) = launch(ec2, InstanceMarketOptions=SPOT, UserData="#cloud-config\n")
    assert isinstance(aws.clock, SetClock)
    aws.advance(50)
    return aws.instance(made["InstanceId"])


@pytest.fixture
def service(aws: FakeEc2, vm: Any) -> Iterator[Metadata]:
    """The metadata service of `vm`."""
    server = Metadata(socket.create_server(("127.0.0.1", 0)), vm, sign, aws.unmodelled.append)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def ask(service: Metadata) -> Ask:
    """Asks it: status and text."""

    def asked(path: str, method: str = "GET", version: str = "latest", **headers: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{service.server_address[1]}/{version}/{path}"
        request = urllib.request.Request(url, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""

    return asked


def test_nothing_is_told_without_a_token_that_is_good(ask: Ask, service: Metadata, vm: Any) -> None:
    assert ask("meta-data/instance-id") == (401, "")
    assert ask("meta-data/instance-id", **{HEADER: "AQAEA00000001=="}) == (401, "")
    for wrong in ("", "0", "21601", "long"):
        assert ask("api/token", "PUT", **({TTL: wrong} if wrong else {}))[0] == 400
    assert ask("api/token", "PUT", **{TTL: "60", "X-Forwarded-For": "10.0.0.1"})[0] == 403
    status, token = ask("api/token", "PUT", **{TTL: "60"})
    assert status == 200
    assert ask("meta-data/instance-id", **{HEADER: token}) == (200, vm.id)
    service.tokens[token] -= 60
    assert ask("meta-data/instance-id", **{HEADER: token}) == (401, "")


def test_it_says_what_the_fake_knows(ask: Ask, aws: FakeEc2, vm: Any) -> None:
    """Notices are there once there are any, and a path that is not modelled is noticed."""
    token = {HEADER: ask("api/token", "PUT", **{TTL: "60"})[1]}
    assert ask("user-data", **token) == (200, "#cloud-config\n")
    _, proof = ask("dynamic/instance-identity/rsa2048", **token)
    assert json.loads(proof.removeprefix("signed: "))["instanceId"] == vm.id
    for path in ("spot/instance-action", "spot/termination-time", "events/recommendations/rebalance"):
        assert ask(f"meta-data/{path}", **token)[0] == 404
    aws.interrupt(vm.id)
    aws.rebalance(vm.id)
    action = json.loads(ask("meta-data/spot/instance-action", **token)[1])
    assert (action["action"], action["time"]) == ("terminate", ask("meta-data/spot/termination-time", **token)[1])
    assert "noticeTime" in json.loads(ask("meta-data/events/recommendations/rebalance", **token)[1])
    assert aws.unmodelled == []
    assert ask("meta-data/profile", **token)[0] == 404
    assert aws.unmodelled == ["metadata: /latest/meta-data/profile"]
    aws.unmodelled.clear()


def test_folders_list_what_is_in_them_now(ask: Ask, aws: FakeEc2, vm: Any) -> None:
    """As whoever crawls the service finds its way: in each version of the tree that there is, and no other."""
    token = {HEADER: ask("api/token", "PUT", **{TTL: "60"})[1]}

    def names(path: str, version: str = "2021-03-23") -> list[str]:
        status, text = ask(path, version=version, **token)
        assert status == 200
        return text.splitlines()

    assert {"instance-id", "placement/", "network/"} <= set(names("meta-data/"))
    assert "spot/" not in names("meta-data/")
    assert names("dynamic/instance-identity") == ["document", "rsa2048"]
    (mac,) = names("meta-data/network/interfaces/macs/")
    assert "interface-id" in names(f"meta-data/network/interfaces/macs/{mac}")
    (shown,) = aws.client().describe_instances()["Reservations"][0]["Instances"][0]["NetworkInterfaces"]
    assert mac == f"{shown['MacAddress']}/"
    aws.interrupt(vm.id)
    assert names("meta-data/spot/") == ["instance-action", "termination-time"]
    assert aws.unmodelled == []
    assert ask("meta-data/", version="2007-01-19", **token)[0] == 404
    aws.unmodelled.clear()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Any]:
    """`running(command)`: a VM that runs it, with the fake, its host, and what its console says."""
    with FakeEc2() as aws, Guests(aws, tmp_path, sign, {}) as guests:

        def run(command: str, **more: Any) -> tuple[FakeEc2, Guests, str]:
            data = f"#cloud-config\nwrite_files: [{{path: /var/lib/own/file, content: own}}]\nruncmd: ['{command}']\n"
            (made,) = launch(aws.client(), UserData=data, InstanceInitiatedShutdownBehavior="terminate", **more)
            until(lambda: "ready" in aws.instance(made["InstanceId"]).console)
            return aws, guests, made["InstanceId"]

        yield run


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def processes() -> dict[int, list[str]]:
    """The words of every process of this host."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found[int(entry.name)] = (entry / "cmdline").read_text(errors="replace").split("\0")
    return found


@needs_root
@pytest.mark.process
def test_a_guest_is_a_machine_of_its_own(running: Any) -> None:
    """It has its files, users, processes and network, and none of this host's; powering off ends the instance."""
    ours = next(iter(Path(sys.prefix).relative_to("/").parts[1:2]), "")  # where the checkout is in /tmp itself
    marks = f"cat /var/lib/own/file /var/lib/cloud/data/instance-id; ls -A -I {ours} /tmp; id -u cloud-dispatch"
    seen = "echo pid $PPID; touch /etc/own 2>/dev/null || echo read-only; systemctl enable it || echo no systemd"
    aws, guests, name = running(f"{marks}; cat /proc/net/dev; {seen}; echo ready; systemctl poweroff; sleep 60")
    until(lambda: aws.instance(name).state is State.TERMINATED and not guests.running())
    console = [line.split(":")[0].strip() for line in aws.instance(name).console.splitlines()]
    assert console[:3] == ["machine", f"own{name}", "60599"]
    assert console[5:] == ["lo", "eth0", "pid 1", "read-only", "no systemd here for", "no systemd", "ready", "machine"]
    assert not Path("/var/lib/own").exists()


@needs_root
@pytest.mark.process
def test_a_service_is_told_of_the_end_and_has_a_while(running: Any) -> None:
    """As by the button of a machine."""
    aws, guests, name = running('trap "echo stopped; exit" TERM; echo ready; while :; do sleep 0.1; done')
    aws.client().terminate_instances(InstanceIds=[name])
    until(lambda: not guests.running())
    assert aws.instance(name).console.endswith("ready\nmachine: power off by its host\nstopped\n")


@needs_root
@pytest.mark.process
def test_a_guest_that_crashes_has_not_shut_down(running: Any) -> None:
    """Its instance runs on, and bills."""
    aws, guests, name = running("echo ready; sleep 60")
    started = [
        pid for pid, words in processes().items() if str(guests.folder / name) in words and "unshare" not in words
    ]
    assert len(started) == 1
    os.kill(started[0], signal.SIGKILL)
    until(lambda: not guests.running())
    assert aws.instance(name).state is State.RUNNING


#: A container: a network of its own that is routed through the VM's. Says with what code asking ended, and what it got.
CONTAINER = """
unshare --net sleep 60 & pid=$!; token=X-aws-ec2-metadata-token; url=http://169.254.169.254/latest;
until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done;
in="nsenter --net=/proc/$pid/ns/net"; put="curl -s -m 2 -X PUT -H $token-ttl-seconds:60 $url/api/token";
ip link add bridge type veth peer name inner; ip link set inner netns $pid; echo 1 > /proc/sys/net/ipv4/ip_forward;
ip addr add 172.17.0.1/24 dev bridge; ip link set bridge up;
$in ip addr add 172.17.0.2/24 dev inner; $in ip link set inner up; $in ip route add default via 172.17.0.1;
own=$($put); echo own $?; theirs=$($in $put); echo theirs $?;
echo named $($in curl -s -m 2 -H "$token:${theirs:-$own}" $url/meta-data/instance-id); echo ready; sleep 60
"""


@needs_root
@pytest.mark.process
@pytest.mark.parametrize(("hops", "code"), [(1, 28), (2, 0)])
def test_a_token_goes_no_further_than_its_hops(running: Any, hops: int, code: int) -> None:
    """With one hop a container waits for its token in vain. It can ask: with the VM's own token it is answered."""
    aws, _, name = running(" ".join(CONTAINER.split()), MetadataOptions={"HttpPutResponseHopLimit": hops})
    assert aws.instance(name).console.splitlines()[-4:] == ["own 0", f"theirs {code}", f"named {name}", "ready"]
