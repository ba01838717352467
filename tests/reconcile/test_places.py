"""A profile with VMs stays where they are, over reloads and restarts; one without may move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from cloud_dispatch.api.services import AgentBundle
from cloud_dispatch.assembly import Rules, set_limits
from cloud_dispatch.domain.errors import Conflict
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.planner.snapshot import DriverCaps
from cloud_dispatch.ports.store import InstanceChange, TaskFilter
from cloud_dispatch.reconcile import leaving, picture, places
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window, span_at
from cloud_dispatch.wire.messages import Policy
from tests.reconcile.fake import LOCAL, NAMED, Cloud, World, world

ELSEWHERE = ProfileName("elsewhere")
HERE, THERE = (("region", "here"),), (("region", "there"),)


async def start(w: World, **changes: Any) -> None:
    """What a dispatcher does with these settings before anything else."""
    settings = replace(w.context.settings, **changes)
    await w.store.set_limits((), {}, facts=places.kept(w.store, settings))
    w.context.settings = settings


async def become(w: World, **changes: Any) -> None:
    """What `assembly.Parts.follow` does between two passes."""
    before = w.context.settings
    settings = leaving.kept(before, replace(before, **changes), w.store.instances().values())
    await w.store.set_limits((), {}, facts=places.kept(w.store, settings))
    w.context.follow(settings)


def at(w: World, place: tuple[tuple[str, str], ...], *zones: str, name: ProfileName = LOCAL) -> dict[str, Any]:
    """The profile with a driver that looks there. A driver is one made anew, to the same cloud."""
    cloud = Cloud(w.clock, traits=replace(NAMED, place=place, zones=zones), vms=w.cloud.vms)
    return {"providers": {name: cloud}}


async def gone(w: World) -> None:
    (row,) = w.rows
    await w.store.cancel(TaskFilter(states=frozenset({TaskState.QUEUED})))
    await w.fleet.kill(row.id, "the test is done with it")
    await w.passes(6)
    assert not w.rows


async def test_a_profile_with_vms_stays_where_they_are(tmp_path: Path) -> None:
    """A driver that looks elsewhere would have them taken for lost. Once they are gone it may move, and back."""
    async with world(tmp_path) as w:
        await start(w, **at(w, HERE))
        await become(w, **at(w, THERE))
        await become(w, **at(w, HERE))
        await w.booted()
        before = w.context.settings
        with pytest.raises(Conflict, match=r"has VMs where region is 'here'.*'there'") as refused:
            await become(w, **at(w, THERE))
        assert (refused.value.place, "another name" in refused.value.hint) == ("profiles.local.region", True)
        assert w.context.settings is before
        await become(w, **at(w, HERE))
        await gone(w)
        await become(w, **at(w, THERE))


async def test_a_start_compares_with_what_was_before_it(tmp_path: Path) -> None:
    """Nothing but the store remembers then."""
    async with world(tmp_path) as w:
        await start(w, **at(w, HERE))
        await w.booted()
        await w.restart()
        with pytest.raises(Conflict, match="region"):
            await start(w, **at(w, THERE))
        await start(w, **at(w, HERE))
        await gone(w)
        await start(w, **at(w, THERE))


async def test_a_statestore_that_knows_no_place_learns_it_at_its_first_start(tmp_path: Path) -> None:
    """It comes from a version that noted none; its VMs are where its configuration says."""
    async with world(tmp_path) as w:
        await w.booted()
        await start(w, **at(w, HERE))
        with pytest.raises(Conflict, match="region"):
            await start(w, **at(w, THERE))


async def test_a_profile_with_vms_becomes_no_other_driver_s(tmp_path: Path) -> None:
    """Its VMs would be nobody's. Said before the rest, which means nothing to another driver."""
    async with world(tmp_path) as w:
        await start(w, drivers={LOCAL: "local"}, **at(w, HERE))
        await become(w, drivers={LOCAL: "cloud"})
        await become(w, drivers={LOCAL: "local"})
        await w.booted()
        for follow in (become, start):
            with pytest.raises(Conflict, match=r"'local'.*'cloud'") as refused:
                await follow(w, drivers={LOCAL: "cloud"}, **at(w, (("account", "1"), *THERE)))
            assert refused.value.place == "profiles.local.driver"


