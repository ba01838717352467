"""The rights that a profile needs and no more, as an IAM policy. Owns which call needs which right on what. Pure.

What is made has to carry the deployment's tag from the first; only what carries it may be changed or ended. So two
deployments in one account can't touch each other's VMs, nor anybody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cloud_dispatch.domain.tags import DEPLOYMENT, PREFIX
from cloud_dispatch_aws.images import PARAMETER
from cloud_dispatch_aws.settings import AwsSettings

VERSION = "2012-10-17"
_MADE = ("instance", "volume", "network-interface")
_SPOT_REQUEST = "spot-instances-request"
_READS = (
    "DescribeAddresses", "DescribeImages", "DescribeInstanceTypeOfferings", "DescribeInstanceTypes",
    "DescribeInstances", "DescribeNetworkInterfaces", "DescribeVolumes",
)  # fmt: skip


def document(settings: AwsSettings, deployment: str, account: str = "") -> dict[str, Any]:
    """The policy for one profile of `deployment`. `account`: twelve digits, "" for whichever it is attached in."""
    places = _Places(settings.region, account or settings.account or "*")
    statements = [
        _reads(settings),
        *_launches(settings, deployment, places),
        *_changes(deployment, places),
        *_around(settings, places),
    ]
    return {"Version": VERSION, "Statement": statements}


class _Places:
    """Names of resources."""

    def __init__(self, region: str, account: str) -> None:
        self.partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(
            region.rpartition("-")[0].rpartition("-")[0], "aws"
        )
        self.region = region
        self.account = account

    def ec2(self, kind: str, name: str = "*") -> str:
        account = "" if kind == "image" else self.account
        return f"arn:{self.partition}:ec2:{self.region}:{account}:{kind}/{name}"

    def other(self, service: str, name: str, *, region: str = "", account: str | None = None) -> str:
        return f"arn:{self.partition}:{service}:{region}:{self.account if account is None else account}:{name}"


def _statement(
    name: str, actions: Iterable[str], resources: Iterable[str], conditions: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    made = {"Sid": name, "Effect": "Allow", "Action": sorted(actions), "Resource": sorted(resources)}
    return {**made, "Condition": dict(conditions)} if conditions else made


def _ec2(*calls: str) -> list[str]:
    return [f"ec2:{call}" for call in calls]


def _reads(settings: AwsSettings) -> dict[str, Any]:
    """EC2's reads know no smaller thing than everything."""
    more = [
        call
        for call, wanted in (
            ("DescribeKeyPairs", settings.key_name),
            ("DescribeSecurityGroups", settings.security_groups),
            ("DescribeSpotPriceHistory", settings.spot),
            ("DescribeSubnets", settings.subnets),
        )
        if wanted
    ]
    actions = [*_ec2(*_READS, *more), "servicequotas:ListServiceQuotas"]
    if settings.price_list:
        actions.append("pricing:GetProducts")
    return _statement("Read", actions, ["*"])


def _launches(settings: AwsSettings, deployment: str, places: _Places) -> list[dict[str, Any]]:
    """What a launch makes has conditions; what it uses is named as far as the settings name it."""
    tagged = {f"aws:RequestTag/{DEPLOYMENT}": deployment}
    kinds = [*_MADE, *([_SPOT_REQUEST] if settings.spot else [])]
    named = [name for name in settings.images.values() if not name.startswith(PARAMETER)]
    images = named if len(named) == len(settings.images) else ["*"]
    used = [
        *(places.ec2("image", name) for name in images),
        *(places.ec2("subnet", name) for name in settings.subnets or ("*",)),
        *(places.ec2("security-group", name) for name in settings.security_groups or ("*",)),
        *([places.ec2("key-pair", settings.key_name)] if settings.key_name else []),
    ]
    rest = [kind for kind in kinds if kind not in ("instance", "volume")]
    run = _ec2("RunInstances")
    return [
        _statement(
            "LaunchInstances", run, [places.ec2("instance")],
            {
                "StringEquals": {**tagged, "ec2:MetadataHttpTokens": "required"},
                "StringLike": {"ec2:InstanceType": list(settings.instance_types)},
            },
        ),
        _statement(
            "LaunchDisks", run, [places.ec2("volume")], {"StringEquals": tagged, "Bool": {"ec2:Encrypted": "true"}}
        ),
        _statement("LaunchTheRest", run, [places.ec2(kind) for kind in rest], {"StringEquals": tagged}),
        _statement("LaunchWith", run, used),
        _statement(
            "TagWhatIsLaunched", _ec2("CreateTags"), [places.ec2(kind) for kind in kinds],
            {"StringEquals": {**tagged, "ec2:CreateAction": "RunInstances"}},
        ),
    ]  # fmt: skip


