"""CreateFleet of the type instant, and the launch templates that it is told by. An override that can't be had is no
refusal: the answer is a 200 that tells under `Errors` what was not launched, and under `Instances` what was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.aws.errors import AwsError, Unmodelled
from tests.fakes.ec2 import catalogue
from tests.fakes.ec2.instances import LAUNCH
from tests.fakes.ec2.launch import run_instances
from tests.fakes.ec2.places import page_of_things
from tests.fakes.ec2.records import moment
from tests.fakes.ec2.region import Region, Template
from tests.fakes.ec2.session import Session, operation

#: What a template may say: what RunInstances heeds, but for what a fleet says itself.
_NOT_IN_TEMPLATES = ("MinCount", "MaxCount", "ClientToken", "SubnetId", "InstanceMarketOptions")
_DATA = tuple(f"LaunchTemplateData.{name}" for name in LAUNCH if name.split(".")[0] not in _NOT_IN_TEMPLATES)
#: There is no CreateLaunchTemplateVersion here.
_ONLY_VERSION = ("1", "$Latest", "$Default")
_SPOT, _ON_DEMAND = "spot", "on-demand"


@operation("ec2", "CreateLaunchTemplate", "LaunchTemplateName", "ClientToken", *_DATA)
def create_template(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """CreateLaunchTemplate. What it says is looked at when it is used."""
    region, name, token = session.region, params["LaunchTemplateName"], params.get("ClientToken", "")
    for one in region.templates.values():
        if token and one.token == token:
            if (one.name, one.data) != (name, params["LaunchTemplateData"]):
                raise _mismatch()
            return {"LaunchTemplate": _told(session, one)}
    if any(one.name == name for one in region.templates.values()):
        raise AwsError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
    made = Template(region.new_id("lt"), name, region.now, params["LaunchTemplateData"], token)
    region.templates[made.id] = made
    return {"LaunchTemplate": _told(session, made)}


@operation("ec2", "DeleteLaunchTemplate", "LaunchTemplateId", "LaunchTemplateName")
def delete_template(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DeleteLaunchTemplate: by id or by name."""
    found = _template(session.region, params)
    del session.region.templates[found.id]
    return {"LaunchTemplate": _told(session, found)}


