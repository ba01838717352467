"""End to end on AWS: a real dispatcher, the real driver in its process, a fake EC2, and guests that really boot.

What is stood in for: EC2 and its metadata service (`tests/fakes`). User data, agents, users of tasks, rules of nft,
proofs of identity, notices and shutdowns are real.
"""

from __future__ import annotations

import pytest

from tests.fakes.ec2 import catalogue
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.guests.host import cannot
from tests.system.aws import ENDING_MS, PENDING_MS, TYPES, MakeAccount, drivers_of

pytestmark = pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")
NOTICE_MS = 20_000
PRICES_NANO = {name: catalogue.on_demand_nano(made) for name, made in catalogue.types(TYPES).items()}


def test_tasks_run_and_everything_is_gone(make_account: MakeAccount) -> None:
    """Results and logs are right, a task gets nothing of its VM's metadata, and the ledger has what EC2 bills."""
    aws = make_account()
    house = aws.house
    house.up()
    ids = house.submit(*({"command": ["sh", "-c", f"echo out-{n}; id -u"]} for n in range(20)))
    (curious,) = house.submit({"command": ["curl", "-sS", "-m", "5", "http://169.254.169.254/latest/meta-data/"]})
    (failing,) = house.submit({"command": ["sh", "-c", "exit 3"], "max_attempts": 1})
    assert house.until_all_ended(22) == {"succeeded": 20, "failed": 2}
    said = [house.logs(task).decode().split() for task in ids]
    assert [out for out, _ in said] == [f"out-{n}" for n in range(20)]
    assert {int(user) // 1000 for _, user in said} == {60}  # users of their own: 60600 and on
    assert house.task(failing)["exit_code"] == 3
    assert house.task(curious)["exit_code"] == 7, house.logs(curious)  # there is no connection
    aws.until_gone()
    past = {row["vm"]: row for row in house.instances(past=True)}
    for line in aws.fake.bill():
        row = past.pop(line.id)
        # EC2 bills while it runs. The ledger counts from the launch until the end was seen: that is one listing later.
        over = (row["ended_ms"] - row["launched_ms"]) - (line.ended_ms - line.running_ms)
        assert 0 <= over <= PENDING_MS + ENDING_MS + 3_000, (row, line)
        assert row["rate_nano"] == PRICES_NANO[line.type]
        minute = -(-row["rate_nano"] * 60 // 3_600_000)
        assert row["cost_micro"] >= minute  # the least that is billed
    assert not past


#: Saves what it has at SIGUSR1, and has been told what that is when it begins again.
RESUMES = """
[ $CLOUD_DISPATCH_ATTEMPT = 1 ] || exec echo resumed
trap 'echo saved; exit 75' USR1
echo begun
while :; do sleep 0.1; done
"""


def test_a_spot_vm_that_is_taken_back_gives_its_work_back_before(make_account: MakeAccount) -> None:
    """The interrupted task saves what it has and goes on elsewhere while its VM still has time. Where EC2 recommends to
    rebalance, the task ends in peace, and its VM takes no other."""
    aws = make_account(cap=4, pool='markets = ["spot"]')
    house = aws.house
    house.up()
    taken, advised = house.submit(
        {"command": ["bash", "-c", RESUMES], "cpus": 2, "checkpoint_signal": "SIGUSR1"},
        {"command": ["sh", "-c", "echo begun; sleep 9; echo done"], "cpus": 2},
    )
    house.until(lambda: all(b"begun" in house.logs(task) for task in (taken, advised)), 30, "both run")
    first, other = (house.get(f"/v1/instances/{house.task(task)['instance']}")["vm"] for task in (taken, advised))
    aws.fake.rebalance(other)
    aws.fake.interrupt(first, notice_ms=NOTICE_MS)
    ends_ms = aws.fake.clock.now() + NOTICE_MS
    one, two = house.until(lambda: len(found := house.task(taken)["attempts_list"]) == 2 and found, 20, "goes on")
    assert one["cause"] == "preempted"
    assert one["ended_ms"] < ends_ms
    assert house.until_ended(taken)["state"] == "succeeded"
    assert b"saved" in house.ask("GET", f"/v1/tasks/{taken}/logs", params={"attempt": one["token"]}).content
    assert house.logs(taken).endswith(b"resumed\n")
    assert two["instance"] != one["instance"]
    draining = f"/v1/instances/{house.task(advised)['instance']}"
    house.until(lambda: house.get(draining)["state"] == "draining", 10, "the other takes no more work")
    assert house.until_ended(advised)["state"] == "succeeded"
    assert len(house.task(advised)["attempts_list"]) == 1
    aws.until_gone()
    assert {line.market for line in aws.fake.bill()} == {"spot"}


def test_killed_between_a_launch_and_its_record_it_doubles_and_leaks_nothing(make_account: MakeAccount) -> None:
    """EC2 has made the VM, its answer is under way, and the dispatcher dies of SIGKILL."""
    aws = make_account(cap=1)
    house = aws.house
    house.up()
    aws.fake.add_faults(Fault(FaultKind.SLOW, operation="RunInstances", amount=20_000, times=1))
    (task,) = house.submit({"command": ["echo", "once"]})
    house.until(aws.fake.living, 20, "EC2 has made it")
    assert [row["vm"] for row in house.instances()] == [""], "its answer has come: nothing is between the two"
    assert house.process is not None
    old = house.process.pid
    house.kill()
    house.until(lambda: not drivers_of(old), 10, "its driver's process ends with it")
    house.up()
    assert house.until_ended(task)["state"] == "succeeded"
    assert house.logs(task) == b"once\n"
    aws.until_gone()
    assert len(aws.fake.ever()) == 1


def test_a_launch_whose_answer_is_lost_is_adopted(make_account: MakeAccount) -> None:
    """EC2 has made the VMs and hangs up."""
    aws = make_account(cap=2)
    house = aws.house
    house.up()
    aws.fake.add_faults(Fault(FaultKind.LOST_ANSWER, operation="RunInstances", times=1))
    tasks = house.submit(*({"command": ["sh", "-c", "sleep 1; echo once"], "cpus": 2} for _ in range(2)))
    assert house.until_all_ended(2) == {"succeeded": 2}
    assert [house.logs(task) for task in tasks] == [b"once\n"] * 2
    aws.until_gone()
    assert len(aws.fake.ever()) == 2


def test_a_zone_without_capacity_is_passed_by_at_once(make_account: MakeAccount) -> None:
    """The cheapest type is had in no zone but one, and there not either: the next type is, before any timer."""
    aws = make_account(cap=1)
    house = aws.house
    house.config.write_text(house.config.read_text().replace('pass_interval = "0.5s"', 'pass_interval = "60s"'))
    house.up()
    aws.fake.add_faults(Fault(FaultKind.CAPACITY, type="c6i.large", amount=0))
    (task,) = house.submit({"command": ["echo", "here"]})
    assert house.until_ended(task)["state"] == "succeeded"
    refused = [row for row in house.instances(past=True) if not row["vm"]]
    (served,) = (row for row in house.instances(past=True) if row["vm"])
    assert {row["type"] for row in refused} == {"c6i.large"}
    assert {row["zone"] for row in refused} == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert served["type"] == "m6i.large"
    assert served["intended_ms"] - min(row["intended_ms"] for row in refused) < 2_000
    assert "InsufficientInstanceCapacity" in refused[0]["reason"]
    aws.until_gone()


def test_whose_document_another_key_has_signed_is_not_admitted(make_account: MakeAccount) -> None:
    """The VM is what it says, and its proof is whole, but EC2 has not signed it: it gets no task, and goes."""
    aws = make_account(cap=1, signer="somebody")
    house = aws.house
    house.config.write_text(house.config.read_text().replace('boot_deadline = "20s"', 'boot_deadline = "4s"'))
    house.up()
    (task,) = house.submit({"command": ["true"]})
    (refusal,) = house.until(
        lambda: [e for e in house.get("/v1/events")["events"] if e["action"] == "registration.refused"], 20, "refused"
    )
    assert "proves nothing" in refusal["detail"], refusal
    house.post("/v1/tasks/cancel", {"ids": [task]})
    aws.until_gone()
    assert house.task(task)["attempts_list"] == []
