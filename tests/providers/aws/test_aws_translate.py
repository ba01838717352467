"""Requests of launches as EC2 wants them, and instances as the SPI shows them."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.handlers import base64_encode_user_data
from botocore.validate import ParamValidator

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.sending import sent
from cloud_dispatch.provider.spi import LeftoverKind, VmState
from cloud_dispatch_aws import translate
from cloud_dispatch_aws.driver import traits
from cloud_dispatch_aws.images import Disk, Image, of_description
from tests.providers.aws.scenes import NOW_MS, TAGS, ZONE, offering, request, settings

DATA = b"#cloud-config"
IMAGE = Image("ami-1", "/dev/xvda", "x86_64")


def launched(
    market: Market = Market.ON_DEMAND, subnet: str = "", more: dict[str, Any] | None = None, *, burstable: bool = False,
    image: Image = IMAGE,
) -> dict[str, Any]:  # fmt: skip
    own = settings(**(more or {}))
    return translate.launch(request(market), own, DATA, image, subnet, burstable=burstable)


def tags_of(call: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {one["ResourceType"]: {t["Key"]: t["Value"] for t in one["Tags"]} for one in call["TagSpecifications"]}


def test_the_batch_is_the_token_and_its_slots_the_most() -> None:
    """The same request gives the same parameters, byte for byte: the token is good for those only."""
    call = launched()
    assert (call["ClientToken"], call["MinCount"], call["MaxCount"]) == ("b1", 1, 2)
    assert call == launched()


@pytest.mark.parametrize("market", list(Market))
@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "subnets": ["subnet-1"], "security_groups": ["sg-1"], "public_address": False, "key_name": "k",
            "instance_profile": "worker", "scratch": ["100GiB", "1TiB"], "kms_key": "alias/disks", "metadata_hops": 2,
            "tags": {"team": "batch"},
        },
    ],
    ids=["least", "most"],
)  # fmt: skip
def test_ec2_knows_every_parameter(market: Market, more: dict[str, Any]) -> None:
    """The request fits the SDK's own model of RunInstances."""
    shape = boto3.Session().client("ec2", region_name="us-east-1").meta.service_model.operation_model("RunInstances")
    call = launched(market, "subnet-1", more, burstable=True)
    base64_encode_user_data(call)  # as the SDK does before it looks
    report = ParamValidator().validate(call, shape.input_shape)
    assert not report.has_errors(), report.generate_report()


def test_a_vm_ends_itself_by_powering_off_and_answers_for_its_metadata_with_a_session_only() -> None:
    """Shutdown terminates; version 2 of the metadata service, as many hops as the settings say."""
    call = launched()
    assert call["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert call["MetadataOptions"] == {
        "HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1,
    }  # fmt: skip
    assert launched(more={"metadata_hops": 2})["MetadataOptions"]["HttpPutResponseHopLimit"] == 2


def test_disks_are_encrypted_and_go_with_the_vm() -> None:
    """The root disk by the image's own name, then a scratch disk for each size; gp3, never left behind."""
    disks = launched(more={"root_size": "50GiB", "scratch": ["100GiB", "1536MiB"]})["BlockDeviceMappings"]
    assert [disk["DeviceName"] for disk in disks] == ["/dev/xvda", "/dev/sdf", "/dev/sdg"]
    assert [disk["Ebs"]["VolumeSize"] for disk in disks] == [50, 100, 2]
    for disk in disks:
        assert (disk["Ebs"]["VolumeType"], disk["Ebs"]["Encrypted"], disk["Ebs"]["DeleteOnTermination"]) == (
            "gp3", True, True,
        )  # fmt: skip
    keyed = launched(more={"kms_key": "alias/disks"})["BlockDeviceMappings"][0]["Ebs"]
    assert keyed["KmsKeyId"] == "alias/disks"


def test_the_disks_that_an_image_brings_are_as_ours() -> None:
    """What an image says of its disks is what they were when it was made: that they stay, or are not encrypted. Scratch
    disks take names that it leaves."""
    image = replace(IMAGE, disks=(Disk("/dev/xvda", 8 * GIB), Disk("/dev/xvdf", 500 * GIB)))
    root, brought, scratch = launched(more={"scratch": ["10GiB"]}, image=image)["BlockDeviceMappings"]
    names = [disk["DeviceName"] for disk in (root, brought, scratch)]
    assert names == ["/dev/xvda", "/dev/xvdf", "/dev/sdg"]
    assert brought["Ebs"] == {**scratch["Ebs"], "VolumeSize": 500}


