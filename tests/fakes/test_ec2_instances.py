"""Instances of the fake EC2, through boto3: how they begin, are seen and end."""

from __future__ import annotations

from typing import Any

from tests.fakes.asking import launch, listed, states
from tests.fakes.ec2 import FakeEc2


def test_an_instance_lives_from_pending_to_forgotten(aws: FakeEc2, ec2: Any) -> None:
    """The states follow each other by the fake's clock; a terminated one is shown for an hour."""
    (vm,) = launch(ec2)
    assert vm["State"]["Name"] == "pending"
    assert states(ec2) == ["pending"]
    aws.advance(20)
    assert states(ec2) == ["running"]
    (change,) = ec2.terminate_instances(InstanceIds=[vm["InstanceId"]])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    aws.advance(20)
    (gone,) = listed(ec2)
    assert gone["State"]["Name"] == "terminated"
    assert gone["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert gone["BlockDeviceMappings"] == gone["NetworkInterfaces"] == []
    aws.advance(3_600_000)
    assert listed(ec2) == []
    assert aws.leftovers() == []
