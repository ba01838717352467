"""`python -m tests.fakes.arm --port 0`: prints the URL of its back door (command "places": where ARM is, and its
certificate) and serves until it is ended. Settings as JSON, see Settings."""

from __future__ import annotations

import argparse
import json
import signal
import sys

from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.settings import Bucket, Settings
from tests.fakes.clock import RealClock, SetClock


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.arm", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--set-clock", action="store_true", help="a clock that stands until it is advanced")
    parser.add_argument("--settings", default="{}", help='such as {"latency_ms": 200, "starting_ms": 1000}')
    given = parser.parse_args()
    document = json.loads(given.settings)
    for name in ("subscriptions", "groups", "locations", "zones", "identities"):
        if name in document:
            document[name] = tuple(document[name])
    if "buckets" in document:
        document["buckets"] = tuple(Bucket(*bucket) for bucket in document["buckets"])
    fake = FakeArm(Settings(**document), SetClock() if given.set_clock else RealClock(), port=given.port).start()
    sys.stdout.write(f"{fake.identity_url}\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    fake.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
