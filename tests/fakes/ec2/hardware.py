"""What comes with an instance: disks, interfaces, options. Owns their defaults and the members that tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.fakes.aws.errors import AwsError
from tests.fakes.ec2.records import NO_TAGS, Interface, Tags, Volume, moment
from tests.fakes.ec2.region import Group, Region, Subnet
from tests.fakes.ec2.settings import Image, ImageDisk

#: A disk that no image says anything of.
_ADDED = ImageDisk("", 0, dies_with_instance=True)
_DEFAULT_GP3 = {"Iops": 3000, "Throughput": 125}


@dataclass(frozen=True, slots=True)
class Network:
    """Where an instance is connected."""

    subnet: Subnet | None
    groups: tuple[str, ...]
    public: bool | None
    dies_with_instance: bool = True
    description: str = ""


def network_of(region: Region, params: dict[str, Any]) -> Network:
    """From the request: subnet and groups stand in the request itself, or in its one network interface."""
    given = params.get("NetworkInterfaces", [])
    if len(given) > 1:
        raise AwsError("InvalidParameterValue", "the fake gives an instance one network interface")
    if given:
        for name in ("SubnetId", "SecurityGroupIds", "SecurityGroups"):
            if name in params:
                what = "subnet ID" if name == "SubnetId" else "security groups"
                raise AwsError(
                    "InvalidParameterCombination",
                    f"Network interfaces and an instance-level {what} may not be specified on the same request",
                )
    source = given[0] if given else params
    if given and source.get("DeviceIndex") != 0:
        raise AwsError("InvalidParameterValue", "the primary network interface has the device index 0")
    subnet_id = source.get("SubnetId")
    if subnet_id is not None and subnet_id not in region.subnets:
        raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
    groups = _groups(
        region, source.get("Groups" if given else "SecurityGroupIds", []), params.get("SecurityGroups", [])
    )
    return Network(
        region.subnets[subnet_id] if subnet_id else None,
        groups,
        source.get("AssociatePublicIpAddress") if given else None,
        source.get("DeleteOnTermination", True) if given else True,
        source.get("Description", "") if given else "",
    )


def _groups(region: Region, ids: list[str], names: list[str]) -> tuple[str, ...]:
    for group_id in ids:
        if group_id not in region.groups:
            raise AwsError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
    by_name = {group.name: group.id for group in region.groups.values()}
    for name in names:
        if name not in by_name:
            raise AwsError("InvalidGroup.NotFound", f"The security group '{name}' does not exist in default VPC")
    found = (*ids, *(by_name[name] for name in names))
    return found or (by_name["default"],)


def volumes_of(
    region: Region, params: dict[str, Any], image: Image, zone: str, instance: str, tags: Tags | None
) -> list[Volume]:
    """The image's disks, as the request changes them, and those that the request adds."""
    asked = {mapping.get("DeviceName", ""): mapping for mapping in params.get("BlockDeviceMappings", [])}
    if len(asked) != len(params.get("BlockDeviceMappings", [])) or "" in asked:
        raise AwsError("InvalidBlockDeviceMapping", "each mapping names a device of its own")
    volumes = []
    brought = {disk.device: disk for disk in image.disks}
    for device in dict.fromkeys((image.root_device, *brought, *asked)):
        mapping = asked.get(device, {})
        if "VirtualName" in mapping or "NoDevice" in mapping:
            continue  # an instance store, or nothing
        ebs = mapping.get("Ebs", {})
        root, own = device == image.root_device, brought.get(device, _ADDED)
        least = image.root_gb if root else own.gb
        size = ebs.get("VolumeSize", least)
        if size < max(least, 1):
            raise AwsError("InvalidBlockDeviceMapping", f"Volume of size {size}GB is too small for {device}")
        kind = ebs.get("VolumeType", "gp3" if root or own is not _ADDED else "gp2")
        default = _DEFAULT_GP3 if kind == "gp3" else {}
        if kind in ("io1", "io2") and "Iops" not in ebs:
            raise AwsError("MissingParameter", f"The parameter iops must be specified for {kind} volumes.")
        volumes.append(
            Volume(
                region.new_id("vol"), zone, size, kind, ebs.get("Encrypted", own.encrypted), region.now, device,
                ebs.get("DeleteOnTermination", own.dies_with_instance), instance, tags or NO_TAGS,
                ebs.get("Iops", default.get("Iops")), ebs.get("Throughput", default.get("Throughput")),
                ebs.get("KmsKeyId"), ebs.get("SnapshotId", ""),
            )
        )  # fmt: skip
    return volumes


