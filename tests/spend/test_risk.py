"""What a configuration may cost at worst, in words."""

from __future__ import annotations

from dataclasses import replace

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import Amount, Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.pool import Caps, EndRules, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.risk import in_words, risk_of
from cloud_dispatch.spend.windows import Window

DAY_MS = 86_400_000
POOL = Pool(PoolName("p"), (ProfileName("a"),), end=EndRules(lifetime_ms=DAY_MS))


def offering(cents: int | None, vcpus: int = 2, **more: object) -> Offering:
    kind = InstanceType(f"t{vcpus}", Resources(vcpus * 1000, GIB))
    rate = None if cents is None else Rate(cents * 10_000_000)
    return replace(Offering(ProfileName("a"), kind, "z", Market.ON_DEMAND, rate), **more)  # type: ignore[arg-type]


def test_caps_prices_and_lifetimes_multiply() -> None:
    """The dearest way to use the caps up is named: here many small machines, the cap on vCPUs hits large ones."""
    small, large = offering(10, 2), offering(30, 16)
    caps = (Caps(instances=10), Caps(vcpus=40))
    risk = risk_of(POOL, [large, small], [caps, caps])
    assert risk is not None
    assert (risk.offering, risk.instances, risk.amount) == ("a/t2/z/on-demand", 10, 24_000_000)
    assert str(risk) == "pool p: 10 x a/t2/z/on-demand at $0.10/h for 1d comes to $24.00"


def test_disks_and_addresses_are_in_it() -> None:
    risk = risk_of(POOL, [offering(10, extra_rate=Rate(10_000_000))], [(Caps(instances=1),)])
    assert risk is not None
    assert risk.amount == 2_640_000


def test_what_nothing_bounds_is_said_first() -> None:
    """No cap is worse than any price, and no price worse than any other."""
    caps = (Caps(instances=3),)
    unbounded = risk_of(POOL, [offering(900), offering(1, 4)], [caps, ()])
    assert unbounded is not None
    assert str(unbounded) == "pool p: any number of x a/t4/z/on-demand at $0.01/h for 1d comes to no bound"
    unpriced = risk_of(POOL, [offering(900), offering(None, 4)], [caps, caps])
    assert unpriced is not None
    assert unpriced.amount is None
    spot = replace(POOL, markets=(Market.SPOT,))
    assert risk_of(spot, [offering(900)], [caps]) is None


def test_the_words_name_the_limits() -> None:
    risks = [risk_of(POOL, [offering(10)], [(Caps(instances=n),)]) for n in (1, 2)]
    words = in_words([risk for risk in risks if risk], [Budget(EVERYTHING, Window.DAY, Amount(5_000_000))])
    assert words[-2:] == ["all pools together, each by itself: $7.20", "limits: day $5.00"]
    assert in_words([], []) == ["no spending limit is set: nothing but the caps bounds this"]


def test_of_what_nothing_bounds_the_dearer_is_named() -> None:
    """An hour of it, where no amount can be told."""
    risk = risk_of(POOL, [offering(10, 2), offering(90, 4), offering(20, 8)], [(), (), ()])
    assert risk is not None
    assert risk.offering == "a/t4/z/on-demand"


def test_a_price_that_nobody_knows_is_said_and_adds_up_to_nothing() -> None:
    """What one pool comes to is no sum of all, nor is the one pool that there is."""
    unpriced, priced = (risk_of(POOL, [offering(cents)], [(Caps(instances=1),)]) for cents in (None, 10))
    assert unpriced is not None
    assert priced is not None
    assert str(unpriced) == "pool p: 1 x a/t2/z/on-demand at a price that nobody knows for 1d comes to no bound"
    for risks in ([unpriced, priced], [priced], [unpriced]):
        assert in_words(risks, [])[:-1] == [str(risk) for risk in risks]


def test_a_cap_of_nothing_costs_nothing() -> None:
    """Neither does what a provider gives away; a machine without a vCPU of its own counts as one."""
    for cents, caps in ((10, Caps(instances=0)), (10, Caps(vcpus=1)), (0, Caps(instances=5))):
        risk = risk_of(POOL, [offering(cents)], [(caps,)])
        assert risk is not None
        assert risk.amount == 0
    tiny = offering(10)
    tiny = replace(tiny, type=replace(tiny.type, capacity=Resources(0, GIB)))
    risk = risk_of(POOL, [tiny], [(Caps(vcpus=3),)])
    assert risk is not None
    assert risk.instances == 3