@operation("ec2", "DescribeLaunchTemplates", "LaunchTemplateIds", "LaunchTemplateNames", "NextToken", "MaxResults")
def templates(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeLaunchTemplates: those that are named, or all."""
    region = session.region
    named = [_template(region, {"LaunchTemplateId": one}) for one in params.get("LaunchTemplateIds", [])]
    named += [_template(region, {"LaunchTemplateName": one}) for one in params.get("LaunchTemplateNames", [])]
    things = [_told(session, one) for one in named or region.templates.values()]
    found, token = page_of_things(session, params, things, {}, least=1, most=200, default=200)
    return {"LaunchTemplates": found, "NextToken": token}


def _mismatch() -> AwsError:
    return AwsError("IdempotentParameterMismatch", "The request uses the client token of another request")


def _template(region: Region, said: Mapping[str, Any]) -> Template:
    if len({"LaunchTemplateId", "LaunchTemplateName"} & set(said)) != 1:
        raise AwsError("InvalidParameterCombination", "name the launch template by its id or its name")
    identity, name = said.get("LaunchTemplateId"), said.get("LaunchTemplateName")
    for one in region.templates.values():
        if identity == one.id or name == one.name:
            return one
    if identity:
        raise AwsError(
            "InvalidLaunchTemplateId.NotFound", f"The specified launch template, {identity}, does not exist."
        )
    raise AwsError("InvalidLaunchTemplateName.NotFoundException", f"There is no launch template of the name {name}.")


def _told(session: Session, one: Template) -> dict[str, Any]:
    return {
        "LaunchTemplateId": one.id, "LaunchTemplateName": one.name, "CreateTime": moment(one.made_ms),
        "CreatedBy": session.key.arn if session.key else None, "DefaultVersionNumber": 1, "LatestVersionNumber": 1,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pool:
    """One override of one configuration: what it launches, and what it is called in the answer."""

    params: Mapping[str, Any]
    told: Mapping[str, Any]
    max_price: str
    priority: float

    def for_market(self, market: str, count: int) -> dict[str, Any]:
        """The launch of as many as there are."""
        asked = {**self.params, "MinCount": 1, "MaxCount": count}
        if market == _SPOT:
            price = {"SpotOptions": {"MaxPrice": self.max_price}} if self.max_price else {}
            asked["InstanceMarketOptions"] = {"MarketType": _SPOT, **price}
        return asked

    def nano(self, region: Region, market: str) -> int:
        """What an instance costs; in whichever zone that is least, where none is named."""
        name = self.params["InstanceType"]
        if market == _ON_DEMAND:
            return catalogue.on_demand_nano(region.types[name])
        subnet = region.subnets.get(self.params.get("SubnetId", ""))
        zone = subnet.zone if subnet else self.params.get("Placement", {}).get("AvailabilityZone", "")
        return min(region.stock.spot_nano(name, one) for one in ((zone,) if zone in region.zones else region.zones))


@operation(
    "ec2", "CreateFleet", "Type", "ClientToken", "TargetCapacitySpecification.TotalTargetCapacity",
    "TargetCapacitySpecification.OnDemandTargetCapacity", "TargetCapacitySpecification.SpotTargetCapacity",
    "TargetCapacitySpecification.DefaultTargetCapacityType", "SpotOptions.AllocationStrategy",
    "OnDemandOptions.AllocationStrategy", "LaunchTemplateConfigs.LaunchTemplateSpecification.LaunchTemplateId",
    "LaunchTemplateConfigs.LaunchTemplateSpecification.LaunchTemplateName",
    "LaunchTemplateConfigs.LaunchTemplateSpecification.Version", "LaunchTemplateConfigs.Overrides.InstanceType",
    "LaunchTemplateConfigs.Overrides.MaxPrice", "LaunchTemplateConfigs.Overrides.SubnetId",
    "LaunchTemplateConfigs.Overrides.AvailabilityZone", "LaunchTemplateConfigs.Overrides.Priority",
    "LaunchTemplateConfigs.Overrides.ImageId", "TagSpecifications",
)  # fmt: skip
def create_fleet(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """CreateFleet: once, and what can be had at once."""
    region, token = session.region, params.get("ClientToken", "")
    if params.get("Type") != "instant":
        raise session.unmodelled("a type other than instant")
    asked = json.dumps({**params, "DryRun": None}, sort_keys=True, default=str)
    if len(token) > 64 or not token.isascii():
        raise AwsError("InvalidParameterValue", "a client token has at most 64 ASCII characters")
    if token in region.fleets:
        before, answer = region.fleets[token]
        if before != asked:
            raise _mismatch()
        return answer
    counts = _counts(session, params["TargetCapacitySpecification"])
    pools = [pool for config in params["LaunchTemplateConfigs"] for pool in _pools(session, config, params)]
    if session.cloud.settings.instances_bucket is not None:
        session.cloud.throttle(region, "instances", session.cloud.settings.instances_bucket, sum(counts.values()))
    errors: list[Any] = []
    instances: list[Any] = []
    for market, count in counts.items():
        _fill(session, market, count, _ordered(session, pools, market, params), instances, errors)
    made = {"FleetId": region.new_id("fleet"), "Errors": errors, "Instances": instances}
    if token:
        region.fleets[token] = (asked, made)
    return made


def _counts(session: Session, target: Mapping[str, Any]) -> dict[str, int]:
    """How many of each market; what is said of neither is of the default one."""
    total, kind = target["TotalTargetCapacity"], target.get("DefaultTargetCapacityType")
    counts = {_ON_DEMAND: target.get("OnDemandTargetCapacity", 0), _SPOT: target.get("SpotTargetCapacity", 0)}
    left = total - sum(counts.values())
    if total < 1 or min(left, *counts.values()) < 0:
        raise AwsError("InvalidTargetCapacitySpecification", "the parts of the target capacity are not its whole")
    if left and kind not in counts:
        raise session.unmodelled(f"a capacity of the type {kind}")
    if left:
        counts[kind] += left
    return {market: count for market, count in counts.items() if count}


def _pools(session: Session, config: Mapping[str, Any], params: Mapping[str, Any]) -> list[_Pool]:
    said = config.get("LaunchTemplateSpecification", {})
    version = said.get("Version")
    found = _template(session.region, {name: value for name, value in said.items() if name != "Version"})
    if version is None:
        raise AwsError("MissingParameter", "The request must contain the version of the launch template")
    if version not in _ONLY_VERSION:
        raise AwsError("InvalidLaunchTemplateId.VersionNotFound", f"Could not find launch template version {version}")
    tags, data = params.get("TagSpecifications", []), found.data
    if any(one.get("ResourceType") != "instance" for one in tags) or (tags and "TagSpecifications" in data):
        raise session.unmodelled("tags of anything but instances, or beside those of the template,")
    told = {"LaunchTemplateId": found.id, "LaunchTemplateName": found.name, "Version": "1"}
    pools = []
    for override in config.get("Overrides") or [{}]:
        if "SubnetId" in override and "NetworkInterfaces" in data:
            raise session.unmodelled("a subnet beside the template's interfaces")
        asked = {
            **data,
            **{name: override[name] for name in ("InstanceType", "ImageId", "SubnetId") if name in override},
        }
        if "InstanceType" not in asked:
            raise session.unmodelled("a launch without a type")
        if asked["InstanceType"] not in session.region.types:
            raise AwsError("InvalidParameterValue", f"Invalid value '{asked['InstanceType']}' for InstanceType.")
        if "AvailabilityZone" in override:
            asked["Placement"] = {**data.get("Placement", {}), "AvailabilityZone": override["AvailabilityZone"]}
        if tags:
            asked["TagSpecifications"] = tags
        called = {"LaunchTemplateSpecification": told, "Overrides": override}
        priority = override.get("Priority", float("inf"))
        pools.append(_Pool(asked, called, override.get("MaxPrice", ""), priority))
    return pools


def _ordered(session: Session, pools: list[_Pool], market: str, params: Mapping[str, Any]) -> list[_Pool]:
    options = params.get("SpotOptions" if market == _SPOT else "OnDemandOptions", {})
    strategy = options.get("AllocationStrategy", "lowest-price")
    if strategy == "prioritized":
        return sorted(pools, key=lambda pool: pool.priority)
    if strategy != "lowest-price":
        raise session.unmodelled(f"the strategy {strategy}")
    return sorted(pools, key=lambda pool: pool.nano(session.region, market))


def _fill(
    session: Session, market: str, count: int, pools: list[_Pool], instances: list[Any], errors: list[Any]
) -> None:  # fmt: skip
    """Of each pool what it has, until there are enough. A pool that gave less than was wanted is an error, too."""
    for pool in pools:
        told = {"LaunchTemplateAndOverrides": pool.told, "Lifecycle": market}
        try:
            if "ec2:RunInstances" in session.cloud.denied:
                raise AwsError("UnauthorizedOperation", "You are not authorized to perform this operation.")
            vms = run_instances(session.region, pool.for_market(market, count)).instances
            ids, name = [vm.id for vm in vms], pool.params["InstanceType"]
            instances.append({**told, "InstanceIds": ids, "InstanceType": name})
            count -= len(ids)
            if not count:
                return
            raise AwsError("InsufficientInstanceCapacity", f"There is not enough {name} capacity: {count} are missing")
        except Unmodelled:
            raise
        except AwsError as error:
            errors.append({**told, "ErrorCode": error.code, "ErrorMessage": error.message})
