"""Instances of the fake EC2, through boto3: how they begin, are seen, are tagged and end."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.fakes.asking import IMAGE, launch, listed, posted, refusal, states
from tests.fakes.clock import SetClock
from tests.fakes.ec2 import FakeEc2, Hooks, Settings
from tests.fakes.ec2.cloud import BillLine
from tests.fakes.ec2.launch import run_instances

SPOT = {"MarketType": "spot"}


def _ids(instances: list[dict[str, Any]]) -> list[str]:
    return [vm["InstanceId"] for vm in instances]


def _tagged(**tags: str) -> dict[str, Any]:
    items = [{"Key": key, "Value": value} for key, value in tags.items()]
    return {"TagSpecifications": [{"ResourceType": "instance", "Tags": items}]}


def _where(name: str, *values: str) -> dict[str, Any]:
    return {"Filters": [{"Name": name, "Values": list(values)}]}


# how they begin and end


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
    assert ec2.terminate_instances(InstanceIds=[vm["InstanceId"]])["TerminatingInstances"]
    aws.advance(3_600_000)
    assert listed(ec2) == []
    assert refusal(ec2.terminate_instances, InstanceIds=[vm["InstanceId"]]) == "InvalidInstanceID.NotFound"
    assert aws.leftovers() == []


def test_termination_knows_all_its_instances_or_does_nothing(aws: FakeEc2, ec2: Any) -> None:
    """One id that is not there saves the others."""
    (vm,) = launch(ec2)
    wrong = {"i-0123456789abcdef0": "InvalidInstanceID.NotFound", "vm-1": "InvalidInstanceID.Malformed"}
    for identity, code in wrong.items():
        assert refusal(ec2.terminate_instances, InstanceIds=[vm["InstanceId"], identity]) == code
    assert states(ec2) == ["pending"]


def test_termination_protection_saves_the_whole_zone(aws: FakeEc2, ec2: Any) -> None:
    """EC2 then ends those of other zones, and answers with an error all the same."""
    kept, beside = _ids(launch(ec2, 2, Placement={"AvailabilityZone": "us-east-1a"}))
    (other,) = _ids(launch(ec2, Placement={"AvailabilityZone": "us-east-1b"}))
    ec2.modify_instance_attribute(InstanceId=kept, DisableApiTermination={"Value": True})
    everything = [kept, beside, other]
    assert refusal(ec2.terminate_instances, InstanceIds=everything) == "OperationNotPermitted"
    assert states(ec2) == ["pending", "pending", "shutting-down"]
    told = ec2.describe_instance_attribute(InstanceId=kept, Attribute="disableApiTermination")
    assert told["DisableApiTermination"]["Value"] is True
    ec2.modify_instance_attribute(InstanceId=kept, DisableApiTermination={"Value": False})
    ec2.terminate_instances(InstanceIds=everything)
    assert states(ec2) == ["shutting-down"] * 3


@pytest.mark.parametrize(("behaviour", "state"), [("terminate", "shutting-down"), ("stop", "stopped")])
def test_a_guest_that_shuts_down_does_what_was_set(aws: FakeEc2, ec2: Any, behaviour: str, state: str) -> None:
    """Stopped or terminated, by the shutdown behaviour."""
    (vm,) = launch(ec2, InstanceInitiatedShutdownBehavior=behaviour)
    aws.advance(20)
    aws.guest_shutdown(vm["InstanceId"])
    (found,) = listed(ec2)
    assert found["State"]["Name"] == state
    assert found["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_a_spot_instance_is_taken_back_after_its_notice(aws: FakeEc2, ec2: Any) -> None:
    """First the notice, and two minutes later the end, with the reason that EC2 gives."""
    (vm,) = launch(ec2, InstanceMarketOptions=SPOT)
    aws.advance(20)
    aws.interrupt(vm["InstanceId"])
    (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (request["State"], request["Status"]["Code"]) == ("active", "marked-for-termination")
    notice = aws.instance(vm["InstanceId"]).notice
    assert notice is not None
    assert notice.at_ms == aws.clock.now() + 120_000
    aws.advance(119_999)
    assert states(ec2) == ["running"]
    aws.advance(1)
    (taken,) = listed(ec2)
    assert taken["State"]["Name"] == "shutting-down"
    assert taken["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (request["State"], request["Status"]["Code"]) == ("closed", "instance-terminated-no-capacity")
    with pytest.raises(ValueError, match="no living spot"):
        aws.interrupt(vm["InstanceId"])


def test_a_replacement_is_recommended_and_a_host_fails(aws: FakeEc2, ec2: Any) -> None:
    """The former is said in the metadata alone, the latter ends the instance."""
    heard: list[int] = []
    aws.hooks = Hooks(on_notice=lambda vm: heard.append(vm.rebalance_ms))
    (vm,) = _ids(launch(ec2, InstanceMarketOptions=SPOT))
    aws.advance(20)
    aws.rebalance(vm)
    assert (heard, states(ec2)) == ([aws.clock.now()], ["running"])
    aws.kill(vm)
    assert listed(ec2)[0]["StateReason"]["Code"] == "Server.InternalError"


def test_cancelling_a_spot_request_leaves_its_instance(aws: FakeEc2, ec2: Any) -> None:
    """A trap of EC2's: the instance runs on, and has to be terminated."""
    (vm,) = launch(ec2, InstanceMarketOptions=SPOT)
    aws.advance(20)
    request = vm["SpotInstanceRequestId"]
    (cancelled,) = ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request])["CancelledSpotInstanceRequests"]
    assert cancelled["State"] == "cancelled"
    assert states(ec2) == ["running"]