def _changes(deployment: str, places: _Places) -> list[dict[str, Any]]:
    """Only of what carries the deployment's tag, which itself can't be changed to another's."""
    ours = {"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT}": deployment}}
    return [
        _statement(
            "EndInstances", _ec2("GetConsoleOutput", "TerminateInstances"), [places.ec2("instance")], ours
        ),
        # Where EC2 tells IAM which attribute is changed; it is not documented for all of them.
        _statement(
            "UnprotectInstances", _ec2("ModifyInstanceAttribute"), [places.ec2("instance")],
            {**ours, "StringEqualsIgnoreCaseIfExists": {"ec2:Attribute": "DisableApiTermination"}},
        ),
        _statement(
            "TagInstances", _ec2("CreateTags"), [places.ec2("instance")],
            {
                **ours,
                "StringEqualsIfExists": {f"aws:RequestTag/{DEPLOYMENT}": deployment},
                "ForAllValues:StringLike": {"aws:TagKeys": [f"{PREFIX}*"]},
            },
        ),
        _statement(
            "DeleteLeftovers", _ec2("DeleteNetworkInterface", "DeleteVolume", "ReleaseAddress"),
            [places.ec2(kind) for kind in ("elastic-ip", "network-interface", "volume")], ours,
        ),
    ]  # fmt: skip


def _around(settings: AwsSettings, places: _Places) -> list[dict[str, Any]]:
    """Other services, as far as the settings need them."""
    found = []
    parameters = [name.removeprefix(PARAMETER) for name in settings.images.values() if name.startswith(PARAMETER)]
    if parameters:
        # Public parameters belong to no account, an operator's own to his.
        names = [
            places.other(
                "ssm", f"parameter{name}", region=places.region,
                account="" if name.startswith("/aws/") else places.account,
            )
            for name in parameters
        ]  # fmt: skip
        found.append(_statement("ReadImages", ["ssm:GetParameter"], names))
    if settings.reaper_sign:
        name = places.other("ssm", f"parameter{settings.reaper_sign}", region=places.region)
        found.append(_statement("HearTheReaper", ["ssm:GetParameter"], [name]))
    if settings.instance_profile:
        # A profile made with its role has the role's name; where it was named otherwise, this line has to be changed.
        role = settings.instance_profile.rpartition("/")[2]
        service = "ec2.amazonaws.com.cn" if places.partition == "aws-cn" else "ec2.amazonaws.com"
        found.append(
            _statement(
                "GiveTheRole", ["iam:PassRole"], [places.other("iam", f"role/{role}")],
                {"StringEquals": {"iam:PassedToService": service}},
            )
        )  # fmt: skip
    if settings.kms_key:
        through = {"kms:ViaService": f"ec2.{places.region}.amazonaws.com"}
        key = settings.kms_key
        condition: dict[str, Any] = {"StringEquals": through}
        if key.startswith("alias/"):
            condition = {"StringEquals": through, "ForAnyValue:StringEquals": {"kms:ResourceAliases": key}}
            key = "*"
        elif not key.startswith("arn:"):
            key = places.other("kms", f"key/{key}", region=places.region)
        calls = ("CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext", "ReEncrypt*")
        found.append(_statement("UseTheKey", [f"kms:{call}" for call in calls], [key], condition))
    return found
