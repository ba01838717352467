"""What is remembered from pass to pass is what looking at everything would find."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.domain.ids import InstanceId, ProfileName
from cloud_dispatch.domain.instance import INSTANCE_TABLE, InstanceState
from cloud_dispatch.domain.pool import TypeFilter
from cloud_dispatch.planner.snapshot import Supply
from cloud_dispatch.ports.fleet import Heard
from cloud_dispatch.ports.store import SyncCall
from cloud_dispatch.reconcile import picture
from cloud_dispatch.reconcile.contacts import NEW
from cloud_dispatch.reconcile.stale import Stale
from tests.reconcile.examples import instance, offering
from tests.reconcile.fake import POOL, World, world

S = InstanceState
NOBODY: Sequence[DemandSource] = ()


def seen(w: World) -> tuple[Supply, ...]:
    return picture.take(w.context, NOBODY).supply


def seen_anew(w: World) -> tuple[Supply, ...]:
    for row in w.rows:
        w.context.contact(row.id).supply = None
    return seen(w)


async def claim(w: World, name: InstanceId) -> None:
    await w.store.sync(SyncCall(name, 1, want=1))


async def hold(w: World, name: InstanceId) -> None:
    await w.fleet.hold(name, "test")


async def ask_end(w: World, name: InstanceId) -> None:
    w.fleet.heard(Heard(name, "i", "idle", ask_end=True))


async def doubt(w: World, name: InstanceId) -> None:
    w.context.in_doubt.add(name)


async def leave_pool(w: World, name: InstanceId) -> None:
    pool = replace(w.context.settings.pools[POOL], types=TypeFilter(deny=("t",)))
    w.context.settings = replace(w.context.settings, pools={POOL: pool})


async def leave_offer(w: World, name: InstanceId) -> None:
    for view in w.context.profiles.values():
        view.offerings = (offering("other"),)


@pytest.mark.parametrize("change", [claim, hold, ask_end, doubt, leave_pool, leave_offer])
async def test_whatever_changes_of_an_instance_is_in_its_next_picture(
    tmp_path: Path, change: Callable[[World, InstanceId], Awaitable[None]]
) -> None:
    """The same instance is the same picture; anything that a picture shows makes a new one."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        await w.register(row)
        before = seen(w)
        assert seen(w)[0] is before[0]
        await change(w, row.id)
        after = seen(w)
        assert after != before
        assert after == seen_anew(w)


def test_nothing_comes_back_to_the_states_before_service() -> None:
    """Whoever was seen beyond them is not looked at again."""
    assert not any(INSTANCE_TABLE.exits(state) & NEW for state in set(S) - NEW)
    assert not any(S.INTENDED in INSTANCE_TABLE.exits(state) for state in S)


def test_stale_is_answered_again_when_offers_or_pools_change() -> None:
    """Other prices of the same types are no other answer."""
    stale, row, profile = Stale(), instance(S.IDLE), ProfileName("local")
    stale.configured({})
    assert "left the configuration" in stale.of(row)
    edition = stale.edition
    stale.offered(profile, (offering("one", rate=1),))
    changed = stale.edition
    assert changed > edition
    stale.offered(profile, (offering("one", rate=2),))
    assert stale.edition == changed
