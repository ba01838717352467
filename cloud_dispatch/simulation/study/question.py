"""From a configuration and a workload to a scenario. Owns what of both the simulator is asked, and says what it is not.

Pure: offerings are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from cloud_dispatch.config import Config
from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.meaning import driver_caps, guest_enforced, timing_of
from cloud_dispatch.provider.spi import HardEnd
from cloud_dispatch.simulation.clouds.faults import Fault
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.scenario import AgentTiming, CloudAccount, Scenario, Work
from cloud_dispatch.simulation.study.accounts import SimulatedProfile, simulated
from cloud_dispatch.simulation.study.offers import Offered, Offers, Quotas
from cloud_dispatch.simulation.study.quotas import bounds
from cloud_dispatch.simulation.workload.items import SpotPrice, WorkItem, Workload

#: Virtual time after the last submission by which a run ends, whatever is left to do.
DEFAULT_PATIENCE_MS = 7 * 86_400_000
_SHOWN_MISFITS = 5
_LEAST_PERIOD_MS = 1_000
#: One way between dispatcher and instances: on this host, and anywhere else.
_HERE_MS, _THERE_MS = 1, 20


@dataclass(frozen=True, slots=True)
class Study:
    """What the simulator is asked, what was assumed to ask it, and how many tasks it is not asked about, since they fit
    nothing."""

    scenario: Scenario
    assumptions: tuple[str, ...]
    misfits: int = 0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says of the clouds and the run. `boot_ms` None: as recorded, else as expected."""

    seed: int = 0
    boot_ms: int | None = None
    spot: Sequence[SpotPrice] = ()
    patience_ms: int = DEFAULT_PATIENCE_MS


def study(
    config: Config, offers: Offers, workload: Workload, wishes: Wishes = Wishes(), quotas: Quotas = MappingProxyType({})
) -> Study:
    """The scenario in which the dispatcher of `config` does `workload`, with nothing going wrong. InvalidInput when no
    task can ever run, and where no dispatcher starts: no hand keeps hard ends, and that is not accepted."""
    told: list[str] = list(workload.assumptions)
    horizon_ms = workload.span_ms + wishes.patience_ms
    accounts, sellers, caps = [], {}, config.profile_caps()
    spotted = {profile for pool in config.pools() if Market.SPOT in pool.markets for profile in pool.profiles}
    if wishes.spot and not spotted:
        told.append("no pool rents spot instances: the trace of their prices has no effect")
    unkept = guest_enforced(config, {profile: offered.hard_end for profile, offered in offers.items()})
    for profile, offered in offers.items():
        section, offerings = config.profiles[profile], offered.offerings
        made = sellers[profile] = simulated(
            profile, section.driver, offerings, boots=workload.boots, boot_ms=wishes.boot_ms,
            spot=wishes.spot, rents_spot=profile in spotted,
        )  # fmt: skip
        regions = sorted({own.region for own in offerings})
        bound = bounds(profile, config.profile_caps().get(profile, Caps()), quotas.get(profile, ()), regions)
        told += [*made.assumptions, *bound.assumptions]
        caps[profile] = bound.caps
        account = replace(made.account, quotas=bound.quotas, reaper_period_ms=_reaper_period_ms(offered))
        accounts.append(
            CloudAccount(
                profile, account, _until(horizon_ms, made.prices), bound.caps, section.driver, profile in unkept
            )
        )
    told += _unheeded(wishes.spot, sellers) if spotted else []
    machines = _machines(config, offers, sellers, caps)
    items = _possible(workload, machines, told)
    told += [*_outliving(config, items, machines), *_late_boots(config, offers, sellers)]
    told += [*_unasked(config), *_begun_anew(items)]
    timing = config.timing
    scenario = Scenario(
        name=workload.origin,
        seed=wishes.seed,
        accounts=tuple(accounts),
        pools=config.pools(),
        work=tuple(_work(item) for item in items),
        caps=config.caps(),
        driver_caps=driver_caps(config),
        budgets=config.budgets(),
        awaits_limits=True,
        timing=timing_of(config),
        latency_ms=_HERE_MS if {own.driver for own in config.profiles.values()} == {"local"} else _THERE_MS,
        agents=AgentTiming(timing.kill_grace_ms, timing.silence_ms),
        horizon_ms=horizon_ms,
    )
    told.append(
        f"the network between dispatcher and instances takes {scenario.latency_ms} ms each way, a plan"
        f" {scenario.plan_ms} ms; nothing fails"
    )
    told.append(f"the run ends {format_duration(wishes.patience_ms)} after the last submission, whatever is left to do")
    misfits = sum(item.count for item in workload.items) - sum(item.count for item in items)
    return Study(scenario, tuple(told), misfits)


