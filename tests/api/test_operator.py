"""The operator's routes: each one's answer, and its errors with their place."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.api import instances, operator
from cloud_dispatch.api.instances import UsageReader
from cloud_dispatch.api.services import Limits
from cloud_dispatch.domain.errors import Conflict, StoreUnavailable
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import InstanceId, ProfileName, TaskId
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.task import Attempt
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.again import again
from cloud_dispatch.planner.plain import plain
from cloud_dispatch.planner.plan import Begun, Launch
from cloud_dispatch.planner.replay import decode_record, encode_plan, encode_snapshot
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.windows import Window
from tests.api.house import House, error_of, served
from tests.planner.scenes import demand, shape, snapshot

REFERENCE = Path(__file__).parents[2] / "docs/reference/rest-api.md"


async def test_health_needs_no_token_and_tells_the_operator_what_is_wrong(house: House) -> None:
    """Status, who this is and since when; degraded once there is a problem, which is told to nobody else: a provider's
    words may name accounts."""
    health = (await house.http.get("/v1/health")).json()
    assert (health["status"], health["deployment"], health["version"]) == ("ok", "lab", "1.2.3")
    assert health["store"] == house.store.id
    assert health["uptime_ms"] >= 0
    object.__setattr__(house.api.operator._s, "problems", lambda: ["can't list profile x"])
    health = (await house.op.get("/v1/health")).json()
    assert (health["status"], health["problems"]) == ("degraded", ["can't list profile x"])
    agent = await house.agent()
    for headers in ({}, agent.headers, {"Authorization": "Bearer x"}):
        answer = await house.http.get("/v1/health", headers=headers)
        assert answer.json()["status"] == "degraded"
        assert "profile x" not in answer.text


async def test_one_bad_task_refuses_the_whole_submission(house: House) -> None:
    """The error names the task and the field, and nothing is queued."""
    tasks = [{"command": "true"}] * 16 + [{"command": "true", "cpus": "many"}]
    assert error_of(await house.op.post("/v1/tasks", json={"tasks": tasks})) == (
        400, "invalid-input", "tasks[16].cpus",
    )  # fmt: skip
    assert (await house.op.get("/v1/counts")).json()["counts"].get("queued", 0) == 0


async def test_a_key_of_another_specification_is_refused_where_it_was_written(house: House) -> None:
    """Of an array the input is named, not its member: that is what the caller has before it."""
    first = {"command": "true", "idempotency_key": "night", "array": 3}
    assert (await house.op.post("/v1/tasks", json={"tasks": [first]})).status_code == 201
    others = [{"command": "true"}, {"command": "true", "array": 4}, {**first, "command": "false"}]
    answer = await house.op.post("/v1/tasks", json={"tasks": others})
    assert error_of(answer) == (400, "invalid-input", "tasks[2].idempotency_key")
    assert "'night/0' is that of task 1" in answer.json()["message"]
    assert (await house.op.get("/v1/counts")).json()["counts"]["queued"] == 3


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"tasks":[]}', b'{"tasks":3}', b'{"tasks":[],"more":1}', b"\xff", b'{"tasks":["x"]}'],
)
async def test_what_is_no_submission_is_refused(house: House, body: bytes) -> None:
    """Whatever is not a list of tasks is bad input with a place."""
    status, code, place = error_of(await house.op.post("/v1/tasks", content=body))
    assert (status, code) == (400, "invalid-input")
    assert place


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/v1/tasks", '{"tasks": [{"command": "a"}], "tasks": [{"command": "b"}]}', "tasks"),
        ("/v1/tasks", '{"tasks": [{"command": "a"}, {"command": "a", "comm\\u0061nd": "b"}]}', "tasks[1].command"),
        ("/v1/tasks", '{"tasks": [{"command": "a", "env": {"A": "1", "A": "2"}}]}', "tasks[0].env.A"),
        ("/v1/tasks/cancel", '{"project": "a", "project": "b"}', "project"),
        ("/v1/stop", '{"level": "drain", "level": "launches"}', "level"),
        ("/v1/tasks", '{"tasks": ' + "[" * 900 + '{"a": 1, "a": 2}' + "]" * 900 + "}", "0]" + "[0]" * 132 + ".a"),
    ],
)
async def test_a_key_that_is_there_twice_is_refused(house: House, path: str, body: str, place: str) -> None:
    """With its place, and nothing is done: the last one would count, and nobody know."""
    assert error_of(await house.op.post(path, content=body)) == (400, "invalid-input", place)
    assert (await house.op.get("/v1/tasks")).json()["tasks"] == []
    assert (await house.op.post("/v1/tasks", content='{"tasks": [{"command": "a", "priority": 1}]}')).status_code == 201


async def test_submissions_are_limited_in_bytes_and_tasks(tmp_path: Path) -> None:
    """A body past the limit is cut off while it is read; too many or too large tasks after expansion are refused."""
    limits = Limits(request_bytes=200_000, tasks_per_submission=10, task_bytes_per_submission=300_000)
    async with served(tmp_path, limits=limits) as house:
        big = await house.op.post("/v1/tasks", json={"tasks": [{"command": "x" * 200_000}]})
        assert error_of(big)[:2] == (413, "too-large")
        many = await house.op.post("/v1/tasks", json={"tasks": [{"command": "true", "array": 11}]})
        assert error_of(many)[0] == 400
        for filler in (10_000, 70_000):  # read on the loop, and off it
            task = {"command": "true", "name": "{index}", "env": {"A": "x" * filler}, "array": 10}
            answer = await house.op.post("/v1/tasks", json={"tasks": [task]})
            assert answer.status_code == 201 if filler == 10_000 else error_of(answer)[2] == "tasks[0]", filler
        assert (await house.op.post("/v1/tasks", json={"tasks": [{"command": "true", "array": 10}]})).status_code == 201


async def test_the_list_is_paged_and_filtered(house: House) -> None:
    """`next` leads through all tasks once; filters combine; bad ones name their place."""
    await house.submit(25, project="a")
    await house.submit(1, project="b", user="u", name="special")
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = (await house.op.get("/v1/tasks", params={"after": after, "limit": 10})).json()
        seen += [task["id"] for task in page["tasks"]]
        after = page["next"]
    assert seen == list(range(1, 27))
    only = (await house.op.get("/v1/tasks", params={"user": "u", "name": "special", "state": "queued,running"})).json()
    assert [task["project"] for task in only["tasks"]] == ["b"]
    for params, place in (
        ({"state": "tired"}, "state"), ({"limit": "0"}, "limit"), ({"limit": "x"}, "limit"), ({"after": "-1"}, "after"),
        ({"project": "a\0"}, "project"),
    ):  # fmt: skip
        assert error_of(await house.op.get("/v1/tasks", params=params)) == (400, "invalid-input", place)


async def test_a_page_of_large_tasks_is_shorter_and_says_where_to_go_on(house: House) -> None:
    """However many are asked for, an answer stays small; none is left out by who walks along `next`."""
    await house.op.post("/v1/tasks", json={"tasks": [{"command": "true " + "x" * 100_000, "array": 200}]})
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        answer = await house.op.get("/v1/tasks", params={"after": after, "limit": 1000})
        assert len(answer.content) < 10_000_000
        seen += [task["id"] for task in answer.json()["tasks"]]
        after = answer.json()["next"]
    assert seen == list(range(1, 201))


@pytest.mark.parametrize(
    ("method", "path", "place"),
    [
        ("GET", "/v1/tasks?stat=queued", "stat"), ("GET", "/v1/tasks?state=queued&state=failed", "state"),
        ("GET", "/v1/counts?projects=a", "projects"), ("GET", "/v1/offers?cpus=4", "cpus"),
        ("GET", "/v1/costs?sinse=7d", "sinse"), ("GET", "/v1/health?x=1", "x"),
        ("GET", "/v1/instances?past=si", "past"),
        ("DELETE", "/v1/pools/default/target?sorce=me", "sorce"), ("POST", "/v1/tasks?dry=1", "dry"),
    ],
)  # fmt: skip
async def test_a_parameter_that_is_not_known_is_refused(house: House, method: str, path: str, place: str) -> None:
    """What is misspelt, or given twice, is no filter that is quietly left out; and nothing was done."""
    await house.op.put("/v1/pools/default/target", json={"count": 1})
    body = {"tasks": [{"command": "true"}]} if method == "POST" else None
    assert error_of(await house.op.request(method, path, json=body)) == (400, "invalid-input", place)
    assert len((await house.op.get("/v1/pools")).json()["pools"][0]["targets"]) == 1
    assert (await house.op.get("/v1/tasks")).json()["tasks"] == []


async def test_each_parameter_in_the_reference_is_known(house: House) -> None:
    """A route takes all that its page names."""
    page = REFERENCE.read_text()
    for heading, text in re.findall(r"^### `GET (/v1/[a-z/]+)`\n+Query: (.+?)\n\n", page, re.MULTILINE | re.DOTALL):
        names = re.findall(r"`([a-z_]+)`", re.sub(r"\([^()]*\)", "", re.split(r"\.\s", text)[0]))
        assert names
        for name in names:
            reply = await house.op.get(heading, params={name: ""})
            assert "no such parameter" not in reply.text, (heading, name)


@pytest.mark.parametrize("task", ["9999", "x", "-1", "1.5", "9" * 30, "9" * 5000, "%00", "\u0661"])
async def test_no_such_task_is_404_everywhere(house: House, task: str) -> None:
    """Whatever stands in the place of a task id."""
    for path in ("", "/logs", "/outputs", "/outputs/a"):
        assert error_of(await house.op.get(f"/v1/tasks/{task}{path}"))[:2] == (404, "not-found")
    assert error_of(await house.op.post(f"/v1/tasks/{task}/priority", json={"priority": 1}))[0] == 404


async def test_an_instance_shows_what_it_is_did_and_cost(house: House) -> None:
    """Boot, work and idle time add up to its life, and cost is rate times that life, rounded up."""
    agent = await house.agent()
    await house.done(agent)
    await house.store.change(
        [
            InstanceChange(agent.instance, InstanceEvent.TERMINATE, {"cause": "idle", "reason": "no work"}),
            InstanceChange(agent.instance, InstanceEvent.GONE, {"ended_ms": 4_500}),
        ]
    )
    view = (await house.op.get(f"/v1/instances/{agent.instance}")).json()
    assert (view["type"], view["market"], view["state"], view["cause"]) == ("t4", "on-demand", "gone", "idle")
    assert (view["cpus_milli"], view["rate"], view["rate_nano"]) == (4000, "$0.36/h", 360_000_000)
    assert view["boot_ms"] == 1_000
    assert view["boot_ms"] + view["work_ms"] + view["idle_ms"] == 3_500
    assert (view["cost_micro"], view["cost"]) == (400, "$0.0004")  # four whole seconds at $0.0001 each
    assert view["unreachable"] == ""
    house.fleet.unreached[agent.instance] = "nobody can end it"
    assert (await house.op.get(f"/v1/instances/{agent.instance}")).json()["unreachable"] == "nobody can end it"
    assert (await house.op.get("/v1/instances")).json()["instances"] == []
    past = (await house.op.get("/v1/instances", params={"past": 1})).json()["instances"]
    assert [row["id"] for row in past] == [agent.instance]


async def test_working_time_is_the_union_of_attempts_and_what_runs_now(house: House) -> None:
    """Two tasks at once count once, and a task that still runs counts up to now."""
    agent = await house.agent()
    await house.submit(2)
    await agent.sync(want=2)
    for claim in agent.held:
        claim.ran_ms = 30
    await asyncio.sleep(0.03)
    await agent.sync()
    await asyncio.sleep(0.05)
    (view,) = (await house.op.get("/v1/instances")).json()["instances"]
    assert view["tasks"] == 2
    assert 50 <= view["work_ms"] < 2_000


async def test_operators_act_on_instances(house: House) -> None:
    """Hold, drain, resume and kill reach the fleet with their reason; the answer is the instance."""
    agent = await house.agent()
    for verb in ("hold", "drain", "resume", "kill"):
        view = (await house.op.post(f"/v1/instances/{agent.instance}/{verb}", json={"reason": "why"})).json()
        assert (view["id"], view["reason"]) == (agent.instance, f"{verb}: why")
    assert (await house.op.post(f"/v1/instances/{agent.instance}/hold")).status_code == 200
    assert error_of(await house.op.post(f"/v1/instances/{agent.instance}/explode"))[0] == 404
    assert error_of(await house.op.post("/v1/instances/b9-9/hold"))[0] == 404
    assert error_of(await house.op.get("/v1/instances/b9-9"))[0] == 404
    assert error_of(await house.op.get("/v1/instances/%00"))[0] == 404
    house.fleet.failure = Conflict("too late", hint="it ends")
    refused = await house.op.post(f"/v1/instances/{agent.instance}/resume")
    assert error_of(refused)[:2] == (409, "conflict")
    assert refused.json()["hint"] == "it ends"


async def test_plans_and_explanations(house: House) -> None:
    """The fleet's answers are passed on."""
    assert (await house.op.get("/v1/plan")).json() == {"actions": [], "waiting": [], "unsatisfiable": []}
    assert (await house.op.get("/v1/tasks/5/explain")).json()["reasons"] == ["why not"]
    assert (await house.op.get("/v1/instances/b1-0/explain")).json()["reasons"] == ["cheap"]


