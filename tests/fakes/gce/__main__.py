"""`python -m tests.fakes.gce --port 0`: prints its URL and serves until it is ended. Settings as JSON, see Settings."""

from __future__ import annotations

import argparse
import json
import signal
import sys

from tests.fakes.clock import RealClock, SetClock
from tests.fakes.gce.fake import FakeGce
from tests.fakes.gce.settings import Bucket, Settings


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.gce", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--set-clock", action="store_true", help="a clock that stands until it is advanced")
    parser.add_argument("--settings", default="{}", help='such as {"latency_ms": 200, "quotas": {"CPUS": 24}}')
    given = parser.parse_args()
    document = json.loads(given.settings)
    if "buckets" in document:
        document["buckets"] = tuple(Bucket(*bucket) for bucket in document["buckets"])
    fake = FakeGce(Settings(**document), SetClock() if given.set_clock else RealClock(), port=given.port).start()
    sys.stdout.write(f"{fake.url}\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    fake.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
