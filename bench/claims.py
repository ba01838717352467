"""``claims``: durable claim and complete over real HTTP, against the queues that users would pick instead.

Owns the two metrics ``single`` and ``batch100`` and their targets. The load is ``bench.load_client``, the instances are
``bench.seats``; the dispatcher runs as ``cloud-dispatch up`` on its defaults.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench import product
from bench.interleave import interleave
from bench.load_client import Answer, Plan, Seat
from bench.peers import PEERS, tasks_per_second
from bench.processes import BenchmarkFailed, end, tail, wait_until
from bench.report import Metric, Target
from bench.seats import write_entry_point

TASKS = 200_000
CLIENT_SECONDS = 900.0
JOIN_TOKEN = re.compile(r"cdj1(?:\.[\w-]+){4}")
# Instances of this benchmark register late (after 200,000 tasks were submitted) and are all needed to the end.
CONFIGURATION = """
[timing]
heartbeat = "5m"
lease = "30m"
silence = "1h"
list_interval = "5m"
[profiles.seats]
driver = "seats"
folder = {folder}
cpus = {cpus}
[pools.bench]
profiles = ["seats"]
min = {seats}
caps = {{ instances = {seats} }}
boot_deadline = "1h"
end = {{ idle = "1h" }}
"""


@dataclass(frozen=True)
class Case:
    """One way to claim: how many instances (each a connection), of how many cpus, and claims a call."""

    metric: str
    seats: int
    want: int
    targets: tuple[Target, ...]


SINGLE = Case("single", 128, 1, tuple(Target(peer, 10.0) for peer in ("celery", "rq", "dramatiq", "procrastinate")))
BATCH100 = Case("batch100", 2, 100, (Target("pgqueuer", 2.0),))


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """Both metrics, each interleaved with its peers."""
    tasks = TASKS // 10 if quick else TASKS
    for case in (SINGLE, BATCH100):
        runs = iter(range(repeat))

        def ours(case: Case = case, runs: Iterator[int] = runs) -> float:
            return drain(folder / f"ours-{case.metric}-{next(runs)}", case, tasks)

        def peer(name: str) -> float:
            return tasks_per_second(name, folder, PEERS[name].tasks // 10 if quick else None)

        peers = {target.peer: lambda name=target.peer: peer(name) for target in case.targets}
        yield Metric("claims", case.metric, "tasks/s", True, interleave(folder, repeat, ours, peers), case.targets)


def drain(folder: Path, case: Case, tasks: int) -> float:
    """Tasks a second of ours, once, in a fresh ``folder``; checked in the store afterwards."""
    seats, plugins = folder / "seats", write_entry_point(folder / "plugins")
    seats.mkdir()
    configuration = CONFIGURATION.format(folder=product.toml_value(str(seats)), cpus=case.want, seats=case.seats)
    with product.dispatcher(folder / "run", configuration, python_path=[plugins]) as started:
        watch = {started.log: started.process}
        wait_until(
            lambda: len(list(seats.glob("*.json"))) == case.seats, "launched seats", timeout_seconds=60, watch=watch
        )
        started.submit([{"command": ["true"]}] * tasks)
        plan = Plan("127.0.0.1", started.port, [_seat(path) for path in sorted(seats.iterdir())], case.want, tasks)
        answer = run_client(plan, folder / "client.log")
        if started.succeeded() != tasks:
            raise BenchmarkFailed(f"the load client settled {answer.settled}, the dispatcher says {started.counts()}")
    product.check_store(started.store, tasks)
    return answer.counted / answer.seconds


def run_client(plan: Plan, log: Path) -> Answer:
    """Run the load client in a process of its own to its end."""
    with log.open("wb") as errors:
        client = subprocess.Popen(
            [sys.executable, "-m", "bench.load_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=product.ROOT,
            start_new_session=True,
        )
    try:
        output, _ = client.communicate(msgspec.json.encode(plan) + b"\n\n", timeout=CLIENT_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchmarkFailed(f"the load client did not end within {CLIENT_SECONDS:g} s") from None
    finally:
        end(client)
    if client.returncode != 0:
        raise BenchmarkFailed(f"the load client failed\n{tail(log)}")
    return msgspec.json.decode(output.splitlines()[-1], type=Answer)


def _seat(path: Path) -> Seat:
    seat = json.loads(path.read_text())
    found = JOIN_TOKEN.search(seat["user_data"])
    if found is None:
        raise BenchmarkFailed(f"no join token in the user data of {path}")
    return Seat(found[0], seat["vm"])
