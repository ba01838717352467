"""End to end on AWS: one dispatcher with two accounts, in two regions."""

from __future__ import annotations

import pytest

from tests.fakes.ec2 import Settings
from tests.fakes.ec2.settings import ACCOUNT
from tests.fakes.guests.host import cannot
from tests.system.aws import ENDING_MS, PENDING_MS, TYPES, MakeAccount, Profile, WatchedEc2

OTHER, EXTERNAL_ID = "210987654321", "shared-secret"
ROLE = f"arn:aws:iam::{OTHER}:role/dispatcher"
EAST = Profile("east", cap=1)


def west(external_id: str) -> Profile:
    """Of another account and region, by a role."""
    return Profile("west", "eu-west-1", OTHER, 1, f'role_arn = "{ROLE}"\nexternal_id = "{external_id}"')


@pytest.fixture
def settings() -> Settings:
    """With a role that wants an external id."""
    return Settings(types=TYPES, pending_ms=PENDING_MS, shutting_down_ms=ENDING_MS, roles={ROLE: EXTERNAL_ID})


def places(fake: WatchedEc2) -> dict[str, tuple[str, str]]:
    """Account and region of every VM that ever was."""
    with fake.lock:
        return {vm.id: (region.account, region.name) for region in fake.regions_in_use() for vm in region.ever}


@pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")
def test_one_dispatcher_runs_tasks_in_two_accounts(make_account: MakeAccount) -> None:
    """Each profile launches in its own account and region and is shown only what is there; of both nothing is left."""
    aws = make_account(cap=2, profiles=(EAST, west(EXTERNAL_ID)))
    house = aws.house
    house.up()
    tasks = house.submit(*({"command": ["sh", "-c", "sleep 3; echo ran"], "cpus": 2} for _ in range(2)))
    assert house.until_all_ended(2) == {"succeeded": 2}
    assert [house.logs(task) for task in tasks] == [b"ran\n"] * 2
    aws.until_gone()
    rows = {row["vm"]: row for row in house.instances(past=True) if row["vm"]}
    at = {"east": (ACCOUNT, "us-east-1"), "west": (OTHER, "eu-west-1")}
    assert {name: at[row["profile"]] for name, row in rows.items()} == places(aws.fake)
    assert {row["profile"] for row in rows.values()} == set(at)
    ran = {house.task(task)["attempts_list"][0]["instance"] for task in tasks}
    assert ran == {row["id"] for row in rows.values()}, "one task in each"


@pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")
def test_a_role_is_not_had_by_another_external_id(make_account: MakeAccount) -> None:
    """That profile is out, with its reason; what waits runs in the other account."""
    aws = make_account(cap=2, profiles=(EAST, west("guessed")))
    house = aws.house
    house.up()
    house.submit(*({"command": ["echo", "ran"], "cpus": 2} for _ in range(2)))
    assert house.until_all_ended(2) == {"succeeded": 2}
    aws.until_gone()
    assert {account for account, _ in places(aws.fake).values()} == {ACCOUNT}
    silent = [one["detail"] for one in house.get("/v1/events")["events"] if one["action"] == "provider.silent"]
    assert len(silent) == 1
    assert "west" in silent[0]
    assert f"sts:AssumeRole on resource: {ROLE}" in silent[0]
