"""Scenarios from seeds. Owns what is likely to go wrong together; a scenario, once made, no longer needs its seed here.

Each theme draws from streams of its own, so that changing one leaves the scenarios of the others as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, EndRules, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.simulation.bindings import late_answers
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.configurations import left_for_long, other_configurations
from cloud_dispatch.simulation.demands import long_work, many_demands
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.simulation.faults import POINTS, Fault, FaultKind
from cloud_dispatch.simulation.losses import lost_commits, lost_store, older_store
from cloud_dispatch.simulation.margins import no_slack
from cloud_dispatch.simulation.money import (
    costly_faults,
    left_alone,
    left_to_guests,
    long_deaths,
    old_backups,
    short_of_money,
    wrong_clocks,
)
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import AgentTiming, CloudAccount, Scenario, Work
from cloud_dispatch.simulation.several import any_fault, one_is_down, three_clouds
from cloud_dispatch.simulation.sharing import (
    caps_of_drivers,
    limits_of_payers,
    neighbours,
    shared_account,
    windows_of_payers,
)
from cloud_dispatch.simulation.steps import set_clock

_CLOUDS = (Cloud.EC2, Cloud.GCE, Cloud.ARM)
#: Nothing goes wrong after so long; work is submitted in the first part of it.
_TROUBLE_MS = 240_000
_SUBMIT_MS = 90_000
_C = CloudFaultKind
#: Quick intervals make short runs; their proportions are those of the defaults.
TIMING = Timing(
    heartbeat_ms=5_000,
    poll_ms=10_000,
    lease_ms=20_000,
    pass_interval_ms=5_000,
    list_interval_ms=15_000,
    call_timeout_ms=20_000,
    doubt_ms=20_000,
)


def generate(seed: int) -> Scenario:
    """The scenario of `seed`: all themes but those with seeds of their own take turns."""
    return of_theme(TURNS[seed % len(TURNS)], seed)


def of_theme(theme: str, seed: int) -> Scenario:
    """The scenario of `seed` in which the troubles of `theme` (one of `THEMES`) may happen."""
    streams = SeededStreams(seed)
    scenario = _calm(seed, streams.stream("scenario", "calm"))
    scenario = _unproved(scenario, streams.stream("scenario", "proofs"))
    scenario = _checkpointing(scenario, streams.stream("scenario", "checkpoints"))
    for trouble in THEMES[theme]:
        scenario = trouble(scenario, streams.stream("scenario", trouble.__name__))
    return _with(scenario, name=f"{theme}-{seed}")


def _with(scenario: Scenario, **fields: object) -> Scenario:
    return msgspec.structs.replace(scenario, **fields)


def _calm(seed: int, chance: Stream) -> Scenario:
    """Work, pools and accounts; nothing goes wrong but what clouds do anyway."""
    clouds = [cloud for cloud in _CLOUDS if chance.chance(0.6)] or [chance.pick(_CLOUDS)]
    accounts = tuple(CloudAccount(ProfileName(str(cloud)), defaults(cloud)) for cloud in clouds)
    markets = (Market.ON_DEMAND, Market.SPOT) if chance.chance(0.4) else (Market.ON_DEMAND,)
    end = EndRules(idle_ms=chance.pick((10_000, 30_000)), max_tasks=chance.pick((0, 0, 0, 3)))
    pool = Pool(
        PoolName("pool"),
        tuple(account.profile for account in accounts),
        markets=markets,
        target_drain_ms=chance.pick((30_000, 120_000, 600_000)),
        boot_deadline_ms=180_000,
        end=end,
        caps=Caps(vcpus=24) if chance.chance(0.3) else Caps(),
    )
    work = tuple(_work(chance) for _ in range(chance.between(1, 4)))
    caps = Caps(instances=chance.between(1, 6))
    return Scenario(
        "calm", seed, accounts, (pool,), work, caps=caps, timing=TIMING,
        agents=AgentTiming(kill_grace_ms=3_000, silence_ms=120_000, replace_ms=2_000 if seed % 2 else 600_000),
        latency_ms=chance.pick((2, 20, 100)),
    )  # fmt: skip


def _unproved(scenario: Scenario, chance: Stream) -> Scenario:
    """Some clouds' VMs have no proof of identity: their launches make one each."""
    accounts = [
        msgspec.structs.replace(account, settings=replace(account.settings, proves=False))
        if chance.chance(0.15)
        else account
        for account in scenario.accounts
    ]
    return _with(scenario, accounts=tuple(accounts))


