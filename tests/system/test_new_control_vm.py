"""The control VM is lost, and another one takes its place from a copy in a bucket: real processes, and S3 over HTTP.

The VMs are on machines of their own, as far as the dispatcher can tell: their folder is not in its state.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from cloud_dispatch.install.units import BACKUP, Place, units
from tests.providers.aws import moto_server
from tests.statestore import rotating
from tests.system.house import CONFIG, House

MORE = """
[store]
url = "{url}"

[backup]
into = "s3://lab-queue/copies"
region = "eu-central-1"

[budget]
total = "0.02"
"""


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """A new database for each control VM, by URL; "" for a file in its state."""
    if request.param == "sqlite":
        yield lambda: ""
        return
    names = iter(("first", "second"))
    with rotating.database() as server:

        def made() -> str:
            name = next(names)
            server.do(f"CREATE DATABASE {name}")
            return server.url("first").replace("/postgres?", f"/{name}?")

        yield made


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with moto_server.serving() as url:
        for name, value in {
            "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        made = boto3.client("s3", region_name="eu-central-1")
        made.create_bucket(Bucket="lab-queue", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        yield made


class Site:
    """A deployment whose control VM can be lost. Tasks wait for a file of theirs."""

    def __init__(self, make_house: Any, databases: Callable[[], str]) -> None:
        self._databases = databases
        self.house: House = make_house(lease="120s", cap=4, idle="5m", config="{deployment}")
        self.vms = self.house.folder / "vms"
        self.house.beside.append(self.vms)
        self.settle("first")

    def settle(self, name: str) -> None:
        """A control VM that has nothing yet, at the same address."""
        house = self.house
        house.state = house.folder / f"state-{name}"
        text = CONFIG.format(
            deployment=house.deployment, state=house.state, port=house.port, cap=4, idle="5m", lease="120s", pool=""
        )
        text = text.replace('silence = "60s"', 'silence = "300s"')
        text = text.replace('driver = "local"', f'driver = "local"\nroot = "{self.vms}"')
        house.config.write_text(text + MORE.format(url=self._databases()))

    def task(self, name: str) -> dict[str, Any]:
        """Two of them fit on no VM."""
        go = self.house.folder / f"go-{name}"
        return {"command": f"while [ ! -e {go} ]; do sleep 0.2; done; echo did {name}", "cpus": 2, "name": name}

    def go(self, *names: str) -> None:
        for name in names:
            (self.house.folder / f"go-{name}").touch()

    def run(self, *words: str) -> str:
        done = subprocess.run(self.house.command(*words), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def serving(self, count: int) -> list[Any]:
        def busy() -> list[Any]:
            rows = [row for row in self.house.instances() if row["state"] == "busy"]
            return rows if len(rows) == count else []

        return list(self.house.until(busy, 60, f"{count} serve"))

    def launched(self) -> set[str]:
        """The VMs that there are, by their provider's own records."""
        return {one.name for one in (self.vms / "vms").iterdir()}


def counted(house: House) -> dict[str, int]:
    """What each budget has spent and may still be billed."""
    found = house.get("/v1/budgets")["budgets"]
    return {one["name"]: one["spent"] + one["committed"] for one in found}


def by_the_timer(house: House) -> None:
    """What its unit runs."""
    place = Place(Path(sys.executable).with_name("cloud-dispatch"), house.config, house.state)
    (line,) = re.findall(r"^ExecStart=(.+)$", units(place)[BACKUP], re.MULTILINE)
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_new_control_vm_adopts_what_runs_and_the_budgets_stand(
    make_house: Any, databases: Callable[[], str], s3: Any
) -> None:
    """One VM was there when the copy was made, another one came later. Both are taken over, none is made twice; what is
    open counts as spent until an operator has looked, and then both VMs count, so that a third one is too much."""
    site = Site(make_house, databases)
    house = site.house
    house.up()
    (known,) = house.submit(site.task("known"))
    (before,) = site.serving(1)
    by_the_timer(house)
    (later,) = house.submit(site.task("later"))
    both = {row["vm"]: row for row in site.serving(2)}
    assert site.launched() == set(both)
    spent = counted(house)

    token = house.token  # as the operator keeps it: no copy has it
    house.kill()
    shutil.rmtree(house.state)
    site.settle("second")
    assert "s3://lab-queue/copies/" in site.run("restore", "latest")
    (house.state / "operator.token").touch(mode=0o600)
    (house.state / "operator.token").write_text(token)
    house.up()
    house.until(lambda: len(house.instances()) == 2, 60, "both are found")
    rows = {row["vm"]: row for row in house.instances()}
    assert set(rows) == set(both)
    assert rows[before["vm"]]["id"] == before["id"]

    refused = house.submit(site.task("third"), site.task("fourth"))
    said = house.until(
        lambda: (text := site.run("explain", str(refused[1]))) and "came back from a backup" in text and text,
        60, "it is held back",
    )  # fmt: skip
    assert "budget reconcile" in said
    found = house.get("/v1/budgets")
    assert found["unsure_since_ms"]
    assert all(one["spent"] >= one["limit"] for one in found["budgets"])

    site.run("budget", "reconcile", "--yes")
    found = house.get("/v1/budgets")
    assert found["unsure_since_ms"] is None
    assert counted(house) == pytest.approx(spent, rel=0.1)
    house.until(lambda: "budget" in site.run("explain", str(refused[1])), 60, "the limit holds it back")
    assert site.launched() == set(both)

    site.go("known", "third", "fourth")
    for number in (known, *refused):
        ended = house.until_ended(number, within=120)
        assert ended["state"] == "succeeded", ended
    assert house.task(known)["attempts"] == 1
    assert house.logs(known) == b"did known\n"
    # What came after the copy is forgotten, and its number is given out again: no attempt of before is taken for it.
    assert (refused[0], house.logs(refused[0])) == (later, b"did third\n")
    site.run("stop", "--terminate-all", "--yes")
    house.until_no_instance(120)
    assert {row["vm"] for row in house.instances(past=True)} == set(both)