async def test_what_a_driver_does_not_say_is_compared_with_nothing(tmp_path: Path) -> None:
    """Of credentials nobody knows the account without asking. Once it was said it is remembered as long as VMs live."""
    async with world(tmp_path) as w:
        await start(w, **at(w, ()))
        await w.booted()
        await become(w, **at(w, HERE))
        await become(w, **at(w, (*HERE, ("account", "1"))))
        await become(w, **at(w, HERE))
        await become(w, **at(w, ()))
        with pytest.raises(Conflict, match="account"):
            await become(w, **at(w, (*HERE, ("account", "2"))))
        await gone(w)
        await become(w, **at(w, (*HERE, ("account", "2"))))


async def test_zones_may_come_and_those_without_vms_may_go(tmp_path: Path) -> None:
    """A driver that lists some zones of its place must go on listing those that have VMs."""
    async with world(tmp_path) as w:
        await start(w, **at(w, HERE, "zone-"))
        await w.booted()
        (row,) = w.rows
        await become(w, **at(w, HERE, "other-", row.zone, "third-"))
        await become(w, **at(w, HERE, row.zone))
        for follow in (become, start):
            with pytest.raises(Conflict, match=f"has VMs in {row.zone}"):
                await follow(w, **at(w, HERE, "other-", "third-"))
        await become(w, **at(w, HERE))


async def test_a_profile_that_left_comes_back_where_its_vms_are(tmp_path: Path) -> None:
    """While its driver is kept for its last VMs, and after a start that did not know it."""
    async with world(tmp_path) as w:
        await start(w, **at(w, HERE))
        await w.booted()
        without = {"pools": {}, **at(w, THERE, name=ELSEWHERE)}
        for follow in (become, start):
            await follow(w, **without)
            with pytest.raises(Conflict, match="'here'"):
                await follow(w, **at(w, THERE))
        await start(w, **at(w, HERE))
        await gone(w)
        await start(w, **without)
        assert set(w.store.facts(places.FACT)) == {f"{places.FACT}{ELSEWHERE}"}


async def test_what_a_profile_that_left_may_cost_counts_for_its_driver(tmp_path: Path) -> None:
    """Also after a start that did not know it; in the ledger too, once its VMs are gone."""
    async with world(tmp_path) as w:
        hourly = Budget(Key(Scope.DRIVER, "cloud"), Window.HOUR, Amount(10**9))
        rules = Rules(
            replace(w.context.settings, drivers={LOCAL: "cloud"}), cast(Policy, None), cast(AgentBundle, None)
        )
        await set_limits(w.store, rules)
        await w.booted()
        (row,) = w.rows
        w.context.settings = replace(rules.settings, pools={}, providers={}, drivers={ELSEWHERE: "cloud"})
        await set_limits(w.store, replace(rules, settings=w.context.settings, budgets=(hourly,)))
        assert hourly.key in w.store.committed()[row.id].keys
        assert w.store.standing().committed(hourly, span_at(Window.HOUR, w.clock.now())) > 0
        w.clock.ms += 60_000
        await w.store.change([InstanceChange(row.id, InstanceEvent.TERMINATE)])
        await w.store.change([InstanceChange(row.id, InstanceEvent.GONE)])
        assert w.store.standing().spent(hourly, span_at(Window.HOUR, w.clock.now())) > 0
        await set_limits(w.store, replace(rules, settings=w.context.settings))
        assert places.drivers(w.store, w.context.settings) == {ELSEWHERE: "cloud"}


async def test_vms_of_a_profile_that_left_count_against_the_caps_of_their_driver(tmp_path: Path) -> None:
    """After a reload, and after a start that did not know it."""
    caps = DriverCaps("cloud", (LOCAL,), Caps(instances=1))
    async with world(tmp_path) as w:
        before = replace(w.context.settings, drivers={LOCAL: "cloud"}, driver_caps=[caps])
        await set_limits(w.store, Rules(before, cast(Policy, None), cast(AgentBundle, None)))
        w.context.settings = before
        await w.booted()
        after = replace(before, drivers={ELSEWHERE: "cloud"}, driver_caps=[replace(caps, profiles=(ELSEWHERE,))])
        after = replace(after, pools={}, **at(w, THERE, name=ELSEWHERE))
        reloaded = leaving.kept(before, after, w.store.instances().values())
        for settings in (reloaded, after):
            held = places.counted(w.store, settings)
            assert held.driver_caps == [replace(caps, profiles=(ELSEWHERE, LOCAL))]
            w.context.settings = replace(held, pools=before.pools)
            pool, snapshot = next(iter(before.pools.values())), picture.take(w.context, ())
            assert Ledger(snapshot).room(pool, ELSEWHERE, 1) == 0
        await start(w, **at(w, HERE), pools=before.pools, drivers=before.drivers)
        await gone(w)
        assert places.counted(w.store, after) == after
