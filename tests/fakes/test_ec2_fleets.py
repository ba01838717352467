"""CreateFleet of the fake EC2: a 200 that tells what was launched and, for each override, why something was not."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.fakes.asking import IMAGE, listed, refusal
from tests.fakes.clock import SetClock
from tests.fakes.ec2 import FakeEc2, Settings
from tests.fakes.ec2.settings import Bucket
from tests.fakes.faults import Fault, FaultKind, Market

NAME = "workers"
A, B = {"InstanceType": "c6i.large"}, {"InstanceType": "m6i.large"}  # the first is cheaper


@pytest.fixture
def template(ec2: Any) -> str:
    data = {
        "ImageId": IMAGE,
        "UserData": base64.b64encode(b"#!/bin/sh\n").decode(),
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}],
    }
    made = ec2.create_launch_template(LaunchTemplateName=NAME, LaunchTemplateData=data)["LaunchTemplate"]
    name: str = made["LaunchTemplateId"]
    return name


def fleet(count: int, *overrides: dict[str, Any], market: str = "on-demand", **more: Any) -> dict[str, Any]:
    """What CreateFleet is asked for."""
    version = {"LaunchTemplateName": NAME, "Version": "$Latest"}
    return {
        "Type": "instant",
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": market},
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": version, "Overrides": list(overrides)}],
        **more,
    }


def launched(answer: dict[str, Any]) -> dict[str, int]:
    """How many of each type."""
    return {one["InstanceType"]: len(one["InstanceIds"]) for one in answer["Instances"]}


def errors(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """The type and the code of each."""
    return [(e["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"], e["ErrorCode"]) for e in answer["Errors"]]


def test_the_cheapest_override_is_launched_as_the_template_says(aws: FakeEc2, ec2: Any, template: str) -> None:
    answer = ec2.create_fleet(**fleet(3, B, {**A, "AvailabilityZone": "us-east-1b"}))
    assert (launched(answer), answer["Errors"]) == ({"c6i.large": 3}, [])
    (one,) = answer["Instances"]
    assert one["Lifecycle"] == "on-demand"
    told = {"LaunchTemplateId": template, "LaunchTemplateName": NAME, "Version": "1"}
    assert one["LaunchTemplateAndOverrides"]["LaunchTemplateSpecification"] == told
    vms = listed(ec2)
    assert [vm["InstanceId"] for vm in vms] == one["InstanceIds"]
    assert {(vm["Placement"]["AvailabilityZone"], vm["Tags"][0]["Key"]) for vm in vms} == {("us-east-1b", "a")}
    assert {aws.instance(vm["InstanceId"]).user_data for vm in vms} == {b"#!/bin/sh\n"}


@pytest.mark.usefixtures("template")
def test_an_override_without_capacity_is_an_error_beside_the_instances(aws: FakeEc2, ec2: Any) -> None:
    """What one gives too little of, the next gives; both tell."""
    for amount, wanted in ((0, {"m6i.large": 3}), (2, {"c6i.large": 2, "m6i.large": 1})):
        aws.clear_faults()
        aws.add_faults(Fault(FaultKind.CAPACITY, type="c6i.large", amount=amount))
        answer = ec2.create_fleet(**fleet(3, A, B))
        assert launched(answer) == wanted
        assert errors(answer) == [("c6i.large", "InsufficientInstanceCapacity")]


@pytest.mark.usefixtures("template")
def test_where_nothing_can_be_had_the_answer_is_errors_alone(aws: FakeEc2, ec2: Any) -> None:
    """A 200 all the same."""
    aws.add_faults(Fault(FaultKind.CAPACITY, amount=0))
    answer = ec2.create_fleet(**fleet(2, A, B))
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert (answer["Instances"], listed(ec2)) == ([], [])
    assert errors(answer) == [(name, "InsufficientInstanceCapacity") for name in ("c6i.large", "m6i.large")]


@pytest.mark.usefixtures("template")
def test_spot_has_a_quota_and_a_price_of_its_own(aws: FakeEc2, ec2: Any) -> None:
    """Each market's part is counted apart, and its errors say which it was."""
    aws.add_faults(Fault(FaultKind.QUOTA, market=Market.SPOT, amount=2))
    capacity = {"TotalTargetCapacity": 4, "OnDemandTargetCapacity": 2, "SpotTargetCapacity": 2}
    answer = ec2.create_fleet(**fleet(1, A, TargetCapacitySpecification=capacity))
    assert [(one["Lifecycle"], len(one["InstanceIds"])) for one in answer["Instances"]] == [("on-demand", 2)]
    assert errors(answer) == [("c6i.large", "MaxSpotInstanceCountExceeded")]
    assert answer["Errors"][0]["Lifecycle"] == "spot"
    answer = ec2.create_fleet(**fleet(1, {**A, "MaxPrice": "0.0001"}, B, market="spot"))
    assert errors(answer) == [("c6i.large", "SpotMaxPriceTooLow")]
    (vm,) = listed(ec2, Filters=[{"Name": "instance-lifecycle", "Values": ["spot"]}])
    assert vm["InstanceType"] == "m6i.large"