def test_the_root_disk_of_an_image_that_calls_it_by_two_names_is_one_disk() -> None:
    """/dev/sda1 as its root and /dev/sda among its disks: two of them would be made, and both paid for."""
    image = of_description(
        {
            "ImageId": "ami-1", "RootDeviceName": "/dev/sda1", "Architecture": "x86_64",
            "BlockDeviceMappings": [
                {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
                {"DeviceName": "/dev/sda", "Ebs": {"VolumeSize": 8}},
                {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 5}},
            ],
        }
    )  # fmt: skip
    assert (image.root_device, image.root_bytes) == ("/dev/sda", 8 * GIB)
    disks = {one["DeviceName"]: one["Ebs"]["VolumeSize"] for one in launched(image=image)["BlockDeviceMappings"]}
    assert disks == {"/dev/sda": 30, "/dev/sdf": 5}


def test_no_disk_is_faster_than_what_it_costs() -> None:
    """An image of a disk with more operations a second brings these too, and they are billed by themselves. Fewer, as
    an io2 disk may have, are none of a gp3 one."""
    said: list[dict[str, Any]] = [
        {"Iops": 6_000}, {"Throughput": 500}, {"VolumeType": "io2", "Iops": 300}, {"Iops": 3_000, "Throughput": 125},
        {"VolumeType": "gp2"},
    ]  # fmt: skip
    mappings = [
        {"DeviceName": f"/dev/xvd{letter}", "Ebs": {"VolumeSize": 8, **one}}
        for letter, one in zip("abcde", said, strict=True)
    ]
    told = {
        "ImageId": "ami-1",
        "RootDeviceName": "/dev/xvda",
        "Architecture": "x86_64",
        "BlockDeviceMappings": mappings,
    }
    made = [one["Ebs"] for one in launched(image=of_description(told))["BlockDeviceMappings"]]
    assert [(one.get("Iops"), one.get("Throughput")) for one in made] == [(3_000, 125)] * 3 + [(None, None)] * 2


def test_all_that_a_launch_makes_is_tagged_from_the_first() -> None:
    """Instance, disks and interface, on the spot market the request too; an operator's tags beside ours."""
    on_demand = tags_of(launched(more={"tags": {"team": "batch"}}))
    assert set(on_demand) == {"instance", "volume", "network-interface"}
    assert all(tags == {**TAGS, "team": "batch"} for tags in on_demand.values())
    assert set(tags_of(launched(Market.SPOT))) == {*on_demand, "spot-instances-request"}


def test_a_spot_vm_has_a_bid_of_at_most_what_was_reserved() -> None:
    """One time, ended when it is taken back; the bid is rounded down to what EC2 takes."""
    assert "InstanceMarketOptions" not in launched()
    asked = request(Market.SPOT)
    asked = replace(asked, offering=replace(asked.offering, max_rate=Rate(96_000_999)))
    options = translate.launch(asked, settings(), DATA, IMAGE, burstable=False)["InstanceMarketOptions"]
    assert options == {
        "MarketType": "spot",
        "SpotOptions": {
            "SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate", "MaxPrice": "0.096000",
        },
    }  # fmt: skip
    without = replace(asked, offering=replace(asked.offering, max_rate=None))
    call = translate.launch(without, settings(), DATA, IMAGE, burstable=False)
    assert "MaxPrice" not in call["InstanceMarketOptions"]["SpotOptions"]


def test_a_launch_says_its_zone_or_its_subnet() -> None:
    """Never both, never neither: EC2 would choose a zone, and its client tokens are of one zone."""
    plain, placed = launched(), launched(subnet="subnet-1")
    assert (plain["Placement"], "SubnetId" in plain) == ({"AvailabilityZone": ZONE}, False)
    assert (placed["SubnetId"], "Placement" in placed) == ("subnet-1", False)


def test_groups_and_addresses_go_where_ec2_wants_them() -> None:
    """With a word about the public address both are the interface's, without one the instance's."""
    more = {"security_groups": ["sg-1"]}
    plain = launched(subnet="subnet-1", more=more)
    assert (plain["SecurityGroupIds"], "NetworkInterfaces" in plain) == (["sg-1"], False)
    own = launched(subnet="subnet-1", more={**more, "public_address": False})
    assert ("SecurityGroupIds" in own, "SubnetId" in own) == (False, False)
    assert own["NetworkInterfaces"] == [
        {
            "DeviceIndex": 0, "AssociatePublicIpAddress": False, "DeleteOnTermination": True, "SubnetId": "subnet-1",
            "Groups": ["sg-1"],
        }
    ]  # fmt: skip


