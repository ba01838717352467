"""From a configuration and a workload to an answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause, RetryRules, TaskState
from cloud_dispatch.provider.errors import CredentialsRejected, ProviderError, Scope, Transient
from cloud_dispatch.provider.priced import Priced
from cloud_dispatch.provider.spi import Quota, QuotaUnit
from cloud_dispatch.simulation.report import report
from cloud_dispatch.simulation.study.engine import answer
from cloud_dispatch.simulation.study.offers import offers, quotas
from cloud_dispatch.simulation.study.question import Wishes, study
from cloud_dispatch.simulation.workload import history
from cloud_dispatch.simulation.workload.items import BootTime, SpotPrice, WorkItem, Workload
from tests.simulation.study.scene import HERE, NOW, ONE, answered, asked, config


def test_a_large_task_does_not_wait_for_a_stream_of_small_ones_to_end(tmp_path: Path) -> None:
    """An hour long two small tasks come each half a minute, and one instance has always some of them: the large one is
    rented another when it has waited for the target drain of ten minutes."""
    large = Shape(Resources(2000, GIB))
    stream = [WorkItem(at, ONE, 60_000, count=2, expected_ms=60_000) for at in range(0, 3_600_000, 30_000)]
    work = sorted([*stream, WorkItem(100_000, large, 60_000, expected_ms=60_000)], key=lambda item: item.submit_ms)
    found = answered(config(tmp_path, cap=4), *work, boot_ms=30_000)
    (task,) = (task for task in found.record.tasks if task.shape == large)
    assert task.started_ms is not None
    assert task.started_ms - task.submit_ms < 700_000


def test_a_fleet_that_is_too_large_for_a_stream_of_short_tasks_shrinks(tmp_path: Path) -> None:
    """Six instances are left of a burst, and for twenty minutes one of them could do what comes each other second: the
    five others end, in less than a quarter of that."""
    burst = WorkItem(0, ONE, 60_000, count=12)
    stream = [WorkItem(at, ONE, 1_000) for at in range(90_000, 1_290_000, 2_000)]
    figures = report(answered(config(tmp_path, cap=6), burst, *stream, boot_ms=30_000).record)
    assert figures.most_instances == 6
    assert figures.time.total < 1_300_000 + 5 * 300_000


def test_tasks_wait_for_boots_and_for_each_other_as_they_would(tmp_path: Path) -> None:
    """Four tasks of 60 s on one instance of 2 cpu that boots 30 s: two run at 30 s, two at 90 s, idle 20 s, gone."""
    found = answered(config(tmp_path, cap=1), WorkItem(0, ONE, 60_000, count=4), boot_ms=30_000)
    figures = report(found.record)
    assert figures.tasks == {TaskState.SUCCEEDED: 4}
    assert figures.wait.p50 == pytest.approx(30_000, abs=1_000)
    assert figures.wait.longest == pytest.approx(90_000, abs=1_500)
    assert figures.makespan_ms == pytest.approx(150_000, abs=2_500)
    assert figures.time.boot == pytest.approx(30_000, abs=500)
    assert figures.time.work == pytest.approx(120_000, abs=1_500)
    assert figures.time.idle == pytest.approx(20_000, abs=6_000)
    assert figures.most_instances == 1
    assert not found.findings


def test_instances_boot_as_those_of_the_workload_once_did(tmp_path: Path) -> None:
    """Five minutes, of which no driver of this host would think; what another profile's took counts for nothing."""
    settings, work = config(tmp_path), WorkItem(0, ONE, 60_000)
    boots = tuple(
        BootTime(ProfileName(name), "vm.2", "local", Market.ON_DEMAND, boot_ms)
        for name, boot_ms in (("here", 300_000), ("elsewhere", 900_000))
    )
    workload = Workload((work,), "work", boots=boots)
    found = answer(study(settings, asyncio.run(offers(settings, NOW)), workload).scenario)
    assert report(found.record).time.boot == pytest.approx(300_000, abs=1_000)
    assert report(answered(settings, work).record).time.boot < 60_000


