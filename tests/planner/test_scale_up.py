"""How many instances are rented, which, and why not more."""

from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, TypeFilter
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import Blocked, DriverCaps, Foreign
from tests.planner.scenes import (
    AWS,
    GCP,
    MAIN,
    MINUTE,
    NOW,
    OTHER,
    applied,
    busy,
    demand,
    drained,
    instance,
    launched,
    launches,
    offering,
    pool,
    shape,
    snapshot,
)  # fmt: skip

S = InstanceState


def test_tasks_of_unknown_runtime_get_a_slot_each() -> None:
    """Nobody knows how long they take, so they all start."""
    assert launched(plan(snapshot([demand(shape(), 7)]))) == {"small": 7}


def test_as_many_are_rented_as_finish_within_the_target_drain() -> None:
    """100 one-minute tasks in ten minutes are ten slots."""
    assert launched(plan(snapshot([demand(shape(), 100, expected_ms=MINUTE)]))) == {"small": 10}


def test_a_longer_target_drain_rents_fewer() -> None:
    """The same tasks in fifty minutes are two slots."""
    pools = [pool(target_drain_ms=50 * MINUTE)]
    assert launched(plan(snapshot([demand(shape(), 100, expected_ms=MINUTE)], pools=pools))) == {"small": 2}


def test_each_new_instance_has_a_boots_worth_of_work() -> None:
    """Target drain of one second, but two minutes of work are worth two boots of a minute, not 120 instances."""
    pools = [pool(target_drain_ms=1_000)]
    items = [demand(shape(), 120, expected_ms=1_000)]
    assert launched(plan(snapshot(items, pools=pools))) == {"small": 2}


def test_a_stricter_share_of_work_per_boot_rents_fewer() -> None:
    """At 400 percent each boot of a minute must bring four minutes of work."""
    pools = [pool(target_drain_ms=1_000, min_work_per_boot_percent=400)]
    items = [demand(shape(), 480, expected_ms=1_000)]
    assert launched(plan(snapshot(items, pools=pools))) == {"small": 2}


def test_one_short_task_is_run_although_its_boot_takes_longer() -> None:
    """Boot overhead limits how many are rented, it never leaves a task without any."""
    assert launched(plan(snapshot([demand(shape(), 1, expected_ms=1_000)]))) == {"small": 1}


def test_a_little_more_work_waits_for_what_runs() -> None:
    """61 s of work on an instance that is worth 60 s before another: the last task follows, and is told so."""
    pools = [pool(target_drain_ms=1_000)]
    supply = [instance(state=S.BOOTING)]
    found = plan(snapshot([demand(shape(), 61, expected_ms=1_000)], pools=pools, supply=supply))
    assert launched(found) == {}
    assert "too little work for another boot" in found.waiting[0].reason


def test_the_cheapest_price_a_task_wins_over_the_cheapest_instance() -> None:
    """Eight tasks: one large instance at 400 beats eight small ones at 100."""
    offerings = [offering(), offering("large", cpus=8, memory=32, price=400)]
    assert launched(plan(snapshot([demand(shape(), 8)], offerings=offerings))) == {"large": 1}


def test_a_large_instance_is_not_rented_for_slots_that_nobody_needs() -> None:
    """The large one is cheaper a slot only when it is full; two tasks do not fill it."""
    offerings = [offering(), offering("large", cpus=8, memory=32, price=400)]
    assert launched(plan(snapshot([demand(shape(), 2)], offerings=offerings))) == {"small": 2}


def test_shapes_share_an_instance_where_that_is_cheaper() -> None:
    """A 3-cpu and a 1-cpu task share four cpus at 300 instead of paying 300 and 100."""
    offerings = [offering(), offering("medium", cpus=4, memory=16, price=300)]
    items = [demand(shape(3), 5), demand(shape(1), 5)]
    assert launched(plan(snapshot(items, offerings=offerings))) == {"medium": 5}