def _checkpointing(scenario: Scenario, chance: Stream) -> Scenario:
    """Some tasks want a signal when their VM goes: they end by it soon, late, or at once."""
    changed = [
        msgspec.structs.replace(
            work,
            checkpoint_signal="SIGUSR1",
            conduct=msgspec.structs.replace(work.conduct, checkpoint_ms=chance.pick((-1, 500, 5_000, 60_000))),
        )
        if chance.chance(0.25)
        else work
        for work in scenario.work
    ]
    return _with(scenario, work=tuple(changed))


def _work(chance: Stream) -> Work:
    shape = Shape(
        Resources(chance.pick((500, 1_000, 2_000)), GIB // 2),
        preemptible=not chance.chance(0.2),
        exclusive=chance.chance(0.05),
    )
    conduct = Conduct(
        run_ms=chance.pick((50, 1_000, 8_000, 25_000, 60_000)),
        fails=1 if chance.chance(0.1) else 0,
        ignores_term=chance.chance(0.1),
        log_bytes=200 if chance.chance(0.2) else 0,
    )
    known = chance.chance(0.5)
    return Work(
        submit_ms=chance.below(_SUBMIT_MS) if chance.chance(0.6) else 0,
        count=chance.between(1, 8),
        shape=shape,
        conduct=conduct,
        expected_ms=conduct.run_ms if known else 0,
        priority=chance.pick((0, 0, 5)),
        max_attempts=chance.pick((2, 3, 10)),
        max_runtime_ms=10_000 if chance.chance(0.1) else 0,
        outputs=("out.txt",) if chance.chance(0.2) else (),
    )


def _moment(chance: Stream) -> int:
    return chance.between(1_000, _TROUBLE_MS)


def _crashes(scenario: Scenario, chance: Stream) -> Scenario:
    """The dispatcher dies at any await and where order matters; or is stopped as it should be."""
    faults = [
        Fault(
            FaultKind.CRASH, _moment(chance), amount=chance.pick((500, 3_000, 15_000, 45_000)),
            point=chance.pick(POINTS), which=chance.between(0, 40) if chance.chance(0.7) else chance.below(3),
        )
        for _ in range(chance.between(1, 4))
    ]  # fmt: skip
    if chance.chance(0.3):
        faults.append(Fault(FaultKind.STOP, _moment(chance), amount=chance.pick((1_000, 20_000))))
    return _with(scenario, faults=scenario.faults + tuple(faults))


def _other_terms(scenario: Scenario, chance: Stream) -> Scenario:
    """Who starts in some stretch of time has longer leases; it dies in there, and once more when that is over."""
    faults: list[Fault] = []
    for _ in range(chance.between(1, 2)):
        at, lasts = chance.below(_TROUBLE_MS // 2), chance.between(20_000, _TROUBLE_MS // 2)
        faults.append(Fault(FaultKind.TERMS, at, at + lasts, amount=chance.between(2, 5)))
        faults.append(Fault(FaultKind.CRASH, at + lasts // 4, amount=500))
        faults.append(Fault(FaultKind.CRASH, at + lasts + chance.below(20_000), amount=chance.pick((500, 15_000))))
        if chance.chance(0.5):
            faults.append(Fault(FaultKind.PARTITION, at + lasts - 1_000, at + lasts + chance.between(20_000, 150_000)))
    return _with(scenario, faults=scenario.faults + tuple(faults))


def _bad_network(scenario: Scenario, chance: Stream) -> Scenario:
    faults = []
    for kind, amounts in (
        (FaultKind.LOSS, (5, 20, 60)), (FaultKind.DELAY, (200, 2_000, 8_000)), (FaultKind.PARTITION, (0,)),
    ):  # fmt: skip
        if chance.chance(0.6):
            at, lasts = _moment(chance), chance.pick((5_000, 25_000, 70_000))
            faults.append(Fault(kind, at, at + lasts, chance.pick(amounts)))
    return _with(scenario, faults=scenario.faults + tuple(faults))


def _bad_store(scenario: Scenario, chance: Stream) -> Scenario:
    faults = []
    for kind, amounts in ((FaultKind.STORE_FAILS, (0,)), (FaultKind.STORE_SLOW, (20, 300, 3_000))):
        if chance.chance(0.7):
            at, lasts = _moment(chance), chance.pick((500, 5_000, 40_000))
            faults.append(Fault(kind, at, at + lasts, chance.pick(amounts)))
    return _with(scenario, faults=scenario.faults + tuple(faults))


def _lost_answers(scenario: Scenario, chance: Stream) -> Scenario:
    """Commits of which nobody hears whether they were carried out: it is looked up at once, or when that can be."""
    faults = []
    for _ in range(chance.between(1, 4)):
        kind, amount = chance.pick(((FaultKind.STORE_CUT, 0), (FaultKind.STORE_CUT, 0), (FaultKind.STORE_MUTE, 60)))
        at = _moment(chance)
        faults.append(Fault(kind, at, at + chance.pick((100, 3_000, 30_000)), amount))
    return _with(scenario, faults=scenario.faults + tuple(faults))


def _bad_agents(scenario: Scenario, chance: Stream) -> Scenario:
    faults = [
        Fault(chance.pick((FaultKind.AGENT_CRASH, FaultKind.AGENT_HANG)), _moment(chance), which=chance.below(9))
        for _ in range(chance.between(1, 3))
    ]
    return _with(scenario, faults=scenario.faults + tuple(faults))


def _operators(scenario: Scenario, chance: Stream) -> Scenario:
    faults = []
    for _ in range(chance.between(1, 4)):
        kind = chance.pick((FaultKind.DRAIN, FaultKind.HOLD, FaultKind.KILL, FaultKind.CANCEL, FaultKind.PAUSE))
        at = _moment(chance)
        until = at + chance.pick((5_000, 40_000)) if kind in (FaultKind.HOLD, FaultKind.PAUSE) else 0
        faults.append(Fault(kind, at, until, which=chance.below(20)))
    return _with(scenario, faults=scenario.faults + tuple(faults))


def _kill_switch(scenario: Scenario, chance: Stream) -> Scenario:
    """Somebody stops the deployment, at whichever level, and lets go of it later."""
    faults = []
    for _ in range(chance.between(1, 2)):
        at, lasts = _moment(chance), chance.pick((5_000, 60_000, 400_000))
        faults.append(Fault(FaultKind.STOP_ALL, at, at + lasts, which=chance.between(1, 3)))
    return _with(scenario, faults=scenario.faults + tuple(faults))


#: Of clouds: kind, what it strikes, amounts, and how long it lasts (0: a moment).
_CLOUD_TROUBLES: tuple[tuple[CloudFaultKind, tuple[str, ...], tuple[int, ...], int], ...] = (
    (_C.ERROR, ("launch", "list", "get", "terminate", ""), (0,), 20_000),
    (_C.LOST_ANSWER, ("launch", "terminate"), (0,), 40_000),
    (_C.NO_ANSWER, ("launch", "terminate", "list"), (0,), 40_000),
    (_C.SLOW, ("launch", "list", ""), (3_000, 30_000), 60_000),
    (_C.ASYNC_FAILURE, ("",), (0,), 60_000),
    (_C.STALE, ("list", "get"), (5_000, 20_000), 60_000),
    (_C.INCOMPLETE, ("list",), (0, 1), 60_000),
    (_C.CAPACITY, ("",), (0, 1), 60_000),
    (_C.NEVER_STARTS, ("",), (0,), 40_000),
    (_C.NEVER_BOOTS, ("",), (0,), 40_000),
    (_C.USER_DATA_FAILS, ("",), (0,), 40_000),
    (_C.LATE, ("",), (60_000, 300_000), 40_000),
    (_C.DEATH, ("",), (0,), 0),
    (_C.HANG, ("",), (0,), 0),
    (_C.PREEMPT, ("",), (-1, 0, 2_000), 0),
    (_C.CUT_OFF, ("",), (0,), 60_000),
    (_C.LEFTOVER, ("",), (0,), 120_000),
    (_C.HIDDEN, ("",), (5_000, 30_000), 0),
    (_C.DRIFT, ("",), (-20_000, 20_000), 120_000),
    (_C.QUOTA, ("",), (0, 2), 60_000),
    (_C.PRICE, ("",), (1, 10_000_000_000), 60_000),
    (_C.WRONG_CLOCK, ("",), (-86_400_000, -60_000, 60_000, 86_400_000), 60_000),
    (_C.STAYS, ("",), (1_000, 45_000), 60_000),
)


def _bad_clouds(scenario: Scenario, chance: Stream) -> Scenario:
    accounts = []
    for account in scenario.accounts:
        faults = []
        for _ in range(chance.between(0, 4)):
            kind, operations, amounts, lasts = chance.pick(_CLOUD_TROUBLES)
            at = _moment(chance)
            faults.append(
                CloudFault(
                    kind, operation=chance.pick(operations), from_ms=at, until_ms=at + max(lasts, 1),
                    times=chance.between(1, 3), amount=chance.pick(amounts),
                )
            )  # fmt: skip
        accounts.append(_account(account, tuple(faults)))
    return _with(scenario, accounts=tuple(accounts))


def _account(account: CloudAccount, faults: tuple[CloudFault, ...]) -> CloudAccount:
    return msgspec.structs.replace(account, faults=account.faults + faults)


def _bad_clock(scenario: Scenario, chance: Stream) -> Scenario:
    at = _moment(chance)
    off = Fault(FaultKind.CLOCK, at, at + 60_000, chance.pick((-90_000, -2_000, 5_000, 120_000)))
    return _with(scenario, faults=(*scenario.faults, off))


def _fleet(scenario: Scenario, chance: Stream) -> Scenario:
    """More of everything: two pools over all accounts, work for one of them, shapes with rules, targets that expire."""
    first = scenario.pools[0]
    profiles = chance.pick((first.profiles, first.profiles[:1]))
    second = replace(
        first, name=PoolName("second"), profiles=profiles, labels=(("disk", "fast"),),
        max_tasks_per_instance=chance.pick((0, 1, 3)), price_factor_percent=chance.pick((100, 150, 400)),
        caps=Caps(instances=chance.between(1, 5)), end=EndRules(idle_ms=10_000, empty_claims=chance.pick((0, 2))),
    )  # fmt: skip
    work = [_special(_work(chance), chance) for _ in range(chance.between(2, 6))]
    targets = [
        Fault(FaultKind.TARGET, at, at + chance.pick((20_000, 120_000)), chance.between(1, 4), which=chance.below(2))
        for at in (_moment(chance) for _ in range(chance.between(0, 2)))
    ]
    return _with(
        scenario, pools=(*scenario.pools, second), work=(*scenario.work, *work),
        faults=(*scenario.faults, *targets), caps=Caps(instances=chance.between(4, 14)),
    )  # fmt: skip


def _special(work: Work, chance: Stream) -> Work:
    rules: tuple[dict[str, object], ...] = (
        {}, {"exclusive": True}, {"max_per_instance": 1}, {"pool": "second"}, {"labels": (("disk", "fast"),)},
    )  # fmt: skip
    count = chance.pick((work.count, 15, 25))
    return msgspec.structs.replace(work, count=count, shape=replace(work.shape, **chance.pick(rules)))  # type: ignore[arg-type]


def _spot(scenario: Scenario, chance: Stream) -> Scenario:
    """Spot machines that are taken back every few minutes, with the cloud's notice, a short one, or none."""
    reclaim_ms, notice_ms, accounts = chance.pick((60_000, 200_000)), chance.pick((0, 2_000, 30_000, 120_000)), []
    for account in scenario.accounts:
        settings = account.settings
        spot = replace(settings.spot, reclaim_mean_ms=reclaim_ms, notice_ms=notice_ms, unannounced=0.2, swing=0.3)
        tide = replace(settings.tide, step_ms=30_000, dry_spot=chance.pick((0.0, 0.4)))
        leaves = settings.cloud is Cloud.ARM and chance.chance(0.5)
        settled = replace(settings, spot=replace(spot, leaves=leaves), tide=tide)
        accounts.append(msgspec.structs.replace(account, settings=settled))
    pools = tuple(replace(pool, markets=(Market.SPOT, Market.ON_DEMAND)) for pool in scenario.pools)
    work = tuple(msgspec.structs.replace(item, max_attempts=20) for item in scenario.work)
    # Machines that live a minute and boot for three, where there are any, take their time.
    return _with(scenario, accounts=tuple(accounts), pools=pools, work=work, horizon_ms=12 * 3_600_000)


def _mishaps(scenario: Scenario, chance: Stream) -> Scenario:
    """Machines that do not start, do not boot, come late, die, and leave things behind, all by chance."""
    accounts = []
    for account in scenario.accounts:
        mishaps = replace(
            account.settings.mishaps, never_starts=0.1, never_boots=0.1, user_data_fails=0.1, late=0.1,
            late_by_ms=chance.pick((60_000, 400_000)), death_mean_ms=chance.pick((0, 300_000)), drift_ppm=20_000,
        )  # fmt: skip
        settings = replace(account.settings, mishaps=mishaps)
        left = CloudFault(_C.LEFTOVER, from_ms=0, until_ms=_TROUBLE_MS)
        accounts.append(_account(msgspec.structs.replace(account, settings=settings), (left,)))
    work = tuple(msgspec.structs.replace(item, max_attempts=20) for item in scenario.work)
    return _with(scenario, accounts=tuple(accounts), work=work)


def _frozen(scenario: Scenario, chance: Stream) -> Scenario:
    """Machines stand still, for less or for longer than a lease; some do not know it afterwards."""
    accounts = []
    for account in scenario.accounts:
        faults = []
        for _ in range(chance.between(1, 4)):
            at, lasts = _moment(chance), chance.pick((2_000, 20_000, 50_000, 120_000, 300_000))
            unaware, times = chance.below(2), chance.between(1, 3)
            faults.append(CloudFault(_C.FREEZE, from_ms=at, until_ms=at + lasts, times=times, amount=unaware))
        accounts.append(_account(account, tuple(faults)))
    return _with(scenario, accounts=tuple(accounts))


_Trouble = Callable[[Scenario, Stream], Scenario]
THEMES: dict[str, tuple[_Trouble, ...]] = {
    "calm": (),
    "crashes": (_crashes,),
    "network": (_bad_network,),
    "store": (_bad_store, _crashes),
    "clouds": (_bad_clouds,),
    "agents": (_bad_agents, _bad_network),
    "operators": (_operators, _crashes),
    "clouds-and-crashes": (_bad_clouds, _crashes),
    "restore": (older_store,),
    "clock": (_bad_clock, _crashes),
    "fleet": (_fleet, _crashes, _bad_network),
    "spot": (_spot, _crashes),
    "mishaps": (_mishaps, _operators),
    "worst": (_fleet, _spot, _mishaps, _crashes, _bad_network, _bad_store, _bad_agents, _operators, _bad_clouds),
    "everything": (_crashes, _bad_network, _bad_store, _bad_agents, _operators, _bad_clouds),
    "money": (short_of_money, left_alone),
    "money-and-faults": (short_of_money, costly_faults, left_alone),
    "money-and-clocks": (short_of_money, wrong_clocks, costly_faults, left_alone),
    "money-and-crashes": (short_of_money, long_deaths, costly_faults, wrong_clocks),
    "money-and-backups": (short_of_money, old_backups, long_deaths, left_alone),
    "money-to-the-last-cent": (no_slack,),
    "money-and-guests": (short_of_money, left_to_guests, long_deaths, _bad_agents, _bad_network, wrong_clocks),
    "three-clouds": (three_clouds, one_is_down),
    "three-clouds-and-faults": (three_clouds, one_is_down, any_fault),
    "three-clouds-and-crashes": (three_clouds, one_is_down, any_fault, _crashes, _bad_network),
    "configurations": (other_configurations,),
    "configurations-and-faults": (other_configurations, _fleet, _crashes, _bad_store, _operators),
    "configurations-and-money": (other_configurations, short_of_money, costly_faults),
    "terms": (_other_terms, _crashes, _bad_network),
    "terms-and-faults": (_other_terms, _crashes, _bad_network, _bad_store, _bad_agents, _bad_clouds, _operators),
    "late-answers": (late_answers,),
    "late-answers-and-crashes": (late_answers, _crashes, _bad_network),
    "lost-answers": (_lost_answers,),
    "lost-answers-and-faults": (_lost_answers, _crashes, _bad_network, _bad_store, _bad_agents, _operators),
    "lost-answers-and-money": (_lost_answers, short_of_money, costly_faults, left_alone),
    "lost-answers-and-fleets": (_fleet, _spot, _lost_answers, _bad_clouds),
    "lost-store": (lost_store,),
    "lost-store-and-faults": (lost_store, _crashes, _bad_network, _bad_agents, _bad_clouds),
    "lost-store-and-fleets": (_fleet, _spot, lost_store),
    "lost-store-and-clouds": (three_clouds, lost_store, one_is_down, _crashes),
    "lost-store-and-money": (short_of_money, lost_store, costly_faults, left_alone),
    "lost-commits": (lost_commits,),
    "lost-commits-and-faults": (lost_commits, _crashes, _bad_network, _bad_store, _bad_agents, _operators),
    "sharing": (shared_account, caps_of_drivers),
    "sharing-and-faults": (_fleet, shared_account, caps_of_drivers, _crashes, _bad_network, _bad_store, _bad_clouds),
    "sharing-and-configurations": (shared_account, caps_of_drivers, other_configurations, _crashes),
    "sharing-and-money": (short_of_money, shared_account, caps_of_drivers, limits_of_payers, costly_faults),
    "payers": (limits_of_payers, _crashes, _bad_network),
    "payers-and-faults": (limits_of_payers, _crashes, _bad_store, _bad_agents, _bad_clouds, _operators),
    "payers-and-windows": (limits_of_payers, windows_of_payers, _crashes, _bad_agents, wrong_clocks),
    "leaving": (left_for_long, _crashes, _bad_clouds),
    "demands": (many_demands,),
    "demands-and-faults": (many_demands, _crashes, _bad_network, _bad_store, _bad_agents, _bad_clouds, _operators),
    "demands-and-spot": (many_demands, _spot, _crashes, _bad_clouds),
    "long-work": (long_work,),
    "long-work-and-configurations": (long_work, other_configurations, caps_of_drivers, _operators),
    "long-work-and-faults": (long_work, _crashes, _bad_network, _bad_store, _bad_agents, _bad_clouds),
    "neighbours": (neighbours, _crashes),
    "neighbours-and-faults": (neighbours, older_store, _crashes, _bad_network, _bad_store, _bad_clouds, _operators),
    "frozen": (_frozen,),
    "frozen-and-faults": (_frozen, _crashes, _bad_network, _bad_store, _bad_agents, _bad_clouds, _operators),
    "frozen-spot": (_frozen, _spot, _mishaps, _crashes, _bad_network),
    "clocks": (set_clock, _crashes),
    "clocks-and-faults": (set_clock, _fleet, _crashes, _bad_network, _bad_store, _bad_agents, _bad_clouds, _operators),
    "stops": (_kill_switch, _operators, _crashes, _bad_network),
    "three-clouds-and-money": (three_clouds, short_of_money, costly_faults, one_is_down, any_fault, left_alone),
}
#: These have seeds of their own: so those that take turns keep what they had.
MONEY = tuple(theme for theme in THEMES if theme.startswith("money"))
CONFIGURED = tuple(theme for theme in THEMES if theme.startswith("configurations"))
RETIMED = tuple(theme for theme in THEMES if theme.startswith("terms"))
SEVERAL = tuple(theme for theme in THEMES if theme.startswith("three-clouds"))
BELATED = tuple(theme for theme in THEMES if theme.startswith("late-answers"))
BEREFT = tuple(theme for theme in THEMES if theme.startswith("lost-commits"))
STORELESS = tuple(theme for theme in THEMES if theme.startswith("lost-store"))
ANSWERLESS = tuple(theme for theme in THEMES if theme.startswith("lost-answers"))
SHARED = tuple(theme for theme in THEMES if theme.startswith(("sharing", "payers", "neighbours")))
LEFT = ("leaving", "clocks", "clocks-and-faults", "stops")
DEMANDING = tuple(theme for theme in THEMES if theme.startswith(("demands", "long-work")))
FROZEN = tuple(theme for theme in THEMES if theme.startswith("frozen"))
_APART = MONEY + CONFIGURED + RETIMED + SEVERAL + BELATED + BEREFT + STORELESS + ANSWERLESS + SHARED
_APART += LEFT + FROZEN + DEMANDING
TURNS = tuple(theme for theme in THEMES if theme not in _APART)
#: Every trouble that may come with any other. Those that make other accounts and pools come first: others add to these.
_SHAPING: tuple[_Trouble, ...] = (
    late_answers,
    three_clouds,
    many_demands,
    _fleet,
    short_of_money,
    other_configurations,
)
_EVERY = tuple(
    trouble
    for trouble in dict.fromkeys((*_SHAPING, *(trouble for troubles in THEMES.values() for trouble in troubles)))
    if trouble not in (left_to_guests, no_slack, set_clock)
)


#: Where the first is, the second is left out: the work of a fleet on the money for one VM takes longer than any run,
#: and a driver or a profile of a few vCPUs has no room for some of many demands; what is held when a store is lost is
#: held for good.
_AT_ODDS = (
    (short_of_money, _fleet), (short_of_money, many_demands), (caps_of_drivers, many_demands),
    (shared_account, many_demands), (lost_store, _operators),
)  # fmt: skip


def _mixed(scenario: Scenario, chance: Stream) -> Scenario:
    """A few of all troubles, whichever they are: what the themes don't bring together has broken promises, too."""
    chosen = [_EVERY[number] for number in sorted({chance.below(len(_EVERY)) for _ in range(chance.between(2, 7))})]
    for trouble in chosen:
        if not any(trouble is other and one in chosen for one, other in _AT_ODDS):
            scenario = trouble(scenario, chance)
    return scenario


MIXED = "mixed"
THEMES[MIXED] = (_mixed,)
