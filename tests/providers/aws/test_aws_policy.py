"""The rights that a profile needs: all that the driver calls, and nothing without the deployment's tag."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import cloud_dispatch_aws
from cloud_dispatch_aws.policy import document
from tests.providers.aws.scenes import settings

FULL: dict[str, Any] = {
    "subnets": ["subnet-1"], "security_groups": ["sg-1"], "key_name": "k", "instance_profile": "worker",
    "kms_key": "alias/disks", "images": {"x86_64": "ami-1", "arm64": "ssm:/mine/arm"},
}  # fmt: skip
TAG = "cloud-dispatch-deployment"


def statements(deployment: str = "lab", account: str = "", **more: Any) -> dict[str, dict[str, Any]]:
    made = document(settings(**more), deployment, account)
    assert made["Version"] == "2012-10-17"
    return {one["Sid"]: one for one in made["Statement"]}


def actions(**more: Any) -> set[str]:
    return {action.partition(":")[2] for one in statements(**more).values() for action in one["Action"]}


def called() -> set[str]:
    """The calls that the driver's sources name."""
    folder = Path(cloud_dispatch_aws.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    return set(re.findall(r'Asked\(\s*"(\w+)"', text)) | set(re.findall(r'\(\s*"((?:Delete|Release)\w+)", "\w+', text))


def test_every_call_of_the_driver_is_a_right_and_every_right_is_used() -> None:
    """Whoever one is may always be asked. Passing a role, tags at creation and keys are rights without calls."""
    assert {"RunInstances", "DeleteVolume", "ReleaseAddress", "GetParameter"} <= called()
    beside = {"PassRole", "CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext", "ReEncrypt*"}
    assert actions(**FULL) == (called() - {"GetCallerIdentity"}) | beside


def test_what_is_not_configured_is_no_right() -> None:
    least = actions(spot=False, price_list=False, images={"x86_64": "ami-1"})
    for action in ("DescribeSubnets", "DescribeSpotPriceHistory", "GetProducts", "GetParameter", "PassRole", "Decrypt"):
        assert action not in least
        assert action in actions(**FULL)


def test_nothing_is_made_or_changed_without_the_deployments_tag() -> None:
    """But for reads, what a launch uses, and what other services give."""
    for name, one in statements(**FULL).items():
        said = json.dumps(one.get("Condition", {}))
        if name not in ("Read", "LaunchWith", "ReadImages", "GiveTheRole", "UseTheKey"):
            assert f'Tag/{TAG}": "lab"' in said, name
    ends = statements()["EndInstances"]
    assert "ec2:TerminateInstances" in ends["Action"]
    assert ends["Condition"] == {"StringEquals": {f"aws:ResourceTag/{TAG}": "lab"}}


def test_of_the_attributes_only_the_protection_may_be_changed() -> None:
    """Not what a VM runs at its next boot."""
    condition = statements()["UnprotectInstances"]["Condition"]
    assert condition["StringEqualsIgnoreCaseIfExists"] == {"ec2:Attribute": "DisableApiTermination"}
    assert condition["StringEquals"] == {f"aws:ResourceTag/{TAG}": "lab"}
    with_it = [name for name, one in statements().items() if "ec2:ModifyInstanceAttribute" in one["Action"]]
    assert with_it == ["UnprotectInstances"]


def test_the_deployments_tag_can_not_be_made_anothers() -> None:
    condition = statements()["TagInstances"]["Condition"]
    assert condition["StringEqualsIfExists"] == {f"aws:RequestTag/{TAG}": "lab"}
    assert condition["ForAllValues:StringLike"] == {"aws:TagKeys": ["cloud-dispatch-*"]}


def test_what_is_launched_is_of_the_types_the_images_and_the_places_of_the_settings() -> None:
    """On demand only, without a word about spot requests."""
    made = statements(account="123456789012", **{**FULL, "images": {"x86_64": "ami-1"}}, spot=False)
    condition = made["LaunchInstances"]["Condition"]
    assert condition["StringEquals"]["ec2:MetadataHttpTokens"] == "required"
    assert condition["StringLike"] == {"ec2:InstanceType": ["m5.*", "c5.*", "g5.*"]}
    assert made["LaunchDisks"]["Condition"]["Bool"] == {"ec2:Encrypted": "true"}
    assert made["LaunchWith"]["Resource"] == [
        "arn:aws:ec2:us-east-1:123456789012:key-pair/k", "arn:aws:ec2:us-east-1:123456789012:security-group/sg-1",
        "arn:aws:ec2:us-east-1:123456789012:subnet/subnet-1", "arn:aws:ec2:us-east-1::image/ami-1",
    ]  # fmt: skip
    assert "spot" not in json.dumps(made)
    assert "spot-instances-request" in json.dumps(statements())


def test_a_role_is_given_to_ec2_only() -> None:
    arn = "arn:aws:iam::123456789012:instance-profile/path/worker"
    one = statements(account="123456789012", instance_profile=arn)["GiveTheRole"]
    assert one["Resource"] == ["arn:aws:iam::123456789012:role/worker"]
    assert one["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}


@pytest.mark.parametrize(
    ("region", "partition"), [("us-east-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_names_are_of_the_regions_partition(region: str, partition: str) -> None:
    text = json.dumps(document(settings(region=region), "lab"))
    assert set(re.findall(r"arn:([a-z-]+):", text)) == {partition}


@pytest.mark.parametrize(
    ("key", "resource"),
    [
        ("alias/disks", "*"),
        ("1234abcd-12ab", "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab"),
        ("arn:aws:kms:us-east-1:123456789012:key/x", "arn:aws:kms:us-east-1:123456789012:key/x"),
    ],
)
def test_a_key_is_used_through_ec2_only(key: str, resource: str) -> None:
    one = statements(account="123456789012", kms_key=key)["UseTheKey"]
    assert one["Resource"] == [resource]
    assert one["Condition"]["StringEquals"] == {"kms:ViaService": "ec2.us-east-1.amazonaws.com"}
    assert ("kms:ResourceAliases" in json.dumps(one)) == key.startswith("alias/")


def test_the_policy_fits_a_managed_one() -> None:
    """6,144 characters without white space."""
    assert len(json.dumps(document(settings(**FULL), "lab"), separators=(",", ":"))) < 6_144