def test_what_is_filled_is_rented_as_the_cheapest_type_that_holds_it() -> None:
    """cpu-heavy and memory-heavy tasks together need neither of the specialised types."""
    offerings = [
        offering("compute", cpus=8, memory=8, price=300),
        offering("memory", cpus=2, memory=32, price=300),
        offering("both", cpus=8, memory=32, price=400),
    ]
    items = [demand(shape(6, 4), 1), demand(shape(1, 24), 1)]
    assert launched(plan(snapshot(items, offerings=offerings))) == {"both": 1}


def test_spot_is_taken_by_who_may_be_preempted_only() -> None:
    """The same type on spot at a third serves preemptible tasks; the others pay for on-demand."""
    pools = [pool(markets=(Market.ON_DEMAND, Market.SPOT))]
    offerings = [offering(), offering("spot", price=30, market=Market.SPOT)]
    items = [demand(shape(), 1), demand(shape(preemptible=False), 1)]
    assert launched(plan(snapshot(items, pools=pools, offerings=offerings))) == {"spot": 1, "small": 1}


def test_gpu_tasks_get_a_gpu_of_their_type_and_memory() -> None:
    """Type and memory a device are asked for; the cheaper wrong ones are passed over."""
    offerings = [
        offering("t4", cpus=8, memory=32, price=500, gpus=1, gpu="t4", gpu_memory=16 * GIB),
        offering("a100", cpus=8, memory=64, price=3000, gpus=1, gpu="a100", gpu_memory=40 * GIB),
        offering("a100-80", cpus=8, memory=64, price=4000, gpus=1, gpu="a100", gpu_memory=80 * GIB),
    ]
    items = [demand(shape(gpus=1, gpu_type="a100", gpu_memory=80 * GIB), 1)]
    assert launched(plan(snapshot(items, offerings=offerings))) == {"a100-80": 1}


def test_types_that_the_pool_denies_are_not_rented() -> None:
    """The cheap type is denied, the next one is taken."""
    pools = [pool(types=TypeFilter(deny=("small*",)))]
    offerings = [offering("small", price=10), offering("big", price=100)]
    assert launched(plan(snapshot([demand(shape(), 1)], pools=pools, offerings=offerings))) == {"big": 1}


def test_what_a_pool_reserves_is_not_given_to_tasks() -> None:
    """1 of 4 GiB is the system's: a task of 4 GiB needs the larger type."""
    pools = [pool(reserve=Resources(memory=GIB))]
    offerings = [offering("four", memory=4, price=100), offering("eight", memory=8, price=200)]
    assert launched(plan(snapshot([demand(shape(1, 4), 1)], pools=pools, offerings=offerings))) == {"eight": 1}


def test_batches_are_no_larger_than_the_provider_takes() -> None:
    """Ten instances at four a launch are three launches."""
    found = plan(snapshot([demand(shape(), 10)], max_batch=((AWS, 4),)))
    assert [launch.slots for launch in launches(found)] == [4, 4, 2]


def test_a_profile_without_a_stated_batch_launches_one_at_a_time() -> None:
    """Nothing is assumed of a provider that did not say how many it takes."""
    found = plan(snapshot([demand(shape(), 2)], max_batch=()))
    assert [launch.slots for launch in launches(found)] == [1, 1]


def test_caps_hold_at_every_level_and_say_which_one_did() -> None:
    """Pool, profile and everything: whichever is the tightest limits, and is named to who waits."""
    items = [demand(shape(), 50)]
    for rest, name in (
        ({"pools": [pool(caps=Caps(instances=3))]}, "cap of pool main reached (instances 3 of 3)"),
        ({"profile_caps": ((AWS, Caps(instances=3)),)}, "cap of profile aws reached (instances 3 of 3)"),
        (
            {"driver_caps": (DriverCaps("ec2", (AWS, GCP), Caps(instances=3)),)},
            "cap of driver ec2 reached (instances 3 of 3)",
        ),
        ({"caps": Caps(vcpus=3)}, "cap of everything reached (vcpus 3 of 3, another 1 wanted)"),
    ):
        found = plan(snapshot(items, **rest))
        assert launched(found) == {"small": 3}
        assert name in found.waiting[0].reason


