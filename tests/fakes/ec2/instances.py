"""The operations on instances: launching, listing, ending, attributes. Each takes a session and parsed parameters."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.fakes.aws.answers import Xml
from tests.fakes.aws.errors import AwsError
from tests.fakes.ec2 import filters
from tests.fakes.ec2.launch import run_instances
from tests.fakes.ec2.records import CODES, Condition, Instance, Reservation, State, Tags, moment
from tests.fakes.ec2.session import Session, operation
from tests.fakes.faults import Call, Market

#: An instance as a read shows it.
View = tuple[Instance, Condition, Tags]
_Getter = Callable[[View], Iterable[str]]
_MOST_IDS = 1000


def _fixed(name: str) -> _Getter:
    def get(view: View) -> Iterable[str]:
        value = view[0].fixed[name]
        return () if value is None else (str(value),)

    return get


def _held(name: str) -> _Getter:
    return lambda view: (str(view[0].held.get(name) or ""),) if view[1].state is not State.TERMINATED else ()


_FILTERS: Mapping[str, _Getter] = {
    "instance-id": lambda view: (view[0].id,),
    "instance-state-name": lambda view: (view[1].state.value,),
    "instance-state-code": lambda view: (str(CODES[view[1].state]),),
    "instance-type": lambda view: (view[0].type_name,),
    "availability-zone": lambda view: (view[0].zone,),
    "image-id": _fixed("ImageId"),
    "architecture": _fixed("Architecture"),
    "client-token": _fixed("ClientToken"),
    "key-name": _fixed("KeyName"),
    "instance-lifecycle": lambda view: ("spot",) if view[0].spot else (),
    "spot-instance-request-id": _fixed("SpotInstanceRequestId"),
    "subnet-id": _held("SubnetId"),
    "vpc-id": _held("VpcId"),
    "private-ip-address": _held("PrivateIpAddress"),
    "ip-address": _held("PublicIpAddress"),
    "reservation-id": lambda view: (view[0].reservation.id,),
    "owner-id": lambda view: (view[0].reservation.owner,),
    "state-reason-code": lambda view: (view[1].reason,) if view[1].reason else (),
    "iam-instance-profile.arn": lambda view: ((view[0].fixed["IamInstanceProfile"] or {}).get("Arn", ""),),
    "instance.group-id": lambda view: view[0].interfaces[0].groups if view[1].state is not State.TERMINATED else (),
}


def _call(session: Session, params: Mapping[str, Any]) -> Call:
    zone = params.get("Placement", {}).get("AvailabilityZone", "")
    named = params.get("SubnetId") or next((i.get("SubnetId") for i in params.get("NetworkInterfaces", [])), None)
    if named in session.region.subnets:
        zone = session.region.subnets[named].zone
    market = Market.SPOT if params.get("InstanceMarketOptions") else Market.ON_DEMAND
    return Call("RunInstances", params.get("InstanceType", ""), zone, market)


#: What a launch may say.
LAUNCH = (
    "BlockDeviceMappings", "ImageId", "InstanceType", "KeyName", "MaxCount", "MinCount",
    "Monitoring", "Placement.AvailabilityZone", "Placement.GroupName", "Placement.Tenancy", "SecurityGroupIds",
    "SecurityGroups", "SubnetId", "UserData", "TagSpecifications", "InstanceMarketOptions.MarketType",
    "InstanceMarketOptions.SpotOptions.MaxPrice", "InstanceMarketOptions.SpotOptions.SpotInstanceType",
    "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "CreditSpecification.CpuCredits", "CpuOptions",
    "MetadataOptions", "MaintenanceOptions", "DisableApiTermination", "InstanceInitiatedShutdownBehavior",
    "ClientToken", "EbsOptimized", "IamInstanceProfile", "NetworkInterfaces.DeviceIndex", "NetworkInterfaces.SubnetId",
    "NetworkInterfaces.Groups", "NetworkInterfaces.AssociatePublicIpAddress", "NetworkInterfaces.DeleteOnTermination",
    "NetworkInterfaces.Description",
)  # fmt: skip


@operation("ec2", "RunInstances", *LAUNCH, call=_call)
def launch(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """RunInstances. The answer shows what was launched whatever reads show yet."""
    bucket = session.cloud.settings.instances_bucket
    if bucket is not None:
        session.cloud.throttle(session.region, "instances", bucket, params["MaxCount"])
    reservation = run_instances(session.region, params)
    views = [(vm, vm.condition.true, vm.tags.true) for vm in reservation.instances]
    return _reservation(session, reservation, views)


def _reservation(session: Session, reservation: Reservation, views: list[View]) -> dict[str, Any]:
    kept = session.region.condition_xml
    told: list[Xml] = [vm.xml(condition, tags, kept) for vm, condition, tags in views]
    return {"ReservationId": reservation.id, "OwnerId": reservation.owner, "Groups": [], "Instances": told}


def visible(session: Session, ids: list[str], at: int | None = None) -> list[View]:
    """The instances of these ids, as reads show them; an error where one is not there, or not there yet."""
    if len(ids) > _MOST_IDS:
        raise AwsError("InvalidParameterValue", f"at most {_MOST_IDS} instance ids a call")
    found, missing = [], []
    moment_ms = session.now if at is None else at
    for identity in dict.fromkeys(ids):
        if not identity.startswith("i-"):
            raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{identity}" (expecting "i-...")')
        vm = session.region.instances.get(identity)
        shown = vm.shown(moment_ms) if vm else None
        if vm is None or shown is None:
            missing.append(identity)
        else:
            found.append((vm, *shown))
    if missing:
        plural = ("s", "do") if len(missing) > 1 else ("", "does")
        raise AwsError(
            "InvalidInstanceID.NotFound", f"The instance ID{plural[0]} '{', '.join(missing)}' {plural[1]} not exist"
        )
    return found


@operation("ec2", "DescribeInstances", "InstanceIds", "Filters", "NextToken", "MaxResults")
def describe(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeInstances. Pages count instances: a reservation may go on in the next page."""
    if "InstanceIds" in params and "MaxResults" in params:
        raise AwsError(
            "InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults"
        )
    size = filters.page_size(params, 5, 1000, 0)
    page = filters.page_of(session.operation, params)
    session.check_page(page.number)
    at = session.now - session.staleness_ms()
    passes = filters.chosen(session.operation, params.get("Filters", []), _FILTERS, lambda view: view[2].items)
    if params.get("InstanceIds"):
        views = [view for view in visible(session, params["InstanceIds"], at) if passes(view)]
        return {"Reservations": _by_reservation(session, views)}
    views, token = [], None
    for vm in session.region.instances.values():
        if vm.number <= page.after:
            continue
        shown = vm.shown(at)
        if shown is None:
            continue
        view = (vm, *shown)
        if passes(view):
            if len(views) == size:
                token = filters.token_after(session.operation, params, page, views[-1][0].number)
                break
            views.append(view)
    return {"Reservations": _by_reservation(session, views), "NextToken": token}