def test_the_cost_is_what_the_clouds_own_meter_says(tmp_path: Path) -> None:
    """The record has the meter's amounts, they sum to the bill, and the dispatcher's own reckoning is close to it."""
    found = answered(config(tmp_path), WorkItem(0, ONE, 60_000, count=8))
    figures = report(found.record)
    assert figures.cost.total == found.billed > 0
    assert found.billed == pytest.approx(figures.time.total, rel=0.02)  # a micro-dollar a millisecond


def test_what_a_pool_reserves_is_paid_for_too(tmp_path: Path) -> None:
    """One cpu of two is the system's, the task has the other one: of what is paid for half is used at most."""
    figures = report(answered(config(tmp_path, pool="reserve = {cpus = 1}"), WorkItem(0, ONE, 600_000)).record)
    assert figures.cpu_permille == pytest.approx(figures.work_permille / 2, abs=1)


def test_every_instance_counts_however_many_there_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also more than a store gives back at once: their time and their cost are in the figures."""
    monkeypatch.setattr(history, "PAGE", 3)
    found = answered(config(tmp_path), *(WorkItem(at, ONE, 1_000) for at in range(0, 1_500_000, 300_000)))
    figures = report(found.record)
    assert figures.types[0].count == 5
    assert figures.cost.total == found.billed
    assert not figures.assumptions


def test_the_same_seed_gets_the_same_answer(tmp_path: Path) -> None:
    """Whole records are equal; another seed makes other names."""
    items = (WorkItem(0, ONE, 60_000, count=3), WorkItem(45_000, ONE, 5_000, count=2))
    first, again = (answered(config(tmp_path), *items, seed=7) for _ in range(2))
    assert first == again
    assert answered(config(tmp_path), *items, seed=8).record != first.record


def test_outcomes_users_and_priorities_reach_the_queue(tmp_path: Path) -> None:
    """A task that fails by itself fails; what it belongs to stays known."""
    fails = WorkItem(0, ONE, 1_000, priority=3, user="ann", project="night", outcome=Cause.EXIT_CODE)
    found = answered(config(tmp_path), fails)
    (task,) = found.record.tasks
    assert (task.state, task.user, task.project, task.priority) == (TaskState.FAILED, "ann", "night", 3)


def test_tasks_that_fit_nothing_are_left_out_and_told(tmp_path: Path) -> None:
    """They would wait for ever; where none fits the question is refused."""
    wide = WorkItem(0, Shape(Resources(3000, GIB)), 1_000, count=5)
    found = asked(config(tmp_path), [wide, WorkItem(0, ONE, 1_000)])
    assert found.scenario.tasks == 1
    assert "5 tasks are left out: no offering of any pool fits 3 cpu, 1GiB memory" in found.assumptions
    with pytest.raises(InvalidInput, match="no task fits an offering of any pool, such as 3 cpu"):
        asked(config(tmp_path), [wide])


def test_the_configuration_is_in_the_scenario(tmp_path: Path) -> None:
    """Pools, caps, timing and the profile's types are the dispatcher's own."""
    settings = config(tmp_path, cap=5, pool="min = 1")
    scenario = asked(settings, [WorkItem(0, ONE, 1_000)], seed=9).scenario
    assert scenario.pools == settings.pools()
    assert (scenario.timing.heartbeat_ms, scenario.seed) == (settings.timing.heartbeat_ms, 9)
    (account,) = scenario.accounts
    assert account.settings.sells[0].rate == Rate(3_600_000_000)


def test_what_is_not_simulated_is_told(tmp_path: Path) -> None:
    """Targets and health checks have no place in a scenario; the workload's assumptions come first."""
    found = asked(config(tmp_path, pool='target = 2\nhealth_checks = [{command = "true"}]'), [WorkItem(0, ONE, 1_000)])
    assert found.assumptions[0] == "work was assumed"
    assert "the target and schedule of pool default are not simulated: only work makes it grow" in found.assumptions
    assert "the health checks of pool default always pass" in found.assumptions


def test_types_that_a_profile_denies_are_not_sold(tmp_path: Path) -> None:
    """With nothing left the profile is named."""
    with pytest.raises(InvalidInput, match=r"profiles\.here: expected something to rent"):
        asked(config(tmp_path, profile='types = {deny = ["vm.*"]}'), [WorkItem(0, ONE, 1_000)])