def test_hooks_hear_of_starts_notices_and_ends(aws: FakeEc2, ec2: Any) -> None:
    """Whoever runs user data hangs on here; a hook that fails fails the test."""
    heard: list[tuple[str, str]] = []
    aws.hooks = Hooks(
        on_start=lambda vm: heard.append(("start", vm.user_data.decode())),
        on_notice=lambda vm: heard.append(("notice", vm.id)),
        on_stop=lambda vm: heard.append(("stop", vm.id)),
    )
    (vm,) = _ids(launch(ec2, UserData="hello", InstanceMarketOptions=SPOT))
    assert heard == []
    aws.advance(20)
    aws.interrupt(vm)
    aws.advance(120_000)
    assert heard == [("start", "hello"), ("notice", vm), ("stop", vm)]
    aws.hooks = Hooks(on_start=lambda vm: heard.remove(("no", "such")))
    launch(ec2)
    aws.advance(20)
    with pytest.raises(AssertionError, match="ValueError"):
        aws.check()
    aws.bugs.clear()


def test_the_bill_says_who_ran_when(aws: FakeEc2, ec2: Any) -> None:
    """From running to shutting down; a pending one costs nothing, a forgotten one still stands in it."""
    (vm,) = launch(ec2, ClientToken="b")
    assert aws.bill() == []
    aws.advance(20)
    began = aws.clock.now()
    aws.advance(5000)
    ec2.terminate_instances(InstanceIds=[vm["InstanceId"]])
    aws.advance(4_000_000)
    zone = vm["Placement"]["AvailabilityZone"]
    assert aws.bill() == [BillLine(vm["InstanceId"], "m6i.large", zone, "on-demand", "b", began, began + 5000)]


def test_what_happened_while_nobody_looked_has_its_own_time(aws: FakeEc2, ec2: Any) -> None:
    """A late look changes nothing in what happened."""
    launch(ec2)
    began = aws.clock.now()
    aws.advance(60_000)
    assert aws.all_instances()[0].running_ms == began + 20


