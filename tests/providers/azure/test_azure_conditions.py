"""What the driver asks for under a condition: a VM where there is none, and tags where nobody has changed them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.provider.errors import Transient
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.gateway import Gateway
from tests.fakes.server import Reply, Request
from tests.providers.azure import scenes
from tests.providers.azure.steps import VM, Connect, launched

Look = Callable[[Request], None]


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Look], None]:
    """Call what is given with each request, before the fake answers it."""
    handle = Gateway.handle

    def through(look: Look) -> None:
        def handled(gateway: Gateway, request: Request) -> Reply:
            look(request)
            return handle(gateway, request)

        monkeypatch.setattr(Gateway, "handle", handled)

    return through


def of_vms(request: Request, method: str) -> bool:
    return request.method == method and "/virtualMachines/" in request.target


async def test_a_vm_is_asked_for_where_there_is_none(connect: Connect, looking: Callable[[Look], None]) -> None:
    """Each time, by the header: Azure would take a repeat without it for a change of the VM that is there."""
    conditions: list[str] = []

    def look(request: Request) -> None:
        if of_vms(request, "PUT"):
            conditions.append(request.headers.get("if-none-match", ""))

    looking(look)
    driver = connect()
    await launched(driver, scenes.request(slots=2))
    await launched(driver, scenes.request(slots=2))
    assert conditions == ["*"] * 4


async def test_a_repeat_changes_nothing_of_the_vm_that_is_there(fake: FakeArm, connect: Connect) -> None:
    """Not even its tags, which have a later end by then."""
    driver = connect(reaper=True)
    (made,) = await launched(driver)
    later = str(scenes.NOW_MS + 7_200_000)
    assert await driver.tag([VM], {ENDS_AT: later}) == frozenset()
    before = fake.vm(VM)
    was = (before.etag, before.vm_id, dict(before.tags.true))
    (again,) = await launched(driver)
    after = fake.vm(VM)
    assert (after.etag, after.vm_id, dict(after.tags.true)) == was
    assert (again.id, again.created_ms, again.tags[ENDS_AT]) == (made.id, made.created_ms, later)


async def test_tags_that_another_hand_writes_meanwhile_are_not_lost(
    fake: FakeArm, connect: Connect, looking: Callable[[Look], None]
) -> None:
    """Between our reading of them and our writing: we read again, and write both."""
    driver = connect()
    await launched(driver)
    writes = 0

    def look(request: Request) -> None:
        nonlocal writes
        if of_vms(request, "PATCH"):
            writes += 1
            if writes == 1:
                fake.estate.retag(fake.vm(VM), {**fake.vm(VM).tags.true, "owner": "somebody"})

    looking(look)
    assert await driver.tag([VM], {"cloud-dispatch-x": "1"}) == frozenset()
    assert writes == 2
    assert fake.vm(VM).tags.true == {**scenes.TAGS, "owner": "somebody", "cloud-dispatch-x": "1"}


async def test_tags_that_never_hold_still_are_given_up(
    fake: FakeArm, connect: Connect, looking: Callable[[Look], None]
) -> None:
    """After a bounded number of times, and none of them was written over."""
    driver = connect()
    await launched(driver)
    writes: list[str] = []

    def look(request: Request) -> None:
        if of_vms(request, "PATCH"):
            writes.append("")
            fake.estate.retag(fake.vm(VM), {**scenes.TAGS, "count": str(len(writes))})

    looking(look)
    with pytest.raises(Transient, match="somebody else"):
        await driver.tag([VM], {"cloud-dispatch-x": "1"})
    assert fake.vm(VM).tags.true == {**scenes.TAGS, "count": str(len(writes))}
    assert 1 < len(writes) < 10


async def test_many_tags_at_once_are_all_set(connect: Connect) -> None:
    driver = connect()
    await launched(driver)
    names = [f"cloud-dispatch-x{number}" for number in range(3)]
    await asyncio.gather(*(driver.tag([VM], {name: name}) for name in names))
    tags = (await driver.get(VM)).tags
    assert {name: tags.get(name) for name in names} == dict(zip(names, names, strict=True))
