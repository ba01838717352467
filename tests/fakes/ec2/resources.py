"""The operations on what surrounds instances: disks, interfaces, addresses, spot requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tests.fakes.aws.errors import AwsError, Unmodelled
from tests.fakes.ec2 import filters
from tests.fakes.ec2.records import Address, Interface, Snapshot, SpotRequest, State, Volume, moment
from tests.fakes.ec2.region import Region
from tests.fakes.ec2.session import Session, operation

T = TypeVar("T", Volume, Interface, Address, Snapshot, SpotRequest)


def listed(
    session: Session, params: Mapping[str, Any], things: Sequence[T],
    getters: Mapping[str, Callable[[T], Iterable[str]]], most: int = 1000,
) -> tuple[list[T], str | None]:  # fmt: skip
    """A page of what passes the request's filters, and the token of the next."""
    size = filters.page_size(params, 5, most, 0)
    page = filters.page_of(session.operation, params)
    session.check_page(page.number)
    passes = filters.chosen(session.operation, params.get("Filters", []), getters, lambda thing: thing.tags.items)
    passing = [(number, thing) for number, thing in enumerate(things) if number > page.after and passes(thing)]
    token = None
    if len(passing) > size:
        token = filters.token_after(session.operation, params, page, passing[size - 1][0])
    return [thing for _, thing in passing[:size]], token


def _wanted(found: dict[str, T], ids: list[str] | None, code: str, what: str) -> list[T]:
    if not ids:
        return list(found.values())
    for identity in ids:
        if identity not in found:
            raise AwsError(code, f"The {what} '{identity}' does not exist.")
    return [found[identity] for identity in ids]


# disks


_VOLUME_FILTERS: Mapping[str, Callable[[Volume], Iterable[str]]] = {
    "volume-id": lambda volume: (volume.id,),
    "status": lambda volume: ("in-use" if volume.instance else "available",),
    "availability-zone": lambda volume: (volume.zone,),
    "attachment.instance-id": lambda volume: (volume.instance,) if volume.instance else (),
    "volume-type": lambda volume: (volume.type,),
    "encrypted": lambda volume: ("true" if volume.encrypted else "false",),
    "size": lambda volume: (str(volume.size_gb),),
}


