"""RunInstances of the fake EC2: what is launched, what is refused, and what a client token is worth."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.asking import IMAGE, launch, listed, refusal
from tests.fakes.clock import SetClock
from tests.fakes.ec2 import FakeEc2, Settings
from tests.fakes.faults import Fault, FaultKind, Market

ZONE = "us-east-1b"
GOOD: dict[str, Any] = {"ImageId": IMAGE, "InstanceType": "m6i.large", "MinCount": 1, "MaxCount": 1}
SPOT = {"MarketType": "spot"}


def test_what_was_asked_for_is_told(aws: FakeEc2, ec2: Any) -> None:
    """Tags of every resource, disks, metadata options, profile, placement, network and user data."""
    group = ec2.describe_security_groups(GroupNames=["workers"])["SecurityGroups"][0]["GroupId"]
    subnet = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [ZONE]}])["Subnets"][1]
    kinds = ("instance", "volume", "network-interface", "spot-instances-request")
    (launched,) = launch(
        ec2,
        ClientToken="batch-1",
        UserData="#!/bin/sh\n",
        SubnetId=subnet["SubnetId"],
        SecurityGroupIds=[group],
        IamInstanceProfile={"Name": "worker"},
        InstanceMarketOptions={"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.05"}},
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "Encrypted": True}},
            {"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 100, "VolumeType": "gp3", "Throughput": 250}},
        ],
        TagSpecifications=[{"ResourceType": kind, "Tags": [{"Key": "kind", "Value": kind}]} for kind in kinds],
    )
    (vm,) = listed(ec2)
    assert vm == launched
    assert vm["InstanceLifecycle"] == "spot"
    assert vm["ClientToken"] == "batch-1"
    assert vm["Placement"]["AvailabilityZone"] == ZONE
    assert (vm["SubnetId"], vm["SecurityGroups"][0]["GroupId"]) == (subnet["SubnetId"], group)
    assert (vm["PrivateIpAddress"][:5], "PublicIpAddress" in vm) == ("10.1.", False)
    assert vm["IamInstanceProfile"]["Arn"] == "arn:aws:iam::123456789012:instance-profile/worker"
    assert (vm["MetadataOptions"]["HttpTokens"], vm["MetadataOptions"]["HttpPutResponseHopLimit"]) == ("required", 2)
    assert aws.instance(vm["InstanceId"]).user_data == b"#!/bin/sh\n"
    volumes = {volume["Attachments"][0]["Device"]: volume for volume in ec2.describe_volumes()["Volumes"]}
    assert (volumes["/dev/xvda"]["Size"], volumes["/dev/xvda"]["Encrypted"]) == (20, True)
    assert (volumes["/dev/sdb"]["Iops"], volumes["/dev/sdb"]["Throughput"]) == (3000, 250)
    (interface,) = ec2.describe_network_interfaces()["NetworkInterfaces"]
    (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (request["State"], request["SpotPrice"]) == ("active", "0.050000")
    told = [vm["Tags"], volumes["/dev/sdb"]["Tags"], interface["TagSet"], request["Tags"]]
    assert told == [[{"Key": "kind", "Value": kind}] for kind in kinds]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ImageId": "ami-0000"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "debian"}, "InvalidAMIID.Malformed"),
        ({"ImageId": "ami-0a1b2c3d4e5f60005"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "resolve:ssm:/no/such"}, "InvalidParameterValue"),
        ({"InstanceType": "m6i.tiny"}, "InvalidParameterValue"),
        ({"InstanceType": "m7g.large"}, "InvalidParameterValue"),  # of another architecture than the image
        ({"MinCount": 2}, "InvalidParameterValue"),
        ({"MinCount": 0}, "InvalidParameterValue"),
        ({"SubnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-0"]}, "InvalidGroup.NotFound"),
        ({"Placement": {"AvailabilityZone": "eu-west-1a"}}, "InvalidParameterValue"),
        ({"UserData": "x" * 16_385}, "InvalidParameterValue"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
        ({"KeyName": "mine"}, "InvalidKeyPair.NotFound"),
        ({"IamInstanceProfile": {"Name": "root"}}, "InvalidParameterValue"),
        ({"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 1}}]}, "InvalidBlockDeviceMapping"),
        ({"SubnetId": "s", "NetworkInterfaces": [{"DeviceIndex": 0}]}, "InvalidParameterCombination"),
        ({"TagSpecifications": [{"ResourceType": "image", "Tags": [{"Key": "a"}]}]}, "InvalidParameterValue"),
        ({"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "aws:a"}]}]}, "InvalidParameterValue"),
        ({"InstanceMarketOptions": {**SPOT, "SpotOptions": {"MaxPrice": "0.01"}}}, "SpotMaxPriceTooLow"),
        ({"InstanceType": "m6i.metal", "Placement": {"AvailabilityZone": ZONE}}, "Unsupported"),
        ({"CreditSpecification": {"CpuCredits": "standard"}}, "InstanceCreditSpecification.NotSupported"),
        ({"InstanceType": "t3.micro", "CreditSpecification": {"CpuCredits": "some"}}, "InvalidParameterValue"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
)
def test_what_ec2_refuses_is_refused_and_launches_nothing(change: dict[str, Any], code: str) -> None:
    """With EC2's code for it."""
    settings = Settings(
        key_pairs=frozenset(), profiles=frozenset({"worker"}), unoffered=frozenset({("m6i.metal", ZONE)})
    )  # fmt: skip
    with FakeEc2(settings) as aws:
        assert refusal(aws.client().run_instances, **{**GOOD, **change}) == code
        assert aws.all_instances() == []


