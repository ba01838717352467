"""The routes of costs: days, keys, pages and their errors; what they add up is the statestore's matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.spend.windows import DAY_MS
from cloud_dispatch.testing.store_builders import Agent, instance, result, spec
from tests.api.house import House, error_of

PARTS = ("work", "retry", "idle", "total")


async def spent(house: House, machines: int = 3) -> list[int]:
    """Each machine runs two tasks, of one project each, for a day and a half; the first is gone."""
    now = house.api.operator._s.clock.now()
    ids: list[int] = []
    for number in range(machines):
        began = now - DAY_MS * 3 // 2
        own = instance(f"b{number}", launched_ms=began, registered_ms=began)
        await house.store.adopt(replace(own, rate=Rate(1_000_000_000) if number else None))
        ids += await house.store.submit([spec(project=project) for project in ("genes", "stars")])
        agent = Agent(house.store, own)
        for claimed in await agent.claim(2):
            await agent.sync(result(claimed, ran_ms=1_000))
    await house.store.change([InstanceChange(InstanceId("b0-0"), InstanceEvent.GONE)])
    return ids


async def asked(house: House, **params: Any) -> Any:
    reply = await house.op.get("/v1/costs", params=params)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def pages(house: House, **params: Any) -> list[Any]:
    found, after = [], ""
    while True:
        page = await asked(house, **params, after=after)
        found.append(page)
        after = page["next"]
        if after is None:
            return found


async def test_costs_by_project_with_what_lives_and_what_has_no_price(house: House) -> None:
    await spent(house)
    found = await asked(house)
    assert found["by"] == ["project"]
    assert [row["project"] for row in found["rows"]] == ["genes", "stars"]
    assert all(row["total"] == row["work"] + row["retry"] + row["idle"] > 0 for row in found["rows"])
    assert found["total"] == {part: sum(row[part] for row in found["rows"]) for part in PARTS}
    assert (found["running"], found["unpriced"], found["next"]) == (2, 1, None)


async def test_days_are_words(house: House) -> None:
    """`1d` is today; `until` counts its day."""
    await spent(house)
    every = (await asked(house, by="day"))["rows"]
    days = [row["day"] for row in every]
    assert 2 <= len(days) <= 3
    assert days == sorted(days)
    assert (await asked(house, by="day", since="1d"))["rows"][0]["day"] == days[-1]
    assert [row["day"] for row in (await asked(house, by="day", until=days[0]))["rows"]] == days[:1]
    assert [row["day"] for row in (await asked(house, by="day", since=days[1], until=days[1]))["rows"]] == [days[1]]


@pytest.mark.parametrize("by", ["project,day,pool", "task", "task,project"])
async def test_pages_together_are_the_whole(house: House, by: str) -> None:
    await spent(house)
    found = await pages(house, by=by, until="1d", limit=2)
    assert len(found) >= 2
    assert all(len(page["rows"]) <= 2 for page in found)
    assert [page["running"] is None for page in found] == [False, *[True] * (len(found) - 1)]
    rows = [row for page in found for row in page["rows"]]
    keys = [tuple(row[key] for key in by.split(",")) for row in rows]
    assert len(set(keys)) == len(keys)
    whole = (await asked(house, until="1d"))["total"]["total"]
    assert sum(row["total"] for row in rows) == pytest.approx(whole, abs=2_000)  # time passes while they are asked for


async def test_the_attempts_of_a_task(house: House) -> None:
    ids = await spent(house)
    found = (await house.op.get(f"/v1/tasks/{ids[-1]}/cost")).json()
    (one,) = found["attempts"]
    assert (one["instance"], one["cause"], one["rate"], one["rate_nano"]) == ("b2-0", "success", "$1.00/h", 10**9)
    assert {part: one[part] for part in PARTS} == found["total"]
    unpriced = (await house.op.get(f"/v1/tasks/{ids[0]}/cost")).json()["attempts"][0]
    assert (unpriced["rate"], unpriced["total"]) == ("unknown", 0)
    assert error_of(await house.op.get("/v1/tasks/99/cost")) == (404, "not-found", "")


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"by": "colour"}, "by"), ({"by": "day,day"}, "by"), ({"since": "yesterday"}, "since"),
        ({"until": "0d"}, "until"), ({"since": "1969-12-31"}, "since"), ({"after": "x"}, "after"),
        ({"after": "[1,2]"}, "after"), ({"by": "task", "after": '["a"]'}, "after"), ({"limit": 0}, "limit"),
        ({"by": "day", "after": '["2026-10-05"]'}, "after"), ({"since": "2026-10-05", "until": "2026-10-04"}, "until"),
    ],
)  # fmt: skip
async def test_what_can_not_be_asked(house: House, params: dict[str, Any], place: str) -> None:
    assert error_of(await house.op.get("/v1/costs", params=params)) == (400, "invalid-input", place)


async def test_an_unknown_key_is_named_with_those_that_there_are(house: House) -> None:
    said = (await house.op.get("/v1/costs", params={"by": "day,colour"})).json()
    assert (said["message"], said["hint"][:16]) == ("no such key 'colour'", "any of: project,")