def test_spot_instances_cost_what_the_trace_says(tmp_path: Path) -> None:
    """At half the price from the trace the same work costs half."""
    settings = config(tmp_path, profile="spot_discount = 0", pool='markets = ["spot"]')
    work = WorkItem(0, ONE, 600_000, count=2)
    full = answered(settings, work)
    half = answered(settings, work, spot=(SpotPrice(0, "vm.2", "", Rate(1_800_000_000)),))
    assert half.billed == pytest.approx(full.billed / 2, rel=0.01)


def test_what_was_charged_while_it_booted_is_the_cost_of_the_boot(tmp_path: Path) -> None:
    """Ten minutes of boot for next to nothing, ten of work at the full price: as long, and not at all as dear."""
    settings = config(tmp_path, profile="spot_discount = 0", pool='markets = ["spot"]\nboot_deadline = "1h"')
    trace = (SpotPrice(0, "vm.2", "", Rate(1_000_000)), SpotPrice(600_000, "vm.2", "", Rate(3_600_000_000)))
    figures = report(answered(settings, WorkItem(0, ONE, 600_000), boot_ms=600_000, spot=trace).record)
    assert figures.time.boot == pytest.approx(figures.time.work, rel=0.02)
    assert figures.cost.boot < figures.cost.work / 10


@pytest.mark.parametrize("market", Market)
def test_work_costs_what_the_cheapest_zone_asks(tmp_path: Path, market: Market) -> None:
    """A third of what it costs in the other zone, on either market."""
    settings = config(tmp_path, profile="spot_discount = 0", pool=f'markets = ["{market}"]')
    (found,) = asyncio.run(offers(settings, NOW)).values()
    dear = [*found.offerings, *(replace(one, zone="other") for one in found.offerings)]
    cheap = [replace(one, rate=Rate(1_200_000_000)) if (one.zone, one.market) == ("other", market) else one
             for one in dear]  # fmt: skip
    work = Workload((WorkItem(0, ONE, 600_000, count=2),), "work")
    full, third = (answer(study(settings, {HERE: replace(found, offerings=every)}, work).scenario)
                   for every in (dear, cheap))  # fmt: skip
    assert third.billed == pytest.approx(full.billed / 3, rel=0.01)
    assert {own.zone for own in third.record.rentals} == {"other"}


def test_a_spot_instance_is_taken_back_where_it_would_cost_more_than_is_paid(tmp_path: Path) -> None:
    """At most half the price on demand is paid, and three quarters of it are asked from the fifth minute to the
    twentieth: the first attempt is lost, and the second is made when that is over."""
    settings = config(tmp_path, profile="spot_discount = 75", pool='markets = ["spot"]')
    (found,) = asyncio.run(offers(settings, NOW)).values()
    bids = [replace(one, max_rate=Rate(1_800_000_000)) if one.market is Market.SPOT else one
            for one in found.offerings]  # fmt: skip
    prices = ((0, 900_000_000), (300_000, 2_700_000_000), (1_200_000, 900_000_000))
    trace = tuple(SpotPrice(at_ms, "vm.2", "", Rate(rate)) for at_ms, rate in prices)
    work = Workload((WorkItem(0, ONE, 600_000),), "work")
    done = answer(study(settings, {HERE: replace(found, offerings=bids)}, work, Wishes(spot=trace)).scenario)
    figures = report(done.record)
    assert [run.cause for run in done.record.runs] == [Cause.PREEMPTED, Cause.SUCCESS]
    assert done.record.runs[1].started_ms - done.record.tasks[0].submit_ms > 1_200_000
    assert figures.time.lost > 200_000
    quarter, notice_ms = 0.25, 120_000  # of a micro-dollar a millisecond; the notice costs what is asked then
    assert done.billed < quarter * figures.time.total + 2 * quarter * (notice_ms + 60_000)


def test_spot_prices_that_nobody_pays_are_not_told(tmp_path: Path) -> None:
    """A trace has no effect where no pool rents spot instances, and is not said to be followed."""
    trace = (SpotPrice(0, "vm.2", "", Rate(1_800_000_000)),)
    settings, work = config(tmp_path, profile="spot_discount = 0"), [WorkItem(0, ONE, 1_000)]
    told = asked(settings, work, spot=trace).assumptions
    assert [text for text in told if "spot" in text and "room" not in text] == [
        "no pool rents spot instances: the trace of their prices has no effect"
    ]
    assert not any("spot prices" in text for text in asked(settings, work).assumptions)
    rented = config(tmp_path, profile="spot_discount = 0", pool='markets = ["spot"]')
    assert any("spot prices of here follow the trace" in text for text in asked(rented, work, spot=trace).assumptions)


