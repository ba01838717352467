"""Requests and answers of the fakes of AWS keep to the services' models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fakes.aws.answers import json_of, xml_of
from tests.fakes.aws.errors import AwsError, NotInModel
from tests.fakes.aws.model import Operation, Shape, service
from tests.fakes.aws.requests import fields_of, parse_json, parse_query
from tests.fakes.ec2.operations import OPERATIONS


def _operation(name: str, of: str = "ec2") -> Operation:
    found = service(of).operation(name)
    assert found is not None
    return found


def _refused(operation: str, fields: dict[str, str], of: str = "ec2") -> str:
    with pytest.raises(AwsError) as caught:
        parse_query(_operation(operation, of), fields)
    return caught.value.code


RUN = {"MinCount": "1", "MaxCount": "2"}


def test_a_request_is_parsed_by_the_models_names() -> None:
    """Lists, structures and types, by the names that EC2 has on the wire, indices in any order."""
    fields = {
        **RUN,
        "TagSpecification.1.ResourceType": "instance",
        "TagSpecification.1.Tag.2.Key": "b",
        "TagSpecification.1.Tag.1.Key": "a",
        "BlockDeviceMapping.1.Ebs.Encrypted": "true",
        "SecurityGroupId.1": "sg-1",
        "MetadataOptions.HttpTokens": "required",
    }
    assert parse_query(_operation("RunInstances"), fields) == {
        "MinCount": 1,
        "MaxCount": 2,
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a"}, {"Key": "b"}]}],
        "BlockDeviceMappings": [{"Ebs": {"Encrypted": True}}],
        "SecurityGroupIds": ["sg-1"],
        "MetadataOptions": {"HttpTokens": "required"},
    }


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({**RUN, "Colour": "red"}, "UnknownParameter"),
        ({**RUN, "Placement.Colour": "red"}, "UnknownParameter"),
        ({**RUN, "SecurityGroupId.x": "sg-1"}, "UnknownParameter"),
        ({**RUN, "SecurityGroupId.0": "sg-1"}, "UnknownParameter"),
        ({**RUN, "SecurityGroupIds.1": "sg-1"}, "UnknownParameter"),
        ({**RUN, "SecurityGroupId": "sg-1"}, "InvalidParameterValue"),
        ({**RUN, "ImageId.1": "ami-1"}, "InvalidParameterValue"),
        ({**RUN, "MinCount": "one"}, "InvalidParameterValue"),
        ({**RUN, "DryRun": "yes"}, "InvalidParameterValue"),
        ({**RUN, "MetadataOptions.HttpTokens": "maybe"}, "InvalidParameterValue"),
        ({**RUN, "ImageId": "a", "ImageId.1": "b"}, "InvalidParameterCombination"),
        ({"MinCount": "1"}, "MissingParameter"),
    ],
)
def test_what_the_input_shape_does_not_have_is_refused(fields: dict[str, str], code: str) -> None:
    """Unknown names at any depth, wrong types, values outside an enum, and what is required."""
    assert _refused("RunInstances", fields) == code


def test_the_query_protocol_has_members_in_its_lists() -> None:
    """STS speaks query, not ec2."""
    who = {"RoleArn": "arn:aws:iam::123456789012:role/r", "RoleSessionName": "me"}
    parsed = parse_query(_operation("AssumeRole", "sts"), {**who, "Tags.member.1.Key": "k", "Tags.member.1.Value": "v"})
    assert parsed["Tags"] == [{"Key": "k", "Value": "v"}]
    assert _refused("AssumeRole", {**who, "Tags.1.Key": "k"}, "sts") == "UnknownParameter"
    assert _refused("AssumeRole", {**who, "DurationSeconds": "1"}, "sts") == "InvalidParameterValue"


def test_a_parameter_given_twice_is_refused() -> None:
    """A form could say anything twice; which one counts would be a guess."""
    with pytest.raises(AwsError, match="twice"):
        fields_of(b"Action=A&ImageId=a&ImageId=b")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"Names": "x"}', b'{"Names": [1]}', b'{"Name": ["x"]}', b"{}"])
def test_json_that_the_shape_does_not_have_is_refused(body: bytes) -> None:
    """SSM speaks json."""
    with pytest.raises(AwsError):
        parse_json(_operation("GetParameters", "ssm"), body)


def _instances(**members: Any) -> dict[str, Any]:
    return {"Reservations": [{"Instances": [members]}]}


@pytest.mark.parametrize(
    "answer",
    [
        {"Instances": []},
        _instances(Colour="red"),
        _instances(State={"Name": "dead"}),
        _instances(AmiLaunchIndex="0"),
        _instances(AmiLaunchIndex=True),
        _instances(EbsOptimized="false"),
        _instances(LaunchTime=1_790_000_000),
        _instances(Placement="us-east-1a"),
        _instances(Tags={"Key": "a"}),
    ],
)
def test_an_answer_that_the_model_does_not_have_raises(answer: dict[str, Any]) -> None:
    """A fake may not say what the service could never have said: tests would come to rely on it."""
    with pytest.raises(NotInModel):
        xml_of(_operation("DescribeInstances"), answer, "r")


def test_an_operation_that_answers_nothing_answers_nothing() -> None:
    """CreateTags has no output shape."""
    assert b"<return>true</return>" in xml_of(_operation("CreateTags"), {}, "r")
    with pytest.raises(NotInModel):
        xml_of(_operation("CreateTags"), {"Tags": []}, "r")


def test_json_answers_keep_to_the_model_too() -> None:
    """Members, types and nesting."""
    operation = _operation("GetParameter", "ssm")
    assert json_of(operation, {"Parameter": {"LastModifiedDate": datetime(2026, 1, 1, tzinfo=UTC)}})
    for parameter in ({"Colour": "red"}, {"Version": "1"}, "text"):
        with pytest.raises(NotInModel):
            json_of(operation, {"Parameter": parameter})


def _has(shape: Shape, path: list[str]) -> bool:
    if not path:
        return True
    inner = shape.item.shape if shape.kind == "list" else shape
    member = inner.members.get(path[0]) if inner.kind == "structure" else None
    return member is not None and _has(member.shape, path[1:])


def test_every_operation_of_the_fake_is_one_of_the_service() -> None:
    """What an operation says that it heeds is in its input shape; a slip of the pen would refuse good requests."""
    for (of, name), handled in OPERATIONS.items():
        operation = _operation(name, of)
        for heed in handled.heeds - {"DryRun"}:
            assert operation.input is not None
            assert _has(operation.input, heed.split(".")), f"{name} has no {heed}"
