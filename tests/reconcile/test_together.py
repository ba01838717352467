"""VMs that are told the same are told together: tags after a listing, in as few calls as the provider takes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.provider.errors import RateLimited
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.reconcile.calls import Calls
from cloud_dispatch.reconcile.together import Together
from tests.reconcile.fake import LOCAL, NAMELESS, POOL, Cloud, ManualClock, World, world

VMS = [VmId(f"vm-{number}") for number in range(10)]


@dataclass
class Refusing(Cloud):
    """Takes no tags for a while: so many calls are refused."""

    refusing: int = 0

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        if self.refusing:
            self.refusing -= 1
            raise RateLimited("too many tags")
        return await super().tag(vms, tags)


def ten(cloud: Cloud) -> dict[str, object]:
    return {"cloud": cloud, "pool": Pool(POOL, (LOCAL,), minimum=10)}


def worn(w: World) -> list[str]:
    return sorted(vm.tags.get(tags.SLOT, "") for vm in w.cloud.vms.values())


async def test_slots_of_many_batches_are_tagged_together(tmp_path: Path) -> None:
    """Five batches of two: the first of each are one group, the second another, four VMs a call."""
    cloud = Cloud(ManualClock(), traits=replace(NAMELESS, max_batch=2))
    async with world(tmp_path, **ten(cloud)) as w:
        await w.passes(3)
        assert worn(w) == ["0"] * 5 + ["1"] * 5
        assert sorted(len(vms) for vms, _ in cloud.tagged) == [1, 1, 4, 4]
        await w.passes(3)
        assert len(cloud.tagged) == 4  # and no more


async def test_a_change_of_many_vms_is_told_together(tmp_path: Path) -> None:
    """An operator holds ten VMs: three calls, since the provider takes four in one."""
    cloud = Cloud(ManualClock(), traits=replace(NAMELESS, max_batch=2))
    async with world(tmp_path, **ten(cloud)) as w:
        await w.passes(3)
        del cloud.tagged[:]
        for row in w.rows:
            await w.context.apply(row.id, None, behaviour=Behaviour.HOLD)
        await w.passes(2)
        assert [dict(told) for _, told in cloud.tagged] == [{tags.BEHAVIOUR: "hold"}] * 3
        assert {vm.tags[tags.BEHAVIOUR] for vm in cloud.vms.values()} == {"hold"}


async def test_tags_that_did_not_take_are_set_after_the_next_listing(tmp_path: Path) -> None:
    """Whole calls are refused and VMs are missing: no pass ends by it, and all have their tags in the end."""
    cloud = Refusing(ManualClock(), traits=replace(NAMELESS, max_batch=2), refusing=3)
    async with world(tmp_path, **ten(cloud)) as w:
        await w.passes(2)
        assert worn(w).count("") > 0
        await w.passes(2)
        assert worn(w) == ["0"] * 5 + ["1"] * 5


class Telling:
    """Calls that end when the test says so."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.told: list[tuple[tuple[VmId, ...], str]] = []
        self.go_on = asyncio.Event()
        self.together: Together[str] = Together(self.calls, "tell", self.tell)
        self.provider: Provider = Cloud(ManualClock(), traits=NAMELESS)  # type: ignore[assignment]

    async def tell(self, provider: Provider, vms: Sequence[VmId], what: str) -> None:
        self.told.append((tuple(vms), what))
        await self.go_on.wait()
        if what == "a bug":
            raise KeyError(what)

    async def start(self, *wanted: tuple[VmId, str]) -> None:
        self.together.start(LOCAL, self.provider, wanted)
        await asyncio.sleep(0)


async def test_calls_are_as_large_as_the_provider_takes_and_no_larger() -> None:
    scene = Telling()
    await scene.start(*((vm, "a") for vm in VMS), *((VmId(f"b{vm}"), "b") for vm in VMS[:2]))
    assert [(len(vms), what) for vms, what in scene.told] == [(4, "a"), (4, "a"), (2, "a"), (2, "b")]
    assert {vm for vms, what in scene.told if what == "a" for vm in vms} == set(VMS)
    scene.go_on.set()
    await scene.calls.settle()


async def test_a_vm_is_in_one_call_at_a_time() -> None:
    """However it is grouped the next time; once its call has ended, whatever way, it is told again."""
    scene = Telling()
    await scene.start(*((vm, "a bug") for vm in VMS[:3]))
    await scene.start((VMS[1], "b"), (VMS[3], "b"))
    assert scene.told == [(tuple(VMS[:3]), "a bug"), ((VMS[3],), "b")]
    scene.go_on.set()
    await scene.calls.settle()
    await scene.start((VMS[1], "b"))
    assert scene.told[2:] == [((VMS[1],), "b")]
    await scene.calls.settle()


async def test_who_comes_before_an_ended_call_is_cleared_away_is_told_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a turn a call that has ended is still known under its key: what could not be started is not under way."""
    scene = Telling()

    def known(key: str, call: Coroutine[Any, Any, None], to: str) -> bool:
        call.close()
        return False

    with monkeypatch.context() as planted:
        planted.setattr(scene.calls, "start", known)
        await scene.start((VMS[0], "a"))
    await scene.start((VMS[0], "b"))
    assert [what for _, what in scene.told] == ["b"]
    scene.go_on.set()
    await scene.calls.settle()