def test_what_of_a_trace_speaks_of_nothing_that_is_sold_is_told(tmp_path: Path) -> None:
    """A type that is written otherwise, or a zone of another region: who compares prices has compared nothing."""
    known = SpotPrice(0, "vm.2", "", Rate(1_800_000_000))
    others = [replace(known, type="VM.2"), replace(known, at_ms=60_000, type="VM.2"), replace(known, zone="mars")]
    settings, work = config(tmp_path, profile="spot_discount = 0", pool='markets = ["spot"]'), [WorkItem(0, ONE, 1_000)]
    sold = [known, replace(known, zone="local")]
    (told,) = (text for text in asked(settings, work, spot=(*sold, *others)).assumptions if "no effect" in text)
    assert told == (
        "2 of the 4 types and zones of the trace of spot prices have no effect, for no profile sells them there on the"
        " spot market: VM.2, vm.2/mars"
    )
    many = [replace(known, type=f"type{number}") for number in range(7)]
    (text,) = (text for text in asked(settings, work, spot=many).assumptions if "no effect" in text)
    assert text.endswith("type0, type1, type2, type3, type4 and 2 more")
    assert not any("no effect" in text for text in asked(settings, work, spot=sold).assumptions)


def test_a_trace_longer_than_the_run_does_not_lengthen_it(tmp_path: Path) -> None:
    """Prices past the end of the run are left out, and the last one within holds to the end."""
    settings = config(tmp_path, profile="spot_discount = 0", pool='markets = ["spot"]')
    trace = [SpotPrice(hour * 3_600_000, "vm.2", "", Rate(1_000_000_000 + hour)) for hour in range(100)]
    found = asked(settings, [WorkItem(0, ONE, 60_000)], spot=trace, patience_ms=2 * 3_600_000)
    assert [(own.from_ms, own.until_ms) for own in found.scenario.accounts[0].faults] == [
        (0, 3_600_000),
        (3_600_000, 0),
    ]
    assert answer(found.scenario).findings == ()


@pytest.mark.parametrize(
    ("error", "hint"), [(CredentialsRejected, "with the profile's own credentials"), (Transient, "try again later")]
)
def test_who_is_not_told_offers_knows_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[ProviderError], hint: str
) -> None:
    """Waiting brings nobody credentials."""

    async def refused(self: Priced, name: str, *args: object) -> object:
        raise error("no")

    monkeypatch.setattr(Priced, "call", refused)
    with pytest.raises(Unavailable, match=r"profiles\.here: the driver can't tell what it offers: no") as caught:
        asyncio.run(offers(config(tmp_path), NOW))
    assert hint in caught.value.hint


def test_asking_for_offers_leaves_the_drivers_folder_alone(tmp_path: Path) -> None:
    """A study next to a running dispatcher touches nothing of it."""
    asyncio.run(offers(config(tmp_path), NOW))
    assert list(tmp_path.iterdir()) == []


def test_tasks_that_outlive_every_instance_are_told(tmp_path: Path) -> None:
    """Nothing takes a machine back, and they fail as preempted: who pays for it is told why beforehand."""
    settings = config(tmp_path, more='lifetime = "1h"')
    work = [WorkItem(0, ONE, 3_600_000, count=2), WorkItem(0, ONE, 3_000_000)]
    (told,) = (text for text in asked(settings, work).assumptions if "longer than any instance" in text)
    assert told.startswith("2 tasks run longer than any instance that they fit lives (end.lifetime, 1h at most)")
    assert report(answered(settings, *work).record).failures == {Cause.PREEMPTED: 2}
    lasting = '[pools.lasting]\nprofiles = ["here"]\n[pools.lasting.end]\nlifetime = "2h"'
    other = config(tmp_path, more=f'lifetime = "1h"\n{lasting}')
    assert not any("longer than any" in text for text in asked(other, work).assumptions)
    here = [replace(work[0], shape=replace(ONE, pool="default"))]
    assert any("1h at most" in text for text in asked(other, here).assumptions)


