"""What could be rented now, cheapest first, and why the rest could not: by the planner's own rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, TypeFilter
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.offers import Ranking
from cloud_dispatch.planner.snapshot import Blocked, QuotaUse, Snapshot
from tests.planner.scenes import AWS, GCP, MAIN, MINUTE, NOW, OTHER, demand, instance, launched, offering, pool, shape
from tests.planner.scenes import snapshot as scene

SMALL, BIG = offering("small", 2, 4, 100), offering("big", 8, 32, 300)
SPOT = replace(offering("big", 8, 32, 90), market=Market.SPOT)
GPU = offering("gpu", 8, 64, 900, gpus=1, gpu="a100", gpu_memory=40 * 2**30)
BOTH = pool(markets=(Market.ON_DEMAND, Market.SPOT))


def ranked(snapshot: Snapshot, wanted: Shape) -> list[str]:
    return [one.offering.key for one in Ranking(snapshot, wanted).offers]


def why(snapshot: Snapshot, wanted: Shape, key: str) -> str:
    (found,) = [one.why for one in Ranking(snapshot, wanted).excluded() if one.offering.key == key]
    return found


def test_what_could_be_rented_comes_cheapest_first_and_unknown_prices_last() -> None:
    """Over all profiles; what no price is known of could be rented all the same."""
    unpriced, there = offering("odd", 8, 32, None), offering("n2", 8, 32, 200, profile=GCP)
    offerings = [unpriced, BIG, GPU, SPOT, SMALL, there]
    pools = [replace(BOTH, profiles=(AWS, GCP))]
    found = Ranking(scene(offerings=offerings, pools=pools), shape(4, 8))
    assert [one.offering.type.name for one in found.offers] == ["big", "n2", "big", "gpu", "odd"]
    assert [one.offering.type.name for one in found.excluded()] == ["small"]


@pytest.mark.parametrize(
    ("wanted", "more", "said"),
    [
        (shape(16, 8), {}, "asks for 16 cpu, has 8"),
        (shape(4, 8, gpus=1, gpu_type="h100"), {}, "asks for 1 gpu, has 0"),
        (shape(4, 8, labels=(("arch", "arm64"),)), {}, "asks for label arch=arm64"),
        (shape(4, 8, labels=(("market", "spot"),)), {}, "asks for label market=spot"),
        (shape(4, 8, pool="other"), {}, "asks for pool other, this is pool main"),
        (shape(4, 8), {"silent": (AWS,), "problems": ((AWS, "profile aws can't be listed: no answer"),)},
         "profile aws can't be listed: no answer; nothing is launched there"),
        (shape(4, 8), {"blocked": (Blocked(AWS, NOW + MINUTE, "CapacityUnavailable: none", zone="a"),)},
         "aws/a blocked for another 60s: CapacityUnavailable: none"),
        (shape(4, 8), {"caps": Caps(vcpus=4)}, "cap of everything reached (vcpus 0 of 4, another 8 wanted)"),
        (shape(4, 8), {"quotas": (QuotaUse(AWS, "L-1", 10, 4),)},
         "quota L-1 of profile aws has no room (vcpus 4 of 10, another 8 wanted)"),
        (shape(4, 8), {"pools": [pool(types=TypeFilter(allow=("small",)))]}, "pool main does not allow type big"),
        (shape(4, 8), {"pools": [pool(markets=(Market.SPOT,))]}, "pool main does not rent on the on-demand market"),
        (shape(4, 8), {"pools": [pool(MAIN, GCP)]}, "no pool is of profile aws"),
    ],
)  # fmt: skip
def test_each_that_could_not_be_rented_has_its_reason(wanted: Shape, more: dict[str, Any], said: str) -> None:
    found = scene(offerings=[BIG], **more)
    assert ranked(found, wanted) == []
    assert why(found, wanted, BIG.key) == said


def test_a_profile_that_sells_only_small_machines_is_not_one_of_which_nothing_is_known() -> None:
    """What is too small is left out of the search, not of the answer."""
    found = Ranking(scene(offerings=[SMALL], pools=[pool(MAIN, AWS, GCP)]), shape(4, 8))
    assert (found.offers, found.unseen) == ([], (GCP,))
    assert [one.why for one in found.excluded()] == ["asks for 4 cpu, has 2"]


def test_an_offering_is_there_with_the_pools_that_may_rent_it() -> None:
    """And why another one may not is no reason against it."""
    pools = [pool(MAIN, caps=Caps(instances=0)), pool(OTHER)]
    (one,) = Ranking(scene(offerings=[BIG], pools=pools), shape(4, 8)).offers
    assert [each.name for each in one.pools] == [OTHER]
    (one,) = Ranking(scene(offerings=[BIG], pools=[pool(MAIN), pool(OTHER)]), shape(4, 8)).offers
    assert [each.name for each in one.pools] == [MAIN, OTHER]


def test_what_could_not_be_rented_comes_cheapest_first_too() -> None:
    """What costs nothing before what costs something, and what nobody knows the price of last."""
    kinds = [(7, 700), (3, None), (1, 0), (9, 300)]
    found = Ranking(scene(offerings=[offering(f"t{n}", 1, 1, price) for n, price in kinds]), shape(64, 8))
    assert [one.offering.type.name for one in found.excluded()] == ["t1", "t9", "t7", "t3"]


@given(
    cpus=st.integers(1, 9), spot=st.booleans(), cap=st.integers(0, 2), limit=st.integers(0, 12), running=st.booleans(),
    shut=st.sampled_from(["", "small", "big"]),
)  # fmt: skip
def test_the_first_is_what_a_plan_would_rent_and_none_means_that_it_would_rent_nothing(
    cpus: int, spot: bool, cap: int, limit: int, running: bool, shut: str
) -> None:
    """A ranking by other rules than the planner's would promise what is then not launched."""
    wanted = shape(cpus, 4, exclusive=True, preemptible=spot)
    found = scene(
        [demand(wanted, 1)],
        offerings=[SMALL, BIG, SPOT],
        pools=[replace(BOTH, price_factor_percent=10_000)],
        supply=[instance(0, SMALL, load=replace(instance().load, tasks=1, exclusive=True))] if running else [],
        caps=Caps(instances=cap),
        quotas=(QuotaUse(AWS, "L", limit, 0, market="on-demand"),),
        blocked=(Blocked(AWS, NOW + MINUTE, "none", type=shut),) if shut else (),
    )
    keys = ranked(found, wanted)
    assert list(launched(plan(found))) == [key.split("/")[1] for key in keys[:1]]