@pytest.mark.parametrize(("said", "key"), [("worker", "Name"), ("arn:aws:iam::123456789012:instance-profile/w", "Arn")])
def test_an_instance_profile_goes_by_name_or_arn(said: str, key: str) -> None:
    assert launched(more={"instance_profile": said})["IamInstanceProfile"] == {key: said}


def test_user_data_is_sent_as_it_is_given() -> None:
    """The driver gives it gzipped, which cloud-init unpacks; base64 is the SDK's work."""
    assert launched()["UserData"] == DATA
    assert traits(settings()).gzips_user_data


def test_user_data_that_does_not_fit_is_refused() -> None:
    """What counts is what is sent: a long text fits that compresses, one of noise does not."""
    chance, own = random.Random(7), traits(settings())
    noise = "".join(chr(chance.randrange(33, 126)) for _ in range(2 * own.max_user_data))
    translate.check(request(), sent("#" * len(noise), own), own)
    with pytest.raises(InvalidRequest, match="as it is sent"):
        translate.check(request(), sent(noise, own), own)


@pytest.mark.parametrize(
    "tags",
    [{"aws:name": "x"}, {"AWS:name": "x"}, {"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}],
    ids=["aws", "AWS", "no key", "long key", "long value"],
)
def test_tags_beyond_ec2s_limits_are_refused(tags: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        translate.check_tags(tags)
    translate.check_tags({"k" * 128: "v" * 256})


def instance(**more: Any) -> dict[str, Any]:
    return {
        "InstanceId": "i-0123456789abcdef0",
        "InstanceType": "m5.large",
        "State": {"Name": "running", "Code": 16},
        "Placement": {"AvailabilityZone": ZONE},
        "LaunchTime": datetime.fromtimestamp(NOW_MS / 1000, UTC),
        "PrivateIpAddress": "10.0.0.4",
        "Tags": [*translate.tag_list(TAGS), {"Key": "team", "Value": "batch"}, {"Key": "aws:ec2:x", "Value": "1"}],
        **more,
    }


def test_an_instance_is_shown_with_our_tags_only() -> None:
    """An operator's own tags, and AWS's, are not the dispatcher's business."""
    vm = translate.vm(instance())
    assert (vm.id, vm.state, vm.type, vm.zone) == ("i-0123456789abcdef0", VmState.RUNNING, "m5.large", ZONE)
    assert (dict(vm.tags), vm.created_ms, vm.address, vm.slot, vm.spot) == (TAGS, NOW_MS, "10.0.0.4", -1, False)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("pending", VmState.PENDING), ("running", VmState.RUNNING), ("shutting-down", VmState.STOPPING),
        ("stopping", VmState.STOPPING), ("stopped", VmState.STOPPED), ("terminated", VmState.GONE),
    ],
)  # fmt: skip
def test_states(said: str, state: VmState) -> None:
    assert translate.vm(instance(State={"Name": said})).state is state


@pytest.mark.parametrize(
    ("code", "preempted"),
    [
        ("Server.SpotInstanceTermination", True), ("Server.SpotInstanceShutdown", True),
        ("Client.UserInitiatedShutdown", False), ("Server.InsufficientInstanceCapacity", False),
    ],
)  # fmt: skip
def test_what_the_market_took_back_says_so(code: str, preempted: bool) -> None:
    reason = {"Code": code, "Message": f"{code}: why"}
    vm = translate.vm(instance(StateReason=reason, InstanceLifecycle="spot", State={"Name": "terminated"}))
    assert (vm.preempted, vm.spot, vm.why) == (preempted, True, f"{code}: why")


def test_what_outlives_a_vm_keeps_its_tags() -> None:
    made = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    tags = translate.tag_list({**TAGS, "team": "batch"})
    disk = translate.volume({"VolumeId": "vol-1", "AvailabilityZone": ZONE, "Tags": tags, "CreateTime": made})
    assert (disk.id, disk.kind, disk.zone, dict(disk.tags), disk.created_ms) == (
        "vol-1", LeftoverKind.DISK, ZONE, TAGS, NOW_MS,
    )  # fmt: skip
    nic = translate.interface({"NetworkInterfaceId": "eni-1", "AvailabilityZone": ZONE, "TagSet": tags})
    assert (nic.id, nic.kind, dict(nic.tags), nic.created_ms) == ("eni-1", LeftoverKind.NIC, TAGS, 0)
    address = translate.address({"AllocationId": "eipalloc-1", "Tags": tags})
    assert (address.id, address.kind, dict(address.tags)) == ("eipalloc-1", LeftoverKind.ADDRESS, TAGS)


def test_sizes_are_whole_gibibytes() -> None:
    assert offering().type.capacity.disk == 30 * GIB
    assert settings().root_size == 30 * GIB
