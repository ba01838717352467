"""``list``: 10,000 VMs of each of three clouds listed by the drivers, beside the bare SDKs listing the same VMs.

The VMs are on fakes that answer as fast as they can: nothing is hidden behind the waiting for a cloud. Ours is what the
dispatcher awaits: the listing of a driver in its own process, with each VM in the dispatcher's own words. The bare SDK
reads the same pages with a warm client, before and after, and the mean of both counts.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.fake_ec2 import Helper, helper, made
from bench.processes import BenchmarkFailed, free_port
from bench.report import Metric, Repetition, Target
from bench.three_clouds import CLOUDS, configure, sky
from bench.yardsticks import take

VMS = 10_000
BARE = "bare SDK"
TIME = (Target(BARE, 1.2),)


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """A metric a cloud: milliseconds of a listing."""
    count = VMS // 10 if quick else VMS
    found: dict[str, list[Repetition]] = {name: [] for name in CLOUDS}
    home = folder / "list"
    home.mkdir()
    with sky(home, 0) as clouds:
        path = configure(home, clouds, free_port())
        places = [f"{name}={one.url}" for name, one in clouds.fakes.items()]
        made("bench.listed_fleet", str(path), str(count), *places, log=home / "fleet.log")
        with (
            helper("bench.driver_lists", str(path), log=home / "drivers.log") as ours,
            helper("bench.bare_lists", str(path), log=home / "bare.log") as bare,
        ):
            for name in CLOUDS:  # warm
                listed(ours, name, count)
                listed(bare, name, count)
            for number in range(1, repeat + 1):
                yardsticks = take(folder)
                for name in CLOUDS:
                    before = listed(bare, name, count)
                    mine = listed(ours, name, count)
                    peer = (before + listed(bare, name, count)) / 2
                    found[name].append(Repetition(mine * 1e3, {BARE: peer * 1e3}, yardsticks))
                    told = f"{name} listed in {mine * 1e3:,.0f} ms, bare in {peer * 1e3:,.0f} ms"
                    print(f"repetition {number}: {told}", file=sys.stderr, flush=True)
        clouds.check(dict.fromkeys(CLOUDS, count))
    for name in CLOUDS:
        yield Metric("list", f"{name}_{VMS}", "ms", False, tuple(found[name]), TIME)


def listed(asker: Helper, name: str, count: int) -> float:
    """Seconds of one listing; BenchmarkFailed unless it has all VMs."""
    asker.say(name)
    told = asker.hear()
    if told["vms"] != count:
        raise BenchmarkFailed(f"{told['vms']} of {count} VMs of {name} were listed")
    return float(told["seconds"])