@operation("ec2", "DescribeVolumes", "VolumeIds", "Filters", "NextToken", "MaxResults")
def describe_volumes(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeVolumes."""
    things = _wanted(session.region.volumes, params.get("VolumeIds"), "InvalidVolume.NotFound", "volume")
    found, token = listed(session, params, things, _VOLUME_FILTERS)
    return {"Volumes": [_volume(volume) for volume in found], "NextToken": token}


def _volume(volume: Volume) -> dict[str, Any]:
    attachment = {
        "VolumeId": volume.id,
        "InstanceId": volume.instance,
        "Device": volume.device,
        "State": "attached",
        "AttachTime": moment(volume.made_ms),
        "DeleteOnTermination": volume.dies_with_instance,
    }
    return {
        "VolumeId": volume.id,
        "AvailabilityZone": volume.zone,
        "State": "in-use" if volume.instance else "available",
        "Size": volume.size_gb,
        "VolumeType": volume.type,
        "Encrypted": volume.encrypted,
        "KmsKeyId": volume.kms_key,
        "Iops": volume.iops,
        "Throughput": volume.throughput,
        "SnapshotId": volume.snapshot,
        "CreateTime": moment(volume.made_ms),
        "Attachments": [attachment] if volume.instance else [],
        "Tags": volume.tags.members or None,
    }


@operation("ec2", "DeleteVolume", "VolumeId")
def delete_volume(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DeleteVolume."""
    (volume,) = _wanted(session.region.volumes, [params["VolumeId"]], "InvalidVolume.NotFound", "volume")
    if volume.instance:
        raise AwsError("VolumeInUse", f"Volume {volume.id} is currently attached to {volume.instance}")
    del session.region.volumes[volume.id]
    return {}


_SNAPSHOT_FILTERS: Mapping[str, Callable[[Snapshot], Iterable[str]]] = {
    "snapshot-id": lambda snapshot: (snapshot.id,),
    "volume-id": lambda snapshot: (snapshot.volume,),
}


@operation("ec2", "DescribeSnapshots", "SnapshotIds", "OwnerIds", "Filters", "NextToken", "MaxResults")
def describe_snapshots(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeSnapshots. There are none but the account's own."""
    if params.get("OwnerIds", ["self"]) != ["self"]:
        raise Unmodelled("snapshots of others")
    things = _wanted(session.region.snapshots, params.get("SnapshotIds"), "InvalidSnapshot.NotFound", "snapshot")
    found, token = listed(session, params, things, _SNAPSHOT_FILTERS)
    return {
        "Snapshots": [
            {
                "SnapshotId": one.id,
                "VolumeId": one.volume,
                "VolumeSize": one.size_gb,
                "State": "completed",
                "OwnerId": session.region.account,
                "StartTime": moment(one.made_ms),
                "Tags": one.tags.members or None,
            }
            for one in found
        ],
        "NextToken": token,
    }


@operation("ec2", "DeleteSnapshot", "SnapshotId")
def delete_snapshot(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DeleteSnapshot."""
    (snapshot,) = _wanted(session.region.snapshots, [params["SnapshotId"]], "InvalidSnapshot.NotFound", "snapshot")
    del session.region.snapshots[snapshot.id]
    return {}


# interfaces and addresses


_INTERFACE_FILTERS: Mapping[str, Callable[[Interface], Iterable[str]]] = {
    "network-interface-id": lambda interface: (interface.id,),
    "status": lambda interface: ("in-use" if interface.instance else "available",),
    "availability-zone": lambda interface: (interface.zone,),
    "subnet-id": lambda interface: (interface.subnet,),
    "attachment.instance-id": lambda interface: (interface.instance,) if interface.instance else (),
    "private-ip-address": lambda interface: (interface.address,),
}


@operation("ec2", "DescribeNetworkInterfaces", "NetworkInterfaceIds", "Filters", "NextToken", "MaxResults")
def describe_interfaces(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeNetworkInterfaces."""
    code = "InvalidNetworkInterfaceID.NotFound"
    things = _wanted(session.region.interfaces, params.get("NetworkInterfaceIds"), code, "networkInterface ID")
    found, token = listed(session, params, things, _INTERFACE_FILTERS)
    return {"NetworkInterfaces": [_interface(session.region, one) for one in found], "NextToken": token}


def _interface(region: Region, interface: Interface) -> dict[str, Any]:
    attachment = {
        "AttachmentId": f"eni-attach-{interface.id.removeprefix('eni-')}",
        "InstanceId": interface.instance,
        "DeviceIndex": 0,
        "Status": "attached",
        "AttachTime": moment(interface.made_ms),
        "DeleteOnTermination": interface.dies_with_instance,
    }
    return {
        "NetworkInterfaceId": interface.id,
        "AvailabilityZone": interface.zone,
        "SubnetId": interface.subnet,
        "VpcId": region.vpc,
        "OwnerId": region.account,
        "Description": interface.description,
        "InterfaceType": "interface",
        "Status": "in-use" if interface.instance else "available",
        "PrivateIpAddress": interface.address,
        "RequesterManaged": False,
        "SourceDestCheck": True,
        "Groups": [{"GroupId": group, "GroupName": region.groups[group].name} for group in interface.groups],
        "Attachment": attachment if interface.instance else None,
        "TagSet": interface.tags.members,
    }


@operation("ec2", "DeleteNetworkInterface", "NetworkInterfaceId")
def delete_interface(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DeleteNetworkInterface."""
    code = "InvalidNetworkInterfaceID.NotFound"
    (interface,) = _wanted(session.region.interfaces, [params["NetworkInterfaceId"]], code, "networkInterface ID")
    if interface.instance:
        raise AwsError("InvalidParameterValue", f"Network interface '{interface.id}' is currently in use.")
    del session.region.interfaces[interface.id]
    return {}


_ADDRESS_FILTERS: Mapping[str, Callable[[Address], Iterable[str]]] = {
    "allocation-id": lambda address: (address.allocation,),
    "public-ip": lambda address: (address.public,),
    "instance-id": lambda address: (address.instance,) if address.instance else (),
}


@operation("ec2", "DescribeAddresses", "AllocationIds", "Filters")
def describe_addresses(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeAddresses."""
    code = "InvalidAllocationID.NotFound"
    things = _wanted(session.region.addresses, params.get("AllocationIds"), code, "allocation ID")
    found, _ = listed(session, params, things, _ADDRESS_FILTERS)
    return {
        "Addresses": [
            {
                "AllocationId": address.allocation,
                "PublicIp": address.public,
                "Domain": "vpc",
                "InstanceId": address.instance or None,
                "AssociationId": f"eipassoc-{address.allocation[9:]}" if address.instance else None,
                "Tags": address.tags.members or None,
            }
            for address in found
        ]
    }


@operation("ec2", "ReleaseAddress", "AllocationId")
def release_address(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """ReleaseAddress."""
    code = "InvalidAllocationID.NotFound"
    (address,) = _wanted(session.region.addresses, [params.get("AllocationId", "")], code, "allocation ID")
    if address.instance:
        raise AwsError("InvalidIPAddress.InUse", f"{address.public} is in use")
    del session.region.addresses[address.allocation]
    return {}


# spot requests


_SPOT_FILTERS: Mapping[str, Callable[[SpotRequest], Iterable[str]]] = {
    "spot-instance-request-id": lambda request: (request.id,),
    "instance-id": lambda request: (request.instance,),
    "state": lambda request: (request.state,),
    "status-code": lambda request: (request.status,),
    "launched-availability-zone": lambda request: (request.zone,),
}


@operation("ec2", "DescribeSpotInstanceRequests", "SpotInstanceRequestIds", "Filters", "NextToken", "MaxResults")
def describe_spot(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeSpotInstanceRequests."""
    code = "InvalidSpotInstanceRequestID.NotFound"
    wanted = params.get("SpotInstanceRequestIds")
    things = _wanted(session.region.spot_requests, wanted, code, "spot instance request ID")
    found, token = listed(session, params, things, _SPOT_FILTERS)
    return {"SpotInstanceRequests": [_spot(session, request) for request in found], "NextToken": token}


def _spot(session: Session, request: SpotRequest) -> dict[str, Any]:
    return {
        "SpotInstanceRequestId": request.id,
        "SpotPrice": request.price,
        "Type": "one-time",
        "State": request.state,
        "Status": {"Code": request.status, "Message": request.message, "UpdateTime": moment(session.now)},
        "InstanceId": request.instance,
        "CreateTime": moment(request.made_ms),
        "LaunchedAvailabilityZone": request.zone,
        "ProductDescription": "Linux/UNIX",
        "InstanceInterruptionBehavior": "terminate",
        "LaunchSpecification": {"InstanceType": request.type_name, "ImageId": request.image},
        "Tags": request.tags.members or None,
    }


@operation("ec2", "CancelSpotInstanceRequests", "SpotInstanceRequestIds")
def cancel_spot(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """CancelSpotInstanceRequests. The instance behind an active request goes on running."""
    code = "InvalidSpotInstanceRequestID.NotFound"
    requests = _wanted(session.region.spot_requests, params["SpotInstanceRequestIds"], code, "spot instance request ID")
    for request in requests:
        if request.state in ("open", "active"):
            alive = session.region.instances[request.instance].state in (State.PENDING, State.RUNNING)
            request.state = "cancelled"
            request.status = "request-canceled-and-instance-running" if alive else "canceled-before-fulfillment"
    told = [{"SpotInstanceRequestId": request.id, "State": request.state} for request in requests]
    return {"CancelledSpotInstanceRequests": told}
