"""What the fault engine does to calls of the fake EC2, as boto3 sees it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from tests.fakes.asking import IMAGE, launch, listed, refusal, states
from tests.fakes.ec2 import FakeEc2
from tests.fakes.faults import Fault, FaultKind, Market

GOOD: dict[str, Any] = {"ImageId": IMAGE, "InstanceType": "m6i.large", "MinCount": 1, "MaxCount": 1}


def test_a_refused_call_does_nothing(aws: FakeEc2, ec2: Any) -> None:
    """And only calls in the fault's scope are refused."""
    fault = {"operation": "RunInstances", "zone": "us-east-1a", "market": Market.SPOT}
    aws.add_faults(Fault(FaultKind.ERROR, code="RequestLimitExceeded", **fault))
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    here = {"Placement": {"AvailabilityZone": "us-east-1a"}}
    assert refusal(ec2.run_instances, **GOOD, **spot, **here) == "RequestLimitExceeded"
    assert aws.all_instances() == []
    launch(ec2, **here)
    launch(ec2, **spot)
    aws.clear_faults()
    launch(ec2, **spot, **here)


def test_a_launch_can_be_carried_out_and_its_answer_lost(aws: FakeEc2, ec2: Any) -> None:
    """The instance exists and the caller never hears; the same token finds it."""
    aws.add_faults(Fault(FaultKind.LOST_ANSWER, operation="RunInstances", times=1))
    with pytest.raises(ConnectionClosedError):
        ec2.run_instances(**GOOD, ClientToken="b")
    assert len(aws.all_instances()) == 1
    (vm,) = launch(ec2, ClientToken="b")
    assert [vm["InstanceId"]] == [known.id for known in aws.all_instances()]


def test_a_launch_can_be_carried_out_and_answered_with_an_error(aws: FakeEc2, ec2: Any) -> None:
    """An error of the server's is no proof that nothing was done."""
    aws.add_faults(Fault(FaultKind.LOST_ANSWER, operation="RunInstances", code="InternalError", times=1))
    assert refusal(ec2.run_instances, **GOOD, ClientToken="b") == "InternalError"
    launch(ec2, ClientToken="b")
    assert len(aws.all_instances()) == 1


def test_a_call_may_never_be_answered(aws: FakeEc2) -> None:
    """Carried out, and the caller waits until its own patience ends."""
    aws.add_faults(Fault(FaultKind.NO_ANSWER, operation="RunInstances"))
    with pytest.raises(ReadTimeoutError):
        aws.client(config=Config(read_timeout=0.2)).run_instances(**GOOD)
    assert len(aws.all_instances()) == 1


def test_an_answer_may_be_late(aws: FakeEc2, ec2: Any) -> None:
    """In real time, whatever clock the fake has."""
    aws.add_faults(Fault(FaultKind.SLOW, operation="DescribeInstances", amount=80, times=1))
    began = time.monotonic()
    listed(ec2)
    assert time.monotonic() - began >= 0.08


def test_a_launch_may_fail_after_it_was_accepted(aws: FakeEc2, ec2: Any) -> None:
    """It goes from pending to terminated, never runs and costs nothing."""
    code = "Server.InsufficientInstanceCapacity"
    aws.add_faults(Fault(FaultKind.ASYNC_FAILURE, code=code, skip=1, times=1))
    launch(ec2, 3)
    aws.advance(20)
    assert states(ec2) == ["running", "terminated", "running"]
    assert listed(ec2)[1]["StateReason"]["Code"] == code
    assert len(aws.bill()) == 2
    assert len(ec2.describe_volumes()["Volumes"]) == 2


def test_an_instance_may_never_start_or_start_late(aws: FakeEc2, ec2: Any) -> None:
    """Pending for ever, and pending for longer."""
    aws.add_faults(Fault(FaultKind.NEVER_STARTS, times=1), Fault(FaultKind.LATE, amount=100, times=1))
    launch(ec2, 3)
    aws.advance(20)
    assert states(ec2) == ["pending", "pending", "running"]
    aws.advance(100)
    assert states(ec2) == ["pending", "running", "running"]
    aws.advance(1_000_000)
    assert states(ec2) == ["pending", "running", "running"]


def test_a_listing_may_show_the_world_of_some_time_ago(aws: FakeEc2, ec2: Any) -> None:
    """States, tags and what was not there then."""
    (old,) = launch(ec2)
    aws.advance(10_000)
    launch(ec2)
    ec2.terminate_instances(InstanceIds=[old["InstanceId"]])
    ec2.create_tags(Resources=[old["InstanceId"]], Tags=[{"Key": "late", "Value": ""}])
    aws.advance(1_000)
    aws.add_faults(Fault(FaultKind.STALE, operation="DescribeInstances", amount=2_000, times=1))
    (seen,) = listed(ec2)
    assert (seen["State"]["Name"], "Tags" in seen) == ("running", False)
    assert states(ec2) == ["terminated", "running"]


def test_a_listing_may_break_off(aws: FakeEc2, ec2: Any) -> None:
    """The first page comes, the next does not: the listing is incomplete, and no caller may take it for whole."""
    launch(ec2, 12)
    aws.add_faults(Fault(FaultKind.INCOMPLETE, operation="DescribeInstances", amount=1, code="Unavailable", times=1))
    pages = iter(ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
    next(pages)
    assert refusal(lambda: next(pages)) == "Unavailable"
    assert len(listed(ec2, PaginationConfig={"PageSize": 5})) == 12


def test_spot_prices_may_rise(aws: FakeEc2, ec2: Any) -> None:
    """The history shows it, and a lower maximum is refused."""
    aws.add_faults(Fault(FaultKind.PRICE, type="m6i.large", zone="us-east-1a", amount=90_000_000))
    history = ec2.describe_spot_price_history(InstanceTypes=["m6i.large"], AvailabilityZone="us-east-1a")
    assert [price["SpotPrice"] for price in history["SpotPriceHistory"]] == ["0.090000"]
    spot = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.08"}}}
    here = {"Placement": {"AvailabilityZone": "us-east-1a"}}
    assert refusal(ec2.run_instances, **GOOD, **spot, **here) == "SpotMaxPriceTooLow"
    (elsewhere,) = launch(ec2, **spot)
    assert elsewhere["Placement"]["AvailabilityZone"] != "us-east-1a"


def test_quotas_may_shrink(aws: FakeEc2, ec2: Any) -> None:
    """For one class of families on one market."""
    aws.add_faults(Fault(FaultKind.QUOTA, type="c6i.large", market=Market.ON_DEMAND, amount=2))
    launch(ec2)
    assert refusal(ec2.run_instances, **GOOD) == "VcpuLimitExceeded"
    launch(ec2, InstanceMarketOptions={"MarketType": "spot"})


@pytest.mark.parametrize(("code", "left"), [("volume", ["vol"]), ("network-interface", ["eni"]), ("", ["vol", "eni"])])
def test_what_came_with_an_instance_may_stay_behind(aws: FakeEc2, ec2: Any, code: str, left: list[str]) -> None:
    """Although it should have gone with it."""
    aws.add_faults(Fault(FaultKind.LEFTOVER, code=code, times=1))
    ids = [vm["InstanceId"] for vm in launch(ec2, 2)]
    ec2.terminate_instances(InstanceIds=ids)
    aws.advance(20)
    assert [identity.partition("-")[0] for identity in aws.leftovers()] == left
