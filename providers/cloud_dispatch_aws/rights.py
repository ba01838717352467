"""Which rights can be tried without doing anything, and what each is for. Owns the trial of each.

EC2 answers DryRun with DryRunOperation where the call is allowed and with UnauthorizedOperation where it isn't. Reads
hang on nothing else. A right to change hangs on the tags of what is changed, and what EC2 says of an id that is not
there (not found, or not allowed: there are no tags that would allow it) is documented nowhere: such a right is known
only once there is something of the deployment's to try it on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest, ProviderError
from cloud_dispatch.provider.spi import Finding, Level
from cloud_dispatch_aws import policy, quotas
from cloud_dispatch_aws.calls import Calls
from cloud_dispatch_aws.errors import Asked
from cloud_dispatch_aws.images import PARAMETER
from cloud_dispatch_aws.settings import AwsSettings

WOULD = "DryRunOperation"
ABOUT = "rights"


@dataclass(frozen=True, slots=True)
class Right:
    """One action, what it is for, and how it is tried. `on`: the kind of thing that it is done to, "" for none."""

    action: str
    purpose: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    on: str = ""

    @property
    def service(self) -> str:
        return self.action.partition(":")[0]

    @property
    def call(self) -> str:
        return self.action.partition(":")[2]


#: Kinds of things -> an id that nothing has, for where there is nothing of ours.
NOTHING = {
    "instance": "i-00000000000000000", "volume": "vol-00000000000000000",
    "network-interface": "eni-00000000000000000", "elastic-ip": "eipalloc-00000000000000000",
}  # fmt: skip
_ID = "{id}"
#: The services' names in the SDK where they are not those of the rights.
_SDK = {"servicequotas": "service-quotas"}
_TAGS = [{"Key": ENDS_AT, "Value": "0"}]

RIGHTS = (
    Right("ec2:DescribeAddresses", "to find addresses that nobody uses", "describe_addresses"),
    Right("ec2:DescribeImages", "to find the image that VMs boot", "describe_images", {"Owners": ["self"]}),
    Right("ec2:DescribeInstanceTypeOfferings", "to know which zones have a type", "describe_instance_type_offerings"),
    Right("ec2:DescribeInstanceTypes", "to know the types", "describe_instance_types"),
    Right("ec2:DescribeInstances", "to see the VMs", "describe_instances"),
    Right("ec2:DescribeKeyPairs", "to check key_name", "describe_key_pairs"),
    Right("ec2:DescribeNetworkInterfaces", "to find interfaces that nobody uses", "describe_network_interfaces"),
    Right("ec2:DescribeSecurityGroups", "to check security_groups", "describe_security_groups"),
    Right("ec2:DescribeSpotPriceHistory", "to know what spot VMs cost", "describe_spot_price_history"),
    Right("ec2:DescribeSubnets", "to choose a subnet that has addresses", "describe_subnets"),
    Right("ec2:DescribeVolumes", "to find disks that nobody uses", "describe_volumes"),
    Right(
        "ec2:CreateTags", "to write when a VM ends", "create_tags", {"Resources": [_ID], "Tags": _TAGS}, "instance"
    ),
    Right(
        "ec2:GetConsoleOutput", "to show the console of a VM that does not report", "get_console_output",
        {"InstanceId": _ID}, "instance",
    ),
    Right(
        "ec2:ModifyInstanceAttribute", "to lift the protection of a VM that has to end", "modify_instance_attribute",
        {"InstanceId": _ID, "DisableApiTermination": {"Value": False}}, "instance",
    ),
    Right("ec2:TerminateInstances", "to end VMs", "terminate_instances", {"InstanceIds": [_ID]}, "instance"),
    Right("ec2:DeleteVolume", "to delete disks that nobody uses", "delete_volume", {"VolumeId": _ID}, "volume"),
    Right(
        "ec2:DeleteNetworkInterface", "to delete interfaces that nobody uses", "delete_network_interface",
        {"NetworkInterfaceId": _ID}, "network-interface",
    ),
    Right(
        "ec2:ReleaseAddress", "to release addresses that nobody uses", "release_address", {"AllocationId": _ID},
        "elastic-ip",
    ),
    Right("ssm:GetParameter", "to find the image that VMs boot", "get_parameter"),
    Right(
        "pricing:GetProducts", "to know prices; without it the embedded estimates are used", "get_products",
        {"ServiceCode": "AmazonEC2", "MaxResults": 1},
    ),
    Right(
        "servicequotas:ListServiceQuotas", "to know the account's limits before a launch meets them",
        "list_service_quotas", {"ServiceCode": quotas.SERVICE, "MaxResults": 1},
    ),
)  # fmt: skip
#: Without these all works, in the dark: prices are estimates, limits are learnt from refusals.
OPTIONAL = frozenset({"pricing:GetProducts", "servicequotas:ListServiceQuotas"})
#: Tried by the DryRun of a launch, by that of the preflight.
BY_LAUNCH = frozenset({"ec2:RunInstances", "iam:PassRole"})


def needed(settings: AwsSettings, deployment: str) -> frozenset[str]:
    """The actions of the policy that `iam-policy` prints."""
    statements = policy.document(settings, deployment)["Statement"]
    return frozenset(action for one in statements for action in one["Action"])


async def tried(calls: Calls, settings: AwsSettings, deployment: str) -> list[Finding]:
    """What was found of each right that the profile needs: those that are missing by name, the others together."""
    actions = needed(settings, deployment)
    ours = await _ours(calls, deployment)
    wanted = [one for right in RIGHTS if right.action in actions for one in _of(right, settings)]
    answers = await asyncio.gather(*(_try(calls, right, ours) for right in wanted))
    denied = [(right, said) for right, said in zip(wanted, answers, strict=True) if said]
    untold = [right for right, said in zip(wanted, answers, strict=True) if said is None]
    return [*_allowed(wanted, answers), *map(_missing, denied), *_untold(untold, ours, actions)]


def _of(right: Right, settings: AwsSettings) -> Iterable[Right]:
    """The right as it is tried; once for each image that a parameter names."""
    if right.action != "ssm:GetParameter":
        return [right]
    names = [name.removeprefix(PARAMETER) for name in settings.images.values() if name.startswith(PARAMETER)]
    return [Right(right.action, f"{right.purpose} ({name})", right.operation, {"Name": name}) for name in names]


async def _ours(calls: Calls, deployment: str) -> Mapping[str, str]:
    """Something of each kind that carries the deployment's tag, where there is something and it may be seen."""

    async def first(operation: str, key: str, name: str, states: Sequence[str] = ()) -> str:
        call = "".join(word.capitalize() for word in operation.split("_"))
        wanted = [{"Name": f"tag:{DEPLOYMENT}", "Values": [deployment]}]
        if states:
            wanted.append({"Name": "instance-state-name", "Values": list(states)})
        try:
            found = await calls.pages(Asked(call), "ec2", operation, key, Filters=wanted)
        except ProviderError:  # that it may not be seen is a finding of its own
            return ""
        things = [vm for one in found for vm in one["Instances"]] if key == "Reservations" else found
        return str(things[0][name]) if things else ""

    found = await asyncio.gather(
        first("describe_instances", "Reservations", "InstanceId", ("pending", "running", "stopping", "stopped")),
        first("describe_volumes", "Volumes", "VolumeId"),
        first("describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
        first("describe_addresses", "Addresses", "AllocationId"),
    )
    return {kind: one for kind, one in zip(NOTHING, found, strict=True) if one}


async def _try(calls: Calls, right: Right, ours: Mapping[str, str]) -> str | None:
    """ "" where it is allowed, why not where it isn't, None where nobody can tell."""
    target = ours.get(right.on, NOTHING.get(right.on, ""))
    parameters = {name: _filled(value, target) for name, value in right.parameters.items()}
    if right.service == "ec2":
        parameters["DryRun"] = True
    service = _SDK.get(right.service, right.service)
    try:
        await calls.patiently(Asked(right.call), service, right.operation, **parameters)
    except CredentialsRejected as error:
        return error.message if not right.on or right.on in ours else None
    except ProviderError as error:
        if error.code == WOULD:
            return ""
        # What else is wrong with a call that was let through (a disk in use) does not matter here.
        passed = isinstance(error, InvalidRequest) and not error.code.endswith("NotFound")
        return "" if passed and right.on in ours else None
    return "" if right.service != "ec2" else None


def _filled(value: Any, target: str) -> Any:
    if isinstance(value, list):
        return [target if one == _ID else one for one in value]
    return target if value == _ID else value


def _allowed(wanted: Sequence[Right], answers: Sequence[str | None]) -> list[Finding]:
    number = sum(said == "" for said in answers)
    return [Finding(Level.OK, ABOUT, f"{number} of {len(wanted)} that can be tried are given")] if number else []


def _missing(one: tuple[Right, str]) -> Finding:
    right, said = one
    level = Level.WARNING if right.action in OPTIONAL else Level.ERROR
    return Finding(level, f"right {right.action}", f"missing; it is needed {right.purpose}: {said}")


def _untold(rights: Sequence[Right], ours: Mapping[str, str], actions: frozenset[str]) -> list[Finding]:
    """In one line for each reason: there are many in a new deployment, and nothing is wrong."""
    found = []
    homeless = [right for right in rights if right.on and right.on not in ours]
    if homeless:
        kinds = " and no ".join(sorted({right.on for right in homeless}))
        names = ", ".join(f"{right.action} ({right.purpose})" for right in homeless)
        text = f"could not be told while this deployment has no {kinds} to try them on: {names}"
        found.append(Finding(Level.WARNING, ABOUT, text))
    others = [f"{right.action} ({right.purpose})" for right in rights if right not in homeless]
    others += [f"{action} (to use kms_key)" for action in sorted(actions) if action.startswith("kms:")]
    if others:
        found.append(Finding(Level.WARNING, ABOUT, f"could not be told: {', '.join(others)}"))
    return found
