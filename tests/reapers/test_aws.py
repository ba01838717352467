"""The reaper of an AWS account as Lambda runs it: its handler, boto3, and a fake EC2 over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import boto3
import pytest

from cloud_dispatch.domain.ids import BatchId, PoolName, VmId
from cloud_dispatch.domain.sign import read
from cloud_dispatch.domain.tags import DEPLOYMENT, VmTags
from cloud_dispatch.reapers import aws
from cloud_dispatch.reapers.rounds import Unfinished
from tests.fakes.asking import launch
from tests.fakes.ec2.fake import FakeEc2
from tests.fakes.ec2.records import Interface, State, Tags, Volume
from tests.fakes.ec2.session import OPERATIONS
from tests.fakes.ec2.settings import Settings
from tests.terraform.rendering import MODULES, rendered


class Context:
    """What Lambda says of a call: so many milliseconds are left, and `less` each time."""

    def __init__(self, left_ms: int = 60_000, less: int = 0) -> None:
        self._left_ms, self._less = left_ms, less

    def get_remaining_time_in_millis(self) -> int:
        self._left_ms -= self._less
        return self._left_ms


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEc2]:
    with FakeEc2(Settings(types=("m5.large",))) as made:
        key = made.client("ec2")._request_signer._credentials
        for name, value in {
            "DEPLOYMENT": "lab", "AWS_REGION": made.client("ec2").meta.region_name, "AWS_ENDPOINT_URL": made.url,
            "AWS_ACCESS_KEY_ID": key.access_key, "AWS_SECRET_ACCESS_KEY": key.secret_key,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        monkeypatch.setattr("cloud_dispatch.reapers.rounds.PAUSE_S", 0.05)
        yield made


def vm(fake: FakeEc2, ends_ms: int, deployment: str = "lab") -> str:
    worn = VmTags(deployment, "store", PoolName("p"), BatchId("b"), 5, ends_ms).encode()
    tags = [{"Key": key, "Value": value} for key, value in worn.items()]
    (made,) = launch(
        fake.client(), InstanceType="m5.large", TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]
    )
    return str(made["InstanceId"])


def living(fake: FakeEc2) -> set[str]:
    pages = fake.client().get_paginator("describe_instances").paginate()
    every = [one for page in pages for part in page["Reservations"] for one in part["Instances"]]
    return {one["InstanceId"] for one in every if one["State"]["Name"] not in ("terminated", "shutting-down")}


def test_a_call_ends_what_is_past_its_end_protected_or_not(fake: FakeEc2) -> None:
    now = fake.clock.now()
    late, protected, early, other = vm(fake, 5), vm(fake, 5), vm(fake, now + 3_600_000), vm(fake, 5, "other")
    fake.client().modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": True})
    (told,) = aws.handler({"source": "aws.events"}, Context())
    assert set(told["ended"]) == {late, protected}
    assert living(fake) == {early, other}


def test_terraforms_destroy_ends_the_deployment_and_waits_for_it(fake: FakeEc2) -> None:
    """Its creation is a round as any other."""
    now = fake.clock.now()
    mine, other = vm(fake, now + 3_600_000), vm(fake, now + 3_600_000, "other")
    aws.handler({"tf": {"action": "create"}}, Context())
    assert living(fake) == {mine, other}
    aws.handler({"tf": {"action": "delete"}}, Context())
    assert living(fake) == {other}


def test_a_right_that_is_missing_fails_the_call(fake: FakeEc2) -> None:
    """So that the alarm of the function is heard; the VM is named."""
    late = vm(fake, 5)
    fake.denied.add("ec2:TerminateInstances")
    with pytest.raises(Unfinished, match=late):
        aws.handler({}, Context())
    assert living(fake) == {late}


def gone(fake: FakeEc2, name: str, *, shown: bool) -> None:
    """EC2 has ended the instance, and its tags are no more; nor is it, if it is not shown."""
    fake.kill(name)
    while fake.instance(name).state is not State.TERMINATED:
        time.sleep(0.01)
    with fake.lock:
        region = fake.region()
        region.retag(fake.instance(name), Tags({}))
        if not shown:
            del region.instances[name]


@pytest.mark.parametrize("shown", [True, False], ids=["terminated", "not shown"])
def test_one_that_is_gone_by_the_time_that_it_is_ended_fails_no_round(
    fake: FakeEc2, monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    """EC2 refuses what has no tag to match, and all that is asked for with it. The others end, and the sign is left."""
    monkeypatch.setenv("SIGN", "/cloud-dispatch-lab/reaper")
    fake.region().parameters["/cloud-dispatch-lab/reaper"] = "none"
    fake.scoped.update(
        {f"ec2:{name}": (DEPLOYMENT, "lab") for name in ("TerminateInstances", "ModifyInstanceAttribute")}
    )
    early, late = vm(fake, 5), vm(fake, 5)
    end = aws.Ec2.end

    def later(cloud: aws.Ec2, vms: Sequence[VmId]) -> Mapping[VmId, str]:
        gone(fake, early, shown=shown)
        return end(cloud, vms)

    monkeypatch.setattr(aws.Ec2, "end", later)
    (told,) = aws.handler({}, Context())
    assert (set(told["ended"]), told["failed"]) == ({early, late}, {})
    assert late not in living(fake)
    assert read(fake.region().parameters["/cloud-dispatch-lab/reaper"]) is not None


def test_without_a_look_whoever_was_refused_is_told(fake: FakeEc2) -> None:
    """That a look fails shows nobody to be gone."""
    late, ec2 = VmId(vm(fake, 5)), aws.Ec2(fake.client(), "lab")
    fake.denied |= {"ec2:TerminateInstances", "ec2:ModifyInstanceAttribute", "ec2:DescribeInstances"}
    assert ec2.end([late]).keys() == {late}


def test_a_region_that_does_not_answer_keeps_no_other_from_its_end(
    fake: FakeEc2, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = vm(fake, 5)
    monkeypatch.setenv("REGIONS", f"nowhere-1, {aws.os.environ['AWS_REGION']}")
    with pytest.raises(Unfinished, match="nowhere-1"):
        aws.handler({}, Context())
    assert late not in living(fake)


def rest(fake: FakeEc2, deployment: str) -> dict[str, str]:
    """A disk, an interface, an address and a snapshot that a VM of the deployment has left, by their kinds."""
    with fake.lock:
        region, made = fake.region(), {}
        subnet = next(iter(region.subnets.values()))
        worn = Tags(VmTags(deployment, "store", PoolName("p"), BatchId("b"), 5, 5).encode())
        disk = Volume(region.new_id("vol"), subnet.zone, 8, "gp3", True, 0, "/dev/sda1", False)
        nic = Interface(region.new_id("eni"), subnet.zone, subnet.id, "172.31.0.9", 0, (), False)
        region.volumes[disk.id], region.interfaces[nic.id] = disk, nic
        address, snapshot = region.addresses[fake.hold_address()], region.snapshots[fake.keep_snapshot()]
        for kind, thing in (("disk", disk), ("nic", nic), ("address", address), ("snapshot", snapshot)):
            thing.tags = worn
            made[kind] = thing.allocation if kind == "address" else thing.id
        return made


def there(fake: FakeEc2) -> set[str]:
    with fake.lock:
        region = fake.region()
        return {*region.volumes, *region.interfaces, *region.addresses, *region.snapshots}


def test_what_has_outlived_its_vm_goes_with_everything_and_not_before(
    fake: FakeEc2, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is another deployment's stays, and what somebody uses; snapshots where it is said so."""
    before, mine, other = there(fake), rest(fake, "lab"), rest(fake, "other")
    late = vm(fake, 5)
    used = there(fake) - before - {*mine.values(), *other.values()}
    aws.handler({}, Context())
    assert there(fake) >= {*mine.values(), *other.values()}
    monkeypatch.setenv("KEEP_SNAPSHOTS", "yes")
    aws.handler({"tf": {"action": "delete"}}, Context())
    assert there(fake) == before | {mine["snapshot"], *other.values()}
    monkeypatch.delenv("KEEP_SNAPSHOTS")
    aws.handler({"tf": {"action": "delete"}}, Context())
    assert there(fake) == before | set(other.values())
    assert used
    assert late not in living(fake)