def test_everything_that_is_not_gone_counts_against_caps() -> None:
    """Terminating, failed and doubtful instances may still exist: the cap of three is full."""
    supply = [
        instance(0, state=S.TERMINATING), instance(1, state=S.FAILED),
        instance(2, state=S.LAUNCHING, in_doubt=True, intended_ms=0),
    ]  # fmt: skip
    found = plan(snapshot([demand(shape(), 5)], supply=supply, pools=[pool(caps=Caps(instances=3))]))
    assert launched(found) == {}
    assert "instances 3 of 3" in found.waiting[0].reason


def test_every_vcpu_of_what_exists_counts_against_a_cap() -> None:
    """Three of four vCPUs that are alike and one of two: of sixteen two are left. Which cap it was is said."""
    four, two = offering("four", cpus=4, memory=16), offering("two", cpus=2, memory=8)
    full = [instance(i, four, S.BUSY, load=busy(shape(4), 1)) for i in range(3)]
    full.append(instance(3, two, S.BUSY, load=busy(shape(2), 1)))
    rest = {"supply": full, "offerings": [two], "caps": Caps(instances=9, vcpus=16)}
    assert launched(plan(snapshot([demand(shape(2), 5)], **rest))) == {"two": 1}
    more = plan(snapshot([demand(shape(4), 5)], **{**rest, "offerings": [four]}))
    assert launched(more) == {}
    assert "cap of everything reached (vcpus 14 of 16, another 4 wanted)" in more.waiting[0].reason


def test_a_launch_is_told_among_how_many_it_is_the_cheapest() -> None:
    """Shapes beyond the third are counted, not named."""
    zones = [offering(zone=zone, price=100 + i) for i, zone in enumerate("abc")]
    (launch,) = launches(plan(snapshot([demand(shape(), 1)], offerings=zones)))
    assert launch.reason.endswith("aws/small/a/on-demand at $0.10/h is the cheapest of 3 acceptable offerings")
    large = [offering("large", cpus=16, memory=64)]
    for number, said in ((3, " would not"), (4, " and 1 other shapes would not"), (5, " and 2 other shapes would not")):
        items = [demand(shape(1, i + 1), 1) for i in range(number)]
        (launch,) = launches(plan(snapshot(items, offerings=large)))
        assert f"1 task of 1 cpu, 3GiB memory{said}" in launch.reason


@pytest.mark.parametrize(
    ("name", "value"), [("zone", "b"), ("type", "second"), ("market", "spot"), ("arch", "arm64"), ("net", "fast")]
)
def test_a_label_is_launched_for_where_an_offering_carries_it(name: str, value: str) -> None:
    """Those that every offering has, and those that an operator gave to some; nowhere else, however cheap."""
    plain, second = offering(price=50), offering("second", price=100, zone="b", market=Market.SPOT)
    arm = replace(second, type=replace(second.type, architecture="arm64"), labels=(("rack", "1"), ("net", "fast")))
    pools = [pool(markets=(Market.ON_DEMAND, Market.SPOT))]
    scene = snapshot([demand(shape(labels=((name, value),)), 1)], pools=pools, offerings=[plain, arm])
    assert launched(plan(scene)) == {"second": 1}
    never = snapshot([demand(shape(labels=((name, "none"),)), 1)], pools=pools, offerings=[plain, arm])
    assert launched(plan(never)) == {}


def test_a_cap_on_vcpus_lets_a_smaller_type_in() -> None:
    """Two vCPUs are left: the 8-cpu bargain is passed over for the small type."""
    offerings = [offering("bargain", cpus=8, memory=32, price=90), offering("small", price=100)]
    found = plan(snapshot([demand(shape(), 5)], offerings=offerings, caps=Caps(vcpus=2)))
    assert launched(found) == {"small": 2}


