"""What holds for every snapshot: caps, convergence, determinism, honesty; and the checker of it sees what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Load, Shape, room_for
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.plan import Drain, Plan, Terminate, Unsatisfiable
from cloud_dispatch.planner.snapshot import Blocked, DemandItem, DriverCaps, Snapshot, Supply, TargetItem
from tests.planner.oracle import complaints
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
    instance,
    launched,
    launches,
    offering,
    pool,
    shape,
    snapshot,
)  # fmt: skip

S = InstanceState
#: The same scenes in every run: first-fit has anomalies that no bounded search excludes, and a test must not be a
#: lottery. To hunt for one, raise `max_examples` and drop `derandomize`.
SETTINGS = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

caps = st.one_of(
    st.just(Caps()),
    st.builds(Caps, st.one_of(st.none(), st.integers(0, 12)), st.one_of(st.none(), st.integers(0, 40))),
)
shapes = st.builds(
    lambda cpus, memory, gpus, zone, preemptible, exclusive, limit, owner: shape(
        cpus, memory, gpus=gpus, labels=(("zone", zone),) if zone else (), preemptible=preemptible,
        exclusive=exclusive, max_per_instance=limit, pool=owner,
    ),
    st.sampled_from([0.25, 0.5, 1, 2, 3, 4, 8, 20]), st.sampled_from([0.25, 1, 2, 6, 20, 100]),
    st.sampled_from([0, 0, 0, 1]), st.sampled_from(["", "", "", "a", "b"]), st.sampled_from([True, True, False]),
    st.sampled_from([False, False, False, True]), st.sampled_from([0, 0, 0, 2]), st.sampled_from(["", "", "", "main"]),
)  # fmt: skip
items = st.builds(
    lambda wanted, count, expected, priority, oldest: DemandItem(wanted, count, expected, priority, oldest),
    shapes, st.integers(0, 40), st.sampled_from([0, 1_000, 20_000, MINUTE, 20 * MINUTE]), st.integers(0, 2),
    st.integers(0, 3),
)  # fmt: skip
rented = st.builds(
    lambda number, cpus, memory, price, zone, market, profile, gpus, boot: offering(
        f"t{number}", cpus, memory, price, zone=zone, market=market, profile=profile, gpus=gpus, boot_ms=boot
    ),
    st.integers(0, 5), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 4, 8, 32]),
    st.one_of(st.none(), st.integers(1, 500), st.integers(1, 500)), st.sampled_from("ab"), st.sampled_from(Market),
    st.sampled_from([AWS, GCP]), st.sampled_from([0, 0, 0, 2]), st.sampled_from([0, 30_000, 300_000]),
)  # fmt: skip


def _one_type_a_name(offerings: list[Offering]) -> list[Offering]:
    """Offerings of one name and profile are of one type, as with every provider; keys are unique."""
    types, found = {}, {}
    for one in offerings:
        same = types.setdefault((one.profile, one.type.name), one.type)
        one = replace(one, type=same)
        found.setdefault(one.key, one)
    return list(found.values())


pools = st.builds(
    lambda profiles, markets, most, minimum, tasks, factor, drain, worth, reserve: pool(
        MAIN, *profiles, markets=tuple(markets), caps=most, minimum=minimum, max_tasks_per_instance=tasks,
        price_factor_percent=factor, target_drain_ms=drain, min_work_per_boot_percent=worth,
        reserve=Resources(memory=reserve),
    ),
    st.lists(st.sampled_from([AWS, GCP]), min_size=1, max_size=2, unique=True),
    st.lists(st.sampled_from(Market), min_size=1, max_size=2, unique=True), caps, st.sampled_from([0, 0, 3]),
    st.sampled_from([0, 0, 3]), st.sampled_from([100, 150, 1000]), st.sampled_from([1_000, 10 * MINUTE]),
    st.sampled_from([0, 100, 500]), st.sampled_from([0, 1 << 28]),
)  # fmt: skip


@st.composite
def scenes(draw: st.DrawFn, *, supplied: bool = True, limits: bool = True) -> Snapshot:
    """A snapshot of anything: demand, offerings, one or two pools, instances in any state, caps, blocks, targets."""
    offerings = _one_type_a_name(draw(st.lists(rented, min_size=1, max_size=10)))
    own = [draw(pools)]
    if draw(st.booleans()):
        own.append(replace(draw(pools), name=OTHER))
    if not limits:
        own = [replace(p, caps=Caps(), minimum=0) for p in own]
    wanted = draw(st.lists(items, max_size=6))
    known = [item.shape for item in wanted]
    count = draw(st.integers(0, 8)) if supplied else 0
    supply = [draw(_instances(number, own, offerings, known)) for number in range(count)]
    rest = {}
    if limits:
        rest = {
            "caps": draw(caps),
            "profile_caps": ((AWS, draw(caps)),),
            "driver_caps": draw(st.sampled_from([(), (DriverCaps("both", (AWS, GCP), draw(caps)),)])),
            "blocked": tuple(draw(st.lists(_blocks, max_size=2))),
            "silent": tuple(draw(st.sampled_from([(), (), (), (GCP,)]))),
            "targets": tuple(draw(st.lists(_targets, max_size=2))),
            "unknowns": any(s.state is S.UNKNOWN for s in supply),
            "stop": Stop(draw(st.sampled_from([StopLevel.NOTHING] * 5 + list(StopLevel)[1:])), "for a test"),
            "max_batch": ((AWS, draw(st.sampled_from([1, 4, 1000]))), (GCP, 1000)),
        }
    return snapshot(wanted, supply=supply, pools=own, offerings=offerings, **rest)


@st.composite
def _instances(draw: st.DrawFn, number: int, own: list[Pool], offerings: list[Offering], known: list[Shape]) -> Supply:
    state = draw(st.sampled_from([S.IDLE, S.IDLE, S.BUSY, S.BUSY, *S]))
    made = instance(
        number, draw(st.sampled_from(offerings)), state, pools=own, of=draw(st.sampled_from(own)).name,
        intended_ms=NOW - draw(st.sampled_from([0, 70_000, 700_000])),
        since_ms=NOW - draw(st.sampled_from([0, 70_000])),
        behaviour=draw(st.sampled_from([Behaviour.RUN, Behaviour.RUN, Behaviour.RUN, *Behaviour])),
        in_doubt=state is S.LAUNCHING and draw(st.booleans()), stale=draw(st.sampled_from(["", "", "", "type left"])),
    )  # fmt: skip
    load = stays = Load()
    if state is S.BUSY and known:
        for other in draw(st.lists(st.sampled_from(known), max_size=3)):
            if room_for(made.machine, load, other, 1):
                load = load.plus(other)
                stays = stays.plus(other) if draw(st.booleans()) else stays
    idle_since = NOW - draw(st.sampled_from([0, MINUTE, 5 * MINUTE])) if state is S.IDLE else None
    declines = [n for n, other in enumerate(known) if not made.machine.misfit(other) and draw(st.booleans())]
    return replace(
        made, load=load, stays=stays,
        free_ms=NOW + draw(st.sampled_from([0, MINUTE, 20 * MINUTE])) if load.tasks else 0,
        idle_since_ms=idle_since, asks_end=state is S.IDLE and draw(st.booleans()),
        declines=tuple(declines) if draw(st.sampled_from([False, False, True])) else (),
    )  # fmt: skip


_blocks = st.builds(
    lambda profile, until, kind, zone, pool, template: Blocked(
        profile, until, "no capacity", type=kind, zone=zone, pool=pool, template=template
    ),
    st.sampled_from([AWS, GCP]), st.sampled_from([NOW, NOW + MINUTE]), st.sampled_from(["", "t0", "t1"]),
    st.sampled_from(["", "a"]), st.sampled_from(["", "", MAIN, OTHER]), st.sampled_from(["", "", "agent", "other"]),
)  # fmt: skip
_targets = st.builds(
    TargetItem, st.sampled_from([MAIN, OTHER]), st.integers(0, 5), st.sampled_from(["rest", "schedule"]), st.booleans()
)


@SETTINGS
@given(scene=scenes())
def test_no_plan_breaks_a_rule(scene: Snapshot) -> None:
    """Caps at every level, counts, places, drains, reasons, price: an independent judge has no complaint."""
    assert complaints(scene, plan(scene)) == []


@SETTINGS
@given(scene=scenes(supplied=False, limits=False))
def test_unlimited_plans_break_no_rule_and_cost_no_more_than_an_instance_a_task(scene: Snapshot) -> None:
    """Without limits the bound on the price applies to every scene."""
    assert complaints(scene, plan(scene)) == []


@SETTINGS
@given(scene=scenes())
def test_what_was_launched_is_not_launched_again(scene: Snapshot) -> None:
    """With its launches booting, the next plan of the same demand launches nothing: it converges in one step."""
    first = plan(scene)
    second = plan(applied(scene, first))
    assert launched(second) == {}


@st.composite
def half_used(draw: st.DrawFn) -> Snapshot:
    """The same where next to nothing waits, what runs leaves half of its instance unused, and small ones are cheap."""
    scene = draw(scenes())
    left = draw(st.sampled_from([(), (), scene.demand[:1]]))
    asked = [shape(0.5), *(item.shape for item in scene.demand)]
    supply = []
    for one in scene.supply:
        fitting = [own for own in asked if own.resources.fits(one.machine.half()) and not one.machine.misfit(own)]
        one = replace(one, declines=tuple(number for number in one.declines if number < len(left)))
        if fitting and one.state is not S.IDLE:
            own = draw(st.sampled_from(fitting))
            one = replace(
                one, state=S.BUSY, behaviour=Behaviour.RUN, stale="", load=busy(own, 1), stays=Load(),
                free_ms=NOW + MINUTE, idle_since_ms=None, asks_end=False, shapes=(own,),
                slack_since_ms=NOW - draw(st.sampled_from([MINUTE, 60 * MINUTE])),
            )  # fmt: skip
        supply.append(one)
    small = [offering("tiny", 1, 4, 1, profile=profile, market=Market.SPOT) for profile in (AWS, GCP)]
    pools = tuple(replace(own, minimum=0) for own in scene.pools)
    offerings = (*scene.offerings, *small)
    return replace(
        scene, demand=left, supply=tuple(supply), unknowns=False, offerings=offerings, pools=pools, targets=()
    )


@SETTINGS
@given(scene=half_used())
def test_what_is_larger_than_its_work_goes_by_the_rules(scene: Snapshot) -> None:
    """None too many, none that is wanted; and nothing is rented because one goes."""
    found = plan(scene)
    assert complaints(scene, found) == []
    assert launched(plan(applied(scene, found))) == {}


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """The same where all that exists works, and a cap lets no more in."""
    scene = draw(scenes())
    asked = [item.shape for item in scene.demand]
    supply = []
    for one in scene.supply:
        own = next((own for own in asked if room_for(one.machine, Load(), own, 1)), shape(0.25, 0.25))
        load = busy(own, draw(st.integers(1, 2)))
        one = replace(
            one, state=S.BUSY, behaviour=Behaviour.RUN, stale="", load=load, idle_since_ms=None, asks_end=False,
            stays=draw(st.sampled_from([Load(), Load(), load])), free_ms=NOW + draw(st.sampled_from([0, MINUTE])),
            intended_ms=NOW - draw(st.sampled_from([0, 60 * MINUTE])),
        )  # fmt: skip
        supply.append(one)
    waiting = tuple(replace(item, oldest_ms=item.oldest_ms or NOW - MINUTE) for item in scene.demand)
    return replace(
        scene, demand=waiting, supply=tuple(supply), unknowns=False, stop=Stop(), silent=(),
        caps=Caps(instances=len(supply)),
    )  # fmt: skip


@SETTINGS
@given(scene=crowded())
def test_turns_come_by_the_rules(scene: Snapshot) -> None:
    """Who makes way does so for what the judge finds to come first too; and nothing is rented before it has gone."""
    found = plan(scene)
    assert complaints(scene, found) == []
    assert launched(plan(applied(scene, found))) == {}


@st.composite
def spot_would_do(draw: st.DrawFn) -> Snapshot:
    """The same where what is on demand does what spot VMs would for less, whatever waits."""
    scene = draw(scenes())
    quiet = draw(st.booleans())
    supply = []
    for one in scene.supply:
        own = shape(0.5)
        if one.market == Market.ON_DEMAND and one.state is not S.IDLE and not one.machine.misfit(own):
            one = replace(
                one, state=S.BUSY, behaviour=Behaviour.RUN, stale="", load=busy(own, 1), stays=Load(),
                free_ms=NOW + MINUTE, idle_since_ms=None, asks_end=False, shapes=(own,),
                spot_since_ms=NOW - draw(st.sampled_from([MINUTE, 60 * MINUTE])),
            )  # fmt: skip
        if not quiet or one.state in (S.IDLE, S.BUSY):
            supply.append(one)
    dear = [one for one in scene.offerings if one.market == Market.ON_DEMAND and one.rate is not None]
    spot = [replace(one, market=Market.SPOT, rate=Rate((one.rate or 0) // 10)) for one in dear]
    pools = tuple(replace(own, minimum=0, markets=tuple(Market)) for own in scene.pools)
    offerings = (*(one for one in scene.offerings if one.market == Market.ON_DEMAND), *spot)
    firm = draw(st.booleans())
    demand = tuple(item for item in scene.demand if firm or item.shape.preemptible)
    caps = Caps(instances=len(supply)) if draw(st.booleans()) else scene.caps
    return replace(
        scene,
        demand=demand,
        supply=tuple(supply),
        unknowns=False,
        offerings=offerings,
        pools=pools,
        targets=(),
        caps=caps,
    )


@SETTINGS
@given(scene=spot_would_do())
def test_what_spot_vms_would_do_goes_by_the_rules(scene: Snapshot) -> None:
    """None too many, none that is needed, and not the last one where none may be had in its place."""
    assert complaints(scene, plan(scene)) == []


@SETTINGS
@given(scene=scenes())
def test_a_plan_says_the_same_for_the_same_snapshot(scene: Snapshot) -> None:
    """Nothing but the snapshot matters: planned twice, equal in every word."""
    assert plan(scene) == plan(replace(scene))


@SETTINGS
@given(scene=scenes(limits=False), big=st.integers(1, 5))
def test_an_impossible_shape_changes_nothing_for_the_others(scene: Snapshot, big: int) -> None:
    """A shape that nothing can ever run is reported, and everybody else's plan stays as it is."""
    impossible = DemandItem(shape(1000 * big), 5, priority=99)
    alone, beside = plan(scene), plan(replace(scene, demand=(*scene.demand, impossible)))
    assert beside.actions == alone.actions
    assert tuple(w for w in beside.waiting if w.shape != impossible.shape) == alone.waiting
    listed = {one.profile for one in scene.offerings}
    if all(profile in listed for one in scene.pools for profile in one.profiles):
        assert [u.shape for u in beside.unsatisfiable if u not in alone.unsatisfiable] == [impossible.shape]


