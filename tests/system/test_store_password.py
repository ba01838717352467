"""A dispatcher whose database changes its password by itself, over real processes: PostgreSQL, and Secrets Manager over
HTTP, from where both the dispatcher and the commands have what the password is now."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests import procfs
from tests.providers.aws import moto_server
from tests.statestore import rotating
from tests.statestore.rotating import Database
from tests.system.house import CONFIG, House

OLD, NEW = "passwordMarker_1st/Kx", "passwordMarker_2nd/Qz"
SECRET = "rds!db-1f2e"
STORE = """
[store]
url = "{url}"
password = "aws-secret:{arn}#password"
"""


@pytest.fixture
def database() -> Iterator[Database]:
    with rotating.database() as made:
        made.rotate(OLD)
        yield made


@pytest.fixture
def keeps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Secrets Manager, where the SDK looks for it."""
    with moto_server.serving() as url:
        for name, value in {
            "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield boto3.client("secretsmanager", region_name="eu-central-1")


def command(house: House, *words: str) -> str:
    done = subprocess.run(house.command(*words), capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_password_is_changed_and_the_queue_goes_on(make_house: Any, database: Database, keeps: Any) -> None:
    """Every connection is cut, and the next one has the new password; so does a backup. Neither password
    is in a log, an answer, a file of the state, an argument or the environment of a process."""
    kept = {"username": "disp", "password": OLD}
    arn = keeps.create_secret(Name=SECRET, SecretString=json.dumps(kept))["ARN"]
    url = database.url("x").replace(":x@", "@")
    house = make_house(config=CONFIG + STORE.format(url=url, arn=arn))
    house.up()
    first = house.submit({"command": ["true"]})
    house.until_ended(first[0])
    said = command(house, "config", "show", "--json")
    assert arn in said

    database.rotate(NEW)
    keeps.put_secret_value(SecretId=arn, SecretString=json.dumps({**kept, "password": NEW}))
    database.hang_up()
    second = house.submit({"command": ["true"]})
    assert house.until_ended(second[0])["state"] == "succeeded"
    assert "statestore.login_renewed" in house.log.read_text()
    said += command(house, "backup", str(house.folder / "copy.sqlite"))

    assert house.process is not None
    pids = [house.process.pid, *house.processes()]
    seen = b"".join(procfs.shown(pid, name) for pid in pids for name in ("cmdline", "environ"))
    house.kill(15)
    database.rotate("elsewhere")
    keeps.delete_secret(SecretId=arn, ForceDeleteWithoutRecovery=True)
    failed = subprocess.run(house.command("db", "check"), capture_output=True, timeout=90)
    assert failed.returncode != 0
    assert b"store.password" in failed.stderr
    places = {
        "commands": said.encode() + failed.stdout + failed.stderr, "processes": seen, "log": house.log.read_bytes(),
        **{str(file): file.read_bytes() for file in house.state.rglob("*") if file.is_file()},
    }  # fmt: skip
    assert os.environ["AWS_ENDPOINT_URL"].encode() in seen
    leaks = [place for place, body in places.items() for word in (OLD, NEW) if word.split("/")[0].encode() in body]
    assert leaks == []
