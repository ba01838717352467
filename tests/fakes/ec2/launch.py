"""RunInstances: from what was asked to instances, or the refusal that EC2 gives. Knows nothing of HTTP."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from tests.fakes.aws.errors import AwsError
from tests.fakes.ec2 import catalogue, hardware
from tests.fakes.ec2.records import (
    ALIVE,
    Condition,
    Instance,
    Reservation,
    SpotRequest,
    State,
    Tags,
    moment,
)
from tests.fakes.ec2.region import Launched, Region
from tests.fakes.ec2.settings import Image
from tests.fakes.ec2.tagging import tags_at_launch
from tests.fakes.shown import Shown

MAX_USER_DATA = 16_384
_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Wish:
    """A request that has been understood: it may still be refused."""

    type: dict[str, Any]
    image: Image
    zone: str  # "" for any
    named_zone: bool
    market: str
    max_nano: int | None
    least: int
    most: int
    user_data: bytes
    network: hardware.Network
    tags: dict[str, Tags]
    credits: str  # "" for a type without

    @property
    def type_name(self) -> str:
        """The type's name."""
        name: str = self.type["InstanceType"]
        return name


def run_instances(region: Region, params: dict[str, Any]) -> Reservation:
    """Launch, or find what was launched under the same client token."""
    token = params.get("ClientToken", "")
    if len(token) > 64 or not token.isascii():
        raise AwsError("InvalidParameterValue", "a client token has at most 64 ASCII characters")
    wish = understand(region, params)
    # Zonal where the request names a zone or subnet, regional otherwise: EC2's documentation of idempotency.
    key = (token, wish.zone if wish.named_zone else "")
    asked = json.dumps({**params, "DryRun": None}, sort_keys=True, default=str)
    earlier = region.remembered(*key) if token else None
    if earlier is not None:
        if earlier.asked != asked:
            raise AwsError(
                "IdempotentParameterMismatch",
                "The request uses the same client token as a previous, but non-identical request. "
                "Do not reuse a client token with different requests, unless the requests are identical",
            )
        return earlier.reservation
    zone, count = _place(region, wish)
    reservation = Reservation(region.new_id("r"), region.account, token=token)
    for index in range(count):
        reservation.instances.append(_make(region, wish, params, reservation, zone, index))
    for vm in reservation.instances:
        region.admit(vm)
    if token:
        region.tokens[key] = Launched(asked, reservation)
    return reservation


def understand(region: Region, params: dict[str, Any]) -> Wish:
    """The request with everything in it looked up, or the error for what does not exist or fit."""
    least, most = params["MinCount"], params["MaxCount"]
    if least < 1 or most < least:
        raise AwsError("InvalidParameterValue", f"invalid counts: minimum {least}, maximum {most}")
    name = params.get("InstanceType", "m1.small")
    info = region.types.get(name)
    if info is None:
        raise AwsError("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
    image = _image(region, params)
    if image.architecture not in info["ProcessorInfo"]["SupportedArchitectures"]:
        raise AwsError(
            "InvalidParameterValue",
            f"The architecture '{'/'.join(info['ProcessorInfo']['SupportedArchitectures'])}' of the specified instance "
            f"type does not match the architecture '{image.architecture}' of the specified AMI.",
        )
    _account_things(region, params)
    network = hardware.network_of(region, params)
    asked_zone = params.get("Placement", {}).get("AvailabilityZone", "")
    if asked_zone and asked_zone not in region.zones:
        raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{asked_zone}]")
    if network.subnet and asked_zone and network.subnet.zone != asked_zone:
        raise AwsError("InvalidParameterValue", f"subnet {network.subnet.id} is not in {asked_zone}")
    zone = network.subnet.zone if network.subnet else asked_zone
    market, max_nano = _market(params)
    tags = tags_at_launch(params.get("TagSpecifications", []), spot=market == "spot")
    data = _user_data(params.get("UserData", ""))
    paid = hardware.credits_of(info, params.get("CreditSpecification"))
    return Wish(info, image, zone, bool(zone), market, max_nano, least, most, data, network, tags, paid)