async def test_stored_plans_are_listed_in_words_and_given_whole(house: House) -> None:
    """Newest first, walked by `before`; each says what was done as the plan of now does. One of them comes with the
    snapshot that it was made from, so that it can be planned again elsewhere."""
    seen = snapshot([demand(shape(), 3)])
    decided = plan(seen)
    numbers = [await house.store.record_plan(at, encode_snapshot(seen), encode_plan(decided)) for at in (1, 2)]
    plans = (await house.op.get("/v1/plans")).json()["plans"]
    assert [(one["id"], one["at_ms"]) for one in plans] == [(numbers[1], 2), (numbers[0], 1)]
    assert plans[0]["actions"] == plain(decided)["actions"]
    (launch,) = decided.actions
    assert isinstance(launch, Launch)
    assert plans[0]["actions"][0]["offering"] == launch.offering.key
    less = encode_plan(decided, {0: Begun(0, "the budget is spent")})
    await house.store.amend_plan(numbers[0], less)
    told = (await house.op.get("/v1/plans")).json()["plans"][1]["actions"][0]
    assert told == {**plain(decided)["actions"][0], "begun": 0, "why": "the budget is spent"}
    (newest,) = (await house.op.get("/v1/plans", params={"limit": 1})).json()["plans"]
    (older,) = (await house.op.get("/v1/plans", params={"before": newest["id"]})).json()["plans"]
    assert older["id"] == numbers[0]
    told = again(decode_record((await house.op.get(f"/v1/plans/{numbers[0]}")).content))
    assert (told.snapshot, told.decided, told.same) == (seen, decided, True)
    for nobody in ("99", "x", "-1", "%00"):
        assert error_of(await house.op.get(f"/v1/plans/{nobody}"))[0] == 404
    assert error_of(await house.op.get("/v1/plans", params={"before": "x"}))[2] == "before"


