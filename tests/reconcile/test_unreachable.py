"""VMs of a profile that left the configuration over a restart: whoever asks is told that nobody can end them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cloud_dispatch.assembly import _problems
from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.reconcile import places
from tests.reconcile.fake import LOCAL, NAMED, POOL, Cloud, World, world

OTHER = ProfileName("other")
LIVES = dataclasses.replace(NAMED, place=(("region", "here"),))


async def start(w: World, *profiles: ProfileName) -> None:
    """A start of the dispatcher with drivers of these profiles; each has a cloud of its own."""
    await w.restart()
    clouds = {one: Cloud(w.clock, traits=LIVES, vms=w.cloud.vms if one == LOCAL else {}) for one in profiles}
    pools: dict[PoolName, Pool] = {POOL: Pool(POOL, profiles, target_drain_ms=60_000)}
    settings = dataclasses.replace(w.context.settings, providers=clouds, pools=pools)
    await w.store.set_limits((), {}, facts=places.kept(w.store, settings))
    w.context.settings = settings


def health(w: World) -> list[str]:
    in_force: Any = SimpleNamespace(refused="")
    return [one for one in _problems(w.context, in_force) if "nobody can end" in one]


async def test_nobody_can_end_vms_whose_profile_left_and_all_are_told(tmp_path: Path) -> None:
    """Health names the profile, where it was, the VMs and what to do; an order to end one and its explanation say it
    too. Once the profile is back it is over."""
    async with world(tmp_path) as w:
        await start(w, LOCAL)
        await w.booted()
        (row,) = w.rows
        assert (health(w), w.fleet.unreachable(row)) == ([], "")
        await start(w, OTHER)
        await w.passes(2)
        killed = await w.fleet.kill(row.id, "away with it")
        await w.passes(2)
        assert killed.state is InstanceState.TERMINATING
        assert w.cloud.vms  # it lives on
        (condition,) = health(w)
        for words in ("profile local (region here) is not configured", "configure it again", f"{row.id} (VM {row.vm})"):
            assert words in condition
        said = w.fleet.unreachable(killed)
        assert said.startswith("nobody can end it or see that it is gone: profile local (region here)")
        assert said in (await w.fleet.explain_instance(row.id))["reasons"]
        await start(w, LOCAL, OTHER)
        assert (health(w), w.fleet.unreachable(killed)) == ([], "")
        await w.passes(6)
        assert row.id not in w.store.instances()
        assert w.fleet.unreachable(await w.store.instance(row.id)) == ""


async def test_of_many_some_are_named_and_the_rest_are_counted(tmp_path: Path) -> None:
    pool = Pool(POOL, (LOCAL,), minimum=7)
    async with world(tmp_path, pool=pool) as w:
        await w.passes()
        assert len(w.rows) == 7
        await start(w, OTHER)
        (condition,) = health(w)
        assert condition.count("(VM ") == 5
        assert condition.endswith("and 2 more")
