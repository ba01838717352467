"""What scenarios of complaints are made of, beyond the usual scene."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.clouds.faults import Fault
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work

MINUTE = 60_000
HOUR_MS = 60 * MINUTE
#: A task that wants a machine for itself.
ALONE = Shape(exclusive=True)
#: The work for one machine.
FOR_ONE = (Work(conduct=Conduct(run_ms=30_000), shape=ALONE),)


def with_account(scenario: Scenario, *faults: Fault, **settings: Any) -> Scenario:
    """The first account of `scenario` with these faults and settings."""
    first, *others = scenario.accounts
    changed = CloudAccount(first.profile, replace(first.settings, **settings), (*first.faults, *faults), first.caps)
    return msgspec.structs.replace(scenario, accounts=(changed, *others))


def with_pool(scenario: Scenario, **fields: Any) -> Scenario:
    """The first pool of `scenario` with these fields."""
    return msgspec.structs.replace(scenario, pools=(replace(scenario.pools[0], **fields), *scenario.pools[1:]))