def test_what_tasks_write_down_is_told_as_not_simulated(tmp_path: Path) -> None:
    """How many want a checkpoint signal, of those that are simulated; nothing where none does."""
    saves, huge = (WorkItem(0, shape, 1_000, 3, checkpoints=True) for shape in (ONE, Shape(Resources(9_000, GIB))))
    told = asked(config(tmp_path), [WorkItem(0, ONE, 1_000), saves, huge]).assumptions
    assert [text.partition(" get none")[0] for text in told if "checkpoint" in text] == [
        "3 tasks with a checkpoint_signal"
    ]
    assert not any("checkpoint" in text for text in asked(config(tmp_path), [WorkItem(0, ONE, 1_000)]).assumptions)


def test_spending_limits_hold(tmp_path: Path) -> None:
    """Those of the configuration, by their real drivers' names; what waits for money is told with its reason."""
    settings = config(tmp_path, more='[drivers.local.budget]\ntotal = "0.05"')
    scenario = asked(settings, [WorkItem(0, ONE, 1_000)]).scenario
    assert scenario.budgets == settings.budgets()
    assert scenario.drivers == {"here": "local"}
    found = answered(settings, WorkItem(0, ONE, 3_600_000, count=4, expected_ms=3_600_000))
    assert found.billed <= 50_000
    assert any("tasks of 1 cpu, 1GiB memory wait: the budget driver" in text for text in found.findings)


def test_who_waits_for_the_same_is_told_together(tmp_path: Path) -> None:
    """A reason is one finding, however many users wait for it, and of many reasons the most common ones are told."""
    users = [f"u{number}" for number in range(30)]
    spent = "\n".join(f'[users.{user}.budget]\ntotal = "0.001"' for user in users)
    shared, own = (config(tmp_path, more=more) for more in ('[projects.all.budget]\ntotal = "0.001"', spent))
    work = [WorkItem(0, ONE, 60_000, expected_ms=60_000, user=user, project="all", count=2) for user in users]
    (told,) = (text for text in answered(shared, *work).findings if "wait" in text)
    assert told.startswith("60 tasks of 1 cpu, 1GiB memory wait: the budget project all total")
    each = [text for text in answered(own, *work).findings if "wait" in text]
    assert len(each) == 21
    assert each[-1] == "and 10 other reasons why tasks wait"


def test_caps_of_a_driver_hold(tmp_path: Path) -> None:
    """All profiles of the driver together have one instance, whatever the pool would have."""
    settings = config(tmp_path, more="[drivers.local.caps]\ninstances = 1")
    figures = report(answered(settings, WorkItem(0, ONE, 60_000, count=4)).record)
    assert (figures.most_instances, figures.tasks) == (1, {TaskState.SUCCEEDED: 4})


def test_caps_of_a_profile_hold(tmp_path: Path) -> None:
    """It has one instance, whatever its pool and its driver would have."""
    settings = config(tmp_path, more="[profiles.here.caps]\ninstances = 1")
    figures = report(answered(settings, WorkItem(0, ONE, 60_000, count=4)).record)
    assert (figures.most_instances, figures.tasks) == (1, {TaskState.SUCCEEDED: 4})
    free = report(answered(config(tmp_path), WorkItem(0, ONE, 60_000, count=4)).record)
    assert free.most_instances == 2


@pytest.mark.parametrize(
    "capped",
    [{"more": f"[{whose}]\nvcpus = 1"} for whose in ("caps", "profiles.here.caps", "drivers.local.caps")]
    + [{"cap": 0}],
    ids=["all", "profile", "driver", "pool"],
)
def test_what_no_cap_has_room_for_is_left_out(tmp_path: Path, capped: dict[str, Any]) -> None:
    """A machine that is larger than a cap is no machine: its tasks would wait for ever."""
    settings = config(tmp_path, **capped)
    with pytest.raises(InvalidInput, match="no task fits an offering of any pool, such as 1 cpu"):
        asked(settings, [WorkItem(0, ONE, 1_000)])


