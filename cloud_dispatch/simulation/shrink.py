"""From a failing scenario to a small one. Owns the order in which things are left out; a scenario is data.

A smaller scenario counts if the same checker still finds something in it. Faults go first, then work, then accounts,
then numbers are halved; this is repeated until nothing helps or the tries are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario

TRIES = 200
Runner = Callable[[Scenario], Outcome]


@dataclass(frozen=True)
class Shrunk:
    """The smallest scenario found, its outcome, and how many runs that took."""

    scenario: Scenario
    outcome: Outcome
    tries: int


def shrink(outcome: Outcome, *, runner: Runner | None = None, tries: int = TRIES) -> Shrunk:
    """Make the scenario of a failed `outcome` as small as `tries` runs allow. ValueError for one that did not fail."""
    if outcome.ok:
        raise ValueError(f"scenario {outcome.scenario.name} did not fail: there is nothing to shrink")
    checker = outcome.findings[0].checker
    execute = runner or (lambda scenario: run(scenario, keep=1_000, sought=checker))
    best, used, helped = outcome, 0, True
    while helped and used < tries:
        helped = False
        for smaller in _smaller(best.scenario):
            if used >= tries:
                break
            used += 1
            tried = execute(smaller)
            if checker in tried.broken:
                best, helped = tried, True
                break  # begin again with what is left
    return Shrunk(best.scenario, best, used)


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    yield from _with_fewer_faults(scenario)
    yield from _with_less_work(scenario)
    yield from _with_fewer_accounts(scenario)
    yield from _with_smaller_numbers(scenario)


def _parts(count: int) -> Iterator[tuple[int, int]]:
    """What to leave out of `count` things: halves first, then ever smaller parts, then each alone."""
    size = count
    while size >= 1:
        for first in range(0, count, size):
            yield first, min(first + size, count)
        size //= 2


def _with_fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    for first, last in _parts(len(scenario.faults)):
        yield _with(scenario, faults=scenario.faults[:first] + scenario.faults[last:])
    for number, account in enumerate(scenario.accounts):
        for first, last in _parts(len(account.faults)):
            left = account.faults[:first] + account.faults[last:]
            yield _with_account(scenario, number, msgspec.structs.replace(account, faults=left))


def _with_less_work(scenario: Scenario) -> Iterator[Scenario]:
    for first, last in _parts(len(scenario.work)):
        if last - first < len(scenario.work):
            yield _with(scenario, work=scenario.work[:first] + scenario.work[last:])
    for number, work in enumerate(scenario.work):
        if work.count > 1:
            less = msgspec.structs.replace(work, count=work.count // 2)
            yield _with(scenario, work=(*scenario.work[:number], less, *scenario.work[number + 1 :]))


def _with_fewer_accounts(scenario: Scenario) -> Iterator[Scenario]:
    if len(scenario.accounts) < 2:
        return
    for number, account in enumerate(scenario.accounts):
        left = scenario.accounts[:number] + scenario.accounts[number + 1 :]
        pools = tuple(
            replace(pool, profiles=tuple(p for p in pool.profiles if p != account.profile)) for pool in scenario.pools
        )
        if all(pool.profiles for pool in pools):
            yield _with(scenario, accounts=left, pools=pools)


def _with_smaller_numbers(scenario: Scenario) -> Iterator[Scenario]:
    for number, fault in enumerate(scenario.faults):
        lasts = fault.until_ms - fault.at_ms
        if lasts > 1_000:
            shorter = msgspec.structs.replace(fault, until_ms=fault.at_ms + lasts // 2)
            yield _with(scenario, faults=(*scenario.faults[:number], shorter, *scenario.faults[number + 1 :]))
    for number, work in enumerate(scenario.work):
        if work.submit_ms:
            earlier = msgspec.structs.replace(work, submit_ms=work.submit_ms // 2)
            yield _with(scenario, work=(*scenario.work[:number], earlier, *scenario.work[number + 1 :]))
    if scenario.horizon_ms > 4 * scenario.quiet_ms + 3_600_000:
        yield _with(scenario, horizon_ms=scenario.horizon_ms // 2)


def _with_account(scenario: Scenario, number: int, account: CloudAccount) -> Scenario:
    return _with(scenario, accounts=(*scenario.accounts[:number], account, *scenario.accounts[number + 1 :]))


def _with(scenario: Scenario, **fields: object) -> Scenario:
    return msgspec.structs.replace(scenario, **fields)
