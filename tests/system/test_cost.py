"""What a real dispatcher says of what was spent, while its instances live and once they are gone."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import time
from typing import Any

from tests.system.house import House

PARTS = ("work", "retry", "idle", "total")


def cost(house: House, *words: str) -> str:
    done = subprocess.run(house.command("cost", *words), capture_output=True, timeout=60, text=True)
    assert done.returncode == 0, done
    assert done.stderr == ""
    return done.stdout


def as_json(house: House, *words: str) -> Any:
    return json.loads(cost(house, *words, "--json"))


def test_everything_that_was_spent_is_somebodys(house: House) -> None:
    """Two projects, one of which tries in vain first: each way to add it up gives the same sum, that of the ledger."""
    flag, seen = house.folder / "tried", house.folder / "seen"
    until_seen = f"while [ ! -e {seen} ]; do sleep 0.1; done"
    assert cost(house).startswith("Nothing was spent.")
    good = house.submit(*({"command": until_seen, "project": "genes", "user": "ada"} for _ in range(4)))
    (vain,) = house.submit(
        {
            "command": f"test -e {flag} && exit 0; touch {flag}; sleep 2; exit 75", "project": "stars", "user": "ben",
            "retry": ["exit-code:75"],
        }
    )  # fmt: skip
    house.until(lambda: house.counts().get("running"), 30, "something runs")
    time.sleep(0.5)
    early = as_json(house)
    assert early["running"] >= 1
    assert early["total"]["total"] > 0
    assert "still alive: counted up to now." in cost(house)
    seen.touch()
    assert house.until_all_ended(5) == {"succeeded": 5}
    house.until_no_instance()

    projects = as_json(house)
    assert (projects["running"], projects["unpriced"]) == (0, 0)
    found = {row["project"]: row for row in projects["rows"]}
    assert set(found) - {""} == {"genes", "stars"}
    assert found["stars"]["retry"] > found["genes"]["retry"] == 0
    by_instance = [instance["cost_micro"] for instance in house.instances(past=True)]
    assert projects["total"]["total"] == sum(by_instance)
    for by in ("user", "pool", "provider,profile", "day", "task", "task,day,user"):
        again = as_json(house, "--by", by)
        assert again["total"]["total"] == projects["total"]["total"], by
        assert sum(row["total"] for row in again["rows"]) == again["total"]["total"], by
    assert [row["provider"] for row in as_json(house, "--by", "provider")["rows"]] == ["local"]
    assert cost(house, "--until", "2020-01-01").startswith("Nothing was spent.")

    of_tasks = {row["task"]: row for row in as_json(house, "--by", "task", "--since", "2d")["rows"]}
    assert set(of_tasks) - {None} == {*good, vain}
    mine = as_json(house, "--task", str(vain))
    assert [one["cause"] for one in mine["attempts"]] == ["exit-code", "success"]
    assert mine["attempts"][0]["retry"] > 0 == mine["attempts"][0]["work"]
    assert {part: of_tasks[vain][part] for part in PARTS} == mine["total"]
    assert "$0.04/h" in cost(house, "--task", str(vain))

    rows = list(csv.DictReader(io.StringIO(cost(house, "--by", "project,user", "--csv"))))
    assert {row["project"]: row["total"] for row in rows} == {
        name: f"0.{row['total']:06d}" for name, row in found.items()
    }
    bad = subprocess.run(house.command("cost", "--by", "colour"), capture_output=True, timeout=60, text=True)
    assert bad.returncode == 2
    assert "any of: project, user, pool" in bad.stderr
