"""The same seed gives the same cloud to the byte, and taking one fault out moves nothing else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import msgspec
import pytest

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.simulation import loop
from cloud_dispatch.simulation.clouds.faults import Fault, FaultBook, FaultKind
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.market import Forced, PriceWalk
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Cloud, Mishaps, Spot, Tide
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.simulation.loop import VirtualLoop
from tests.simulation.clouds.scene import DEPLOYMENT, HOUR_MS, Scene

FAULTS = [
    Fault(FaultKind.LATE, amount=120_000, skip=2, times=2),
    Fault(FaultKind.DEATH, from_ms=2 * HOUR_MS, times=2),
    Fault(FaultKind.PREEMPT, market=Market.SPOT, from_ms=HOUR_MS, amount=-1, times=3),
    Fault(FaultKind.SLOW, "list", amount=5_000, skip=3, times=4),
    Fault(FaultKind.LEFTOVER, skip=1, times=1),
]


async def story(cloud: Cloud, faults: list[Fault], seed: int = 3) -> list[str]:
    """Six hours of an account with everything that goes wrong by chance, as lines."""
    usual = defaults(cloud)
    settings = replace(
        usual,
        mishaps=Mishaps(0.05, 0.05, 0.05, 0.1, death_mean_ms=20 * HOUR_MS),
        spot=replace(usual.spot, reclaim_mean_ms=5 * HOUR_MS),
        tide=Tide(dry=0.1, dry_spot=0.2),
    )
    scene = Scene(settings, faults, seed)
    for round_number in range(12):
        for market in Market:
            try:
                result = await scene.settle(await scene.request(4, market))
                scene.told.append((scene.clock.monotonic(), "result", "", repr(result)))  # type: ignore[arg-type]
            except ProviderError as error:
                scene.told.append((scene.clock.monotonic(), "error", "", repr(error)))  # type: ignore[arg-type]
        listing = await scene.driver.list(DEPLOYMENT)
        scene.told.append((scene.clock.monotonic(), "list", "", repr(listing)))  # type: ignore[arg-type]
        for vm in listing.vms[: round_number % 4]:
            await scene.driver.terminate(vm.id)
        await asyncio.sleep(1_800)
    return [*map(repr, scene.told), *map(repr, scene.account.bill())]


def lines_of_all() -> str:
    """Stories of all clouds, each on a loop of its own."""
    told = []
    for cloud in Cloud:

        async def main(_: VirtualLoop, cloud: Cloud = cloud) -> list[str]:
            return await story(cloud, FAULTS)

        told += loop.run(main)
    return "\n".join(told)


def test_the_same_seed_gives_the_same_story_under_any_hash_seed() -> None:
    """Two processes with different PYTHONHASHSEED tell the same six hours to the byte, and another seed others."""
    code = "from tests.simulation.clouds.test_replay import lines_of_all; print(lines_of_all())"
    told = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True,
            check=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert told[0] == told[1]
    assert len(told[0]) > 50_000


async def test_another_seed_tells_another_story() -> None:
    """Else the test above would prove nothing."""
    assert await story(Cloud.EC2, [], 1) != await story(Cloud.EC2, [], 2)


async def boots_and_ends(cloud: Cloud, faults: list[Fault]) -> dict[str, list[str]]:
    """What each VM of a fixed series of launches met with."""
    usual = defaults(cloud)
    scene = Scene(replace(usual, mishaps=Mishaps(late=0.2, death_mean_ms=20 * HOUR_MS), buckets=()), faults)
    for _ in range(10):
        await scene.driver.launch(await scene.request(3))
        await asyncio.sleep(1_200 - (scene.clock.now() - scene.account.born_ms) % 1_200_000 / 1_000)
    await asyncio.sleep(6 * 3_600)
    met: dict[str, list[str]] = {}
    for at_ms, what, vm, more in scene.told:
        met.setdefault(vm, []).append(f"{at_ms} {what} {more}")
    return met


@pytest.mark.parametrize("cloud", list(Cloud))
async def test_taking_one_fault_out_moves_nothing_else(cloud: Cloud) -> None:
    """Without the fault that killed one VM, every other VM boots and dies at the same moments."""
    death = Fault(FaultKind.DEATH, from_ms=HOUR_MS, times=1)
    with_it, without = await boots_and_ends(cloud, [death, FAULTS[0]]), await boots_and_ends(cloud, [FAULTS[0]])
    assert with_it.keys() == without.keys()
    changed = [vm for vm, met in with_it.items() if met != without[vm]]
    assert len(changed) == 1


def test_settings_and_faults_are_json() -> None:
    """A scenario can be stored and read back, whatever it changes about an account."""
    for cloud in Cloud:
        settings = defaults(cloud)
        assert msgspec.json.decode(msgspec.json.encode(settings), type=AccountSettings) == settings
    assert msgspec.json.decode(msgspec.json.encode(FAULTS), type=list[Fault]) == FAULTS


def test_a_fault_strikes_in_its_window_after_those_it_spares_and_so_often() -> None:
    """Two of the calls are struck: not the first one, none before or after the window, none of another operation."""
    book = FaultBook([Fault(FaultKind.ERROR, "get", from_ms=100, until_ms=200, skip=1, times=2)], born_ms=1_000)
    asked = [
        (1_050, "get"),
        (1_100, "get"),
        (1_110, "list"),
        (1_120, "get"),
        (1_130, "get"),
        (1_140, "get"),
        (1_250, "get"),
    ]
    struck = [book.take(FaultKind.ERROR, now, operation) is not None for now, operation in asked]
    assert struck == [False, False, False, True, True, False, False]


def test_of_prices_that_are_forced_at_once_the_first_listed_holds() -> None:
    """Later ones come through where the first one's window is over, and the walk where all are."""
    forced = Forced([(100, 200, 1), (0, 300, 2), (150, 400, 3), (600, 700, 4)])
    assert [forced.at(moment) for moment in (0, 99, 100, 199, 200, 299, 300, 400, 650, 700)] == [
        2, 2, 1, 1, 2, 2, 3, None, 4, None,
    ]  # fmt: skip