def test_the_urgent_shape_gets_what_the_cap_leaves() -> None:
    """One more instance is allowed: it is of the type for the higher priority, else for who waits longest."""
    here, there = shape(labels=(("zone", "a"),)), shape(labels=(("zone", "b"),))
    rest = {"offerings": [offering("for-a", zone="a"), offering("for-b", zone="b")], "caps": Caps(instances=1)}
    items = [demand(here, 1, priority=1), demand(there, 1, priority=2)]
    assert launched(plan(snapshot(items, **rest))) == {"for-b": 1}
    items = [demand(here, 1, oldest_ms=1), demand(there, 1, oldest_ms=2)]
    assert launched(plan(snapshot(items, **rest))) == {"for-a": 1}


def test_a_blocked_offering_is_passed_over_within_the_price_factor() -> None:
    """No capacity in zone a for a while: zone b at a slightly higher price is taken."""
    blocked = (Blocked(AWS, NOW + 42_000, "no capacity", type="small", zone="a"),)
    offerings = [offering(zone="a", price=100), offering(zone="b", price=149)]
    (launch,) = launches(plan(snapshot([demand(shape(), 1)], offerings=offerings, blocked=blocked)))
    assert launch.offering.zone == "b"
    assert launch.alternatives == ()


def test_beyond_the_price_factor_the_task_waits_for_the_block_to_end() -> None:
    """Only dearer offerings are left: the wait says what is blocked, for how long and why."""
    blocked = (Blocked(AWS, NOW + 42_000, "no capacity", type="small", zone="a"),)
    offerings = [offering(zone="a", price=100), offering(zone="b", price=151)]
    found = plan(snapshot([demand(shape(), 1)], offerings=offerings, blocked=blocked))
    assert launched(found) == {}
    assert found.waiting[0].reason == (
        "aws/small/a blocked for another 42s: no capacity; other offerings cost more than the price factor allows"
    )


def test_a_blocked_region_leaves_the_others_open() -> None:
    """A failure of one region, whatever the zone, sends the work to the next region."""
    blocked = (Blocked(AWS, NOW + 42_000, "quota", region="r1"),)
    offerings = [
        replace(offering(zone=zone, price=price), region=zone[:2])
        for zone, price in (("r1a", 100), ("r1b", 101), ("r2a", 149))
    ]
    (launch,) = launches(plan(snapshot([demand(shape(), 1)], offerings=offerings, blocked=blocked)))
    assert launch.offering.zone == "r2a"


@pytest.mark.parametrize(
    ("speaks_of", "stays"),
    [
        ({"template": "agent"}, ["gpu"]),
        ({"pool": "main"}, ["gpu"]),
        ({"template": "agent", "image": "other"}, ["main", "gpu"]),
        ({"template": "agent", "zone": "b"}, ["main", "gpu"]),
        ({"image": "ami"}, []),
    ],
)
def test_a_block_of_a_template_or_pool_leaves_other_pools_open(speaks_of: dict[str, str], stays: list[str]) -> None:
    """Quarantined is what is made from it, with that image and in that zone, and nothing else of the same offering;
    also for what asks for labels."""
    pools = [pool(), replace(pool(), name=OTHER, template="gpu")]
    blocked = (Blocked(AWS, NOW + 42_000, "burnt", obstacle=Obstacle.BREAKER, **speaks_of),)
    offerings = [replace(offering(zone=zone), image="ami") for zone in "ab"]
    for labels in ((), (("zone", "a"),)):
        for name, of in (("main", MAIN), ("gpu", OTHER)):
            items = [demand(shape(pool=of, labels=labels), 1)]
            found = plan(snapshot(items, pools=pools, offerings=offerings, blocked=blocked))
            assert bool(launches(found)) is (name in stays)
            if name not in stays:
                assert "blocked for another 42s: burnt" in found.waiting[0].reason
                assert found.waiting[0].obstacles == (Obstacle.BREAKER,)