def test_a_round_leaves_its_sign_in_the_parameter_of_each_region(
    fake: FakeEc2, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the one right that its role has there; without that the round fails, once all is ended."""
    monkeypatch.setenv("SIGN", "/cloud-dispatch-lab/reaper")
    region, began = fake.region(), fake.clock.now()
    region.parameters["/cloud-dispatch-lab/reaper"] = "none"
    aws.handler({}, Context())
    sign = read(region.parameters["/cloud-dispatch-lab/reaper"])
    assert sign is not None
    assert (sign.deployment, sign.places) == ("lab", (region.name,))
    assert began <= sign.begun_ms <= fake.clock.now()
    late = vm(fake, 5)
    fake.denied.add("ssm:PutParameter")
    with pytest.raises(Unfinished, match="PutParameter"):
        aws.handler({}, Context())
    assert late not in living(fake)


def rights() -> dict[str, dict[str, Any]]:
    """What the reaper's role may do at EC2, by action."""
    places = {"partition": "aws", "region": "r", "account": "1", "deployment": "lab", "log_group": "l", "sign": "s"}
    text = rendered(MODULES / "aws" / "policies" / "reaper.json.tftpl", places)
    found = {}
    for one in json.loads(text)["Statement"]:
        for action in [one["Action"]] if isinstance(one["Action"], str) else one["Action"]:
            if action.startswith("ec2:"):
                found[action] = one
    return found


def all_of_it(fake: FakeEc2) -> None:
    """A round that ends a VM that is protected, and one that ends everything."""
    aws.handler({}, Context())
    aws.handler({"tf": {"action": "delete"}}, Context(less=5_000))


@pytest.mark.parametrize("missing", ["", *sorted(rights())])
def test_each_call_of_the_reaper_is_a_right_of_its_role_and_each_right_is_used(fake: FakeEc2, missing: str) -> None:
    """With no other right, and with these for what carries the deployment's tag alone, it ends all that is its own;
    with one right less it fails."""
    mine, late = rest(fake, "lab"), vm(fake, 5)
    fake.client().modify_instance_attribute(InstanceId=late, DisableApiTermination={"Value": True})
    allowed = {action: one for action, one in rights().items() if action != missing}
    fake.denied |= {f"ec2:{name}" for service, name in OPERATIONS if service == "ec2"} - set(allowed)
    for action, one in allowed.items():
        if not action.startswith("ec2:Describe"):
            ((key, value),) = one["Condition"]["StringEquals"].items()
            fake.scoped[action] = (key.removeprefix("aws:ResourceTag/"), value)
    if missing:
        with pytest.raises(Unfinished, match=missing.removeprefix("ec2:")):
            all_of_it(fake)
    else:
        all_of_it(fake)
        fake.denied.clear()
        assert late not in living(fake)
        assert not there(fake) & set(mine.values())
