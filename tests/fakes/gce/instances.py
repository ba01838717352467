"""The operations on instances. Each takes a session; what changes an instance answers with an operation."""

from __future__ import annotations

from typing import Any

from tests.fakes.faults import Call, Market
from tests.fakes.gce.filters import Get, page_of, passes
from tests.fakes.gce.launch import check_labels, last, understand
from tests.fakes.gce.operations import AGGREGATED, aggregated, listing
from tests.fakes.gce.project import place_of
from tests.fakes.gce.records import Instance, Status, View, fingerprint
from tests.fakes.gce.session import Session, operation
from tests.fakes.google.errors import ApiError

#: What a launch may say.
LAUNCH = (
    "requestId", "name", "description", "machineType", "labels", "metadata.items.key", "metadata.items.value",
    "tags.items", "canIpForward", "minCpuPlatform", "deletionProtection", "shieldedInstanceConfig",
    "disks.boot", "disks.autoDelete", "disks.type", "disks.mode", "disks.deviceName", "disks.diskSizeGb",
    "disks.interface", "disks.initializeParams.sourceImage", "disks.initializeParams.diskSizeGb",
    "disks.initializeParams.diskType",
    "disks.initializeParams.labels", "disks.initializeParams.diskName", "networkInterfaces.network",
    "networkInterfaces.subnetwork", "networkInterfaces.nicType", "networkInterfaces.accessConfigs.type",
    "networkInterfaces.accessConfigs.name", "networkInterfaces.accessConfigs.networkTier",
    "serviceAccounts.email", "serviceAccounts.scopes", "scheduling.provisioningModel", "scheduling.preemptible",
    "scheduling.automaticRestart", "scheduling.onHostMaintenance", "scheduling.instanceTerminationAction",
    "scheduling.maxRunDuration.seconds", "guestAccelerators.acceleratorType", "guestAccelerators.acceleratorCount",
    "reservationAffinity.consumeReservationType",
)  # fmt: skip
_LISTED = ("filter", "maxResults", "pageToken", "orderBy")


def _launch_call(session: Session) -> Call:
    scheduling = session.body.get("scheduling", {})
    spot = scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible")
    market = Market.SPOT if spot else Market.ON_DEMAND
    return Call("instances.insert", last(session.body.get("machineType", "")), session.params["zone"], market)


@operation("instances.insert", *LAUNCH, permission="compute.instances.create", call=_launch_call)
def insert(session: Session) -> Any:
    """Make one. Names are unique in a zone; the same requestId answers with the same operation again."""
    scope = f"zones/{session.zone}"
    before = session.remembered(scope)
    if before is not None:
        return before.resource
    session.permit("compute.disks.create", "compute.subnetworks.use", *_also_needed(session.body))
    project = session.project
    if (session.zone, session.body["name"]) in project.instances:
        where = f"projects/{project.name}/{scope}/instances/{session.body['name']}"
        raise ApiError("alreadyExists", f"The resource '{where}' already exists")
    vm = understand(session)
    over = _over_quota(session, vm)
    if over is not None and not session.cloud.settings.quota_in_operation:
        raise ApiError("quotaExceeded", f"Quota '{over[0]}' exceeded.  Limit: {over[1]}.0 in region {vm.region}.")
    begun = project.begin("insert", scope, vm.path, vm.id, session.caller, session.request_id)
    session.remember(scope, begun)
    if over is None:
        project.admit(vm, begun)
    else:
        project.fail_insert(vm, begun, _quota_error(over, vm.region), 403)
    return begun.resource


def _also_needed(body: dict[str, Any]) -> list[str]:
    needed = [
        ("labels", "compute.instances.setLabels"),
        ("metadata", "compute.instances.setMetadata"),
        ("tags", "compute.instances.setTags"),
        ("serviceAccounts", "compute.instances.setServiceAccount"),
    ]
    outside = any(one.get("accessConfigs") for one in body.get("networkInterfaces", []))
    return [right for name, right in needed if body.get(name)] + ["compute.subnetworks.useExternalIp"] * outside


def _over_quota(session: Session, vm: Instance) -> tuple[str, int] | None:
    """The metric whose limit it does not fit, and the limit."""
    project = session.project
    wanted = {**vm.used, "DISKS_TOTAL_GB": sum(disk.gb for disk in vm.disks)}
    for metric, amount in wanted.items():
        place = place_of(metric, vm.region)
        limit = project.quota(place, metric)
        if project.used[place, metric] + amount > limit:
            return metric, limit
    return None


def _quota_error(over: tuple[str, int], region: str) -> dict[str, Any]:
    metric, limit = over
    told = {"metricName": f"compute.googleapis.com/{metric.lower()}", "limitName": f"{metric}-per-project-region",
            "limit": float(limit), "dimensions": {"region": region}}  # fmt: skip
    message = f"Quota '{metric}' exceeded.  Limit: {limit}.0 in region {region}."
    return {"code": "QUOTA_EXCEEDED", "message": message, "errorDetails": [{"quotaInfo": told}]}


