"""The route of VMs that boot: the join token of their batch, small words, and not too many of them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cloud_dispatch.api.worker import SCRIPTS_PATH
from cloud_dispatch.domain.ids import BatchId, VmId
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.ports.fleet import BootWord
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.wire.messages import BOOT_PATH
from tests.api.house import SCRIPTS, House, error_of

FAILURE = {"vm": "i-1", "phase": "drivers", "failed": True, "exit_code": 100, "log": "E: no such package"}


async def ask(house: House, body: Any = FAILURE, expires_ms: int = 10**15, **more: Any) -> Any:
    batch = await house.launch()
    token = house.tokens.join(batch, 1, expires_ms)
    response = await house.http.post(BOOT_PATH, headers={"Authorization": f"Bearer {token}"}, json=body, **more)
    return batch, response


async def test_what_a_vm_says_reaches_the_fleet_under_its_batch(house: House) -> None:
    """The batch is the token's, whatever the body says."""
    batch, response = await ask(house, {**FAILURE, "batch": "b00000000099"})
    assert (response.status_code, response.json()) == (200, {})
    assert house.fleet.boots == [(batch, BootWord("i-1", "drivers", True, 100, "E: no such package"))]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"phase": ""}, "phase"),
        ({"phase": "a b"}, "phase"),
        ({"phase": "x" * 33}, "phase"),
        ({"vm": "a\x1b[2J"}, "vm"),
        ({"vm": "x" * 513}, "vm"),
        ({"exit_code": 1 << 40}, "exit_code"),
        ({"exit_code": "1"}, "exit_code"),
        ({"failed": 1}, "failed"),
        ({"log": ["x"]}, "log"),
    ],
)
async def test_odd_words_are_refused_with_their_place(house: House, change: dict[str, Any], place: str) -> None:
    """Nothing of such a report reaches the fleet."""
    _, response = await ask(house, FAILURE | change)
    assert response.status_code == 400
    assert response.json()["place"] == place
    assert house.fleet.boots == []


async def test_a_large_report_and_a_late_one_are_refused(house: House) -> None:
    """32 KiB are more than 100 lines need; an expired token is void here too."""
    _, response = await ask(house, FAILURE | {"log": "x" * 40_000})
    assert error_of(response)[0] == 413
    _, response = await ask(house, expires_ms=1)
    assert error_of(response)[:2] == (403, "denied")
    assert house.fleet.boots == []


async def test_a_batch_can_not_flood_the_record(house: House) -> None:
    """Each report becomes an event: of one batch only so many are taken at once."""
    batch = await house.launch()
    headers = {"Authorization": f"Bearer {house.tokens.join(batch, 1, 10**15)}"}
    codes = [(await house.http.post(BOOT_PATH, headers=headers, json=FAILURE)).status_code for _ in range(300)]
    assert codes[0] == 200
    assert codes.count(503) > 30  # some are taken again as time goes by, more of them where the machine is busy
    assert len(house.fleet.boots) == codes.count(200)


async def scripts_for(house: House, batch: BatchId, vm: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {house.tokens.join(batch, 1, 10**15)}"}
    return await house.http.post(SCRIPTS_PATH, headers=headers, json={"vm": vm})


async def test_scripts_are_for_a_vm_that_boots_and_for_no_other(house: House) -> None:
    """Known by the provider's answer, and not registered yet: before and after it there is nothing to be had."""
    batch = await house.launch()
    (row,) = (row for row in house.store.instances().values() if row.batch == batch)
    assert error_of(await scripts_for(house, batch, "i-1"))[0] == 404  # its launch is not answered yet
    await house.store.change([InstanceChange(row.id, InstanceEvent.BOUND, {"vm": VmId("i-1")})])
    answer = await scripts_for(house, batch, "i-1")
    assert answer.json() == {"scripts": [{"name": one.name, "content": one.content} for one in SCRIPTS]}
    assert error_of(await scripts_for(house, batch, "i-2"))[0] == 404
    assert error_of(await scripts_for(house, await house.launch(), "i-1"))[0] == 404
    await house.store.change([InstanceChange(row.id, InstanceEvent.REGISTERED)])
    assert error_of(await scripts_for(house, batch, "i-1"))[:2] == (409, "conflict")
    refused = await house.http.post(SCRIPTS_PATH, headers={"Authorization": "Bearer cdj1.x"}, json={"vm": "i-1"})
    assert refused.status_code == 401