def test_disks_and_interfaces_that_outlive_their_instance_are_leftovers(aws: FakeEc2, ec2: Any) -> None:
    """DeleteOnTermination false leaves them, available; then they can be deleted."""
    (vm,) = launch(
        ec2,
        BlockDeviceMappings=[{"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 9, "DeleteOnTermination": False}}],
        NetworkInterfaces=[{"DeviceIndex": 0, "DeleteOnTermination": False}],
    )
    (volume,) = ec2.describe_volumes(**_where("size", "9"))["Volumes"]
    (interface,) = ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert refusal(ec2.delete_volume, VolumeId=volume["VolumeId"]) == "VolumeInUse"
    assert refusal(ec2.delete_network_interface, NetworkInterfaceId=interface["NetworkInterfaceId"])
    ec2.terminate_instances(InstanceIds=[vm["InstanceId"]])
    aws.advance(20)
    assert aws.leftovers() == [volume["VolumeId"], interface["NetworkInterfaceId"]]
    (left,) = ec2.describe_volumes(**_where("status", "available"))["Volumes"]
    assert (left["Size"], left["Attachments"]) == (9, [])
    ec2.delete_volume(VolumeId=volume["VolumeId"])
    ec2.delete_network_interface(NetworkInterfaceId=interface["NetworkInterfaceId"])
    assert aws.leftovers() == []
    assert refusal(ec2.delete_volume, VolumeId=volume["VolumeId"]) == "InvalidVolume.NotFound"


def test_an_address_is_kept_until_it_is_released(aws: FakeEc2, ec2: Any) -> None:
    """An address without an instance costs money."""
    allocation = aws.hold_address()
    (address,) = ec2.describe_addresses()["Addresses"]
    assert (address["AllocationId"], aws.leftovers()) == (allocation, [allocation])
    ec2.release_address(AllocationId=allocation)
    assert aws.leftovers() == []


def test_the_console_shows_what_was_written(aws: FakeEc2, ec2: Any) -> None:
    """Nothing at first."""
    (vm,) = _ids(launch(ec2))
    assert "Output" not in ec2.get_console_output(InstanceId=vm)
    aws.write_console(vm, "cloud-init: done\n")
    assert ec2.get_console_output(InstanceId=vm)["Output"] == "cloud-init: done\n"


# how they are seen


def test_pages_count_instances_and_cut_through_reservations(aws: FakeEc2, ec2: Any) -> None:
    """Every instance is in one page, whatever was launched together."""
    launched = _ids(launch(ec2, 7)) + _ids(launch(ec2, 5))
    pages = list(ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
    sizes = [sum(len(reservation["Instances"]) for reservation in page["Reservations"]) for page in pages]
    assert sizes == [5, 5, 2]
    assert _ids(listed(ec2, PaginationConfig={"PageSize": 5})) == launched
    assert refusal(ec2.describe_instances, MaxResults=4) == "InvalidParameterValue"
    assert refusal(ec2.describe_instances, MaxResults=5, InstanceIds=launched) == "InvalidParameterCombination"


def test_a_page_token_is_good_for_its_own_request(ec2: Any) -> None:
    """Another filter, or a token of one's own making, is refused."""
    launch(ec2, 6)
    token = ec2.describe_instances(MaxResults=5)["NextToken"]
    assert refusal(ec2.describe_instances, NextToken=token, **_where("image-id", "*")) == "InvalidNextToken"
    assert refusal(ec2.describe_instances, NextToken="mine") == "InvalidNextToken"


def test_filters_choose_by_tags_states_and_places(aws: FakeEc2, ec2: Any) -> None:
    """Values of a filter are alternatives, filters all hold; * and ? stand for anything, \\ takes that from them."""
    (one,) = _ids(launch(ec2, **_tagged(pool="a*b")))
    (two,) = _ids(launch(ec2, **_tagged(pool="axb"), InstanceMarketOptions=SPOT))
    launch(ec2, InstanceType="c6i.large")
    wanted = {
        "tag:pool": ({"a?b": [one, two], "a\\*b": [one], "x": []}),
        "tag-key": {"pool": [one, two]},
        "instance-lifecycle": {"spot": [two]},
        "instance-id": {one: [one]},
    }
    for name, values in wanted.items():
        for value, ids in values.items():
            assert _ids(listed(ec2, **_where(name, value))) == ids
    both = [{"Name": "tag:pool", "Values": ["no", "a*"]}, {"Name": "instance-state-name", "Values": ["pending"]}]
    assert _ids(listed(ec2, Filters=both)) == [one, two]


def test_a_filter_that_nobody_has_is_refused(aws: FakeEc2, ec2: Any) -> None:
    """One that EC2 has and the fake has not is another matter: that fails the test."""
    assert refusal(ec2.describe_instances, **_where("tag.pool", "a")) == "InvalidParameterValue"
    assert aws.unmodelled == []
    assert refusal(ec2.describe_instances, **_where("kernel-id", "a")) == "UnmodelledOperation"
    assert aws.unmodelled == ["the fake does not model the filter kernel-id of DescribeInstances"]
    aws.unmodelled.clear()


def test_a_new_instance_may_not_be_seen_yet() -> None:
    """Eventual consistency: the launch is answered, and for a while nothing else knows the id."""
    with FakeEc2(Settings(appears_ms=1000, tags_ms=500, changes_ms=300), SetClock()) as aws:
        ec2 = aws.client()
        (vm,) = launch(ec2, **_tagged(pool="a"))
        assert vm["Tags"]
        aws.advance(999)
        assert listed(ec2) == []
        for call in (ec2.describe_instances, ec2.terminate_instances):
            assert refusal(call, InstanceIds=[vm["InstanceId"]]) == "InvalidInstanceID.NotFound"
        assert refusal(ec2.create_tags, Resources=[vm["InstanceId"]], Tags=[{"Key": "a"}])
        aws.advance(1)
        assert "Tags" not in listed(ec2)[0]
        assert listed(ec2, **_where("tag:pool", "a")) == []
        aws.advance(500)
        assert listed(ec2, **_where("tag:pool", "a"))[0]["State"]["Name"] == "running"
        ec2.terminate_instances(InstanceIds=[vm["InstanceId"]])
        aws.advance(299)
        assert states(ec2) == ["running"]
        aws.advance(1)
        assert states(ec2) == ["shutting-down"]


def test_an_instance_that_runs_may_be_hidden_from_reads(aws: FakeEc2, ec2: Any) -> None:
    """Not being seen, by listing or by id, is no proof of being gone."""
    (vm,) = _ids(launch(ec2))
    aws.advance(20)
    aws.hide(vm, 1000)
    assert listed(ec2) == ec2.describe_tags()["Tags"] == []
    assert refusal(ec2.describe_instances, InstanceIds=[vm]) == "InvalidInstanceID.NotFound"
    assert aws.instance(vm).state.value == "running"
    aws.advance(1000)
    assert states(ec2) == ["running"]


def test_ten_thousand_are_listed_whole(aws: FakeEc2) -> None:
    """In pages of a thousand; what is told of an instance is made once, so that a listing costs next to nothing."""
    asked = {"ImageId": IMAGE, "InstanceType": "m6i.large", "MinCount": 1000, "MaxCount": 1000}
    with aws.lock:
        for _ in range(10):
            run_instances(aws.region(), asked)
    aws.advance(20)
    seen: set[str] = set()
    token, pages = "", 0
    while token is not None:
        answer = posted(aws.url, Action="DescribeInstances", MaxResults="1000", NextToken=token)
        seen.update(re.findall("<instanceId>(i-[0-9a-f]+)</instanceId>", answer))
        match = re.search("<nextToken>([^<]+)</nextToken>", answer)
        token, pages = match.group(1) if match else None, pages + 1
    assert (len(seen), pages) == (10_000, 10)


# tags


def test_tags_are_given_changed_and_taken(aws: FakeEc2, ec2: Any) -> None:
    """Of instances, disks and interfaces alike; DescribeTags tells of them all."""
    (vm,) = launch(ec2, **_tagged(a="1", b="2"))
    volume = vm["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    ec2.create_tags(Resources=[vm["InstanceId"], volume], Tags=[{"Key": "a", "Value": "9"}])
    ec2.delete_tags(Resources=[vm["InstanceId"]], Tags=[{"Key": "b", "Value": "other"}])
    told = [(tag["ResourceType"], tag["Key"], tag["Value"]) for tag in ec2.describe_tags()["Tags"]]
    assert told == [("instance", "a", "9"), ("instance", "b", "2"), ("volume", "a", "9")]
    ec2.delete_tags(Resources=[vm["InstanceId"]], Tags=[{"Key": "b"}])
    ec2.delete_tags(Resources=[volume])
    told = [(tag["ResourceType"], tag["Key"]) for tag in ec2.describe_tags()["Tags"]]
    assert told == [("instance", "a")]


def test_the_limits_of_tags_are_kept(ec2: Any) -> None:
    """50 a resource, 128 and 256 characters, none of AWS's own; all resources are tagged, or none."""
    (vm,) = _ids(launch(ec2))

    def tag(*items: tuple[str, str], to: list[str] | None = None) -> str:
        tags = [{"Key": key, "Value": value} for key, value in items]
        return refusal(ec2.create_tags, Resources=to or [vm], Tags=tags)

    assert tag(("k" * 129, "")) == tag(("k", "v" * 257)) == tag(("aws:x", "")) == "InvalidParameterValue"
    assert tag(("k", ""), ("k", "")) == "InvalidParameterValue"
    assert tag(*((str(number), "") for number in range(51))) == "TagLimitExceeded"
    assert tag(("k", "v"), to=[vm, "i-0123456789abcdef0"]) == "InvalidInstanceID.NotFound"
    assert ec2.describe_tags()["Tags"] == []
    ec2.create_tags(Resources=[vm], Tags=[{"Key": str(number), "Value": ""} for number in range(50)])
    assert tag(("one more", "")) == "TagLimitExceeded"