async def test_offers_are_asked_for_by_the_amounts_of_a_task(house: House) -> None:
    """What is not given is nothing; what is wrong is named."""
    asked = {"cpus_milli": 8000, "memory": 2**35, "gpus": 1, "gpu_type": "a100", "market": "spot", "limit": 5}
    found = (await house.op.get("/v1/offers", params=asked)).json()
    assert found["asked"].startswith("8 cpu, 32GiB memory")
    assert (found["gpu_type"], found["labels"], found["limit"]) == ("a100", [["market", "spot"]], 5)
    assert (await house.op.get("/v1/offers")).json()["limit"] == 20
    for wrong, place in (({"memory": "-1"}, "memory"), ({"limit": 0}, "limit"), ({"cpus_milli": "x"}, "cpus_milli")):
        assert error_of(await house.op.get("/v1/offers", params=wrong)) == (400, "invalid-input", place)
    assert error_of(await house.op.get("/v1/offers", params={"pool": "none"}))[0] == 404


async def test_targets_of_pools(house: House) -> None:
    """A target is set, seen with its pool, replaced and dropped; unknown pools and sources are 404."""
    await house.agent()
    put = await house.op.put("/v1/pools/default/target", json={"count": 3})
    assert put.json() == {"pool": "default", "source": "rest", "count": 3, "expires_ms": None}
    await house.op.put("/v1/pools/default/target", json={"count": 4, "source": "rest"})
    (pool,) = (await house.op.get("/v1/pools")).json()["pools"]
    assert (pool["name"], pool["instances"], pool["profiles"]) == ("default", 1, ["local"])
    assert [target["count"] for target in pool["targets"]] == [4]
    assert (await house.op.delete("/v1/pools/default/target", params={"source": "rest"})).status_code == 200
    assert house.store.targets() == []
    assert error_of(await house.op.delete("/v1/pools/default/target"))[0] == 404
    assert error_of(await house.op.put("/v1/pools/nowhere/target", json={"count": 3}))[0] == 404
    for body, place in (({"count": -1}, "count"), ({"count": 1, "source": ""}, "source"), ({}, "body")):
        assert error_of(await house.op.put("/v1/pools/default/target", json=body)) == (400, "invalid-input", place)