def interfaces_of(region: Region, network: Network, zone: str, instance: str, tags: Tags | None) -> list[Interface]:
    """The one interface."""
    subnet = network.subnet or next(subnet for subnet in region.subnets.values() if subnet.zone == zone)
    number = region.made("i")
    address = f"{subnet.network}.{subnet.number * 64 + number // 250 % 64}.{4 + number % 250}"
    public = subnet.default if network.public is None else network.public
    return [
        Interface(
            region.new_id("eni"), zone, subnet.id, address, region.now, network.groups, network.dies_with_instance,
            instance, f"54.{number // 65536 % 256}.{number // 256 % 256}.{number % 256}" if public else "",
            tags or NO_TAGS, network.description,
        )
    ]  # fmt: skip


def held_members(region: Region, volumes: list[Volume], interfaces: list[Interface]) -> dict[str, Any]:
    """The members of an instance that speak of them."""
    first = interfaces[0]
    groups = [_identifier(region.groups[group]) for group in first.groups]
    dns = f"ip-{first.address.replace('.', '-')}.ec2.internal"
    return {
        "PrivateIpAddress": first.address,
        "PrivateDnsName": dns,
        "PublicIpAddress": first.public_address or None,
        "SubnetId": first.subnet,
        "VpcId": region.vpc,
        "SourceDestCheck": True,
        "SecurityGroups": groups,
        "BlockDeviceMappings": [
            {
                "DeviceName": volume.device,
                "Ebs": {
                    "VolumeId": volume.id,
                    "Status": "attached",
                    "AttachTime": moment(volume.made_ms),
                    "DeleteOnTermination": volume.dies_with_instance,
                },
            }
            for volume in volumes
        ],
        "NetworkInterfaces": [
            {
                "NetworkInterfaceId": interface.id,
                "SubnetId": interface.subnet,
                "VpcId": region.vpc,
                "OwnerId": region.account,
                "Description": interface.description,
                "Status": "in-use",
                "MacAddress": interface.mac,
                "PrivateIpAddress": interface.address,
                "SourceDestCheck": True,
                "InterfaceType": "interface",
                "Groups": groups,
                "Attachment": {
                    "AttachmentId": f"eni-attach-{interface.id.removeprefix('eni-')}",
                    "DeviceIndex": 0,
                    "Status": "attached",
                    "AttachTime": moment(interface.made_ms),
                    "DeleteOnTermination": interface.dies_with_instance,
                },
            }
            for interface in interfaces
        ],
    }


def _identifier(group: Group) -> dict[str, str]:
    return {"GroupId": group.id, "GroupName": group.name}


def cpu_options(info: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """The type's own, or what was asked for."""
    known = info["VCpuInfo"]
    cores = asked.get("CoreCount", known.get("DefaultCores", known["DefaultVCpus"]))
    return {"CoreCount": cores, "ThreadsPerCore": asked.get("ThreadsPerCore", known.get("DefaultThreadsPerCore", 1))}


def credits_of(info: dict[str, Any], asked: dict[str, str] | None) -> str:
    """How the CPUs of the type are paid: T2 stops at what it has earned, later ones go on and bill."""
    name = info["InstanceType"]
    if not info["BurstablePerformanceSupported"]:
        if asked is not None:
            raise AwsError(
                "InstanceCreditSpecification.NotSupported", f"The {name} instance type takes no CPU credits."
            )
        return ""
    if asked is None:
        return "standard" if name.startswith("t2.") else "unlimited"
    if asked["CpuCredits"] not in ("standard", "unlimited"):
        raise AwsError("InvalidParameterValue", f"Invalid value '{asked['CpuCredits']}' for CpuCredits.")
    return asked["CpuCredits"]


def metadata_options(asked: dict[str, Any]) -> dict[str, Any]:
    """EC2's defaults, and what was asked for."""
    defaults = {
        "HttpTokens": "optional",
        "HttpPutResponseHopLimit": 1,
        "HttpEndpoint": "enabled",
        "HttpProtocolIpv6": "disabled",
        "InstanceMetadataTags": "disabled",
    }
    return {"State": "applied", **defaults, **asked}


def profile(region: Region, asked: dict[str, str] | None) -> dict[str, str] | None:
    """The instance profile as an instance tells it."""
    if asked is None:
        return None
    name = next(iter(asked.values())).rsplit("/", 1)[-1]
    return {"Arn": f"arn:aws:iam::{region.account}:instance-profile/{name}", "Id": "AIPAFAKEPROFILE00000"}
