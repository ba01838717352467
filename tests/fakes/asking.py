"""Words that the tests of the fake EC2 share."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

IMAGE = "ami-0a1b2c3d4e5f60001"


def launch(ec2: Any, count: int = 1, **more: Any) -> list[dict[str, Any]]:
    """Launch so many of a common type; what came is told."""
    asked = {"ImageId": IMAGE, "InstanceType": "m6i.large", "MinCount": count, "MaxCount": count, **more}
    instances: list[dict[str, Any]] = ec2.run_instances(**asked)["Instances"]
    return instances


def listed(ec2: Any, **more: Any) -> list[dict[str, Any]]:
    """All instances that a listing of all pages shows."""
    pages = ec2.get_paginator("describe_instances").paginate(**more)
    return [vm for page in pages for reservation in page["Reservations"] for vm in reservation["Instances"]]


def states(ec2: Any) -> list[str]:
    """The states that a listing shows, in the order of launches."""
    return [vm["State"]["Name"] for vm in listed(ec2)]


def refusal(call: Any, **parameters: Any) -> str:
    """The code with which a call is refused."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    code: str = caught.value.response["Error"]["Code"]
    return code
