"""The operations on what can be rented and where: types, offerings, zones, subnets, images, groups, spot prices."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.fakes.aws.errors import AwsError
from tests.fakes.ec2 import catalogue, filters
from tests.fakes.ec2.records import moment
from tests.fakes.ec2.region import Group, Region, Subnet
from tests.fakes.ec2.session import Session, operation
from tests.fakes.ec2.settings import Image

_Getters = Mapping[str, Callable[[Any], Iterable[str]]]


def page_of_things(
    session: Session, params: Mapping[str, Any], things: Sequence[Any], getters: _Getters, *, least: int = 5,
    most: int = 1000, default: int = 0,
) -> tuple[list[Any], str | None]:  # fmt: skip
    """A page of what passes the request's filters, and the token of the next."""
    size = filters.page_size(params, least, most, default)
    page = filters.page_of(session.operation, params)
    session.check_page(page.number)
    passes = filters.chosen(session.operation, params.get("Filters", []), getters, lambda thing: {})
    passing = [(number, thing) for number, thing in enumerate(things) if number > page.after and passes(thing)]
    token = None
    if len(passing) > size:
        token = filters.token_after(session.operation, params, page, passing[size - 1][0])
    return [thing for _, thing in passing[:size]], token


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_TYPE_FILTERS: _Getters = {
    "instance-type": lambda info: (info["InstanceType"],),
    "processor-info.supported-architecture": lambda info: info["ProcessorInfo"]["SupportedArchitectures"],
    "supported-usage-class": lambda info: info["SupportedUsageClasses"],
    "current-generation": lambda info: (_text(info["CurrentGeneration"]),),
    "bare-metal": lambda info: (_text(info["BareMetal"]),),
    "burstable-performance-supported": lambda info: (_text(info["BurstablePerformanceSupported"]),),
    "vcpu-info.default-vcpus": lambda info: (str(catalogue.vcpus(info)),),
    "memory-info.size-in-mib": lambda info: (str(info["MemoryInfo"]["SizeInMiB"]),),
    "instance-storage-supported": lambda info: (_text(info["InstanceStorageSupported"]),),
    "hypervisor": lambda info: (info.get("Hypervisor", ""),),
}