@SETTINGS
@given(scene=scenes(limits=False), more=st.integers(1, 3))
def test_a_longer_queue_is_not_left_without_launches(scene: Snapshot, more: int) -> None:
    """Where some tasks are worth a launch, more tasks of the same shapes are too."""
    grown = tuple(replace(item, count=item.count * (1 + more)) for item in scene.demand)
    slots = sum(action.slots for action in launches(plan(scene)))
    if slots:
        assert sum(action.slots for action in launches(plan(replace(scene, demand=grown)))) > 0


BROKEN = snapshot([demand(shape(), 2)], supply=[instance(0), instance(1, state=S.BUSY, load=busy(shape(), 1))])
LONG = snapshot(supply=[instance(state=S.BUSY, load=busy(shape(0.5), 2), stays=busy(shape(0.5), 1))])
LAUNCH = launches(plan(snapshot([demand(shape(), 1)])))[0]


@pytest.mark.parametrize(
    ("scene", "wrong", "complaint"),
    [
        (replace(BROKEN, caps=Caps(instances=3)), Plan((replace(LAUNCH, slots=2),)), "all has 4 instances, cap 3"),
        (replace(BROKEN, caps=Caps(vcpus=3)), Plan((replace(LAUNCH, slots=2),)), "all has 4 vcpus, cap 3"),
        (BROKEN, Plan((replace(LAUNCH, slots=3),)), "3 instances for 2 tasks"),
        (replace(BROKEN, max_batch=()), Plan((replace(LAUNCH, slots=2),)), "a batch of 2"),
        (replace(BROKEN, stop=Stop(StopLevel.LAUNCHES)), Plan((LAUNCH,)), "launches while stopped"),
        (replace(BROKEN, stop=Stop(StopLevel.DRAIN)), Plan(), "is not drained although everything is"),
        (replace(BROKEN, stop=Stop(StopLevel.TERMINATE)), Plan(), "is not ended although everything is"),
        (replace(BROKEN, silent=(AWS,)), Plan((LAUNCH,)), "is not for pool main now"),
        (replace(BROKEN, blocked=(Blocked(AWS, NOW + 1, "x"),)), Plan((LAUNCH,)), "is blocked"),
        (BROKEN, Plan((Drain(BROKEN.supply[1].instance, "idle", "x"),)), "drained with work"),
        (BROKEN, Plan((Drain(BROKEN.supply[0].instance, "idle", "x"),)), "drained before its timeout"),
        (BROKEN, Plan((Drain(BROKEN.supply[0].instance, "oversized", "x"),)), "and idles, or works for long"),
        (BROKEN, Plan((Drain(BROKEN.supply[1].instance, "oversized", "x"),)), "and was of use"),
        (BROKEN, Plan((Drain(BROKEN.supply[1].instance, "oversized", "x"),)), "what waits could use it"),
        (BROKEN, Plan((Drain(BROKEN.supply[1].instance, "oversized", "x"),)), "nothing cheaper runs what it does"),
        (BROKEN, Plan((Drain(BROKEN.supply[0].instance, "overpriced", "x"),)), "and idles, or works for long"),
        (BROKEN, Plan((Drain(BROKEN.supply[1].instance, "overpriced", "x"),)), "and was needed"),
        (BROKEN, Plan((Drain(BROKEN.supply[1].instance, "overpriced", "x"),)), "nothing cheaper runs what it does"),
        (
            replace(BROKEN, supply=BROKEN.supply[1:], caps=Caps(instances=1)),
            Plan((Drain(BROKEN.supply[1].instance, "overpriced", "x"),)),
            "was the last on demand",
        ),
        (
            replace(BROKEN, supply=BROKEN.supply[1:], caps=Caps(instances=1), demand=()),
            Plan((Drain(BROKEN.supply[1].instance, "overpriced", "x"),)),
            "too little waits for another one",
        ),
        (BROKEN, Plan((Drain(BROKEN.supply[0].instance, "turn", "x"),)), "and does not work as usual"),
        (LONG, Plan((Drain(LONG.supply[0].instance, "turn", "x"),)), "and works for long"),
        (BROKEN, Plan((Drain(BROKEN.supply[1].instance, "turn", "x"),)), "before it is their turn"),
        (BROKEN, Plan((Drain(BROKEN.supply[0].instance, "stale", "x"),)), "is not stale"),
        (BROKEN, Plan((*2 * [Drain(BROKEN.supply[0].instance, "stale", "x")],)), "is drained twice"),
        (BROKEN, Plan((Drain(BROKEN.supply[0].instance, "lifetime", "x"),)), "is not too old or too dear for anything"),
        (BROKEN, Plan((Terminate(BROKEN.supply[0].instance, "failed", "x"),)), "terminated while idle"),
        (BROKEN, Plan((replace(LAUNCH, reason=" "),)), "no reason"),
        (BROKEN, Plan(), "nothing is said of 1 cpu"),
        (BROKEN, Plan(unsatisfiable=(Unsatisfiable(shape(), 1, "x"),)), "can run 1 cpu"),
        (BROKEN, Plan((replace(LAUNCH, offering=offering(price=250)),)), "one instance a task would be"),
    ],
)
def test_the_judge_sees_a_planted_fault(scene: Snapshot, wrong: Plan, complaint: str) -> None:
    """Each rule of the judge fires on a plan that breaks it; a judge that can't complain proves nothing."""
    assert any(complaint in said for said in complaints(scene, wrong)), complaints(scene, wrong)


def test_the_convergence_check_sees_a_planner_that_forgets_what_boots() -> None:
    """Were launches not applied, the second plan would launch again: the property has something to find."""
    scene = snapshot([demand(shape(), 3)])
    assert launched(plan(scene)) == launched(plan(scene)) == {"small": 3}
    assert launched(plan(applied(scene, plan(scene)))) == {}


def test_profile_names_of_the_scenes_are_the_ones_that_offerings_use() -> None:
    """Guards the generators: both profiles occur, so that profile caps and silence are exercised."""
    assert {AWS, GCP} == {ProfileName("aws"), ProfileName("gcp")}
