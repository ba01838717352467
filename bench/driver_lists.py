"""The drivers of a configuration as `up` has them, each in its host process: ``python -m bench.driver_lists CONFIG``.

A line on standard input names a profile; the answer is after how many seconds its listing was there, and of how many
VMs. Through all that is between the dispatcher and a driver: its pace, the counting, the filter by deployment.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import uvloop

from cloud_dispatch import collector, drivers
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider import registry


async def main(path: Path) -> None:
    """A listing a line."""
    config = load(TomlFile(path), registry.plugin)
    loop = asyncio.get_running_loop()
    collector.keep()
    async with drivers.asked(config, "bench", SystemClock()) as providers:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            began = time.perf_counter()
            listing = await providers[ProfileName(line.strip())].list("bench")
            taken = time.perf_counter() - began
            told = {"seconds": taken, "vms": len(listing.vms) if listing.complete else -1}
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