def test_the_quotas_of_an_account_hold(tmp_path: Path) -> None:
    """As many instances as it may have, as many vCPUs of a family, whatever its caps would admit; all of it is told."""
    settings, work = config(tmp_path, cap=9, profile="max_vms = 1"), WorkItem(0, ONE, 60_000, count=8)
    found = asyncio.run(offers(settings, NOW))
    known = asyncio.run(quotas(settings, NOW))
    made = study(settings, found, Workload((work,), "work"), Wishes(), known)
    assert "here has at most 1 instances (quota max_vms), none of them in use yet" in made.assumptions
    figures = report(answer(made.scenario).record)
    assert (figures.most_instances, figures.tasks) == (1, {TaskState.SUCCEEDED: 8})
    cores = Quota("cores", Scope(), QuotaUnit.VCPUS, 4, 0)
    made = study(settings, found, Workload((work,), "work"), Wishes(), {HERE: [cores]})
    assert report(answer(made.scenario).record).most_instances == 2


def test_quotas_that_are_not_simulated_are_named(tmp_path: Path) -> None:
    """By their own names; so is it told where the driver does not know any."""
    settings = config(tmp_path)
    found, work = asyncio.run(offers(settings, NOW)), Workload((WorkItem(0, ONE, 1_000),), "work")
    odd = [
        Quota("gpus", Scope(gpu="a100"), QuotaUnit.GPUS, 4, 0), Quota("any", Scope(), QuotaUnit.VCPUS, None, 0),
        Quota("far", Scope(region="far"), QuotaUnit.VCPUS, 4, 0),
    ]  # fmt: skip
    told = study(settings, found, work, Wishes(), {HERE: odd}).assumptions
    assert "quota gpus of here (4 gpus) is not simulated" in told
    assert "quota any of here is not simulated: its limit is not known" in told
    assert "quota far of here (4 vcpus) is not simulated" in told
    unknown = study(settings, found, work, Wishes(), {HERE: None}).assumptions
    assert "the quotas of here could not be asked: none is simulated" in unknown


def test_prices_are_those_that_count(tmp_path: Path) -> None:
    """What the operator says that he pays goes before what the driver says."""
    settings = config(tmp_path, profile='pricing = {"vm.*" = "-50%"}')
    assert asked(settings, [WorkItem(0, ONE, 1_000)]).scenario.accounts[0].settings.sells[0].rate == 1_800_000_000


def test_what_comes_with_an_instance_is_on_its_bill(tmp_path: Path) -> None:
    """Disks and addresses bill from the launch to the end, beside the instance; the parts still sum to the bill."""
    settings, work = config(tmp_path), WorkItem(0, ONE, 60_000, count=8)
    bare = answered(settings, work)
    (found,) = asyncio.run(offers(settings, NOW)).values()
    every = [replace(one, extra_rate=Rate(3_600_000_000)) for one in found.offerings]
    dear = answer(study(settings, {HERE: replace(found, offerings=every)}, Workload((work,), "work")).scenario)
    assert dear.billed == pytest.approx(2 * bare.billed, rel=0.02)
    assert report(dear.record).cost.total == dear.billed


def test_a_boot_may_take_longer_than_an_hour(tmp_path: Path) -> None:
    """As long as is said, and a pool that does not wait for it is told of."""
    settings = config(tmp_path, pool='boot_deadline = "3h"')
    found = answered(settings, WorkItem(0, ONE, 60_000), boot_ms=2 * 3_600_000)
    assert report(found.record).time.boot == pytest.approx(2 * 3_600_000, abs=1_000)
    told = asked(config(tmp_path), [WorkItem(0, ONE, 60_000)], boot_ms=2 * 3_600_000).assumptions
    assert any("longer than pool default waits (boot_deadline 10m)" in text for text in told)


def test_attempts_and_their_causes_are_the_tasks_own(tmp_path: Path) -> None:
    """What is tried again is: a task that times out twice has two runs."""
    again = RetryRules(2, frozenset({Cause.TIMEOUT}))
    found = answered(config(tmp_path), WorkItem(0, ONE, 5_000, outcome=Cause.TIMEOUT, retry=again))
    assert len(found.record.runs) == 2
    once = answered(config(tmp_path), WorkItem(0, ONE, 5_000, outcome=Cause.TIMEOUT))
    assert len(once.record.runs) == 1


