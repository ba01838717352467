"""Settings that become others while the dispatcher runs: what is launched, kept and let go by the new ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Caps, Pool, TypeFilter
from cloud_dispatch.provider.errors import CapacityUnavailable, CredentialsRejected
from cloud_dispatch.reconcile import leaving
from cloud_dispatch.reconcile.settings import Settings
from tests.reconcile.fake import LOCAL, POOL, Cloud, World, world

OTHER = ProfileName("other")


def become(w: World, **changes: Any) -> Mapping[ProfileName, object]:
    """What `assembly.Parts.follow` does between two passes, without the store's limits."""
    before = w.context.settings
    settings = leaving.kept(before, dataclasses.replace(before, **changes), w.store.instances().values())
    return w.context.follow(settings)


def pools(*profiles: ProfileName) -> dict[PoolName, Pool]:
    return {POOL: Pool(POOL, profiles, target_drain_ms=60_000)}


async def test_the_driver_of_a_profile_that_leaves_is_kept_while_something_of_it_lives(tmp_path: Path) -> None:
    """Its VM is drained and ended by it; then it is closed, once, and nothing is asked of the profile any more."""
    async with world(tmp_path) as w:
        closed: list[str] = []
        other = Cloud(w.clock)

        async def close() -> None:
            closed.append("local")

        w.cloud.close = close  # type: ignore[method-assign]
        await w.booted()
        assert not become(w, providers={OTHER: other}, drivers={OTHER: "cloud"}, pools=pools(OTHER))
        assert w.context.settings.leaving == {LOCAL}
        await w.passes(3)
        (row,) = w.rows
        assert row.state in (InstanceState.DRAINING, InstanceState.TERMINATING)
        assert not closed
        await w.fleet.kill(row.id, "the test has no agent that drains")
        await w.passes(6)
        assert [row for row in w.rows if row.profile == LOCAL] == []
        assert closed == ["local"]
        assert set(w.context.settings.providers) == {OTHER} == set(w.context.profiles)
        assert not w.context.settings.leaving


async def test_one_without_vms_is_let_go_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.passes()
        assert become(w, providers={OTHER: Cloud(w.clock)}, drivers={OTHER: "cloud"}, pools=pools(OTHER)) == {
            LOCAL: w.cloud
        }
        await w.passes(2)
        assert set(w.context.profiles) == {OTHER}


async def test_nothing_is_launched_by_what_has_left(tmp_path: Path) -> None:
    """Neither by a refused launch that would have tried its next offering, nor by types that are denied now."""
    async with world(tmp_path, caps=Caps(instances=1)) as w:
        become(w, providers={LOCAL: w.cloud, OTHER: (other := Cloud(w.clock))}, pools=pools(LOCAL, OTHER))
        refused: list[Settings] = []

        async def refuse(*_: object) -> None:
            become(w, providers={LOCAL: w.cloud}, pools=pools(LOCAL))
            refused.append(w.context.settings)
            raise CapacityUnavailable("none left")

        w.cloud.launch = refuse  # type: ignore[assignment,method-assign]
        other.launch = refuse  # type: ignore[assignment,method-assign]
        await w.submit(1)
        await w.passes(1)
        assert len(refused) == 1
        assert not w.rows

    (tmp_path / "denied").mkdir()
    async with world(tmp_path / "denied") as w:
        await w.passes()
        become(w, profile_types={LOCAL: TypeFilter((), ("*",))})
        await w.submit(1)
        await w.passes(2)
        assert not w.rows


async def test_no_pass_is_under_way_while_the_settings_become_others(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        async with w.loop.between_passes():
            assert w.context.deciding.locked()
            assert w.loop._passing.locked()
        await w.passes()


async def test_who_has_mended_rights_and_says_so_need_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that is read anew, though no setting is another, has a profile asked again that was refused."""
    async with world(tmp_path) as w:
        launch = w.cloud.launch

        async def refuse(*_: object) -> None:
            raise CredentialsRejected("launch: it may not")

        monkeypatch.setattr(w.cloud, "launch", refuse)
        await w.submit(1)
        await w.passes(2)
        monkeypatch.setattr(w.cloud, "launch", launch)
        await w.passes(60)
        assert not w.rows
        become(w)
        await w.passes(2)
        assert len(w.rows) == 1
