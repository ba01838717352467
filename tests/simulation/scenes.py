"""Scenarios for tests: small, quick, and with one thing in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.pool import Caps, EndRules, Pool
from cloud_dispatch.simulation.__main__ import explain
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.generate import TIMING, of_theme
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import AgentTiming, CloudAccount, Scenario, Work

#: For hours in which little happens: what happens has its pass at once, only the idle ones between are fewer.
SELDOM = replace(TIMING, pass_interval_ms=3 * TIMING.pass_interval_ms)


def scene(*clouds: Cloud, **fields: Any) -> Scenario:
    """Six tasks of 20 s on at most three VMs; `fields` replace what the scenario says."""
    accounts = tuple(CloudAccount(ProfileName(str(cloud)), defaults(cloud)) for cloud in clouds or (Cloud.GCE,))
    pool = Pool(
        PoolName("pool"),
        tuple(account.profile for account in accounts),
        target_drain_ms=60_000,
        boot_deadline_ms=180_000,
        end=EndRules(idle_ms=20_000),
    )
    usual = Scenario(
        name="scene",
        seed=1,
        accounts=accounts,
        pools=(pool,),
        work=(Work(count=6, conduct=Conduct(run_ms=20_000)),),
        caps=Caps(instances=3),
        timing=TIMING,
        agents=AgentTiming(kill_grace_ms=3_000, silence_ms=120_000),
        horizon_ms=3_600_000,
    )
    return msgspec.structs.replace(usual, **fields)


def broken(theme: str, seeds: int, first: int = 0) -> str:
    """What so many scenarios of a theme break, with the commands that replay them; "" for nothing."""
    outcomes = ((seed, run(of_theme(theme, seed), keep=50)) for seed in range(first, first + seeds))
    return "\n".join(explain(outcome, seed, theme) for seed, outcome in outcomes if not outcome.ok)