def _image(region: Region, params: dict[str, Any]) -> Image:
    asked = params.get("ImageId")
    if asked is None:
        raise AwsError("MissingParameter", "The request must contain the parameter ImageId")
    if asked.startswith("resolve:ssm:"):
        name = asked.removeprefix("resolve:ssm:")
        asked = region.settings.parameters.get(name, "")
        if not asked:
            raise AwsError("InvalidParameterValue", f"SSM parameter {name} does not exist")
    elif not asked.startswith("ami-"):
        raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{asked}" (expecting "ami-...")')
    image = region.images.get(asked)
    if image is None or image.state == "deregistered":
        raise AwsError("InvalidAMIID.NotFound", f"The image id '[{asked}]' does not exist")
    if image.state != "available":
        raise AwsError("InvalidAMIID.Unavailable", f"The image ID '{asked}' is not available")
    return image


def _account_things(region: Region, params: dict[str, Any]) -> None:
    key, known = params.get("KeyName"), region.settings.key_pairs
    if key is not None and known is not None and key not in known:
        raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")
    profile = params.get("IamInstanceProfile")
    if profile is None:
        return
    if len(profile) != 1:
        raise AwsError("InvalidParameterCombination", "name the instance profile by its name or its ARN")
    name = next(iter(profile.values())).rsplit("/", 1)[-1]
    if region.settings.profiles is not None and name not in region.settings.profiles:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        )


def _market(params: dict[str, Any]) -> tuple[str, int | None]:
    options = params.get("InstanceMarketOptions")
    if options is None:
        return "on-demand", None
    if options.get("MarketType") != "spot":
        raise AwsError("InvalidParameterValue", "the fake knows the market type spot only")
    spot = options.get("SpotOptions", {})
    behaviour = spot.get("InstanceInterruptionBehavior", "terminate")
    if spot.get("SpotInstanceType", "one-time") != "one-time" or behaviour != "terminate":
        raise AwsError("InvalidParameterCombination", "RunInstances takes one-time spot instances that terminate")
    price = spot.get("MaxPrice")
    if price is None:
        return "spot", None
    try:
        nano = round(float(price) * _NANO)
    except ValueError:
        nano = 0
    if nano <= 0:
        raise AwsError("InvalidParameterValue", f"Invalid value '{price}' for spotPrice")
    return "spot", nano


def _user_data(encoded: str) -> bytes:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data") from None
    if len(data) > MAX_USER_DATA:
        raise AwsError("InvalidParameterValue", f"User data is limited to {MAX_USER_DATA} bytes")
    return data


def _place(region: Region, wish: Wish) -> tuple[str, int]:
    """The zone and how many instances it gets."""
    name, market = wish.type_name, wish.market
    zones = (wish.zone,) if wish.zone else region.zones
    offering = [zone for zone in zones if region.stock.offers(name, zone)]
    if not offering:
        others = ", ".join(zone for zone in region.zones if region.stock.offers(name, zone))
        raise AwsError(
            "Unsupported",
            f"Your requested instance type ({name}) is not supported in your requested Availability Zone "
            f"({', '.join(zones)}). Please retry your request by not specifying an Availability Zone or choosing "
            f"{others}.",
        )
    if market not in wish.type["SupportedUsageClasses"]:
        raise AwsError("Unsupported", f"The instance type {name} can't be launched on the market {market}")
    most = _within_quota(region, wish)
    affordable = [zone for zone in offering if _affordable(region, wish, zone)]
    if not affordable:
        lowest = catalogue.dollars(min(region.stock.spot_nano(name, zone) for zone in offering))
        raise AwsError(
            "SpotMaxPriceTooLow",
            f"Your Spot request price of {catalogue.dollars(wish.max_nano or 0)} is lower than the minimum required "
            f"Spot request fulfillment price of {lowest}.",
        )
    zone = max(affordable, key=lambda zone: min(region.stock.room(name, zone, market), most))
    room = region.stock.room(name, zone, market)
    if room < wish.least:
        raise AwsError(
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {name} capacity in the Availability Zone you requested ({zone}). "
            "Our system will be working on provisioning additional capacity.",
        )
    return zone, min(room, most)


