"""End to end on Google Cloud: a real dispatcher, the real driver in its process, a fake, and guests that really boot.

What is stood in for: Compute Engine and its metadata service (`tests/fakes`). User data, agents, users of tasks, proofs
of identity, notices and shutdowns are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce.records import Status
from tests.fakes.guests.host import cannot
from tests.system.aws import drivers_of
from tests.system.gcp import Account, MakeAccount, WatchedGce
from tests.system.test_aws import RESUMES

pytestmark = pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")
NOTICE_MS = 20_000
#: Of n2-standard-2 and e2-standard-2, by the fake's billing catalogue.
PRICES_NANO = {"n2-standard-2": 97_118_000, "e2-standard-2": 67_011_420}


@pytest.fixture
def make_google(tmp_path: Path) -> Iterator[MakeAccount]:
    """Makes deployments on one fake, which at its end looks at them all."""
    with WatchedGce() as fake:

        def make(**more: Any) -> Account:
            folder = tmp_path / f"google{len(fake.accounts)}"
            folder.mkdir()
            return Account(folder, fake, **more)

        yield make


def test_tasks_run_and_everything_is_gone(make_google: MakeAccount) -> None:
    """Results and logs are right, a task gets nothing of its VM's metadata, and the ledger has what Google bills."""
    google = make_google(pool='markets = ["on-demand"]')
    house = google.house
    house.up()
    ids = house.submit(*({"command": ["sh", "-c", f"echo out-{n}; id -u"]} for n in range(20)))
    metadata = ["curl", "-sS", "-m", "5", "-H", "Metadata-Flavor: Google", "http://169.254.169.254/computeMetadata/v1/"]
    (curious,) = house.submit({"command": metadata})
    (failing,) = house.submit({"command": ["sh", "-c", "exit 3"], "max_attempts": 1})
    assert house.until_all_ended(22) == {"succeeded": 20, "failed": 2}
    said = [house.logs(task).decode().split() for task in ids]
    assert [out for out, _ in said] == [f"out-{n}" for n in range(20)]
    assert {int(user) // 1000 for _, user in said} == {60}  # users of their own: 60600 and on
    assert house.task(failing)["exit_code"] == 3
    assert house.task(curious)["exit_code"] == 7, house.logs(curious)  # there is no connection
    google.until_gone()
    past = {row["vm"]: row for row in house.instances(past=True)}
    for line in google.fake.bill():
        row = past.pop(f"{line.zone}/{line.name}")
        assert row["ended_ms"] - row["launched_ms"] >= line.ended_ms - line.running_ms
        assert row["rate_nano"] == PRICES_NANO[line.type]
    assert not past


def test_a_spot_vm_that_is_taken_back_gives_its_work_back_before(make_google: MakeAccount) -> None:
    """The interrupted task saves what it has and goes on elsewhere while its VM still has time."""
    google = make_google(pool='markets = ["spot"]')
    house = google.house
    house.up()
    (taken,) = house.submit({"command": ["bash", "-c", RESUMES], "cpus": 2, "checkpoint_signal": "SIGUSR1"})
    house.until(lambda: b"begun" in house.logs(taken), 30, "it runs")
    first = house.get(f"/v1/instances/{house.task(taken)['instance']}")["vm"]
    google.fake.preempt(first.rpartition("/")[2], notice_ms=NOTICE_MS)
    ends_ms = google.fake.clock.now() + NOTICE_MS
    one, two = house.until(lambda: len(found := house.task(taken)["attempts_list"]) == 2 and found, 20, "goes on")
    assert one["cause"] == "preempted"
    assert one["ended_ms"] < ends_ms
    assert house.until_ended(taken)["state"] == "succeeded"
    assert house.logs(taken).endswith(b"resumed\n")
    assert two["instance"] != one["instance"]
    google.until_gone()
    assert {line.market for line in google.fake.bill()} == {"spot"}


def test_killed_between_a_launch_and_its_record_it_doubles_and_leaks_nothing(make_google: MakeAccount) -> None:
    """Google has accepted the VM, its answer is under way, and the dispatcher dies of SIGKILL."""
    google = make_google(cap=1)
    house = google.house
    house.up()
    google.fake.add_faults(Fault(FaultKind.SLOW, operation="instances.insert", amount=20_000, times=1))
    (task,) = house.submit({"command": ["echo", "once"]})
    house.until(google.fake.living, 20, "Google has made it")
    assert [row["vm"] for row in house.instances()] == [""], "its answer has come: nothing is between the two"
    assert house.process is not None
    old = house.process.pid
    house.kill()
    house.until(lambda: not drivers_of(old), 10, "its driver's process ends with it")
    house.up()
    assert house.until_ended(task)["state"] == "succeeded"
    assert house.logs(task) == b"once\n"
    google.until_gone()
    assert len(google.fake.ever()) == 1


def test_what_has_powered_off_while_no_dispatcher_lived_is_deleted_by_the_next(make_google: MakeAccount) -> None:
    """Google keeps a stopped VM, and its disk bills: no hard end comes for it."""
    google = make_google(cap=1, pool='markets = ["on-demand"]')
    house = google.house
    house.up()
    (task,) = house.submit({"command": ["sh", "-c", "[ $CLOUD_DISPATCH_ATTEMPT = 2 ] || sleep 600"]})
    house.until(lambda: house.task(task)["state"] == "running", 60, "it runs")
    house.kill()
    (left,) = google.fake.living()
    google.fake.guest_shutdown(left.name)
    house.until(lambda: left.status == Status.TERMINATED, 20, "it is off")
    house.up()
    house.until(lambda: left.status == "", 60, "the dispatcher has deleted it")
    assert house.until_ended(task)["state"] == "succeeded"
    google.until_gone()


def test_a_launch_whose_answer_is_lost_is_adopted(make_google: MakeAccount) -> None:
    """Google has accepted the VMs and hangs up."""
    google = make_google(cap=2)
    house = google.house
    house.up()
    google.fake.add_faults(Fault(FaultKind.LOST_ANSWER, operation="instances.insert", times=1))
    tasks = house.submit(*({"command": ["sh", "-c", "sleep 1; echo once"], "cpus": 2} for _ in range(2)))
    assert house.until_all_ended(2) == {"succeeded": 2}
    assert [house.logs(task) for task in tasks] == [b"once\n"] * 2
    google.until_gone()
    assert len(google.fake.ever()) == 2


def test_a_zone_without_capacity_is_passed_by(make_google: MakeAccount) -> None:
    """What is refused inside an operation is refused all the same: another type serves."""
    google = make_google(cap=1, pool='markets = ["on-demand"]')
    house = google.house
    house.up()
    google.fake.add_faults(Fault(FaultKind.CAPACITY, type="e2-standard-2", amount=0))
    (task,) = house.submit({"command": ["echo", "here"]})
    assert house.until_ended(task)["state"] == "succeeded"
    served = next(row for row in house.instances(past=True) if row["type"] == "n2-standard-2")
    refused = [row for row in house.instances(past=True) if row["type"] == "e2-standard-2"]
    assert served["vm"]
    assert refused
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in refused[0]["reason"]
    google.until_gone()