@pytest.mark.usefixtures("template")
def test_priorities_and_refusals_are_told_of_each_override(aws: FakeEc2, ec2: Any) -> None:
    """What is wrong with one override, or what its caller may not do, is its error too."""
    order = {"OnDemandOptions": {"AllocationStrategy": "prioritized"}}
    wrong = {**B, "ImageId": "ami-0000", "Priority": 1.0}
    answer = ec2.create_fleet(**fleet(1, {**A, "Priority": 3.0}, {**B, "Priority": 2.0}, wrong, **order))
    assert (launched(answer), errors(answer)) == ({"m6i.large": 1}, [("m6i.large", "InvalidAMIID.NotFound")])
    aws.denied.add("ec2:RunInstances")
    assert errors(ec2.create_fleet(**fleet(1, A))) == [("c6i.large", "UnauthorizedOperation")]


@pytest.mark.usefixtures("template")
def test_a_client_token_is_the_same_fleet_again(aws: FakeEc2, ec2: Any) -> None:
    """Errors and all, whatever can be had by then; something else under it is a mismatch."""
    aws.add_faults(Fault(FaultKind.CAPACITY, type="c6i.large", amount=1))
    first = ec2.create_fleet(ClientToken="one", **fleet(2, A))
    aws.clear_faults()
    again = ec2.create_fleet(ClientToken="one", **fleet(2, A))
    for answer in (first, again):
        del answer["ResponseMetadata"]
    assert first == again
    assert len(listed(ec2)) == 1
    assert refusal(ec2.create_fleet, ClientToken="one", **fleet(3, A)) == "IdempotentParameterMismatch"
    assert ec2.create_fleet(ClientToken="two", **fleet(2, A))["FleetId"] != first["FleetId"]


def test_templates_come_and_go(ec2: Any, template: str) -> None:
    """By id and by name, one of a name; what is gone launches nothing."""
    data = {"ImageId": IMAGE}
    other = {"LaunchTemplateName": "other", "LaunchTemplateData": data, "ClientToken": "t"}
    made = [ec2.create_launch_template(**other)["LaunchTemplate"]["LaunchTemplateId"] for _ in range(2)]
    assert len(set(made)) == 1
    again = {**other, "LaunchTemplateData": {"ImageId": "ami-1"}}
    assert refusal(ec2.create_launch_template, **again) == "IdempotentParameterMismatch"
    taken = "InvalidLaunchTemplateName.AlreadyExistsException"
    assert refusal(ec2.create_launch_template, LaunchTemplateName=NAME, LaunchTemplateData=data) == taken
    shown = ec2.describe_launch_templates(LaunchTemplateIds=[template])["LaunchTemplates"]
    assert [(one["LaunchTemplateName"], one["LatestVersionNumber"]) for one in shown] == [(NAME, 1)]
    assert len(ec2.describe_launch_templates()["LaunchTemplates"]) == 2
    ec2.delete_launch_template(LaunchTemplateName=NAME)
    assert refusal(ec2.create_fleet, **fleet(1, A)) == "InvalidLaunchTemplateName.NotFoundException"
    gone = "InvalidLaunchTemplateId.NotFound"
    assert refusal(ec2.describe_launch_templates, LaunchTemplateIds=[template]) == gone
    assert refusal(ec2.delete_launch_template, LaunchTemplateId=template) == gone


