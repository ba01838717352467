"""The reaper of an AWS account as Lambda runs it: its handler, boto3, and a fake EC2 over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from cloud_dispatch.domain.ids import BatchId, PoolName
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.reapers import aws
from cloud_dispatch.reapers.rounds import Unfinished
from tests.fakes.asking import launch
from tests.fakes.ec2.fake import FakeEc2
from tests.fakes.ec2.settings import Settings


class Context:
    """What Lambda says of a call: so many milliseconds are left."""

    def __init__(self, left_ms: int = 60_000) -> None:
        self._left_ms = left_ms

    def get_remaining_time_in_millis(self) -> int:
        return self._left_ms


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEc2]:
    with FakeEc2(Settings(types=("m5.large",))) as made:
        key = made.client("ec2")._request_signer._credentials
        for name, value in {
            "DEPLOYMENT": "lab", "AWS_REGION": made.client("ec2").meta.region_name, "AWS_ENDPOINT_URL": made.url,
            "AWS_ACCESS_KEY_ID": key.access_key, "AWS_SECRET_ACCESS_KEY": key.secret_key,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        monkeypatch.setattr("cloud_dispatch.reapers.rounds.PAUSE_S", 0.05)
        yield made


def vm(fake: FakeEc2, ends_ms: int, deployment: str = "lab") -> str:
    worn = VmTags(deployment, "store", PoolName("p"), BatchId("b"), 5, ends_ms).encode()
    tags = [{"Key": key, "Value": value} for key, value in worn.items()]
    (made,) = launch(
        fake.client(), InstanceType="m5.large", TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]
    )
    return str(made["InstanceId"])


def living(fake: FakeEc2) -> set[str]:
    pages = fake.client().get_paginator("describe_instances").paginate()
    every = [one for page in pages for part in page["Reservations"] for one in part["Instances"]]
    return {one["InstanceId"] for one in every if one["State"]["Name"] not in ("terminated", "shutting-down")}


def test_a_call_ends_what_is_past_its_end_protected_or_not(fake: FakeEc2) -> None:
    now = fake.clock.now()
    late, protected, early, other = vm(fake, 5), vm(fake, 5), vm(fake, now + 3_600_000), vm(fake, 5, "other")
    fake.client().modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": True})
    (told,) = aws.handler({"source": "aws.events"}, Context())
    assert set(told["ended"]) == {late, protected}
    assert living(fake) == {early, other}


def test_terraforms_destroy_ends_the_deployment_and_waits_for_it(fake: FakeEc2) -> None:
    """Its creation is a round as any other."""
    now = fake.clock.now()
    mine, other = vm(fake, now + 3_600_000), vm(fake, now + 3_600_000, "other")
    aws.handler({"tf": {"action": "create"}}, Context())
    assert living(fake) == {mine, other}
    aws.handler({"tf": {"action": "delete"}}, Context())
    assert living(fake) == {other}


def test_a_right_that_is_missing_fails_the_call(fake: FakeEc2) -> None:
    """So that the alarm of the function is heard; the VM is named."""
    late = vm(fake, 5)
    fake.denied.add("ec2:TerminateInstances")
    with pytest.raises(Unfinished, match=late):
        aws.handler({}, Context())
    assert living(fake) == {late}


def test_a_region_that_does_not_answer_keeps_no_other_from_its_end(
    fake: FakeEc2, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = vm(fake, 5)
    monkeypatch.setenv("REGIONS", f"nowhere-1, {aws.os.environ['AWS_REGION']}")
    with pytest.raises(Unfinished, match="nowhere-1"):
        aws.handler({}, Context())
    assert late not in living(fake)
