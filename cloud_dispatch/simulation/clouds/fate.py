"""What chance has in store for one VM. Owns every draw that is about a VM, made at once and in one order, when it is
created: so that a fault, which overrules a part of it, moves nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.simulation.clouds.faults import FaultBook, FaultKind
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Spread
from cloud_dispatch.simulation.ports import Stream


@dataclass(frozen=True, slots=True)
class Fate:
    """Durations in milliseconds: create to running, running to user data, end to power off, create to refusal.

    `dies_ms` and `reclaimed_ms` count from running; None: not by itself.
    """

    start_ms: int
    boot_ms: int
    stop_ms: int
    refuse_ms: int
    starts: bool
    boots: bool
    user_data_works: bool
    drift_ppm: int
    dies_ms: int | None
    reclaimed_ms: int | None
    announced: bool
    wall_off_ms: int = 0  # how fast the guest's wall clock is at its boot


def draw(settings: AccountSettings, boot_time: Spread, market: Market, stream: Stream) -> Fate:
    """The fate of a VM that boots in `boot_time`, from its own stream."""
    life, mishaps, spot = settings.life, settings.mishaps, settings.spot
    start, boot = life.start.draw(stream), boot_time.draw(stream)
    stop, refuse = life.stop.draw(stream), life.refuse.draw(stream)
    starts, boots = not stream.chance(mishaps.never_starts), not stream.chance(mishaps.never_boots)
    works, late = not stream.chance(mishaps.user_data_fails), stream.chance(mishaps.late)
    drift = stream.between(-mishaps.drift_ppm, mishaps.drift_ppm)
    dies, reclaimed = stream.exponential(1.0), stream.exponential(1.0)
    announced = not stream.chance(spot.unannounced)
    return Fate(
        start_ms=start,
        boot_ms=boot + (mishaps.late_by_ms if late else 0),
        stop_ms=stop,
        refuse_ms=refuse,
        starts=starts,
        boots=boots,
        user_data_works=works,
        drift_ppm=drift,
        dies_ms=round(dies * mishaps.death_mean_ms) if mishaps.death_mean_ms else None,
        reclaimed_ms=round(reclaimed * spot.reclaim_mean_ms)
        if spot.reclaim_mean_ms and market is Market.SPOT
        else None,
        announced=announced,
    )


def overruled(fate: Fate, book: FaultBook, now: int, type_name: str, zone: str, market: Market) -> Fate:
    """The fate after the scenario's faults for VMs made now."""

    def struck(kind: FaultKind) -> int | None:
        fault = book.take(kind, now, "", type_name, zone, market)
        return None if fault is None else fault.amount

    if struck(FaultKind.NEVER_STARTS) is not None:
        fate = replace(fate, starts=False)
    if struck(FaultKind.NEVER_BOOTS) is not None:
        fate = replace(fate, boots=False)
    if struck(FaultKind.USER_DATA_FAILS) is not None:
        fate = replace(fate, user_data_works=False)
    late = struck(FaultKind.LATE)
    if late is not None:
        fate = replace(fate, boot_ms=fate.boot_ms + late)
    drift = struck(FaultKind.DRIFT)
    if drift is not None:
        fate = replace(fate, drift_ppm=drift)
    return replace(fate, wall_off_ms=struck(FaultKind.WRONG_CLOCK) or 0)