def test_burstable_machines_go_on_without_credits_unless_it_is_said_otherwise() -> None:
    """But for T2, which stops at what it has earned."""
    standard = {"CreditSpecification": {"CpuCredits": "standard"}}
    with FakeEc2(Settings(types=("t2.micro", "t3.micro", "m6i.large"))) as aws:
        for name, more in (("m6i.large", {}), ("t2.micro", {}), ("t3.micro", {}), ("t3.micro", standard)):
            aws.client().run_instances(**{**GOOD, "InstanceType": name}, **more)
        assert [vm.credits for vm in aws.all_instances()] == ["", "standard", "unlimited", "standard"]


def test_user_data_of_16384_bytes_is_taken(ec2: Any) -> None:
    """The limit is before base64."""
    launch(ec2, UserData="x" * 16_384)


def test_a_client_token_launches_once(aws: FakeEc2, ec2: Any) -> None:
    """The same request again gets the same instances, in the state that they are in by now."""
    first = launch(ec2, 2, ClientToken="b")
    aws.advance(20)
    again = launch(ec2, 2, ClientToken="b")
    assert [vm["InstanceId"] for vm in again] == [vm["InstanceId"] for vm in first]
    assert [vm["State"]["Name"] for vm in again] == ["running", "running"]
    assert len(aws.all_instances()) == 2


def test_a_token_with_other_parameters_is_refused(ec2: Any) -> None:
    """Even for another count alone."""
    launch(ec2, ClientToken="b")
    assert refusal(ec2.run_instances, **{**GOOD, "MaxCount": 2, "ClientToken": "b"}) == "IdempotentParameterMismatch"


def test_a_token_holds_for_one_zone(aws: FakeEc2, ec2: Any) -> None:
    """EC2's documented trap: where a zone is named, the same token launches again in another zone."""
    for zone in ("us-east-1a", ZONE, ZONE):
        launch(ec2, ClientToken="b", Placement={"AvailabilityZone": zone})
    assert [vm.zone for vm in aws.all_instances()] == ["us-east-1a", ZONE]


def test_a_token_is_forgotten_after_its_window(aws: FakeEc2, ec2: Any) -> None:
    """A day after the end of its instances the same request launches anew."""
    (first,) = launch(ec2, ClientToken="b")
    ec2.terminate_instances(InstanceIds=[first["InstanceId"]])
    aws.advance(86_000_000)
    assert launch(ec2, ClientToken="b")[0]["State"]["Name"] == "terminated"
    aws.advance(500_000)
    (second,) = launch(ec2, ClientToken="b")
    assert second["InstanceId"] != first["InstanceId"]


def test_a_refused_launch_uses_up_no_token(aws: FakeEc2, ec2: Any) -> None:
    """Capacity that comes later is launched under the same token."""
    aws.add_faults(Fault(FaultKind.CAPACITY, until_ms=1000))
    assert refusal(ec2.run_instances, **GOOD, ClientToken="b") == "InsufficientInstanceCapacity"
    aws.advance(1000)
    assert len(launch(ec2, ClientToken="b")) == 1