def _unheeded(trace: Iterable[SpotPrice], sellers: Mapping[ProfileName, SimulatedProfile]) -> list[str]:
    """What of a trace says nothing of anything that is sold: its names may be those of another region."""
    known = {(sold.type.name, zone)
             for seller in sellers.values() for sold in seller.account.sells if sold.spot_rate is not None
             for zone in ("", *sold.zones)}  # fmt: skip
    asked = {(price.type, price.zone) for price in trace}
    names = [f"{kind}/{zone}" if zone else kind for kind, zone in sorted(asked - known)]
    if not names:
        return []
    more = f" and {len(names) - _SHOWN_MISFITS} more" if len(names) > _SHOWN_MISFITS else ""
    text = (
        f"{len(names)} of the {len(asked)} types and zones of the trace of spot prices have no effect, for no profile"
        f" sells them there on the spot market: {', '.join(names[:_SHOWN_MISFITS])}{more}"
    )
    return [text]


def _reaper_period_ms(offered: Offered) -> int:
    """0: there is none. No hand looks without a pause."""
    return 0 if offered.hard_end is HardEnd.NONE else max(offered.period_ms, _LEAST_PERIOD_MS)


def _until(horizon_ms: int, prices: Iterable[Fault]) -> tuple[Fault, ...]:
    """The prices of the run's own time: a run waits until everything that its scenario says has happened."""
    return tuple(
        price if price.until_ms < horizon_ms else replace(price, until_ms=0)
        for price in prices
        if price.from_ms < horizon_ms
    )


def _work(item: WorkItem) -> Work:
    return Work(
        submit_ms=item.submit_ms,
        count=item.count,
        shape=item.shape,
        conduct=Conduct(item.run_ms, item.outcome, exit_code=item.exit_code if item.outcome is Cause.EXIT_CODE else 0),
        expected_ms=item.expected_ms,
        priority=item.priority,
        max_attempts=item.retry.max_attempts,
        causes=tuple(sorted(item.retry.causes)),
        exit_codes=tuple(sorted(item.retry.exit_codes)),
        user=item.user,
        project=item.project,
    )


def _machines(
    config: Config,
    offers: Offers,
    sellers: Mapping[ProfileName, SimulatedProfile],
    of_profile: Mapping[ProfileName, Caps],
) -> list[Machine]:
    """Every machine that some pool could rent, and that caps have room for at all."""
    of_driver = {profile: bound.caps for bound in driver_caps(config) for profile in bound.profiles}
    return [
        offering.machine(pool.name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance)
        for pool in config.pools()
        for profile, offered in offers.items()
        for offering in offered.offerings
        if sellers[profile].sells(offering)
        and pool.admits(offering)
        and all(
            _has_room(caps, offering)
            for caps in (config.caps(), pool.caps, of_profile.get(profile, Caps()), of_driver.get(profile, Caps()))
        )
    ]


def _has_room(caps: Caps, offering: Offering) -> bool:
    """Whether one of it, alone, is within `caps`."""
    return (caps.instances is None or caps.instances >= 1) and (caps.vcpus is None or offering.type.vcpus <= caps.vcpus)