class _Counting(Forced):
    """How often it was asked."""

    asked = 0

    def at(self, moment_ms: int) -> int | None:
        self.asked += 1
        return super().at(moment_ms)


def _walk(forced: Forced, swing: float = 0.0) -> PriceWalk:
    """50 usually, 100 at most, in steps of a minute from the moment 7 on."""
    stream = SeededStreams(1).stream("price", "t", "z")
    return PriceWalk(Rate(50), Rate(100), Spot(step_ms=60_000, swing=swing), stream, 7, forced)


def test_a_price_that_stands_still_costs_nothing_to_know() -> None:
    """A year of it, and what is forced meanwhile: as much as there are changes, not as there are minutes."""
    year_ms = 365 * 24 * HOUR_MS
    forced = _Counting([(HOUR_MS + 7, 2 * HOUR_MS + 7, 80)])
    walk = _walk(forced)
    assert walk.nano_ms(7, year_ms + 7) == 50 * (year_ms - HOUR_MS) + 80 * HOUR_MS
    assert walk.changes(7, year_ms) == [HOUR_MS + 7, 2 * HOUR_MS + 7]
    assert walk.first_above(Rate(60), 7, year_ms) == HOUR_MS + 7
    assert walk.first_above(Rate(60), 2 * HOUR_MS + 7, year_ms) is None
    assert forced.asked <= 3


@pytest.mark.parametrize("swing", [0.0, 0.5])
def test_a_price_is_the_same_minute_by_minute_and_as_a_whole(swing: float) -> None:
    """Whoever asks for each step in turn, and whoever asks for the last one first."""
    demands = [(7, 90_000, 70), (100_000, 100_010, 5), (250_000, 500_000, 300), (310_000, 320_000, 9)]
    steps = range(7, 1_200_007, 60_000)
    late, early = _walk(Forced(demands), swing), _walk(Forced(demands), swing)
    late.rate_at(1_500_000)
    rates = [early.rate_at(moment) for moment in steps]
    assert rates == [late.rate_at(moment + 59_999) for moment in steps]
    at = dict(zip(steps, rates, strict=True))
    assert at[7] == at[60_007] == 70  # the window of the second demand holds no first moment of a step
    assert at[300_007] == at[480_007] == 100
    assert swing or at[120_007] == at[240_007] == at[540_007] == 50
    assert late.nano_ms(7, 1_200_007) == sum(rate * 60_000 for rate in rates)
    assert late.nano_ms(30_007, 300_008) == early.nano_ms(30_007, 300_008)
    assert late.changes(7, 1_199_000) == [m for m in steps[1:] if at[m] != at[m - 60_000]]
    assert late.first_above(Rate(99), 7, 1_199_000) == next(m for m in steps if at[m] > 99)
    assert late.first_above(Rate(99), 300_500, 1_199_000) == 300_500


def test_equal_faults_count_each_for_itself() -> None:
    """A scenario that lists the same fault twice means it twice."""
    book = FaultBook([Fault(FaultKind.ERROR, "get", times=1)] * 2, born_ms=0)
    assert [book.take(FaultKind.ERROR, 0, "get") is not None for _ in range(3)] == [True, True, False]