@operation("ec2", "DescribeInstanceTypes", "InstanceTypes", "Filters", "NextToken", "MaxResults")
def describe_types(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeInstanceTypes. 100 a page, as EC2 does where nothing is said."""
    names = params.get("InstanceTypes")
    if names and "MaxResults" in params:
        raise AwsError("InvalidParameterCombination", "InstanceTypes and MaxResults may not be given together")
    known = session.region.types
    unknown = [name for name in names or () if name not in known]
    if unknown:
        told = ", ".join(unknown)
        raise AwsError("InvalidInstanceType", f"The following supplied instance types do not exist: [{told}]")
    things = [known[name] for name in names or sorted(known)]
    found, token = page_of_things(session, params, things, _TYPE_FILTERS, most=100, default=100)
    return {"InstanceTypes": found, "NextToken": token}


@operation("ec2", "DescribeInstanceTypeOfferings", "LocationType", "Filters", "NextToken", "MaxResults")
def describe_offerings(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeInstanceTypeOfferings, by region or zone."""
    region, kind = session.region, params.get("LocationType", "region")
    if kind not in ("region", "availability-zone"):
        raise session.unmodelled(f"the location type {kind}")
    things = []
    for name in sorted(region.types):
        zones = [zone for zone in region.zones if region.stock.offers(name, zone)]
        places = zones if kind == "availability-zone" else [region.name] if zones else []
        things += [{"InstanceType": name, "LocationType": kind, "Location": place} for place in places]
    getters: _Getters = {
        "instance-type": lambda one: (one["InstanceType"],),
        "location": lambda one: (one["Location"],),
    }
    found, token = page_of_things(session, params, things, getters, default=1000)
    return {"InstanceTypeOfferings": found, "NextToken": token}


@operation("ec2", "DescribeAvailabilityZones", "ZoneNames", "Filters")
def describe_zones(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeAvailabilityZones."""
    region = session.region
    for name in params.get("ZoneNames", ()):
        if name not in region.zones:
            raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{name}]")
    wanted = params.get("ZoneNames") or region.zones
    things = [
        {
            "ZoneName": name,
            "ZoneId": region.zone_id(name),
            "RegionName": region.name,
            "State": "available",
            "ZoneType": "availability-zone",
            "OptInStatus": "opt-in-not-required",
            "GroupName": region.name,
            "NetworkBorderGroup": region.name,
        }
        for name in region.zones
        if name in wanted
    ]
    getters: _Getters = {
        "zone-name": lambda one: (one["ZoneName"],),
        "state": lambda one: (one["State"],),
        "zone-type": lambda one: (one["ZoneType"],),
        "region-name": lambda one: (one["RegionName"],),
        "opt-in-status": lambda one: (one["OptInStatus"],),
    }
    found, _ = page_of_things(session, params, things, getters)
    return {"AvailabilityZones": found}


@operation("ec2", "DescribeSubnets", "SubnetIds", "Filters", "NextToken", "MaxResults")
def describe_subnets(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeSubnets."""
    region = session.region
    for identity in params.get("SubnetIds", ()):
        if identity not in region.subnets:
            raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{identity}' does not exist")
    things = [region.subnets[identity] for identity in params.get("SubnetIds") or region.subnets]
    getters: _Getters = {
        "map-public-ip-on-launch": lambda subnet: (_text(subnet.default),),
        "subnet-id": lambda subnet: (subnet.id,),
        "vpc-id": lambda subnet: (region.vpc,),
        "availability-zone": lambda subnet: (subnet.zone,),
        "default-for-az": lambda subnet: (_text(subnet.default),),
        "state": lambda subnet: ("available",),
    }
    found, token = page_of_things(session, params, things, getters)
    return {"Subnets": [_subnet(region, subnet) for subnet in found], "NextToken": token}


def _subnet(region: Region, subnet: Subnet) -> dict[str, Any]:
    taken = sum(1 for interface in region.interfaces.values() if interface.subnet == subnet.id)
    return {
        "SubnetId": subnet.id,
        "SubnetArn": f"arn:aws:ec2:{region.name}:{region.account}:subnet/{subnet.id}",
        "VpcId": region.vpc,
        "OwnerId": region.account,
        "AvailabilityZone": subnet.zone,
        "AvailabilityZoneId": region.zone_id(subnet.zone),
        "CidrBlock": f"{subnet.network}.{subnet.number * 64}.0/18",
        "AvailableIpAddressCount": 16_379 - taken,
        "DefaultForAz": subnet.default,
        "MapPublicIpOnLaunch": subnet.default,
        "State": "available",
    }


@operation("ec2", "DescribeSecurityGroups", "GroupIds", "GroupNames", "Filters", "NextToken", "MaxResults")
def describe_groups(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeSecurityGroups."""
    region = session.region
    by_name = {group.name: group for group in region.groups.values()}
    wanted: list[Group] = []
    for given, known in ((params.get("GroupIds", []), region.groups), (params.get("GroupNames", []), by_name)):
        for one in given:
            if one not in known:
                raise AwsError("InvalidGroup.NotFound", f"The security group '{one}' does not exist")
            wanted.append(known[one])
    getters: _Getters = {
        "group-id": lambda group: (group.id,),
        "group-name": lambda group: (group.name,),
        "vpc-id": lambda group: (region.vpc,),
    }
    found, token = page_of_things(session, params, wanted or list(region.groups.values()), getters)
    told = [
        {
            "GroupId": group.id,
            "GroupName": group.name,
            "Description": f"{group.name} group",
            "OwnerId": region.account,
            "VpcId": region.vpc,
            "IpPermissions": [],
            "IpPermissionsEgress": [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}],
        }
        for group in found
    ]
    return {"SecurityGroups": told, "NextToken": token}


_IMAGE_FILTERS: _Getters = {
    "image-id": lambda image: (image.id,),
    "name": lambda image: (image.name,),
    "architecture": lambda image: (image.architecture,),
    "state": lambda image: (image.state,),
    "owner-id": lambda image: (image.owner,),
    "root-device-type": lambda image: ("ebs",),
    "virtualization-type": lambda image: ("hvm",),
    "is-public": lambda image: ("true",),
}


@operation("ec2", "DescribeImages", "ImageIds", "Owners", "Filters", "NextToken", "MaxResults")
def describe_images(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeImages."""
    region = session.region
    known = {identity: image for identity, image in region.images.items() if image.state != "deregistered"}
    for identity in params.get("ImageIds", ()):
        if not identity.startswith("ami-"):
            raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{identity}" (expecting "ami-...")')
        if identity not in known:
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{identity}]' does not exist")
    owners = [region.account if owner == "self" else owner for owner in params.get("Owners", ())]
    for owner in owners:
        if not owner.isdigit():
            raise session.unmodelled(f"the owner {owner}")
    things = [known[identity] for identity in params.get("ImageIds") or known]
    things = [image for image in things if not owners or image.owner in owners]
    found, token = page_of_things(session, params, things, _IMAGE_FILTERS, least=1)
    return {"Images": [_image(image) for image in found], "NextToken": token}


def _image(image: Image) -> dict[str, Any]:
    disk = {"VolumeSize": image.root_gb, "VolumeType": "gp3", "DeleteOnTermination": True, "Encrypted": False}
    return {
        "ImageId": image.id,
        "Name": image.name,
        "Architecture": image.architecture,
        "OwnerId": image.owner,
        "State": image.state,
        "Public": True,
        "ImageType": "machine",
        "RootDeviceName": image.root_device,
        "RootDeviceType": "ebs",
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "EnaSupport": True,
        "PlatformDetails": image.platform,
        "UsageOperation": image.operation,
        "ProductCodes": [{"ProductCodeId": image.product, "ProductCodeType": "marketplace"}] if image.product else [],
        "CreationDate": image.created,
        "BlockDeviceMappings": [
            {"DeviceName": image.root_device, "Ebs": disk},
            *(
                {
                    "DeviceName": one.device,
                    "Ebs": {
                        "VolumeSize": one.gb,
                        "VolumeType": "gp3",
                        "DeleteOnTermination": one.dies_with_instance,
                        "Encrypted": one.encrypted,
                    },
                }
                for one in image.disks
            ),
        ],
    }


@operation(
    "ec2", "DescribeSpotPriceHistory", "InstanceTypes", "ProductDescriptions", "AvailabilityZone", "StartTime",
    "EndTime", "Filters", "NextToken", "MaxResults",
)  # fmt: skip
def describe_spot_prices(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeSpotPriceHistory: for each type and zone the price that holds now, since an hour ago."""
    region = session.region
    products = params.get("ProductDescriptions", ["Linux/UNIX"])
    names = params.get("InstanceTypes") or sorted(region.types)
    wanted = params.get("AvailabilityZone", "*")
    things = [
        {
            "InstanceType": name,
            "AvailabilityZone": zone,
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": catalogue.dollars(region.stock.spot_nano(name, zone)),
            "Timestamp": moment(session.now - 3_600_000),
        }
        for name in names
        if name in region.types and "spot" in region.types[name]["SupportedUsageClasses"]
        for zone in region.zones
        if region.stock.offers(name, zone) and fnmatch.fnmatchcase(zone, wanted)
    ]
    if not any(product.startswith("Linux/UNIX") for product in products):
        things = []
    getters: _Getters = {
        "availability-zone": lambda one: (one["AvailabilityZone"],),
        "instance-type": lambda one: (one["InstanceType"],),
        "product-description": lambda one: (one["ProductDescription"],),
    }
    found, token = page_of_things(session, params, things, getters, least=1, default=1000)
    return {"SpotPriceHistory": found, "NextToken": token}


@operation("ec2", "DescribeKeyPairs", "KeyNames", "Filters")
def describe_key_pairs(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeKeyPairs. Where any name will do, those asked for exist."""
    known, asked = session.region.settings.key_pairs, params.get("KeyNames", [])
    for name in asked:
        if known is not None and name not in known:
            raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")
    getters: _Getters = {"key-name": lambda name: (name,)}
    found, _ = page_of_things(session, params, asked or sorted(known or ()), getters)
    return {"KeyPairs": [{"KeyName": name, "KeyType": "ed25519"} for name in found]}