def found(session: Session) -> Instance:
    """The instance in the path, as it really is."""
    zone, name = session.zone, session.params["instance"]
    vm = session.project.instances.get((zone, name))
    if vm is None:
        raise session.missing(f"projects/{session.project.name}/zones/{zone}/instances/{name}")
    return vm


@operation("instances.get", permission="compute.instances.get")
def get(session: Session) -> Any:
    """One instance. What has been made is there at once; what is stale is so by a fault alone."""
    vm = found(session)
    stale = session.cloud.faults.staleness_ms(session.method.name, session.now)
    view = vm.shown.at(session.now - stale) if stale else vm.view
    if view is None:
        raise session.missing(vm.path)
    return vm.rendered(view)


@operation("instances.delete", "requestId", permission="compute.instances.delete")
def delete(session: Session) -> Any:
    """End one for good, with the disks that go with it."""
    scope = f"zones/{session.zone}"
    before = session.remembered(scope)
    if before is not None:
        return before.resource
    vm = found(session)
    if vm.protected:
        raise ApiError("invalid", "Invalid resource usage: 'Resource cannot be deleted if it's protected against "
                                  f"deletion. Resource: {vm.path}'.", 400)  # fmt: skip
    if vm.deleting:
        raise ApiError("resourceNotReady", f"The resource '{vm.path}' is not ready")
    begun = session.project.begin("delete", scope, vm.path, vm.id, session.caller, session.request_id)
    session.remember(scope, begun)
    session.project.delete(vm, begun)
    return begun.resource


@operation("instances.setLabels", "labels", "labelFingerprint", "requestId", permission="compute.instances.setLabels")
def set_labels(session: Session) -> Any:
    """Other labels than those whose fingerprint is given; 412 where it is that of others."""
    scope = f"zones/{session.zone}"
    before = session.remembered(scope)
    if before is not None:
        return before.resource
    vm, body = found(session), session.body
    if not body.get("labelFingerprint") or body["labelFingerprint"] != fingerprint(vm.labels):
        raise ApiError("conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
    labels = body.get("labels", {})
    check_labels(labels)
    begun = session.project.begin("setLabels", scope, vm.path, vm.id, session.caller, session.request_id)
    session.remember(scope, begun)
    project = session.project
    project.relabel(vm, dict(labels))
    project.timers.after(session.cloud.settings.change_ms, lambda: project.finish(begun))
    return begun.resource


@operation("instances.getSerialPortOutput", "port", "start", permission="compute.instances.getSerialPortOutput")
def serial_port(session: Session) -> Any:
    """What the VM has said on its console, from a byte on; the last MB is kept."""
    vm = found(session)
    if session.params.get("port", 1) != 1:
        return {"kind": "compute#serialPortOutput", "contents": "", "start": "0", "next": "0"}
    said = vm.console.encode()
    start = max(int(session.params.get("start", 0)), len(said) - 1_048_576, 0)
    return {"kind": "compute#serialPortOutput", "contents": said[start:].decode(errors="replace"),
            "start": str(start), "next": str(len(said)), "selfLink": vm.fixed["selfLink"] + "/serialPort"}  # fmt: skip


def _views(session: Session, zone: str = "") -> list[tuple[Any, tuple[Instance, View]]]:
    """The instances that a list shows now, in the order of zones and names."""
    at = session.now - session.cloud.faults.staleness_ms(session.method.name, session.now)
    test, shown = passes(session), []
    for vms in (session.project.instances.values(), session.project.fading.values()):
        for vm in vms:
            if zone and vm.zone != zone:
                continue
            view = vm.shown.at(at)
            if view is not None and vm.number not in session.cloud.hidden and test(_getter(vm, view)):
                shown.append(((vm.zone, vm.name, vm.number), (vm, view)))
    return sorted(shown, key=lambda item: item[0])


def _getter(vm: Instance, view: View) -> Get:
    def get(field: str) -> Any:
        first, _, rest = field.partition(".")
        if first == "labels":
            return view.labels.get(rest)
        if first == "status":
            return view.status.value
        value: Any = vm.fixed.get(first)
        for part in rest.split(".") if rest else []:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    return get


@operation("instances.list", *_LISTED, permission="compute.instances.list")
def listed(session: Session) -> Any:
    """The instances of a zone."""
    zone = session.zone
    page, token = page_of(session, _views(session, zone))
    path = f"projects/{session.project.name}/zones/{zone}/instances"
    return listing("compute#instanceList", path, [vm.rendered(view) for vm, view in page], token)


@operation("instances.aggregatedList", *AGGREGATED, permission="compute.instances.list")
def everywhere(session: Session) -> Any:
    """The instances of all zones."""
    page, token = page_of(session, _views(session))
    items = [(f"zones/{vm.zone}", vm.rendered(view)) for vm, view in page]
    return aggregated(session, "instance", "instances", items, token, zonal=True)


__all__ = ["LAUNCH", "Status", "found"]
