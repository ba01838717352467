"""The reaper of an AWS account: a Lambda function that EventBridge calls every minute. Owns what it asks of EC2.

`DEPLOYMENT` names the deployment, `REGIONS` the regions that are looked at (with commas; empty: the function's own).
Its role may list, and end what carries the deployment's tag. Where everything is to go, that is also what has outlived
its VM: disks, interfaces and addresses that nobody uses, and snapshots unless `KEEP_SNAPSHOTS` says yes. `SIGN` names
the parameter of Systems Manager that its sign of life goes into, in each of these regions; empty: it leaves none. boto3
is Lambda's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.reaper import Tagged
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.reapers.rounds import EVERYTHING, Leave, end_all, look_at_all

_LIVING = ("pending", "running", "stopping", "stopped", "shutting-down")
#: EC2 takes a thousand; of those that it refuses together each is asked for alone.
_AT_ONCE = 100
_GONE = "InvalidInstanceID.NotFound"


@dataclass(frozen=True)
class Rest:
    """A kind of thing that may outlive VMs. `state`: its filter for what nobody uses; `used`: what one in use has."""

    listing: str
    things: str
    key: str
    deletion: str
    gone: str
    state: str = ""
    used: str = ""
    tags: str = "Tags"


#: By how their ids begin, in the order in which they go.
_REST = {
    "vol-": Rest("describe_volumes", "Volumes", "VolumeId", "delete_volume", "InvalidVolume.NotFound", state="status"),
    "eni-": Rest(
        "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId", "delete_network_interface",
        "InvalidNetworkInterfaceID.NotFound", state="status", tags="TagSet",
    ),
    "eipalloc-": Rest(
        "describe_addresses", "Addresses", "AllocationId", "release_address", "InvalidAllocationID.NotFound",
        used="AssociationId",
    ),
}  # fmt: skip
_SNAPSHOTS = Rest("describe_snapshots", "Snapshots", "SnapshotId", "delete_snapshot", "InvalidSnapshot.NotFound")


class Ec2:
    """The instances of one region; with `everything` those that are on their way out too, and once there is none the
    rest, as far as nobody uses it."""

    def __init__(self, client: Any, deployment: str, *, everything: bool = False, snapshots: bool = False) -> None:
        self._ec2 = client
        self._mine = [{"Name": f"tag:{DEPLOYMENT}", "Values": [deployment]}]
        self._living = list(_LIVING if everything else _LIVING[:-1])
        self._rest = {**_REST, **({"snap-": _SNAPSHOTS} if snapshots else {})} if everything else {}

    def vms(self) -> Iterator[Tagged]:
        found = False
        for vm in self._described([*self._mine, {"Name": "instance-state-name", "Values": self._living}]):
            found = True
            yield vm
        if not found:
            for kind in self._rest.values():
                yield from self._idle(kind)

    def _described(self, filters: Sequence[Mapping[str, Any]]) -> Iterator[Tagged]:
        for page in self._ec2.get_paginator("describe_instances").paginate(Filters=filters):
            for reservation in page["Reservations"]:
                for vm in reservation["Instances"]:
                    yield VmId(vm["InstanceId"]), _worn(vm.get("Tags", ()))

    def _idle(self, kind: Rest) -> Iterator[Tagged]:
        filters = [*self._mine, *([{"Name": kind.state, "Values": ["available"]}] if kind.state else ())]
        owned = {"OwnerIds": ["self"]} if kind is _SNAPSHOTS else {}
        pages = self._ec2.get_paginator(kind.listing) if self._ec2.can_paginate(kind.listing) else None
        asked = pages.paginate if pages else lambda **more: [getattr(self._ec2, kind.listing)(**more)]
        for page in asked(Filters=filters, **owned):
            for one in page[kind.things]:
                if not (kind.used and one.get(kind.used)):
                    yield VmId(one[kind.key]), _worn(one.get(kind.tags, ()))

    def end(self, vms: Sequence[VmId]) -> Mapping[VmId, str]:
        failed: dict[VmId, str] = {}
        rest = [one for one in vms if not one.startswith("i-")]
        vms = [one for one in vms if one.startswith("i-")]
        for first in range(0, len(vms), _AT_ONCE):
            part = vms[first : first + _AT_ONCE]
            if self._refused(part):
                failed |= {vm: why for vm in part if (why := self._refused([vm])) and (why := self._unprotected(vm))}
        there = self._there(list(failed))
        failed = {vm: why for vm, why in failed.items() if vm in there}
        return failed | {one: why for one in rest if (why := self._kept(one))}

    def _there(self, vms: Sequence[VmId]) -> Set[VmId]:
        """Those of them that a look does not show to be gone. The role's rights hang on tags, of which an instance that
        is gone has none to match: it is refused, and not said to be missing."""
        found: set[VmId] = set()
        for first in range(0, len(vms), _AT_ONCE):
            part = list(vms[first : first + _AT_ONCE])
            wanted = [{"Name": "instance-id", "Values": part}, {"Name": "instance-state-name", "Values": [*_LIVING]}]
            try:
                found.update(vm for vm, _ in self._described(wanted))
            except self._ec2.exceptions.ClientError:
                found.update(part)
        return found

    def _kept(self, thing: VmId) -> str:
        """Why it is not deleted, "" where it is."""
        kind = self._rest[thing[: thing.index("-") + 1]]
        try:
            getattr(self._ec2, kind.deletion)(**{kind.key: thing})
        except self._ec2.exceptions.ClientError as error:
            return "" if error.response["Error"]["Code"] == kind.gone else str(error)
        return ""

    def _refused(self, vms: Sequence[VmId]) -> str:
        """Why not all of them end, "" where they do."""
        try:
            self._ec2.terminate_instances(InstanceIds=list(vms))
        except self._ec2.exceptions.ClientError as error:
            return "" if len(vms) == 1 and error.response["Error"]["Code"] == _GONE else str(error)
        return ""

    def _unprotected(self, vm: VmId) -> str:
        """Why it does not end without its termination protection either."""
        try:
            self._ec2.modify_instance_attribute(InstanceId=vm, DisableApiTermination={"Value": False})
        except self._ec2.exceptions.ClientError as error:
            return str(error)
        return self._refused([vm])


def handler(event: Mapping[str, Any], context: Any) -> list[dict[str, Any]]:
    """What Lambda calls. Terraform calls it too, with what it is about to do to the function: a function that is
    destroyed ends everything of the deployment first."""
    import boto3  # Lambda's own; where this module is packaged there need not be any

    deployment, regions = os.environ["DEPLOYMENT"], os.environ.get("REGIONS") or os.environ["AWS_REGION"]
    clients = {name.strip(): boto3.client("ec2", region_name=name.strip()) for name in regions.split(",")}
    if event.get(EVERYTHING) is True or event.get("tf", {}).get("action") == "delete":
        snapshots = not os.environ.get("KEEP_SNAPSHOTS")
        clouds = {
            region: Ec2(client, deployment, everything=True, snapshots=snapshots) for region, client in clients.items()
        }
        return end_all(clouds, _now, deployment, lambda: context.get_remaining_time_in_millis() / 1000, time.sleep)
    clouds = {region: Ec2(client, deployment) for region, client in clients.items()}
    return look_at_all(clouds, _now, deployment, leave=_leaves(list(clouds)))


def _leaves(regions: Sequence[str]) -> Leave | None:
    """What puts a sign of life into the parameter of each region."""
    import boto3

    name = os.environ.get("SIGN")

    def leave(text: str) -> None:
        for region in regions:
            put = boto3.client("ssm", region_name=region).put_parameter
            put(Name=name, Value=text, Type="String", Overwrite=True)

    return leave if name else None


def _worn(tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags}


def _now() -> int:
    return time.time_ns() // 1_000_000