def test_a_launch_is_filled_as_far_as_capacity_goes(aws: FakeEc2, ec2: Any) -> None:
    """Down to MinCount; what shuts down still holds capacity."""
    aws.add_faults(Fault(FaultKind.CAPACITY, type="m6i.large", zone=ZONE, market=Market.ON_DEMAND, amount=3))
    here = {"Placement": {"AvailabilityZone": ZONE}}
    vms = ec2.run_instances(**{**GOOD, "MaxCount": 5, **here})["Instances"]
    assert len(vms) == 3
    assert refusal(ec2.run_instances, **GOOD, **here) == "InsufficientInstanceCapacity"
    ec2.terminate_instances(InstanceIds=[vms[0]["InstanceId"]])
    assert refusal(ec2.run_instances, **GOOD, **here) == "InsufficientInstanceCapacity"
    aws.advance(20)
    launch(ec2, **here)
    launch(ec2, InstanceMarketOptions=SPOT, **here)
    launch(ec2)  # elsewhere there is room


def test_no_capacity_is_a_server_error_that_boto3_tries_again(aws: FakeEc2) -> None:
    """The fact that drivers have to know: it comes with HTTP 500, and every mode of retries takes it for passing."""
    from botocore.config import Config

    aws.add_faults(Fault(FaultKind.CAPACITY))
    patient = aws.client(config=Config(retries={"total_max_attempts": 2, "mode": "standard"}))
    assert refusal(patient.run_instances, **GOOD) == "InsufficientInstanceCapacity"
    assert aws.calls["RunInstances"] == 2


def test_vcpu_quotas_count_a_class_of_families_and_spot_apart() -> None:
    """Standard families share one, other classes and the spot market have their own."""
    with FakeEc2(Settings(quotas={"L-1216C47A": 6, "L-34B43A08": 2}), SetClock()) as aws:
        ec2 = aws.client()
        launch(ec2)
        launch(ec2, InstanceType="c6i.xlarge")
        assert refusal(ec2.run_instances, **GOOD) == "VcpuLimitExceeded"
        launch(ec2, InstanceType="g5.xlarge")
        launch(ec2, InstanceMarketOptions=SPOT)
        assert refusal(ec2.run_instances, **GOOD, InstanceMarketOptions=SPOT) == "MaxSpotInstanceCountExceeded"
        ec2.terminate_instances(InstanceIds=[aws.all_instances()[0].id])
        aws.advance(20)
        launch(ec2)


def test_a_limit_of_instances_counts_all_types() -> None:
    """Old accounts have one."""
    with FakeEc2(Settings(instance_limit=2)) as aws:
        launch(aws.client(), 2)
        assert refusal(aws.client().run_instances, **GOOD) == "InstanceLimitExceeded"


def test_calls_and_instances_are_throttled_by_buckets() -> None:
    """A burst, then as many a second, for each operation; RunInstances also by the instances asked for."""
    from tests.fakes.ec2.settings import DOCUMENTED_BUCKETS, Bucket

    settings = Settings(buckets=DOCUMENTED_BUCKETS, instances_bucket=Bucket("RunInstances", 4, 2))
    with FakeEc2(settings, SetClock()) as aws:
        ec2 = aws.client()
        launch(ec2, 3)
        assert refusal(ec2.run_instances, **{**GOOD, "MaxCount": 2}) == "RequestLimitExceeded"
        for _ in range(3):
            refusal(ec2.run_instances, **{**GOOD, "DryRun": True})
        assert refusal(ec2.run_instances, **{**GOOD, "DryRun": True}) == "RequestLimitExceeded"
        ec2.describe_instances()
        aws.advance(1000)
        launch(ec2, 2)


def test_settings_bound_what_can_be_had() -> None:
    """Capacity by type, zone and market; and quotas that fill a launch as far as they go, where that is the setting."""
    capacity = {("m6i.large", zone, "spot"): 1 for zone in ("us-east-1a", "us-east-1b", "us-east-1c")}
    with FakeEc2(Settings(capacity=capacity, quotas={"L-1216C47A": 5}, quota_fills=True)) as aws:
        ec2 = aws.client()
        spot = {**GOOD, "MaxCount": 3, "InstanceMarketOptions": SPOT}
        zones = [vm["Placement"]["AvailabilityZone"] for _ in range(3) for vm in ec2.run_instances(**spot)["Instances"]]
        assert sorted(zones) == ["us-east-1a", "us-east-1b", "us-east-1c"]
        assert refusal(ec2.run_instances, **spot) == "InsufficientInstanceCapacity"
        assert len(ec2.run_instances(**{**GOOD, "MaxCount": 3})["Instances"]) == 2
        assert refusal(ec2.run_instances, **GOOD) == "VcpuLimitExceeded"