async def test_events_newest_first(house: House) -> None:
    """All, or those of a task or an instance."""
    await house.store.record(
        [Event(1, "a.b", task=TaskId(7)), Event(2, "c.d", instance=InstanceId("b1-0"), detail="text")]
    )
    events = (await house.op.get("/v1/events")).json()["events"]
    assert [event["action"] for event in events][:2] == ["c.d", "a.b"]
    assert [e["at_ms"] for e in (await house.op.get("/v1/events", params={"task": 7})).json()["events"]] == [1]
    of_instance = (await house.op.get("/v1/events", params={"instance": "b1-0"})).json()["events"]
    assert [event["detail"] for event in of_instance] == ["text"]


async def test_events_are_followed_by_their_ids(house: House) -> None:
    """Whoever asks for what came after the last one that it has misses none and sees none twice; back goes as well."""
    seen: list[dict[str, object]] = []
    for round_ in range(3):
        await house.store.record([Event(at, f"round.{round_}", task=TaskId(7)) for at in range(5)])
        while page := (
            await house.op.get("/v1/events", params={"task": 7, "limit": 2, "after": seen[-1]["id"] if seen else 0})
        ).json()["events"]:
            seen += page[::-1]
    assert [(event["action"], event["at_ms"]) for event in seen] == [
        (f"round.{round_}", at) for round_ in range(3) for at in range(5)
    ]
    back = (await house.op.get("/v1/events", params={"task": 7, "limit": 2, "before": seen[4]["id"]})).json()["events"]
    assert back == [seen[3], seen[2]]
    for name in ("before", "after"):
        assert error_of(await house.op.get("/v1/events", params={name: "x"})) == (400, "invalid-input", name)