def _possible(workload: Workload, machines: Sequence[Machine], told: list[str]) -> list[WorkItem]:
    """The items that fit some machine: others would wait for ever."""

    @lru_cache(maxsize=100_000)
    def fits(shape: Shape) -> bool:
        return any(not machine.misfit(shape) for machine in machines)

    possible = [item for item in workload.items if fits(item.shape)]
    if not possible:
        raise InvalidInput(
            f"no task fits an offering of any pool, such as {workload.items[0].shape.describe()}",
            place=workload.origin,
            hint="see `cloud-dispatch offers`; caps and the pools' types count too, and --split divides wide tasks",
        )
    misfits = [item for item in workload.items if not fits(item.shape)]
    if misfits:
        told.append(
            f"{sum(item.count for item in misfits)} tasks are left out: no offering of any pool fits"
            f" {_shapes(item.shape for item in misfits)}"
        )
    return possible


def _outliving(config: Config, items: Iterable[WorkItem], machines: Sequence[Machine]) -> list[str]:
    """Tasks that no instance lives long enough for."""
    lives = {str(pool.name): pool.end.lifetime_ms for pool in config.pools()}
    by_life = sorted(machines, key=lambda machine: lives[machine.pool], reverse=True)

    @lru_cache(maxsize=100_000)
    def longest_ms(shape: Shape) -> int:
        return next(lives[machine.pool] for machine in by_life if not machine.misfit(shape))

    long = [item for item in items if item.run_ms >= longest_ms(item.shape)]
    if not long:
        return []
    count, most_ms = sum(item.count for item in long), max(longest_ms(item.shape) for item in long)
    text = (
        f"{count} tasks run longer than any instance that they fit lives (end.lifetime, {format_duration(most_ms)} at"
        " most): what they do is lost each time, and they never succeed"
    )
    return [text]


def _shapes(shapes: Iterable[Shape]) -> str:
    names = list(dict.fromkeys(shape.describe() for shape in shapes))
    more = len(names) - _SHOWN_MISFITS
    return "; ".join(names[:_SHOWN_MISFITS]) + (f"; and {more} other shapes" if more > 0 else "")


def _late_boots(config: Config, offers: Offers, sellers: Mapping[ProfileName, SimulatedProfile]) -> list[str]:
    """Pools that may give up instances before they have booted."""
    told = []
    for pool in config.pools():
        for profile in pool.profiles:
            offered = offers[profile].offerings if profile in offers else ()
            had = [one for one in offered if sellers[profile].sells(one) and pool.admits(one)]
            longest_ms = max((sellers[profile].boot_ms(one.type.name) for one in had), default=0)
            if longest_ms > pool.boot_deadline_ms:
                told.append(
                    f"instances of {profile} may take {format_duration(longest_ms)} to boot, longer than pool"
                    f" {pool.name} waits (boot_deadline {format_duration(pool.boot_deadline_ms)}): such ones are ended"
                    " before they work"
                )
    return told


def _begun_anew(items: Iterable[WorkItem]) -> list[str]:
    """What tasks say that is not simulated."""
    count = sum(item.count for item in items if item.checkpoints)
    return [f"{count} tasks with a checkpoint_signal get none: they begin anew after each interruption"] * (count > 0)


def _unasked(config: Config) -> list[str]:
    """Settings that a scenario does not carry, or not as they are."""
    told = []
    if config.budgets():
        told.append("nothing is spent of any limit when the run begins, on the first of January at midnight, UTC")
    if config.dispatcher.pause:
        told.append("dispatcher.pause is set and not heeded: instances are launched as if it were not")
    told += [
        f"the run ends with the work: what the instances that pool {pool.name} keeps (min {pool.minimum}) cost later is"
        " not counted"
        for pool in config.pools()
        if pool.minimum
    ]
    told += [
        f"the target and schedule of pool {name} are not simulated: only work makes it grow"
        for name, pool in config.pool_sections.items()
        if pool.target is not None or pool.schedule
    ]
    told += [
        f"the health checks of pool {name} always pass"
        for name, pool in config.pool_sections.items()
        if pool.health_checks
    ]
    return told
