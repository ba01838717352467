"""Between EC2's words and ours: requests of launches, instances, tags. Pure: no effects, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import PREFIX
from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.spi import LaunchRequest, Leftover, LeftoverKind, Traits, Vm, VmState
from cloud_dispatch_aws.images import GP3_IOPS, GP3_THROUGHPUT, Image
from cloud_dispatch_aws.settings import GIB, AwsSettings

#: EC2's limit on user data as it is sent, before base64.
MAX_USER_DATA = 16_384
MAX_BATCH = 100
_STATES = {
    "pending": VmState.PENDING,
    "running": VmState.RUNNING,
    "shutting-down": VmState.STOPPING,
    "stopping": VmState.STOPPING,
    "stopped": VmState.STOPPED,
    "terminated": VmState.GONE,
}
#: Why an instance ended, where the market took it back.
_TAKEN_BACK = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
_KEY, _VALUE = 128, 256
#: What EC2 recommends disks to be called by, and some more: an image may use as many as there are scratch disks.
_LETTERS = "fghijklmnopqrstuvwxyz"


def check(request: LaunchRequest, user_data: bytes, traits: Traits) -> None:
    """InvalidRequest for what can be known to be wrong before anything is asked. `user_data`: as it is sent."""
    if not 1 <= request.slots <= MAX_BATCH:
        raise InvalidRequest(f"{request.slots} VMs in one launch (expected 1-{MAX_BATCH})")
    if not 1 <= request.min_slots <= request.slots:
        raise InvalidRequest(f"min_slots = {request.min_slots} of {request.slots} slots")
    size = len(user_data)
    if size > traits.max_user_data:
        raise InvalidRequest(f"user data is {size} bytes as it is sent, over {traits.max_user_data}")
    check_tags(request.tags)


def check_tags(tags: Mapping[str, str]) -> None:
    """InvalidRequest for tags that EC2 does not take."""
    for key, value in tags.items():
        if not 1 <= len(key) <= _KEY or len(value) > _VALUE or key.lower().startswith("aws:"):
            raise InvalidRequest(f"tag {key!r}: EC2 takes keys of 1-{_KEY} characters without aws:, values of {_VALUE}")


def launch(
    request: LaunchRequest, settings: AwsSettings, user_data: bytes, image: Image, subnet: str = "", *,
    burstable: bool,
) -> dict[str, Any]:  # fmt: skip
    """The parameters of RunInstances. The same request gives the same ones: the token is only good for those."""
    offering = request.offering
    call: dict[str, Any] = {
        "ClientToken": str(request.batch),
        "MinCount": request.min_slots,
        "MaxCount": request.slots,
        "ImageId": image.id,
        "InstanceType": offering.type.name,
        "UserData": user_data,  # the SDK makes base64 of it
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": settings.metadata_hops,
        },
        "BlockDeviceMappings": _disks(settings, image),
        "TagSpecifications": _tagged(request, settings),
    }
    if settings.key_name:
        call["KeyName"] = settings.key_name
    if settings.instance_profile:
        kind = "Arn" if settings.instance_profile.startswith("arn:") else "Name"
        call["IamInstanceProfile"] = {kind: settings.instance_profile}
    if burstable:
        # Unlimited is EC2's own choice for most of them: credits above what was earned cost extra, and no limit knows.
        call["CreditSpecification"] = {"CpuCredits": "standard"}
    if not subnet:
        call["Placement"] = {"AvailabilityZone": offering.zone}
    call.update(_network(settings, subnet))
    if offering.market is Market.SPOT:
        call["InstanceMarketOptions"] = _spot(offering.max_rate)
    return call


def _network(settings: AwsSettings, subnet: str) -> dict[str, Any]:
    groups = list(settings.security_groups)
    if settings.public_address is None:
        return {**({"SubnetId": subnet} if subnet else {}), **({"SecurityGroupIds": groups} if groups else {})}
    interface: dict[str, Any] = {
        "DeviceIndex": 0,
        "AssociatePublicIpAddress": settings.public_address,
        "DeleteOnTermination": True,
    }
    if subnet:
        interface["SubnetId"] = subnet
    if groups:
        interface["Groups"] = groups
    return {"NetworkInterfaces": [interface]}


def _disks(settings: AwsSettings, image: Image) -> list[dict[str, Any]]:
    """All of them, those too that the image brings: what is not said of one is as the image says, which may be that it
    stays when its VM ends, is not encrypted, or is paid for by its operations a second."""
    taken = {disk.device[-1] for disk in image.disks}  # /dev/sdf is /dev/xvdf
    names = [f"/dev/sd{letter}" for letter in _LETTERS if letter not in taken]
    devices = [
        (image.root_device, settings.root_size),
        *((disk.device, disk.bytes) for disk in image.more_disks),
        *zip(names, settings.scratch, strict=False),
    ]
    own = {"Iops": GP3_IOPS, "Throughput": GP3_THROUGHPUT}
    paced = {disk.device for disk in image.disks if disk.paced}
    key = {"KmsKeyId": settings.kms_key} if settings.kms_key else {}
    return [
        {
            "DeviceName": name,
            "Ebs": {
                "VolumeSize": -(-size // GIB),
                "VolumeType": "gp3",
                "Encrypted": True,
                "DeleteOnTermination": True,
                **(own if name in paced else {}),
                **key,
            },
        }
        for name, size in devices
    ]


def _tagged(request: LaunchRequest, settings: AwsSettings) -> list[dict[str, Any]]:
    """All that a launch makes is tagged as it is made: nothing of ours exists without saying so."""
    tags = tag_list({**settings.tags, **request.tags})
    kinds = ["instance", "volume", "network-interface"]
    if request.offering.market is Market.SPOT:
        kinds.append("spot-instances-request")
    return [{"ResourceType": kind, "Tags": tags} for kind in kinds]


def _spot(max_rate: Rate | None) -> dict[str, Any]:
    """One time, ended when taken back. The bid is rounded down: never more than what the money was reserved for."""
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if max_rate is not None:
        options["MaxPrice"] = dollars(max_rate)
    return {"MarketType": "spot", "SpotOptions": options}


def dollars(rate: Rate) -> str:
    """An hourly price as EC2 writes it, in millionths rounded down."""
    whole, part = divmod(rate // 1000, 1_000_000)
    return f"{whole}.{part:06d}"


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def our_tags(tags: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """Those that the SPI knows; an operator's own, and AWS's, are not shown."""
    return {tag["Key"]: tag["Value"] for tag in tags or () if tag["Key"].startswith(PREFIX)}


def vm(instance: Mapping[str, Any]) -> Vm:
    """An instance as DescribeInstances and RunInstances show it."""
    reason = instance.get("StateReason") or {}
    code = str(reason.get("Code", ""))
    launched = instance.get("LaunchTime")
    return Vm(
        id=VmId(instance["InstanceId"]),
        state=_STATES[instance["State"]["Name"]],
        type=instance["InstanceType"],
        zone=instance["Placement"]["AvailabilityZone"],
        tags=our_tags(instance.get("Tags")),
        created_ms=milliseconds(launched) if launched else 0,
        address=instance.get("PrivateIpAddress") or instance.get("PublicIpAddress") or "",
        spot=instance.get("InstanceLifecycle") == "spot",
        preempted=code in _TAKEN_BACK,
        why=str(reason.get("Message", "")) or str(instance.get("StateTransitionReason") or ""),
    )


def vms(reservations: Sequence[Mapping[str, Any]]) -> list[Vm]:
    return [vm(instance) for reservation in reservations for instance in reservation.get("Instances", ())]


def volume(found: Mapping[str, Any]) -> Leftover:
    """A volume without an instance."""
    return Leftover(
        found["VolumeId"], LeftoverKind.DISK, found.get("AvailabilityZone", ""), our_tags(found.get("Tags")),
        milliseconds(found["CreateTime"]) if found.get("CreateTime") else 0,
    )  # fmt: skip


def interface(found: Mapping[str, Any]) -> Leftover:
    """A network interface without an instance."""
    return Leftover(
        found["NetworkInterfaceId"], LeftoverKind.NIC, found.get("AvailabilityZone", ""), our_tags(found.get("TagSet"))
    )


def address(found: Mapping[str, Any]) -> Leftover:
    """A public address without an instance. The driver rents none; one may carry our tags all the same."""
    return Leftover(found["AllocationId"], LeftoverKind.ADDRESS, "", our_tags(found.get("Tags")))


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
