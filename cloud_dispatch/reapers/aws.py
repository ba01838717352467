"""The reaper of an AWS account: a Lambda function that EventBridge calls every minute. Owns what it asks of EC2.

`DEPLOYMENT` names the deployment, `REGIONS` the regions that are looked at (with commas; empty: the function's own).
Its role may describe instances, and end those that carry the deployment's tag. boto3 is Lambda's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.reaper import Tagged
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.reapers.rounds import EVERYTHING, end_all, look_at_all

_LIVING = ("pending", "running", "stopping", "stopped", "shutting-down")
#: EC2 takes a thousand; of those that it refuses together each is asked for alone.
_AT_ONCE = 100
_GONE = "InvalidInstanceID.NotFound"


class Ec2:
    """The instances of one region. `living`: in these states."""

    def __init__(self, client: Any, deployment: str, living: Sequence[str] = _LIVING[:-1]) -> None:
        self._ec2 = client
        self._filters = [
            {"Name": f"tag:{DEPLOYMENT}", "Values": [deployment]},
            {"Name": "instance-state-name", "Values": list(living)},
        ]

    def vms(self) -> Iterator[Tagged]:
        for page in self._ec2.get_paginator("describe_instances").paginate(Filters=self._filters):
            for reservation in page["Reservations"]:
                for vm in reservation["Instances"]:
                    yield VmId(vm["InstanceId"]), {tag["Key"]: tag["Value"] for tag in vm.get("Tags", ())}

    def end(self, vms: Sequence[VmId]) -> Mapping[VmId, str]:
        failed: dict[VmId, str] = {}
        for first in range(0, len(vms), _AT_ONCE):
            part = vms[first : first + _AT_ONCE]
            if self._refused(part):
                failed |= {vm: why for vm in part if (why := self._refused([vm])) and (why := self._unprotected(vm))}
        return failed

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
        clouds = {region: Ec2(client, deployment, _LIVING) for region, client in clients.items()}
        return end_all(clouds, _now, deployment, lambda: context.get_remaining_time_in_millis() / 1000, time.sleep)
    return look_at_all({region: Ec2(client, deployment) for region, client in clients.items()}, _now, deployment)


def _now() -> int:
    return time.time_ns() // 1_000_000