def test_a_block_that_has_passed_blocks_nothing() -> None:
    """`until` is the moment from which it may be tried again."""
    blocked = (Blocked(AWS, NOW, "no capacity"),)
    assert launched(plan(snapshot([demand(shape(), 1)], blocked=blocked))) == {"small": 1}


def test_a_capped_profile_lets_a_dearer_one_take_over() -> None:
    """The cheap profile is full for good, so that prices are compared among the others."""
    pools = [pool(MAIN, AWS, GCP)]
    offerings = [offering(price=10), offering("burst", price=100, profile=GCP)]
    found = plan(
        snapshot([demand(shape(), 3)], pools=pools, offerings=offerings, profile_caps=((AWS, Caps(instances=1)),))
    )
    assert launched(found) == {"small": 1, "burst": 2}


def test_an_unknown_price_is_the_last_resort_and_says_so() -> None:
    """Never while something with a price fits, even at a cap; but alone it is better than nothing."""
    unpriced = offering("mystery", price=None)
    items = [demand(shape(), 1)]
    full = [pool(caps=Caps(instances=0))]
    assert launched(plan(snapshot(items, offerings=[unpriced, offering()]))) == {"small": 1}
    assert launched(plan(snapshot(items, offerings=[unpriced, offering()], pools=full))) == {}
    (launch,) = launches(plan(snapshot(items, offerings=[unpriced])))
    assert "its price is not known" in launch.reason


def test_a_silent_profile_gets_no_launches() -> None:
    """What can't be listed can't be accounted for: the task waits, with the reason, or goes elsewhere."""
    found = plan(snapshot([demand(shape(), 1)], silent=(AWS,)))
    assert launched(found) == {}
    assert "profile aws can't be listed" in found.waiting[0].reason
    said = ((AWS, "profile aws can't be listed: CredentialsRejected: UnauthorizedOperation"),)
    found = plan(snapshot([demand(shape(), 1)], silent=(AWS,), problems=said))
    assert "UnauthorizedOperation; nothing is launched there" in found.waiting[0].reason
    pools = [pool(MAIN, AWS, GCP)]
    offerings = [offering(), offering("there", profile=GCP, price=120)]
    found = plan(snapshot([demand(shape(), 1)], pools=pools, offerings=offerings, silent=(AWS,)))
    assert launched(found) == {"there": 1}


def test_nothing_is_launched_while_paused() -> None:
    """Everybody who waits is told so."""
    found = plan(snapshot([demand(shape(), 1)], stop=Stop(StopLevel.LAUNCHES, "for a test")))
    assert launched(found) == {}
    assert found.waiting[0].reason == "launching is stopped: for a test"


def test_a_storm_is_bounded_and_the_rest_follows_in_the_next_plan() -> None:
    """A million tasks of unknown runtime do not become a million launches at once."""
    found = plan(snapshot([demand(shape(), 1_000_000)]))
    assert sum(launched(found).values()) == 10_000
    assert "a plan launches at most 10000 instances" in found.waiting[0].reason


def test_pools_are_chosen_by_price_too() -> None:
    """Either pool may run the task; the one that may rent spot is cheaper."""
    pools = [pool(MAIN), pool(OTHER, markets=(Market.SPOT,))]
    offerings = [offering(), offering("spot", price=30, market=Market.SPOT)]
    (launch,) = launches(plan(snapshot([demand(shape(), 1)], pools=pools, offerings=offerings)))
    assert launch.pool == OTHER


def test_a_launch_says_what_for_and_why_this_one() -> None:
    """Who reads the reason learns the tasks, the target and the price."""
    (launch,) = launches(plan(snapshot([demand(shape(), 3, expected_ms=10 * MINUTE)])))
    assert launch.reason == (
        "3 tasks of 1 cpu, 1GiB memory would not be served by what runs and boots within 10m;"
        " aws/small/a/on-demand at $0.10/h is the cheapest"
    )


