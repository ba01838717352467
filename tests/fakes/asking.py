"""Words that the tests of the fake EC2 share."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.fakes.ec2.settings import KEY, REGION

VERSION = "2016-11-15"
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


def posted(url: str, **fields: str) -> str:
    """The answer to a signed request that no SDK made or parses."""
    body = urlencode({"Version": VERSION, **{name: value for name, value in fields.items() if value}}).encode()
    request = AWSRequest("POST", f"{url}/", data=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    SigV4Auth(Credentials(KEY.id, KEY.secret), "ec2", REGION).add_auth(request)
    with urlopen(Request(f"{url}/", body, dict(request.headers)), timeout=60) as answer:
        text: str = answer.read().decode()
    return text
