"""Which offerings are preferred where VMs are preempted: by what useful work costs there, within what prices allow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Caps, Pool, TypeFilter
from cloud_dispatch.domain.preemptions import Preemptions
from cloud_dispatch.planner import plan, pricing
from cloud_dispatch.planner.plan import Launch
from cloud_dispatch.planner.preempted import EVEN, PreemptionRates, weight
from cloud_dispatch.planner.snapshot import Blocked, QuotaUse, Snapshot, TargetItem
from tests.planner.oracle import complaints
from tests.planner.scenes import (
    AWS,
    GCP,
    MAIN,
    MINUTE,
    NOW,
    applied,
    demand,
    launches,
    offering,
    pool,
    shape,
    snapshot,
)
from tests.planner.test_properties import SETTINGS, scenes

HOUR = 60 * MINUTE


def spot(zone: str = "a", price: int = 100, name: str = "small", **rest: object) -> Offering:
    return offering(name, price=price, zone=zone, market=Market.SPOT, **rest)  # type: ignore[arg-type]


def seen(zone: str, preempted: int, minutes: int, kind: str = "small", *, profile: ProfileName = AWS) -> Preemptions:
    return Preemptions(profile, kind, zone, preempted * 1000, minutes * MINUTE)


#: A zone that takes its VMs back every four minutes.
BAD = (seen("a", 10, 40),)


def work(minutes: int = 10, count: int = 1, offerings: Iterable[Offering] = (), **rest: object) -> Snapshot:
    items = [demand(shape(), count, expected_ms=minutes * MINUTE)]
    return snapshot(items, offerings=tuple(offerings), **{"preemptions": BAD, "pools": [own()], **rest})


def own(**rest: object) -> Pool:
    """One that rents at both clouds, on both markets."""
    return pool(MAIN, AWS, GCP, markets=tuple(Market), **rest)


def chosen(scene: Snapshot) -> Launch:
    (launch,) = launches(plan(scene))
    return launch


# -- how often, and what that makes of a price


def test_little_evidence_is_made_up_for_by_what_is_known_around_it() -> None:
    """One that was preempted after four minutes says most of its own offering, less of its zone, least of its profile;
    nothing of another profile, nor of what is on demand."""
    rates = PreemptionRates([seen("a", 1, 4)])
    own, other_type, other_zone = (rates.of(one) for one in (spot(), spot(name="large"), spot("b")))
    assert 2_000 < own < 15_000
    assert 0 < other_zone < other_type < own / 4
    assert [rates.of(one) for one in (spot(profile=GCP), offering(zone="a"))] == [0, 0]


def test_much_evidence_speaks_for_itself() -> None:
    """What was seen for days counts as it is, to the eighth that is told apart."""
    found = PreemptionRates([seen("a", 100, 100 * 60), seen("b", 100, 100 * 30)])
    assert 0.85 < found.of(spot("a")) / 1_000 <= 1.02
    assert 1.7 < found.of(spot("b")) / 1_000 <= 2.02


def test_running_time_speaks_against_chance() -> None:
    """The same preemption says less where much has run, and what is about as seldom as never is never."""
    rates = [PreemptionRates([seen("a", 1, minutes)]).of(spot()) for minutes in (4, 60, 600)]
    assert rates == sorted(rates, reverse=True)
    assert PreemptionRates([seen("a", 1, 60 * 200)]).of(spot()) == 0
    assert PreemptionRates([seen("a", 0, 600)]).of(spot()) == 0


def test_the_weight_is_that_of_work_that_is_begun_anew() -> None:
    """(e^x - 1) / x for x preemptions in the time of a task, and a boot for each."""
    assert weight(0, 10 * MINUTE, MINUTE) == EVEN
    assert weight(6_000, 10 * MINUTE, 0) / EVEN == pytest.approx(1.718, rel=0.01)
    assert weight(15_000, 10 * MINUTE, 0) / EVEN == pytest.approx(4.473, rel=0.01)
    assert weight(6_000, 10 * MINUTE, 2 * MINUTE) / EVEN == pytest.approx(1.718 * 1.2, rel=0.01)
    assert weight(6_000, 0, 0) == weight(6_000, 10 * MINUTE, 0), "of unknown length it is taken to be ten minutes"
    assert weight(10**6, 100 * HOUR, MINUTE) == weight(10**6, 1000 * HOUR, MINUTE), "hopeless is hopeless"


# -- what is rented


def test_a_zone_that_takes_its_vms_back_is_left_for_one_that_is_hardly_dearer() -> None:
    offerings = [spot("a", 100), spot("b", 110)]
    assert chosen(work(offerings=offerings, preemptions=())).offering.zone == "a"
    assert chosen(work(offerings=offerings)).offering.zone == "b"


def test_short_work_stays_where_it_is_cheap() -> None:
    """What is done between two preemptions loses little by them."""
    offerings = [spot("a", 100), spot("b", 140)]
    assert [chosen(work(minutes, offerings=offerings)).offering.zone for minutes in (1, 10)] == ["a", "b"]


def test_other_markets_profiles_and_types_are_taken_as_well() -> None:
    """Whatever is cheapest by what work costs there."""
    for other in (offering(zone="a", price=140), spot("z", 140, profile=GCP), spot("b", 140, "large", cpus=1)):
        scene = work(offerings=[spot("a", 100), other])
        assert chosen(scene).offering is other


def test_work_that_shares_a_machine_is_taken_there_together() -> None:
    """What is filled with several shapes is neither rented in the zone nor moved there at last; nor to what is too
    dear."""
    items = [demand(shape(1, memory), 1, expected_ms=10 * MINUTE) for memory in (1, 2)]
    bad, good, dear = spot("a", 100, cpus=2), spot("b", 110, cpus=2), spot("c", 160, cpus=2)
    for offerings, zone in (((bad, good), "b"), ((bad, dear), "a")):
        launch = chosen(replace(work(offerings=offerings), demand=tuple(items)))
        assert (launch.offering.zone, launch.slots) == (zone, 1)


def test_a_part_of_a_stock_is_preempted_as_all_of_it() -> None:
    """Where a label asks for one of several such zones, and where another one is closed to the pool."""
    seen_alike = (seen("a", 10, 40), seen("b", 10, 40))
    offerings = [spot("a", 100), spot("b", 100), offering("other", zone="a", price=140)]
    scene = work(offerings=offerings, preemptions=seen_alike)
    labelled = [demand(shape(labels=(("zone", "a"),)), 1, expected_ms=10 * MINUTE)]
    closed = (Blocked(AWS, NOW + 1, "it fails", zone="b", template=own().template),)
    for one in (replace(scene, demand=tuple(labelled)), replace(scene, blocked=closed)):
        assert chosen(one).offering is offerings[2]


def test_what_a_pool_shall_have_is_rented_where_it_stays() -> None:
    """Nobody knows what will run there."""
    scene = work(offerings=[spot("a", 100), spot("b", 110)], targets=(TargetItem(MAIN, 1, "somebody"),))
    assert chosen(replace(scene, demand=())).offering.zone == "b"


def test_evidence_that_has_faded_changes_nothing() -> None:
    """What is left of ten preemptions after a day is as good as none."""
    faded = (replace(BAD[0], preempted=BAD[0].preempted >> 12, ran_ms=BAD[0].ran_ms >> 12),)
    assert chosen(work(offerings=[spot("a", 100), spot("b", 101)], preemptions=faded)).offering.zone == "a"


def test_a_launch_falls_over_to_where_work_costs_least() -> None:
    offerings = [spot("a", 100), spot("b", 130), spot("c", 120), spot("d", 160)]
    launch = chosen(work(offerings=offerings))
    assert [one.zone for one in (launch.offering, *launch.alternatives)] == ["c", "b", "a"]


# -- what it does not change


@pytest.mark.parametrize("dear", [151, 400])
def test_what_is_dearer_than_the_price_factor_allows_is_not_rented(dear: int) -> None:
    """The factor is one of prices: over the cheapest, however often that is preempted. Also where more are
    dear than are looked at."""
    others = [spot(zone, dear + n, f"t{n}", memory=4 + n) for n, zone in enumerate("bcdefghijklm")]
    for scene in (work(offerings=[spot("a", 100), *others]), work(count=40, offerings=[spot("a", 100), *others])):
        assert {launch.offering.zone for launch in launches(plan(scene))} == {"a"}
        assert all(not launch.alternatives for launch in launches(plan(scene)))


def test_it_blocks_nothing() -> None:
    """Where nothing else may be had, the zone is rented in: others sold out, full by a quota, or over a cap."""
    offerings = (spot("a", 100), spot("b", 110, "other"))
    shut = (
        {"blocked": (Blocked(AWS, NOW + 1, "no capacity", zone="b"),)},
        {"quotas": (QuotaUse(AWS, "L-1", 0, 0, zone="b"),)},
        {"pools": (own(types=TypeFilter(allow=("small",))),)},
    )
    for rest in shut:
        assert chosen(work(offerings=offerings, **rest)).offering.zone == "a"
    assert launches(plan(work(offerings=offerings, caps=Caps(instances=0)))) == []


def test_running_time_without_preemptions_changes_no_plan() -> None:
    """Reasons included."""
    scene = work(count=7, offerings=[spot("a", 100), spot("b", 110), spot("c", 110, "large", cpus=4)])
    assert plan(replace(scene, preemptions=(seen("a", 0, 600), seen("b", 0, 1)))) == plan(
        replace(scene, preemptions=())
    )


@st.composite
def evidence(draw: st.DrawFn, scene: Snapshot) -> tuple[Preemptions, ...]:
    """Of the places that `scene` offers: most in the cheapest zone."""
    places = sorted({(one.profile, one.type.name, one.zone) for one in scene.offerings})
    often = {zone: st.sampled_from([(0, 60), (1, 600), (3, 30)]) for zone in "bc"} | {"a": st.just((10, 40))}
    return tuple(seen(z, *draw(often[z]), t, profile=p) for p, t, z in places)


def with_a_choice(scene: Snapshot) -> Snapshot:
    """`scene` with all that it offers on spot in three zones, a little dearer in each, and no work short."""
    zones = {
        one.key: one
        for offered in scene.offerings
        for percent, zone in ((100, "a"), (110, "b"), (130, "c"))
        for rate in (None if offered.rate is None else Rate(offered.type.vcpus * percent * 10**6),)
        for one in (replace(offered, market=Market.SPOT, zone=zone, rate=rate),)
    }
    pools = tuple(replace(one, markets=tuple(Market)) for one in scene.pools)
    wanted = tuple(replace(one, expected_ms=min(one.expected_ms * 60, 20 * MINUTE)) for one in scene.demand)
    return replace(scene, demand=wanted, offerings=tuple(zones.values()), pools=pools)


@SETTINGS
@given(scene=scenes().map(with_a_choice), data=st.data())
def test_no_plan_breaks_a_rule_whatever_was_preempted(scene: Snapshot, data: st.DataObject) -> None:
    """Caps, blocks, pools, honesty; what was launched is not launched again, whatever is known by then. Who waits has
    something launched for it if it had without."""
    preempting = replace(scene, preemptions=data.draw(evidence(scene)))
    decided = plan(preempting)
    assert complaints(preempting, decided) == []
    assert bool(launches(decided)) == bool(launches(plan(scene)))
    assert launches(plan(replace(applied(preempting, decided), preemptions=data.draw(evidence(scene))))) == []


def test_what_is_looked_at_is_not_sorted_anew_for_each_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many stocks differ in how often they are preempted."""
    work_done = 0

    def counting(found: Iterable[Any], **how: Any) -> list[Any]:
        nonlocal work_done
        done = sorted(found, **how)
        work_done += len(done)
        return done

    monkeypatch.setattr(pricing, "sorted", counting, raising=False)
    # each is larger and dearer than the one before: no one can be left out beforehand
    offerings = [spot("a", 100 + n, f"t{n}", memory=4 + n) for n in range(200)]
    found = [replace(BAD[0], type=f"t{n}") for n in range(100)]
    assert launches(plan(work(offerings=offerings, preemptions=tuple(found))))
    assert work_done <= 10 * len(offerings)


# -- why


def test_what_was_passed_over_is_told() -> None:
    """In the reason of the launch, with what was seen and what that makes of the price; and to who waits for it."""
    scene = work(offerings=[spot("a", 100), spot("b", 110)])
    launch = chosen(scene)
    first = "aws/small/b/spot at $0.11/h is the cheapest of 2 acceptable offerings by what work costs there"
    told = "aws/small/a/spot at $0.10/h is passed over: its VMs are preempted about 12.3 times an hour"
    why = f"{told}, which makes work of 10m cost 3.96 times its price there"
    assert launch.reason.endswith(f"{first}; {why}")
    (waiting,) = plan(scene).waiting
    assert waiting.reason == f"1 start on instances that this plan launches; {why}"


def test_nothing_is_said_where_nothing_was_passed_over() -> None:
    offerings = [spot("a", 100), spot("b", 110)]
    for scene in (work(offerings=offerings, preemptions=()), work(offerings=offerings[:1])):
        assert "passed over" not in chosen(scene).reason
