"""`plans` and `replay`: what was decided, and whether it would be decided again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch import __version__
from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.plain import plain
from cloud_dispatch.planner.plan import Begun, Drain, Launch, Plan
from cloud_dispatch.planner.replay import encode_plan, encode_snapshot
from cloud_dispatch.planner.snapshot import Snapshot
from tests.planner.scenes import demand, instance, shape, snapshot

SCENE = snapshot([demand(shape(), 12)], supply=[instance(1, state=InstanceState.BOOTING)])


def stored(number: int, seen: Snapshot, decided: Plan) -> dict[str, Any]:
    """What a dispatcher knows of a plan."""
    parts = {"snapshot": json.loads(encode_snapshot(seen)), "plan": json.loads(encode_plan(decided))}
    return {"record": {"id": number, "at_ms": 1_700_000_000_000, **parts}, "actions": plain(decided)["actions"]}


@pytest.fixture
def planned(dispatcher: Any) -> Plan:
    """Plan 3 is as it would be now, plan 4 has a drain more, and takes half the launches."""
    decided = plan(SCENE)
    launches = [action for action in decided.actions if isinstance(action, Launch)]
    assert launches
    halved = replace(launches[0], slots=1000)
    other = replace(decided, actions=(halved, *decided.actions[1:], Drain(InstanceId("b9-9"), "idle", "for no reason")))
    dispatcher.plans = {3: stored(3, SCENE, decided), 4: stored(4, SCENE, other)}
    return decided


def test_plans_are_listed_with_what_they_did(cli: Any, planned: Plan) -> None:
    """Newest first; instances are counted, not actions, and the first reason stands beside."""
    ran = cli("plans")
    newest, older = (line for line in ran.out.splitlines() if "1970-01-01" in line)
    assert newest.split()[0] == "4"
    assert "launch 1000, drain 1" in newest
    assert planned.actions[0].reason[:30] in older
    assert [one["id"] for one in cli("plans", "--json").json()["plans"]] == [4, 3]
    assert [one["id"] for one in cli("plans", "--limit", "1", "--json").json()["plans"]] == [4]
    assert [one["id"] for one in cli("plans", "--before", "4", "--json").json()["plans"]] == [3]


def test_a_plan_of_which_less_was_launched_is_listed_so(cli: Any, dispatcher: Any, planned: Plan) -> None:
    """How many of how many, and why no more, before what it would have been for."""
    (launch, *_) = dispatcher.plans[3]["actions"]
    launch |= {"begun": 0, "why": "the budget is spent"}
    (older,) = (line for line in cli("plans").out.splitlines() if line.split()[:1] == ["3"])
    assert f"launch 0 of {launch['slots']}" in older
    assert "the budget is spent" in older
    less = encode_plan(planned, {0: Begun(2, "the budget is spent")})
    dispatcher.plans = {3: {"actions": [], "record": {**dispatcher.plans[3]["record"], "plan": json.loads(less)}}}
    ran = cli("replay", "3")
    assert (ran.code, "; 2 of them were: the budget is spent" in ran.out) == (0, True)
    assert cli("replay", "3", "--json").json()["decided"]["actions"][0]["begun"] == 2


@pytest.mark.usefixtures("planned")
def test_a_plan_that_comes_out_again_is_said_to(cli: Any) -> None:
    """With what it was made from and each action; by number, from a file and from stdin, it is the same."""
    ran = cli("replay", "3")
    first, *lines = ran.out.splitlines()
    assert first == (
        "Plan 3, made 2023-11-14 22:13:20 UTC from 12 waiting tasks (shapes: 1), 1 offering, instances: 1 booting."
    )
    assert any(line.startswith("launch ") for line in lines)
    assert lines[-1] == f"Planned again by cloud-dispatch {__version__}: the same."
    assert ran.code == 0


@pytest.mark.usefixtures("planned")
def test_what_is_planned_otherwise_now_is_shown_and_is_no_success(cli: Any) -> None:
    """The exit code says it too; what both have is not repeated."""
    ran = cli("replay", "4")
    assert ran.code == 1
    changes = ran.out.partition("not the same (- then, + now).\n")[2].splitlines()
    assert [line[:9] for line in changes] == ["- launch ", "- drain b", "+ launch "]
    told = cli("replay", "4", "--json")
    assert (told.code, told.json()["again"]["same"]) == (1, False)


def test_a_file_needs_no_dispatcher(cli: Any, planned: Plan, dispatcher: Any, tmp_path: Path) -> None:
    """What --json printed goes into `replay` again, wherever that is."""
    file = tmp_path / "plan.json"
    file.write_text(cli("replay", "3", "--json").out)
    assert json.loads(file.read_text())["again"]["actions"] == plain(planned)["actions"]
    asked = len(dispatcher.requests)
    again = cli("replay", str(file))
    assert (again.code, again.out.splitlines()[-1].endswith(": the same.")) == (0, True)
    assert len(dispatcher.requests) == asked


@pytest.mark.usefixtures("planned")
def test_what_is_no_plan_is_refused_with_where_it_would_be_found(cli: Any, tmp_path: Path) -> None:
    """A number that is unknown, a file that is not there, or that holds something else."""
    assert cli("replay", "99").code == 3
    missing = cli("replay", "plan-3")
    assert (missing.code, "cloud-dispatch plans" in missing.err) == (3, True)
    (tmp_path / "other.json").write_text("{}")
    other = cli("replay", str(tmp_path / "other.json"))
    assert (other.code, "replay --json" in other.err) == (2, True)
    assert cli("replay", str(tmp_path)).code == 2
