"""What users would pick instead: one file a peer, each with ``measure(folder, tasks)``.

A peer's file starts and stops its own servers, gives the peer its best fair settings and says which in its docstring.
Every measurement runs in a process of its own (``python -m bench.peers NAME``), so that no peer's threads, event
loops or imports touch another's, and a peer that hangs can be ended.
"""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import BenchmarkFailed, end, tail


@dataclass(frozen=True)
class Peer:
    """One way to run a peer: its module here, the number of tasks that takes it 5 to 15 s, and its options."""

    module: str
    tasks: int
    options: dict[str, bool | int] = field(default_factory=dict)


#: "Two workers" is two tasks at a time for each of these.
PEERS = {
    "celery": Peer("celery", 8_000),
    "rq": Peer("rq", 3_000),
    "dramatiq": Peer("dramatiq", 4_000),
    "procrastinate": Peer("procrastinate", 4_000),
    "pgqueuer": Peer("pgqueuer", 160_000),
    "hyperqueue": Peer("hyperqueue", 20_000),
}
#: Faster settings of the same peers for tasks that do nothing; their files say why they are not what we aim at.
VARIANTS = {
    "celery-solo": Peer("celery", 16_000, {"solo": True}),
    "dramatiq-2x8": Peer("dramatiq", 24_000, {"threads": 8}),
    "procrastinate-2x10": Peer("procrastinate", 6_000, {"concurrency": 10}),
}
ALL = {**PEERS, **VARIANTS}
TIMEOUT_SECONDS = 300.0
ROOT = Path(__file__).parent.parent.parent


def tasks_per_second(name: str, folder: Path, tasks: int | None = None) -> float:
    """Measure a peer once in a fresh folder under ``folder``; ``tasks`` defaults to the peer's own number.

    Raises BenchmarkFailed with the peer's last output if it can't be measured within TIMEOUT_SECONDS.
    """
    if name not in ALL:
        raise BenchmarkFailed(f"there is no peer {name!r}; there are {', '.join(ALL)}")
    run = _fresh(folder, name)
    log = run / "peer.log"
    argv = [sys.executable, "-m", "bench.peers", name, str(run), *([str(tasks)] if tasks else [])]
    environment = {**os.environ, "TQDM_DISABLE": "1"}  # HyperQueue's client draws progress bars
    with log.open("wb") as errors:
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, env=environment, start_new_session=True
        )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchmarkFailed(f"peer {name} did not end within {TIMEOUT_SECONDS:g} s\n{tail(log)}") from None
    finally:
        end(process, grace_seconds=30.0)
    if process.returncode != 0:
        raise BenchmarkFailed(f"peer {name} failed with exit code {process.returncode}; see {run}\n{tail(log)}")
    return float(json.loads(output.splitlines()[-1])["tasks_per_second"])


def measure_here(name: str, folder: Path, tasks: int | None) -> float:
    """Measure a peer in this process. Raises BenchmarkFailed if the peer is not installed."""
    peer = ALL[name]
    try:
        module = importlib.import_module(f"bench.peers.{peer.module}")
    except ImportError as error:
        raise BenchmarkFailed(f"peer {name} is not installed ({error}): pip install 'cloud-dispatch[bench]'") from error
    return float(module.measure(folder, tasks or peer.tasks, **peer.options))


def _fresh(folder: Path, name: str) -> Path:
    for number in range(10_000):
        path = folder / f"{name}-{number}"
        if not path.exists():
            path.mkdir(parents=True)
            return path
    raise BenchmarkFailed(f"{folder} holds 10,000 runs of {name}; remove it")