async def test_the_summary_adds_up(house: House) -> None:
    """Tasks by state, instances by type with their times, cost in all and per task that ran."""
    agent = await house.agent()
    for _ in range(3):
        await house.done(agent)
    await house.launch()  # still boots: costs already
    await house.submit(1)
    summary = (await house.op.get("/v1/summary")).json()
    assert (summary["tasks"]["succeeded"], summary["tasks"]["queued"], summary["tasks_done"]) == (3, 1, 3)
    (line,) = summary["instances"]
    assert (line["type"], line["market"], line["count"]) == ("t4", "on-demand", 2)
    assert summary["cost_micro"] == line["cost_micro"] > 0
    assert summary["cost_per_task_micro"] == -(-summary["cost_micro"] // 3)
    assert summary["first_ms"] <= summary["last_ms"]


async def test_the_summary_says_what_it_does_not_count(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances without a known price, and those that are gone for longer than it looks back: then no cost per task."""
    agent = await house.agent()
    await house.done(agent)
    await house.store.change([InstanceChange(agent.instance, fields={"rate": None})])
    summary = (await house.op.get("/v1/summary")).json()
    assert (summary["unpriced"], summary["partial"], summary["cost_micro"]) == (1, False, 0)
    assert summary["cost_per_task_micro"] == 0
    monkeypatch.setattr(operator, "_PAST", 1)
    for event in (InstanceEvent.TERMINATE, InstanceEvent.GONE):
        await house.store.change([InstanceChange(agent.instance, event)])
    summary = (await house.op.get("/v1/summary")).json()
    assert (summary["partial"], summary["cost_per_task_micro"], summary["tasks_done"]) == (True, None, 1)


async def test_the_work_of_gone_instances_is_read_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there have been: one that goes does not have all others read again."""
    monkeypatch.setattr(instances, "_KNOWN", 4)
    asked: list[str] = []
    attempts_of = house.store.attempts_of

    async def counted(instance: InstanceId) -> Sequence[Attempt]:
        asked.append(instance)
        return await attempts_of(instance)

    monkeypatch.setattr(house.store, "attempts_of", counted)
    usage = UsageReader(house.services)
    await house.launch(slots=9)
    gone = [replace(own, state=InstanceState.GONE) for own in house.store.instances().values()]
    for newest in range(2, 10):
        await usage.of(gone[newest - 2 : newest][::-1])
    assert sorted(asked) == sorted(own.id for own in gone)


async def test_the_summary_of_nothing(house: House) -> None:
    """An empty store has a summary too."""
    summary = (await house.op.get("/v1/summary")).json()
    assert (summary["cost_micro"], summary["cost_per_task_micro"], summary["tasks_done"]) == (0, None, 0)
    assert (summary["first_ms"], summary["last_ms"], summary["instances"]) == (None, None, [])


async def test_shutdown_is_asked_for_with_its_terms(house: House) -> None:
    """The composition root is told, the caller learns that it was; odd terms are refused and tell nobody."""
    reply = await house.op.post("/v1/shutdown", json={"terminate": True, "grace_ms": 1000})
    assert (reply.status_code, house.stops) == (202, [(True, 1000)])
    assert error_of(await house.op.post("/v1/shutdown", json={"grace_ms": -1}))[2] == "grace_ms"
    assert len(house.stops) == 1


async def test_metrics_are_text(house: House) -> None:
    """What the renderer gives, as Prometheus wants it."""
    reply = await house.op.get("/v1/metrics")
    assert reply.text == "tasks 1\n"
    assert reply.headers["content-type"].startswith("text/plain")


async def test_a_full_store_is_507_and_what_nobody_foresaw_is_500_without_internals(house: House) -> None:
    """The operator gets a code and a hint, never a traceback."""
    house.fleet.failure = StoreUnavailable("no space left", hint="free some")
    full = await house.op.get("/v1/plan")
    assert error_of(full)[:2] == (507, "store-unavailable")
    assert full.headers["retry-after"] == "1"
    house.fleet.failure = RuntimeError("secret internals")
    broken = await house.op.get("/v1/plan")
    assert error_of(broken)[:2] == (500, "internal")
    assert "secret" not in broken.text


async def test_budgets_are_told_and_reconciled(house: House) -> None:
    """Each limit in its present window; after a restore it counts as spent until an operator says otherwise."""
    assert (await house.op.get("/v1/budgets")).json() == {
        "budgets": [],
        "unsure_since_ms": None,
        "risk": ["pool default: any number"],
    }
    await house.store.set_fact("spend-unsure-since", "5")
    await house.store.set_limits([Budget(EVERYTHING, Window.TOTAL, Amount(7))], {})
    told = (await house.op.get("/v1/budgets")).json()
    assert told == {
        "budgets": [
            {
                "name": "total", "scope": "deployment", "of": "", "window": "total", "limit": 7, "spent": 7,
                "configured": 7, "committed": 0, "left": 0,
            }
        ],
        "unsure_since_ms": 5,
        "risk": ["pool default: any number"],
    }  # fmt: skip
    after = (await house.op.post("/v1/budgets/reconcile")).json()
    assert (after["budgets"][0]["spent"], after["unsure_since_ms"]) == (0, None)


async def test_the_kill_switch_is_asked_for_by_its_level(house: House) -> None:
    """What holds is answered; a level that there is none of, and reasons without end, are refused with their place."""
    assert (await house.op.get("/v1/stop")).json() == {"level": "nothing", "why": "", "since_ms": 0}
    asked = await house.op.post("/v1/stop", json={"level": "terminate-all", "reason": "keys are out"})
    assert asked.json() == {"level": "terminate-all", "why": "keys are out", "since_ms": 5}
    assert (await house.op.get("/v1/stop")).json() == asked.json()
    for body, place in (
        ({"level": "all"}, "level"),
        ({"level": "drain", "reason": "x" * 5000}, "reason"),
        ({}, "body"),
    ):
        assert error_of(await house.op.post("/v1/stop", json=body)) == (400, "invalid-input", place)
    assert (await house.op.get("/v1/stop")).json()["level"] == "terminate-all"


async def test_limits_are_tightened_and_what_is_committed_is_told(house: House) -> None:
    """A limit of nobody, no limit of somebody, and amounts that are none are refused with their place."""
    await house.agent()
    await house.store.set_limits([Budget(EVERYTHING, Window.TOTAL, Amount(7_000))], {ProfileName("local"): "local"})
    asked = {"scope": "deployment", "window": "total", "limit": 5_000, "reason": "less"}
    told = (await house.op.put("/v1/budgets", json=asked)).json()["budgets"]
    assert [(one["limit"], one["configured"]) for one in told] == [(5_000, 7_000)]
    more = await house.op.put("/v1/budgets", json={**asked, "limit": 8_000})
    assert error_of(more) == (400, "invalid-input", "limit")
    wrong = [
        ({"limit": -1}, "limit"), ({"limit": 10**16}, "limit"), ({"limit": "5"}, "limit"), ({"of": "x"}, "of"),
        ({"window": "week"}, "window"), ({"scope": "moon"}, "scope"), ({"scope": "pool"}, "of"),
        ({"reason": "x" * 5000}, "reason"),
    ]  # fmt: skip
    for body, place in wrong:
        refused = await house.op.put("/v1/budgets", json={**asked, **body})
        assert error_of(refused) == (400, "invalid-input", place)
        assert refused.json()["hint"] or "expected" in refused.json()["message"]
    (one,) = (await house.op.get("/v1/budgets/commitments")).json()["commitments"]
    assert (one["instance"], one["task"], one["pool"]) == (next(iter(house.store.instances())), None, "default")
    params = {"scope": "driver", "of": "local"}
    assert (await house.op.get("/v1/budgets/commitments", params=params)).json()["commitments"] == [one]
    typo = await house.op.get("/v1/budgets/commitments", params={"scope": "pool", "of": "typo"})
    assert error_of(typo) == (400, "invalid-input", "of")
    params["of"] = "other"
    assert (await house.op.get("/v1/budgets/commitments", params=params)).json()["commitments"] == []
    off = (await house.op.put("/v1/budgets", json={**asked, "limit": None})).json()["budgets"]
    assert off[0]["limit"] == 7_000


async def test_a_breaker_is_reset_by_its_name_or_with_all_others(house: House) -> None:
    """Neither by nothing nor by both; a name that there is none of is not found."""
    house.fleet.broken = [{"name": "boot/p/agent/z"}, {"name": "boot/p/agent/y"}, {"name": "boot/p/agent/x"}]
    assert len((await house.op.get("/v1/breakers")).json()["breakers"]) == 3
    after = await house.op.post("/v1/breakers/reset", json={"name": "boot/p/agent/y"})
    assert [one["name"] for one in after.json()["breakers"]] == ["boot/p/agent/z", "boot/p/agent/x"]
    for body in ({}, {"name": "boot/p/agent/z", "all": True}):
        assert error_of(await house.op.post("/v1/breakers/reset", json=body)) == (400, "invalid-input", "name")
    assert (await house.op.post("/v1/breakers/reset", json={"name": "other"})).status_code == 404
    assert (await house.op.post("/v1/breakers/reset", json={"all": True})).json() == {"breakers": []}