def test_a_pool_that_keeps_instances_lets_the_run_end(tmp_path: Path) -> None:
    """What they cost after the work is no cost of the work."""
    settings = config(tmp_path, pool="min = 1")
    found = answered(settings, WorkItem(0, ONE, 60_000, count=2))
    assert not found.findings
    assert found.record.end_ms - found.record.tasks[0].submit_ms < 600_000
    told = asked(settings, [WorkItem(0, ONE, 1_000)]).assumptions
    assert any("the run ends with the work" in text for text in told)


def test_a_pause_is_not_heeded_and_that_is_told(tmp_path: Path) -> None:
    """Nothing would be launched: nobody asks that."""
    settings = config(tmp_path, dispatcher="pause = true")
    assert any(
        "dispatcher.pause is set and not heeded" in t for t in asked(settings, [WorkItem(0, ONE, 9)]).assumptions
    )
    assert report(answered(settings, WorkItem(0, ONE, 1_000)).record).tasks == {TaskState.SUCCEEDED: 1}


def test_prices_after_the_work_do_not_keep_the_run_going(tmp_path: Path) -> None:
    """A trace of a week is no week of an empty deployment."""
    settings = config(tmp_path, profile="spot_discount = 0", pool='markets = ["spot"]')
    trace = tuple(SpotPrice(day * 86_400_000, "vm.2", "", Rate(1_000 + day)) for day in range(7))
    found = answered(settings, WorkItem(0, ONE, 60_000), spot=trace)
    assert found.record.end_ms - found.record.tasks[0].submit_ms < 600_000


def test_a_kept_instance_that_works_is_no_sign_of_want(tmp_path: Path) -> None:
    """With a minimum and a limit that is far away, work of an hour is done."""
    settings = config(tmp_path, pool="min = 1", more='[drivers.local.budget]\ntotal = "1000"')
    found = answered(settings, WorkItem(0, ONE, 3_600_000))
    assert report(found.record).tasks == {TaskState.SUCCEEDED: 1}
    assert not found.findings


def test_what_an_hour_does_not_pay_for_the_next_one_does(tmp_path: Path) -> None:
    """A limit of an hour is a new one in the next: the rest of the work waits for it, and is done."""
    settings = config(tmp_path, cap=1, more='[drivers.local.budget]\nhour = "3"')
    found = answered(settings, WorkItem(0, ONE, 900_000, count=8, expected_ms=900_000))
    figures = report(found.record)
    assert figures.tasks == {TaskState.SUCCEEDED: 8}
    assert (figures.makespan_ms or 0) > 3_600_000
    assert not found.findings


def test_nothing_waits_once_all_has_ended(tmp_path: Path) -> None:
    """The last plan may be older than the end of the last task."""
    settings = config(tmp_path, cap=1, pool="min = 1")
    small = Shape(Resources(500, GIB))
    found = answered(settings, WorkItem(0, small, 1_000, count=57), WorkItem(0, small, 700, count=33))
    assert report(found.record).tasks == {TaskState.SUCCEEDED: 90}
    assert not found.findings


def test_only_a_pool_that_can_have_the_slow_type_is_told_of_its_boot(tmp_path: Path) -> None:
    """What its `types` leave out is nothing to it."""
    slow = '[profiles.here.catalogue.metal]\ncpus = 64\nmemory = "64GiB"\nprice = "9"\nboot_delay = "2h"'
    one = config(tmp_path, pool='types = {allow = ["vm.*"]}', more=slow)
    assert not any("boot_deadline" in text for text in asked(one, [WorkItem(0, ONE, 1_000)]).assumptions)
    told = asked(config(tmp_path, more=slow), [WorkItem(0, ONE, 1_000)]).assumptions
    assert any("to boot, longer than pool default waits (boot_deadline 10m)" in text for text in told)


def test_a_failure_is_tried_again_by_its_exit_code(tmp_path: Path) -> None:
    """By the one that it had, not by any."""
    again = RetryRules(3, exit_codes=frozenset({75}))
    fails = WorkItem(0, ONE, 5_000, outcome=Cause.EXIT_CODE, exit_code=75, retry=again)
    assert len(answered(config(tmp_path), fails).record.runs) == 3
    assert len(answered(config(tmp_path), replace(fails, exit_code=2)).record.runs) == 1
