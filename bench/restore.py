"""``restore``: a dispatcher that starts with 10,000 VMs, until it knows of each of them where it is.

The VMs are in a fake EC2 and their rows in the statestore, as a dispatcher that stopped has left them
(``bench.fleet``); each start is on a fresh copy of the statestore. The clock runs from what `up` does once it has read
its configuration (the statestore is opened, the driver's process started, ...) to the moment when the first listing has
been matched and the differences dealt with. The peer is bare boto3 listing the same instances, page after page, with a
warm client, before and after each start. What is reported is how much longer ours takes, as a part of that listing.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.fake_ec2 import Helper, configure, fake_ec2, helper, made
from bench.processes import BenchmarkFailed, free_port
from bench.report import Metric, Repetition, Target
from bench.yardsticks import take
from cloud_dispatch.domain.tags import DEPLOYMENT

INSTANCES, LATENCY_MS = 10_000, 200
BARE = "boto3"
ON_TOP = (Target(BARE, 0.3),)


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """One metric: milliseconds on top of the listing."""
    instances = INSTANCES // 10 if quick else INSTANCES
    repetitions = []
    home = folder / "restore"
    home.mkdir()
    with fake_ec2(home, 0) as fake:
        config = configure(home, fake.url, free_port(), least=instances)
        fill(config, instances, home)
        fake.slow_down(LATENCY_MS)
        kept = (home / "state").rename(home / "kept")
        with helper("bench.bare_ec2", fake.url, str(home / "filters.json"), log=home / "boto3.log") as peer:
            peer.hear()
            for number in range(1, repeat + 1):
                yardsticks = take(folder)
                before = listing(home, peer, instances)
                shutil.copytree(kept, home / "state")
                ours = restored(config, home, instances)
                shutil.rmtree(home / "state")
                bare = (before + listing(home, peer, instances)) / 2
                told = f"restored after {ours * 1e3:,.0f} ms, boto3 lists in {bare * 1e3:,.0f} ms"
                print(f"repetition {number}: {told}", file=sys.stderr, flush=True)
                repetitions.append(Repetition((ours - bare) * 1e3, {BARE: bare * 1e3}, yardsticks))
        fake.check()
    yield Metric("restore", f"on_top_{INSTANCES}", "ms", False, tuple(repetitions), ON_TOP)


def fill(config: Path, instances: int, home: Path) -> None:
    """Have a fleet made."""
    made("bench.fleet", str(config), str(instances), log=home / "fleet.log")


def listing(home: Path, peer: Helper, instances: int) -> float:
    """Seconds that boto3 takes for all pages."""
    filters = [{"Name": f"tag:{DEPLOYMENT}", "Values": ["bench"]}]
    (home / "filters.json").write_text(json.dumps(filters))
    peer.say("list")
    told = peer.hear()
    if told["instances"] != instances:
        raise BenchmarkFailed(f"boto3 lists {told['instances']} of {instances} instances")
    return float(told["seconds"])


def restored(config: Path, home: Path, instances: int) -> float:
    """Seconds that a dispatcher takes from its start until it has matched them all."""
    with helper("bench.watched_dispatcher", str(config), str(instances), log=home / "dispatcher.log") as watched:
        told = watched.hear()
    if told["instances"] != instances or told["doubts"]:
        raise BenchmarkFailed(f"not all {instances} instances were matched: {told}")
    return float(told["seconds"])