def _affordable(region: Region, wish: Wish, zone: str) -> bool:
    return (
        wish.market != "spot" or wish.max_nano is None or wish.max_nano >= region.stock.spot_nano(wish.type_name, zone)
    )


def _within_quota(region: Region, wish: Wish) -> int:
    """How many the quotas allow; an error where that is fewer than wanted."""
    limit = region.stock.quota(wish.type_name, wish.market)
    left = (limit - region.stock.used_vcpus(wish.type_name, wish.market)) // catalogue.vcpus(wish.type)
    wanted = wish.least if region.settings.quota_fills else wish.most
    if left < wanted and wish.market == "spot":
        raise AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    if left < wanted:
        raise AwsError(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance "
            "bucket that the specified instance type belongs to. Please visit "
            "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
        )
    if region.settings.instance_limit:
        alive = sum(1 for vm in region.instances.values() if vm.state in ALIVE)
        left = min(left, region.settings.instance_limit - alive)
        if left < wanted:
            raise AwsError(
                "InstanceLimitExceeded",
                f"You have requested more instances ({alive + wanted}) than your current instance limit of "
                f"{region.settings.instance_limit} allows for the specified instance type.",
            )
    return min(left, wish.most)


def _make(
    region: Region, wish: Wish, params: dict[str, Any], reservation: Reservation, zone: str, index: int
) -> Instance:  # fmt: skip
    now, identity = region.now, region.new_id("i")
    volumes = hardware.volumes_of(region, params, wish.image, zone, identity, wish.tags.get("volume"))
    interfaces = hardware.interfaces_of(region, wish.network, zone, identity, wish.tags.get("network-interface"))
    spot = None
    if wish.market == "spot":
        price = catalogue.dollars(wish.max_nano or catalogue.on_demand_nano(wish.type))
        tags = wish.tags.get("spot-instances-request") or Tags({})
        request_id = region.new_id("sir")
        spot = SpotRequest(request_id, price, now, wish.type_name, zone, wish.image.id, identity, tags=tags)
    fixed = {
        "InstanceId": identity,
        "ImageId": wish.image.id,
        "InstanceType": wish.type_name,
        "AmiLaunchIndex": index,
        "ClientToken": reservation.token or None,
        "LaunchTime": moment(now),
        "KeyName": params.get("KeyName"),
        "Architecture": wish.image.architecture,
        "RootDeviceName": wish.image.root_device,
        "RootDeviceType": "ebs",
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "EnaSupport": True,
        "EbsOptimized": params.get("EbsOptimized", False),
        "InstanceLifecycle": "spot" if spot else None,
        "SpotInstanceRequestId": spot.id if spot else None,
        "Monitoring": {"State": "enabled" if params.get("Monitoring", {}).get("Enabled") else "disabled"},
        "Placement": {
            "AvailabilityZone": zone,
            "GroupName": params.get("Placement", {}).get("GroupName", ""),
            "Tenancy": params.get("Placement", {}).get("Tenancy", "default"),
        },
        "CpuOptions": hardware.cpu_options(wish.type, params.get("CpuOptions", {})),
        "MetadataOptions": hardware.metadata_options(params.get("MetadataOptions", {})),
        "IamInstanceProfile": hardware.profile(region, params.get("IamInstanceProfile")),
        "MaintenanceOptions": {"AutoRecovery": "default", **params.get("MaintenanceOptions", {})},
        "PlatformDetails": wish.image.platform,
        "UsageOperation": wish.image.operation,
    }
    held = hardware.held_members(region, volumes, interfaces)
    return Instance(
        id=identity, number=region.made("i"), reservation=reservation, type_name=wish.type_name,
        vcpus=catalogue.vcpus(wish.type), zone=zone, market=wish.market, launched_ms=now, user_data=wish.user_data,
        fixed=fixed, held=held, condition=Shown(Condition(State.PENDING), now + region.settings.appears_ms),
        tags=region.first_tags(wish.tags.get("instance") or Tags({})), volumes=volumes, interfaces=interfaces,
        shutdown_behaviour=params.get("InstanceInitiatedShutdownBehavior", "stop"),
        protected=params.get("DisableApiTermination", False), spot=spot, credits=wish.credits,
    )  # fmt: skip