@pytest.mark.usefixtures("template")
@pytest.mark.parametrize(
    "more",
    [
        {"Type": "maintain"},
        {"Type": "request"},
        {"ExcessCapacityTerminationPolicy": "termination"},
        {"SpotOptions": {"MinTargetCapacity": 2, "SingleInstanceType": True}},
        {"OnDemandOptions": {"MinTargetCapacity": 2}},
        {"SpotOptions": {"AllocationStrategy": "capacity-optimized"}, "market": "spot"},
        {"TagSpecifications": [{"ResourceType": "fleet", "Tags": [{"Key": "a", "Value": "b"}]}]},
        {"TargetCapacitySpecification": {"TotalTargetCapacity": 2}},
        {"override": {"WeightedCapacity": 2.0}},
        {"override": {"InstanceRequirements": {"VCpuCount": {"Min": 1}, "MemoryMiB": {"Min": 1}}}},
    ],
)
def test_what_is_not_modelled_fails_loudly(aws: FakeEc2, ec2: Any, more: dict[str, Any]) -> None:
    """The call, and at its end the test; nothing was launched."""
    given, more = {**A, **more.get("override", {})}, {k: v for k, v in more.items() if k != "override"}
    assert refusal(ec2.create_fleet, **fleet(2, given, **more)) == "UnmodelledOperation"
    assert len(aws.unmodelled) == 1
    assert listed(ec2) == []
    aws.unmodelled.clear()


@pytest.mark.usefixtures("template")
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"TargetCapacitySpecification": {"TotalTargetCapacity": 0}}, "InvalidTargetCapacitySpecification"),
        (
            {"TargetCapacitySpecification": {"TotalTargetCapacity": 1, "SpotTargetCapacity": 2}},
            "InvalidTargetCapacitySpecification",
        ),
        (
            {"LaunchTemplateConfigs": [{"LaunchTemplateSpecification": {"LaunchTemplateName": NAME}}]},
            "MissingParameter",
        ),
        (
            {"LaunchTemplateConfigs": [{"LaunchTemplateSpecification": {"LaunchTemplateName": NAME, "Version": "7"}}]},
            "InvalidLaunchTemplateId.VersionNotFound",
        ),
        ({"override": {"InstanceType": "m6i.tiny"}}, "InvalidParameterValue"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
    ],
)
def test_a_request_that_is_wrong_is_refused_whole(ec2: Any, more: dict[str, Any], code: str) -> None:
    given, more = {**A, **more.get("override", {})}, {k: v for k, v in more.items() if k != "override"}
    assert refusal(ec2.create_fleet, **fleet(1, given, **more)) == code


def test_fleets_take_from_the_bucket_of_instances() -> None:
    """Instances of a fleet are launches like others."""
    settings = Settings(instances_bucket=Bucket("RunInstances", 3, 1))
    with FakeEc2(settings, SetClock()) as aws:
        ec2 = aws.client()
        ec2.create_launch_template(LaunchTemplateName=NAME, LaunchTemplateData={"ImageId": IMAGE})
        assert refusal(ec2.create_fleet, **fleet(4, A)) == "RequestLimitExceeded"
        assert launched(ec2.create_fleet(**fleet(3, A))) == {"c6i.large": 3}
