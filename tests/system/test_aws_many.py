"""A dispatcher on AWS that dies of SIGKILL with many launches under way. Nothing boots: it is about slots and VMs."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fakes.ec2 import Settings
from tests.fakes.faults import Fault, FaultKind
from tests.system.aws import TYPES, MakeAccount, drivers_of

SLOTS, SEEN_LATE_MS = 8, 20_000
POOLS = ("default", "second", "third")


def pool(name: str) -> str:
    """As the default one is."""
    own = 'profiles = ["aws"]\nboot_deadline = "20s"\ntarget_drain = "10s"\nmax_tasks_per_instance = 1'
    return f'\n[pools.{name}]\n{own}\n[pools.{name}.end]\nidle = "1s"\nlifetime = "10m"\n'


@pytest.mark.parametrize(
    "settings",
    [Settings(types=TYPES), Settings(types=TYPES, appears_ms=SEEN_LATE_MS)],
    ids=["they are listed", "they are not yet listed"],
)
def test_killed_with_many_launches_under_way_each_slot_has_one_vm(make_account: MakeAccount) -> None:
    """EC2 has made 24 VMs of three batches, no answer has come, and the dispatcher dies: the next one finds each VM for
    its slot and makes none again, be they listed by then or not."""
    pools = "".join(pool(name) for name in POOLS[1:])
    total = SLOTS * len(POOLS)
    aws = make_account(cap=total, pool="max_tasks_per_instance = 1", pools=pools, boots=False)
    house, fake = aws.house, aws.fake
    # A listing would find the VMs before their launches are answered, and nobody registers.
    said = house.config.read_text().replace('list_interval = "1s"', 'list_interval = "60s"')
    said = said.replace('consistency = "1s"', 'consistency = "30s"')
    house.config.write_text(said.replace('boot_deadline = "20s"', 'boot_deadline = "5m"'))
    house.up()
    fake.add_faults(Fault(FaultKind.SLOW, operation="RunInstances", amount=30_000, times=len(POOLS)))
    tasks = [{"command": ["true"], "pool": name, "cpus": 2} for name in POOLS for _ in range(SLOTS)]
    house.submit(*tasks)
    house.until(lambda: len(fake.living()) == total, 30, "EC2 has made all of them")
    before = house.instances(past=True)
    assert [row["vm"] for row in before] == [""] * total, "an answer has come"
    assert sorted(Counter(vm.reservation.token for vm in fake.ever()).values()) == [SLOTS] * len(POOLS)
    assert house.process is not None
    old = house.process.pid
    house.kill()
    house.until(lambda: not drivers_of(old), 10, "its driver's process ends with it")
    house.up()
    house.until(lambda: all(row["vm"] for row in house.instances(past=True)), 30, "each slot has its VM")
    after = house.instances(past=True)
    assert {row["id"] for row in after} == {row["id"] for row in before}
    assert all(fake.instance(row["vm"]).reservation.token == row["id"].rpartition("-")[0] for row in after)
    assert {row["vm"] for row in after} == {vm.id for vm in fake.ever()}
    assert len(after) == len(fake.ever()) == total
    house.post("/v1/stop", {"level": "terminate-all", "reason": "it was seen"})
    aws.until_gone()
    assert len(fake.ever()) == total