def _by_reservation(session: Session, views: list[View]) -> list[dict[str, Any]]:
    grouped: dict[str, list[View]] = {}
    for view in views:
        grouped.setdefault(view[0].reservation.id, []).append(view)
    return [_reservation(session, group[0][0].reservation, group) for group in grouped.values()]


@operation("ec2", "TerminateInstances", "InstanceIds")
def terminate(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """TerminateInstances. A protected one saves those of its zone, and fails the call all the same."""
    views = visible(session, params["InstanceIds"])
    protected = [vm for vm, _, _ in views if vm.protected and vm.state not in (State.SHUTTING_DOWN, State.TERMINATED)]
    saved = {vm.zone for vm in protected}
    stamp = moment(session.now).strftime("%Y-%m-%d %H:%M:%S GMT")
    changes = []
    for vm, _, _ in views:
        before = vm.state
        if vm.zone not in saved:
            session.region.terminate(
                vm, "Client.UserInitiatedShutdown", "User initiated shutdown", f"User initiated ({stamp})"
            )
        changes.append(
            {"InstanceId": vm.id, "CurrentState": _state(vm.state), "PreviousState": _state(before)}
        )  # fmt: skip
    if protected:
        raise AwsError(
            "OperationNotPermitted",
            f"The instance '{protected[0].id}' may not be terminated. Modify its 'disableApiTermination' instance "
            "attribute and try again.",
        )
    return {"TerminatingInstances": changes}


def _state(state: State) -> dict[str, Any]:
    return {"Code": CODES[state], "Name": state.value}


@operation("ec2", "ModifyInstanceAttribute", "InstanceId", "DisableApiTermination", "InstanceInitiatedShutdownBehavior")
def modify(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """ModifyInstanceAttribute, of termination protection and of what a shutdown from inside does."""
    ((vm, _, _),) = visible(session, [params["InstanceId"]])
    given = set(params) - {"InstanceId", "DryRun"}
    if len(given) != 1:
        raise AwsError("InvalidParameterCombination", "one attribute a call")
    if "DisableApiTermination" in params:
        if vm.spot is not None and params["DisableApiTermination"].get("Value"):
            raise AwsError("UnsupportedOperation", "spot instances have no termination protection")
        vm.protected = params["DisableApiTermination"].get("Value", False)
    else:
        vm.shutdown_behaviour = params["InstanceInitiatedShutdownBehavior"]["Value"]
    return {}


@operation("ec2", "DescribeInstanceAttribute", "InstanceId", "Attribute")
def attribute(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeInstanceAttribute, of what DescribeInstances does not tell."""
    ((vm, _, _),) = visible(session, [params["InstanceId"]])
    told = {
        "disableApiTermination": ("DisableApiTermination", {"Value": vm.protected}),
        "instanceInitiatedShutdownBehavior": ("InstanceInitiatedShutdownBehavior", {"Value": vm.shutdown_behaviour}),
        "userData": ("UserData", {"Value": base64.b64encode(vm.user_data).decode()} if vm.user_data else {}),
        "instanceType": ("InstanceType", {"Value": vm.type_name}),
    }
    if params["Attribute"] not in told:
        raise session.unmodelled(f"the attribute {params['Attribute']}")
    name, value = told[params["Attribute"]]
    return {"InstanceId": vm.id, name: value}


@operation("ec2", "GetConsoleOutput", "InstanceId", "Latest")
def console(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """GetConsoleOutput: what a test, or what runs as the VM, put into `Instance.console`."""
    ((vm, _, _),) = visible(session, [params["InstanceId"]])
    output = base64.b64encode(vm.console.encode()[-65_536:]).decode() if vm.console else None
    return {"InstanceId": vm.id, "Timestamp": moment(session.now), "Output": output}