def test_gangs_are_not_begun_by_halves() -> None:
    """All-or-nothing launches are to come; until then a gang launches nothing and is told why."""
    found = plan(snapshot([demand(shape(), 8, gang_size=4)]))
    assert launched(found) == {}
    assert "gangs of 4 tasks" in found.waiting[0].reason


def test_profiles_of_other_pools_are_left_alone() -> None:
    """A pool rents from its own profiles only."""
    found = plan(
        snapshot([demand(shape(), 1)], offerings=[offering(profile=ProfileName("azure"), price=1), offering()])
    )
    assert [launch.offering.profile for launch in launches(found)] == [AWS]


def test_a_choosy_shape_is_not_robbed_of_its_launch_by_one_that_fits_anywhere() -> None:
    """Six large tasks fit either type, a small one only zone b: seven instances at most, and none in a second plan."""
    offerings = [offering("t", memory=4, price=1, zone="a"), offering("t", memory=4, price=1, zone="b", profile=GCP)]
    items = [demand(shape(0.25, 0.25, labels=(("zone", "b"),)), 1), demand(shape(0.25, 4), 6)]
    scene = snapshot(items, pools=[pool(MAIN, AWS, GCP)], offerings=offerings)
    found = plan(scene)
    assert sum(launched(found).values()) == 7
    assert launched(plan(applied(scene, found))) == {}


def test_little_work_is_no_reason_to_pay_a_dear_offering_that_boots_fast() -> None:
    """The sixteenth task is not worth another slow boot; it follows, and does not rent at nineteen times the price."""
    pools = [pool(MAIN, AWS, GCP, target_drain_ms=1_000)]
    offerings = [offering(price=1, boot_ms=300_000), offering("fast", price=19, boot_ms=0, profile=GCP)]
    found = plan(snapshot([demand(shape(), 16, expected_ms=20_000)], pools=pools, offerings=offerings))
    assert launched(found) == {"small": 1}
    assert "1: too little work for another boot" in found.waiting[0].reason


def test_what_is_blocked_for_its_price_leaves_what_costs_less() -> None:
    """For one pool; the tightest of several holds, and another profile is not spoken of."""
    offers = [offering("small", price=10), offering("large", price=100)]
    blocked = tuple(Blocked(AWS, NOW + 1_000, "no money", pool=MAIN, from_rate=rate) for rate in (90_000_000, 10**12))
    wide = [demand(shape(), 1)]
    assert launched(plan(snapshot(wide, offerings=offers, blocked=blocked))) == {"small": 1}
    shut = (Blocked(AWS, NOW + 1_000, "no money", pool=MAIN, from_rate=1),)
    found = plan(snapshot(wide, offerings=offers, blocked=shut))
    assert not launched(found)
    assert "no money" in found.waiting[0].reason
    elsewhere = (Blocked(AWS, NOW + 1_000, "no money", pool="other", from_rate=1),)
    assert launched(plan(snapshot(wide, offerings=offers, blocked=elsewhere)))


def test_of_two_blocks_for_a_price_the_one_that_leaves_least_holds() -> None:
    """Whichever is remembered first."""
    offerings = [offering("cheap", price=90), offering("middle", price=100), offering("dear", price=110)]
    blocks = [Blocked(AWS, NOW + MINUTE, "over budget", from_rate=rate * 1_000_000) for rate in (95, 105)]
    for blocked in (blocks, blocks[::-1]):
        (launch,) = launches(plan(snapshot([demand(shape(), 1)], offerings=offerings, blocked=tuple(blocked))))
        assert launch.offering.type.name == "cheap"
        assert launch.alternatives == ()


