"""What a pass is for, and what goes on without one: seen in whole runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud, Life, Spread
from cloud_dispatch.simulation.generate import TIMING
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import CloudAccount
from cloud_dispatch.simulation.world import World
from tests.simulation.scenes import scene


def test_deletions_are_repeated_between_passes() -> None:
    """VMs that take a minute to end are asked for again and again, and nothing is planned anew for that."""
    usual = scene(Cloud.GCE, timing=replace(TIMING, pass_interval_ms=30_000))
    settings = replace(defaults(Cloud.GCE), life=Life(stop=Spread(60_000)))
    asked: dict[str, int] = {"pass": 0, "reap": 0}

    def plant(living: Any) -> None:
        loop = living.parts.loop
        one_pass, reap = loop.one_pass, loop._reaper.reap

        async def counted() -> Any:
            if any(row.state == "terminating" for row in living.store.instances().values()):
                asked["pass"] += 1
            return await one_pass()

        def reaped() -> None:
            asked["reap"] += bool(loop._reaper._tries)
            reap()

        loop.one_pass, loop._reaper.reap = counted, reaped

    def prepare(world: World) -> None:
        world.plants.append(plant)

    outcome = run(
        msgspec.structs.replace(usual, accounts=(CloudAccount(usual.accounts[0].profile, settings),)), prepare=prepare
    )
    assert outcome.ok, outcome.findings
    assert asked["reap"] > 2 * asked["pass"] > 0, asked
