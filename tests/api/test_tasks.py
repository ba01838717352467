"""The operator's routes of tasks: submitted, looked at, cancelled, run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.api.services import Limits
from tests.api.house import House, error_of, served


async def test_submitted_tasks_can_be_looked_at(house: House) -> None:
    """What was submitted comes back in list and view, arrays expanded, ids in order."""
    tasks = [
        {"command": ["echo", "a b"], "name": "one", "project": "p", "user": "u", "priority": 5},
        {"command": "echo {index}", "array": 3, "project": "q"},
    ]
    submitted = await house.op.post("/v1/tasks", json={"tasks": tasks})
    assert submitted.status_code == 201
    ids = submitted.json()["ids"]
    assert len(ids) == 4
    assert house.fleet.woken > 0
    one = (await house.op.get(f"/v1/tasks/{ids[0]}")).json()
    assert (one["command"], one["state"], one["priority"], one["project"]) == ("echo 'a b'", "queued", 5, "p")
    assert (one["attempts"], one["attempts_list"], one["instance"], one["token"]) == (0, [], None, None)
    assert one["spec"]["argv"] == ["echo", "a b"]
    assert one["spec"]["retry"]["causes"] == ["cannot-start", "instance-lost", "preempted"]
    assert "1 cpu" in one["shape"]
    listed = (await house.op.get("/v1/tasks", params={"project": "q"})).json()
    assert [(task["id"], task["array_index"]) for task in listed["tasks"]] == list(zip(ids[1:], range(3), strict=True))
    assert submitted.json()["arrays"] == [listed["tasks"][0]["array_id"]]
    assert listed["next"] is None
    last = (await house.op.get("/v1/tasks", params={"before": 10**17, "limit": 3})).json()
    assert ([task["id"] for task in last["tasks"]], last["next"]) == (ids[1:], ids[1])
    rest = (await house.op.get("/v1/tasks", params={"before": last["next"], "limit": 3})).json()
    assert ([task["id"] for task in rest["tasks"]], rest["next"]) == (ids[:1], None)


async def test_tasks_of_a_pool_that_is_not_there_are_taken_and_whoever_submits_is_told(house: House) -> None:
    tasks = [{"command": "true", "pool": "nope"}, {"command": "true", "array": 3, "pool": "gone"}, {"command": "true"}]
    answer = (await house.op.post("/v1/tasks", json={"tasks": tasks})).json()
    assert answer["ids"] == [1, 2, 3, 4, 5]
    assert answer["notes"] == [
        "there is no pool 'gone' (pools: default): 3 tasks waiting until there is",
        "there is no pool 'nope' (pools: default): 1 task waiting until there is",
    ]
    tasks = [{"command": "true", "pool": "default"}]
    assert (await house.op.post("/v1/tasks", json={"tasks": tasks})).json()["notes"] == []


async def test_each_submission_of_an_array_is_an_array_of_its_own(house: House) -> None:
    """Submitting the same array again gives another array id."""
    body = {"tasks": [{"command": "true", "array": 1}] * 2}
    for _ in range(2):
        await house.op.post("/v1/tasks", json=body)
    listed = (await house.op.get("/v1/tasks")).json()["tasks"]
    assert len({task["array_id"] for task in listed}) == 4


async def test_an_ended_task_says_where_and_how_it_ran(house: House) -> None:
    """State, times, attempt list and the end of the last attempt."""
    agent = await house.agent()
    (task,) = await house.submit(argv=("false",))
    await agent.sync(want=1)
    claim = agent.held[0]
    running = (await house.op.get(f"/v1/tasks/{task}")).json()
    assert (running["state"], running["instance"], running["token"]) == ("claimed", agent.instance, claim.token)
    await agent.finish(claim, "exit-code", exit_code=3, detail="no", max_rss=10, cpu_ms=20)
    ended = (await house.op.get(f"/v1/tasks/{task}")).json()
    assert (ended["state"], ended["cause"], ended["exit_code"], ended["detail"]) == ("failed", "exit-code", 3, "no")
    assert (ended["instance"], ended["token"], ended["attempts"]) == (agent.instance, claim.token, 1)
    assert ended["started_ms"] is not None
    (listed,) = (await house.op.get("/v1/tasks")).json()["tasks"]
    assert listed == {name: value for name, value in ended.items() if name in listed}
    (attempt,) = ended["attempts_list"]
    assert (attempt["number"], attempt["cause"], attempt["max_rss"], attempt["cpu_ms"]) == (1, "exit-code", 10, 20)


async def test_cancel_takes_filters_and_refuses_an_empty_one(house: House) -> None:
    """Queued tasks end at once, what was cancelled is named; a filter that means everything is refused."""
    mine = await house.submit(2, user="me")
    await house.submit(1, user="you")
    cancelled = await house.op.post("/v1/tasks/cancel", json={"user": "me"})
    assert cancelled.json() == {"cancelled": mine}
    assert (await house.op.get("/v1/counts")).json()["counts"]["cancelled"] == 2
    assert error_of(await house.op.post("/v1/tasks/cancel", json={}))[:2] == (400, "invalid-input")
    for body, place in (({"ids": [0]}, "ids[0]"), ({"ids": [2**64]}, "ids[0]"), ({"states": ["x"]}, "states")):
        assert error_of(await house.op.post("/v1/tasks/cancel", json=body)) == (400, "invalid-input", place)


@pytest.mark.parametrize("verb", ["cancel", "rerun"])
@pytest.mark.parametrize("empty", [{"ids": []}, {"array": ""}, {"project": ""}, {"user": ""}, {"states": []}])
async def test_what_is_given_and_empty_means_no_task_not_every_task(
    house: House, verb: str, empty: dict[str, object]
) -> None:
    """Programs build such lists, and shells such texts, from what they found: refused with its place, also beside
    others, and nothing is changed."""
    agent = await house.agent()
    tasks = await house.submit(3, project="p")
    await agent.sync(want=1)
    await agent.finish(agent.held[0], "exit-code", exit_code=1)
    before = (await house.op.get("/v1/counts")).json()
    for rest in ({}, {"states": ["queued", "failed"]}, {"project": "p"}, {"ids": tasks[:1]}):
        answer = await house.op.post(f"/v1/tasks/{verb}", json={**rest, **empty})
        assert error_of(answer) == (400, "invalid-input", *empty), answer.text
    assert (await house.op.get("/v1/counts")).json() == before


async def test_a_number_that_no_task_has_is_refused_and_nothing_is_cancelled(house: House) -> None:
    """Where tasks are named, each is meant; where more is asked of them, those are taken that match."""
    (mine,) = await house.submit(1, user="me")
    answer = await house.op.post("/v1/tasks/cancel", json={"ids": [mine, mine + 7]})
    assert error_of(answer) == (404, "not-found", "ids")
    assert f"no task {mine + 7}" in answer.text
    assert (await house.op.get("/v1/counts")).json()["counts"]["queued"] == 1
    both = await house.op.post("/v1/tasks/cancel", json={"ids": [mine, mine + 7], "user": "me"})
    assert both.json() == {"cancelled": [mine]}
    again = await house.op.post("/v1/tasks/cancel", json={"ids": [mine]})
    assert again.json() == {"cancelled": []}, "it was there, and has ended"


async def test_more_tasks_are_cancelled_by_number_than_one_question_takes(house: House) -> None:
    """Each of them is looked for, the last as well."""
    made = await house.op.post("/v1/tasks", json={"tasks": [{"command": ["true"], "array": 2_001}]})
    ids = made.json()["ids"]
    answer = await house.op.post("/v1/tasks/cancel", json={"ids": [*ids, ids[-1] + 1]})
    assert error_of(answer) == (404, "not-found", "ids")
    assert len((await house.op.post("/v1/tasks/cancel", json={"ids": ids})).json()["cancelled"]) == 2_001


async def test_what_has_failed_is_submitted_once_more_and_once_only(house: House) -> None:
    """Each as a new task like it, in its array. One whose copy there is already gets that one's number; a copy that has
    failed as well gets one of its own."""

    async def rerun(**body: object) -> list[tuple[int, int, str]]:
        answer = await house.op.post("/v1/tasks/rerun", json=body)
        assert answer.status_code == 201, answer.text
        return [(one["task"], one["again"], one["state"]) for one in answer.json()["tasks"]]

    spec = {"command": "echo {index}", "array": 3, "project": "p", "idempotency_key": "mine", "priority": 7}
    ids = (await house.op.post("/v1/tasks", json={"tasks": [spec]})).json()["ids"]
    assert ids == [1, 2, 3]
    agent = await house.agent()

    async def end(*causes: str) -> None:
        await agent.sync(want=3)
        for claim, cause in zip(list(agent.held), causes, strict=True):
            await agent.finish(claim, cause, **({"exit_code": 1} if cause == "exit-code" else {}))

    await end("success", "exit-code", "exit-code")
    woken = house.fleet.woken
    assert await rerun(project="p") == [(2, 4, "queued"), (3, 5, "queued")]
    assert house.fleet.woken > woken
    before, after = [(await house.op.get(f"/v1/tasks/{task}")).json() for task in (2, 4)]
    same = ("command", "priority", "project", "array_id", "array_index")
    assert [before[name] for name in same] == [after[name] for name in same]
    assert {**before["spec"], "idempotency_key": "\trerun of 2"} == after["spec"]
    assert await rerun(project="p") == [(2, 4, "queued"), (3, 5, "queued")]
    await end("success", "exit-code")
    assert await rerun(array=before["array_id"]) == [(2, 4, "succeeded"), (3, 5, "failed"), (5, 6, "queued")]
    assert await rerun(ids=[1]) == [(1, 7, "queued")]
    assert await rerun(states=["cancelled"]) == []
    theirs = await house.op.post(
        "/v1/tasks", json={"tasks": [{"command": ["true"], "idempotency_key": "\trerun of 4"}]}
    )
    assert error_of(theirs)[:2] == (400, "invalid-input"), "nobody else takes the key of a copy"


async def test_as_many_as_may_be_submitted_at_once_run_again_by_number(house: House) -> None:
    """More than one question to the store answers."""
    made = await house.op.post("/v1/tasks", json={"tasks": [{"command": ["true"], "array": 10_001}]})
    ids = made.json()["ids"]
    await house.op.post("/v1/tasks/cancel", json={"states": ["queued"]})
    answer = await house.op.post("/v1/tasks/rerun", json={"ids": ids})
    assert answer.status_code == 201, answer.text
    assert [one["task"] for one in answer.json()["tasks"]] == ids
    assert len({one["again"] for one in answer.json()["tasks"]} - set(ids)) == len(ids)


async def test_only_what_has_ended_is_there_and_was_named_runs_again(tmp_path: Path) -> None:
    async with served(tmp_path, limits=Limits(tasks_per_submission=1)) as house:
        tasks = await house.submit(2)
        for body, status in (({"ids": [1]}, 409), ({"ids": [1, 9]}, 404), ({"states": ["queued"]}, 400)):
            assert (await house.op.post("/v1/tasks/rerun", json=body)).status_code == status, body
        assert error_of(await house.op.post("/v1/tasks/rerun", json={}))[:2] == (400, "invalid-input")
        await house.op.post("/v1/tasks/cancel", json={"ids": tasks})
        refused = await house.op.post("/v1/tasks/rerun", json={"ids": tasks})
        assert (refused.status_code, "more than 1 tasks match" in refused.text) == (400, True)
        assert len((await house.op.get("/v1/tasks")).json()["tasks"]) == 2


async def test_no_more_bytes_run_again_at_once_than_may_be_submitted(tmp_path: Path) -> None:
    """Each was small enough by itself; nothing is queued, and in parts they run."""
    async with served(tmp_path, limits=Limits(task_bytes_per_submission=65_536)) as house:
        large = {"command": ["true", "x" * 50_000]}
        tasks = [(await house.op.post("/v1/tasks", json={"tasks": [large]})).json()["ids"][0] for _ in range(2)]
        await house.op.post("/v1/tasks/cancel", json={"ids": tasks})
        refused = await house.op.post("/v1/tasks/rerun", json={"ids": tasks})
        assert (refused.status_code, "come to more than 65536 bytes" in refused.text) == (400, True)
        assert len((await house.op.get("/v1/tasks")).json()["tasks"]) == 2
        for task in tasks:
            assert (await house.op.post("/v1/tasks/rerun", json={"ids": [task]})).status_code == 201


async def test_what_a_few_words_are_expanded_to_is_made_off_the_loop(tmp_path: Path) -> None:
    """An array of a hundred thousand takes more than a second, in which no agent would be answered."""
    asked: list[str] = []

    class Telling(Inline):
        async def run(self, work: Callable[..., Any], *args: Any) -> Any:
            asked.append(work.__name__)
            return await super().run(work, *args)

    async with served(tmp_path, executor=Telling()) as house:
        await house.op.post("/v1/tasks", json={"tasks": [{"command": ["true"]}] * 3})
        assert "parse_submission" not in asked
        for many in ({"array": 3}, {"sweep": {"x": ["1", "2"]}}):
            made = await house.op.post("/v1/tasks", json={"tasks": [{"command": ["echo", "{x}"], **many}]})
            assert made.status_code == 201, made.text
            assert asked.count("parse_submission") == 1, many
            asked.clear()


async def test_a_priority_counts_at_the_next_claim(house: House) -> None:
    """The task that was raised is claimed first; an ended task can't be raised."""
    agent = await house.agent(cpus=1)
    first, second = await house.submit(2)
    raised = await house.op.post(f"/v1/tasks/{second}/priority", json={"priority": 9})
    assert raised.json()["priority"] == 9
    (order,) = (await agent.sync(want=1)).claims
    assert order.task == second
    await agent.finish(agent.held[0])
    late = await house.op.post(f"/v1/tasks/{second}/priority", json={"priority": 1})
    assert error_of(late)[:2] == (409, "conflict")
    wrong = await house.op.post(f"/v1/tasks/{first}/priority", json={"priority": "high"})
    assert error_of(wrong)[2] == "priority"


async def test_counts_can_be_narrowed(house: House) -> None:
    """Over all tasks, or those of a project, user or array."""
    await house.submit(3, project="a")
    await house.submit(2, project="b")
    assert (await house.op.get("/v1/counts")).json()["counts"]["queued"] == 5
    assert (await house.op.get("/v1/counts", params={"project": "b"})).json()["counts"]["queued"] == 2