@pytest.mark.parametrize(
    ("wanted", "better"),
    [
        ({"cpus": 4}, {"cpus": 8}),
        ({"memory": 16}, {"memory": 32}),
        ({"disk": 80 * GIB}, {"disk": 200}),
        ({"gpus": 2}, {"gpus": 4}),
        ({"gpus": 1, "gpu_type": "a100"}, {"gpu": "a100"}),
        ({"gpus": 1, "gpu_memory": 40 * GIB}, {"gpu_memory": 80 * GIB}),
        ({"preemptible": False}, {"market": Market.ON_DEMAND}),
    ],
)
def test_a_dearer_type_is_rented_where_only_that_is_enough(wanted: dict[str, Any], better: dict[str, Any]) -> None:
    """Whichever single thing the cheaper one has less of: it does not stand for the dearer one."""
    base = {"cpus": 2, "memory": 8, "disk": 50, "gpus": 1, "gpu": "t4", "gpu_memory": 16 * GIB, "market": Market.SPOT}
    cheap, dear = offering("cheap", price=100, **base), offering("dear", price=140, **{**base, **better})
    pools = [pool(markets=(Market.ON_DEMAND, Market.SPOT))]
    for offerings in ([cheap, dear], [dear, cheap]):
        found = plan(
            snapshot([demand(shape(**{"cpus": 1, "memory": 1, **wanted}), 1)], offerings=offerings, pools=pools)
        )
        assert launched(found) == {"dear": 1}
        found = plan(snapshot([demand(shape(), 1)], offerings=offerings, pools=pools))
        assert launched(found) == {"cheap": 1}


def test_vms_of_another_statestore_hold_their_places() -> None:
    """At each level once, however many profiles list them; the reason says whose they are, and what to do."""
    others = Foreign("s1", MAIN, (AWS, GCP), 2, 3)
    for caps in (
        {"caps": Caps(instances=3)}, {"caps": Caps(vcpus=6)}, {"profile_caps": ((AWS, Caps(instances=3)),)},
        {"pools": [pool(caps=Caps(instances=3))]},
        {"driver_caps": (DriverCaps("cloud", (AWS, GCP), Caps(instances=3)),)},
    ):  # fmt: skip
        found = plan(snapshot([demand(shape(), 1)], foreign=(others,), **caps))  # type: ignore[arg-type]
        assert launched(found) == {}
        assert "3 VMs are of statestore s1: `adopt --store` takes them over" in found.waiting[0].reason
    roomy = snapshot([demand(shape(), 2)], foreign=(others,), caps=Caps(instances=4))
    assert launched(plan(roomy)) == {"small": 1}
    elsewhere = replace(others, pool=OTHER, profiles=(GCP,))
    room = {"profile_caps": ((AWS, Caps(instances=1)),), "pools": [pool(caps=Caps(instances=1))]}
    assert launched(plan(snapshot([demand(shape(), 1)], foreign=(elsewhere,), **room))) == {"small": 1}  # type: ignore[arg-type]


def test_nothing_is_drained_for_places_that_others_hold() -> None:
    """A cap that is full of another statestore's VMs stays full; with less of them it is not known that one drain is
    enough for a machine that its pool keeps."""
    others = Foreign("s1", MAIN, (AWS,), 1, 4)
    waiting = [demand(shape(8), 1)]
    offerings = [offering(), offering("large", cpus=8, memory=32, price=800)]
    idle = [instance(n) for n in range(3)]
    for caps in (Caps(instances=4), Caps(vcpus=11)):
        scene = snapshot(waiting, supply=idle, offerings=offerings, foreign=(others,), caps=caps)
        assert drained(plan(scene)) == {}
    roomy = snapshot(waiting, supply=idle, offerings=offerings, foreign=(others,), caps=Caps(instances=7))
    assert list(drained(plan(roomy)).values()) == ["surplus"]
    kept = replace(roomy, pools=(pool(minimum=3),), supply=tuple(replace(one, declines=(0,)) for one in idle))
    assert drained(plan(kept)) == {}
    assert list(drained(plan(replace(kept, foreign=(), caps=Caps(instances=3)))).values()) == ["lifetime"]
