"""Each test that runs a dispatcher against the fake EC2 fails where in the end the one has what the other knows not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.asking import launch
from tests.fakes.ec2 import Settings
from tests.system.aws import Account, WatchedEc2

pytestmark = pytest.mark.usefixtures("keys")


def test_a_vm_that_its_dispatcher_does_not_know_fails_the_test(tmp_path: Path, settings: Settings) -> None:
    """Planted behind the back of a dispatcher that runs."""
    fake = WatchedEc2(settings, patience_s=3)

    def plant() -> None:
        with fake:
            Account(tmp_path, fake, boots=False).house.up()
            launch(fake.client())

    name = "i-[0-9a-f]+"
    with pytest.raises(AssertionError, match=f"{name} lives and is unknown, {name} was launched and never known"):
        plant()
    assert fake.accounts[0].house.processes() == {}, "the dispatcher has been ended all the same"


def test_each_way_of_not_being_alike_is_seen(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that leaked, one that is doubled, one that is not there."""
    with WatchedEc2(settings) as fake:
        (vm,) = launch(fake.client())
        name = vm["InstanceId"]
        unknown = [f"{name} lives and is unknown", f"{name} was launched and never known"]
        assert fake.differences() == unknown, "although no dispatcher runs"
        rows = [{"vm": name}]
        monkeypatch.setattr(Account(tmp_path, fake, boots=False).house, "instances", lambda past=False: rows)
        assert fake.differences() == []
        rows.append({"vm": name})
        assert fake.differences() == [f"{name} is 2 instances"]
        rows[1] = {"vm": "i-0"}
        assert fake.differences() == ["i-0 is known and does not live", "i-0 is known and was never launched"]
        rows.pop()


def test_no_test_of_this_folder_has_a_fake_that_is_not_watched() -> None:
    """So that no dispatcher can be run against one."""
    here = Path(__file__).parent
    for word, home in (("Ec2", "aws.py"), ("Gce", "gcp.py"), ("Arm", "azure.py")):
        assert [path.name for path in here.glob("*.py") if f"Fake{word}" in path.read_text()] == [home]
