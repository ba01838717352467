"""instances.insert: what a request asks for, what it may not, and the instance that comes of it."""

from __future__ import annotations

import re
from typing import Any

from tests.fakes.gce import catalogue
from tests.fakes.gce.catalogue import MachineType
from tests.fakes.gce.images import found_image
from tests.fakes.gce.records import LINK, Disk, Instance, Status, View, fingerprint, stamp
from tests.fakes.gce.session import Session
from tests.fakes.google.errors import ApiError
from tests.fakes.shown import Shown

_MOST_LABELS, _MOST_METADATA, _MOST_VALUE = 64, 512 * 1024, 256 * 1024
_SHORTEST_S, _LONGEST_S = 30, 120 * 86_400
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


def invalid(field: str, value: Any, why: str) -> ApiError:
    """As Compute Engine refuses fields."""
    return ApiError("invalid", f"Invalid value for field 'resource.{field}': '{value}'. {why}")


def last(link: str) -> str:
    """The name at the end of a link."""
    return link.rpartition("/")[2]


def check_labels(labels: dict[str, str], field: str = "labels") -> None:
    """Lower case, digits, - and _; keys begin with a letter; neither longer than 63."""
    if len(labels) > _MOST_LABELS:
        raise invalid(field, len(labels), f"There can be at most {_MOST_LABELS} labels.")
    for key, value in labels.items():
        if not key or not key[0].isalpha() or not _good_label(key):
            raise invalid(field, key, "Label keys are of lower case letters, digits, '-' and '_', at most 63.")
        if not _good_label(value):
            raise invalid(field, value, "Label values are of lower case letters, digits, '-' and '_', at most 63.")


def _good_label(text: str) -> bool:
    return len(text) <= 63 and all(one in "-_" or (one.isalnum() and one == one.lower()) for one in text)


def understand(session: Session) -> Instance:
    """The instance that the body asks for; an error where it asks for what cannot be."""
    body, project, zone = session.body, session.project, session.zone
    kind = _machine_type(session, body, zone)
    check_labels(body.get("labels", {}))
    metadata = _metadata(body)
    scheduling, spot, limit_ms, delete = _scheduling(body, kind)
    accelerators = _accelerators(session, body, kind, scheduling)
    number = project.next_number()
    name = body["name"]
    disks, attached = _disks(session, body, kind)
    now = session.now
    vm = Instance(
        number, project.name, project.number, zone, name, kind, spot, {}, metadata, now,
        Shown(View(Status.PROVISIONING, dict(body.get("labels", {}))), now + session.cloud.settings.appears_ms),
        _counted(session, kind, spot, accelerators), disks, session.request_id, delete, limit_ms,
        body.get("deletionProtection", False),
    )  # fmt: skip
    root = f"{LINK}projects/{project.name}"
    vm.fixed = {
        "kind": "compute#instance", "id": vm.id, "name": name, "creationTimestamp": stamp(now),
        "zone": f"{root}/zones/{zone}", "selfLink": f"{LINK}{vm.path}",
        "machineType": f"{root}/zones/{zone}/machineTypes/{kind.name}", "cpuPlatform": "Unknown CPU Platform",
        "disks": attached, "networkInterfaces": _interfaces(session, body, number), "scheduling": scheduling,
        "metadata": {"kind": "compute#metadata", "fingerprint": fingerprint(metadata), **(
            {"items": [{"key": key, "value": value} for key, value in metadata.items()]} if metadata else {})},
        "tags": {**body.get("tags", {}), "fingerprint": fingerprint(body.get("tags", {}))},
        "deletionProtection": vm.protected, "canIpForward": body.get("canIpForward", False), "startRestricted": False,
        "fingerprint": fingerprint([name, number]), "satisfiesPzi": True,
        "shieldedInstanceConfig": {"enableSecureBoot": False, "enableVtpm": True, "enableIntegrityMonitoring": True,
                                   **body.get("shieldedInstanceConfig", {})},
        "shieldedInstanceIntegrityPolicy": {"updateAutoLearnPolicy": True},
    }  # fmt: skip
    if accelerators:
        vm.fixed["guestAccelerators"] = [
            {"acceleratorType": f"{root}/zones/{zone}/acceleratorTypes/{one}", "acceleratorCount": count}
            for one, count in accelerators.items()
        ]
    for field in ("description", "minCpuPlatform"):
        if field in body:
            vm.fixed[field] = body[field]
    accounts = _service_accounts(session, body)
    if accounts:
        vm.fixed["serviceAccounts"] = accounts
    return vm


def _counted(session: Session, kind: MachineType, spot: bool, accelerators: dict[str, int]) -> dict[str, int]:
    """Spot counts apart where the project has a quota for it: of cores, of each kind of GPU."""
    region = session.zone.rpartition("-")[0]
    used = catalogue.counted(kind, spot, accelerators)
    for metric in [one for one in used if one.startswith("PREEMPTIBLE_") and not session.project.quota(region, one)]:
        amount = used.pop(metric)
        plain = metric.removeprefix("PREEMPTIBLE_") if metric.endswith("_GPUS") else catalogue.cores_of(kind)
        used[plain] = used.get(plain, 0) + amount
    outside = [one for one in session.body.get("networkInterfaces", []) if one.get("accessConfigs")]
    return {**used, "IN_USE_ADDRESSES": len(outside)} if outside else used


def _machine_type(session: Session, body: dict[str, Any], zone: str) -> MachineType:
    link = body.get("machineType")
    if not link:
        raise ApiError("required", "Required field 'resource.machineType' not specified")
    named = re.fullmatch(r"(?:https://[^/]+/compute/v1/)?(?:projects/[^/]+/)?zones/([^/]+)/machineTypes/([^/]+)", link)
    if named is None:
        raise invalid("machineType", link, "The URL is malformed.")
    if named[1] != zone:
        raise invalid("machineType", link, "It is of another zone than the instance.")
    kind = catalogue.machine_type(named[2])
    if kind is None or (kind.name, zone) in session.cloud.settings.unoffered:
        where = f"projects/{session.project.name}/zones/{zone}/machineTypes/{named[2]}"
        raise invalid("machineType", link, f"The referenced resource '{where}' does not exist.")
    return kind


def _metadata(body: dict[str, Any]) -> dict[str, str]:
    items: dict[str, str] = {}
    for item in body.get("metadata", {}).get("items", []):
        if item["key"] in items:
            raise invalid("metadata.items", item["key"], "There is more than one value for this key.")
        if len(item.get("value", "").encode()) > _MOST_VALUE:
            raise invalid("metadata.items", item["key"], f"The value is longer than {_MOST_VALUE} bytes.")
        items[item["key"]] = item.get("value", "")
    if sum(len(key.encode()) + len(value.encode()) for key, value in items.items()) > _MOST_METADATA:
        raise invalid("metadata", "", "The metadata is larger than 512 KB.")
    return items


def _scheduling(body: dict[str, Any], kind: MachineType) -> tuple[dict[str, Any], bool, int, bool]:
    """As answers tell it; whether it is spot; maxRunDuration; whether the end deletes."""
    asked = body.get("scheduling", {})
    spot = asked.get("provisioningModel") == "SPOT" or asked.get("preemptible", False)
    gpus = bool(kind.gpu or body.get("guestAccelerators"))
    told = {
        "provisioningModel": "SPOT" if spot else "STANDARD", "preemptible": spot, "automaticRestart": not spot,
        "onHostMaintenance": "TERMINATE" if spot else "MIGRATE", **asked,
    }  # fmt: skip
    told["preemptible"] = spot
    if spot and told["automaticRestart"]:
        raise invalid("scheduling.automaticRestart", "true", "Scheduling must have no automatic restart for spot VMs.")
    if spot and told["onHostMaintenance"] != "TERMINATE":
        raise invalid("scheduling.onHostMaintenance", told["onHostMaintenance"], "Spot VMs are terminated.")
    if gpus and told["onHostMaintenance"] != "TERMINATE":
        raise ApiError("badRequest", "[Conditions]: Instances with guest accelerators do not support live migration.")
    action, limit = asked.get("instanceTerminationAction"), asked.get("maxRunDuration")
    if action and not spot and limit is None:
        raise invalid("scheduling.instanceTerminationAction", action, "It is for spot VMs and with a maxRunDuration.")
    if limit is None:
        return told, spot, 0, action == "DELETE"
    seconds = int(limit.get("seconds", 0))
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise invalid("scheduling.maxRunDuration", seconds, "It must be from 30 seconds to 120 days.")
    if action is None:
        raise ApiError("required", "A maxRunDuration needs 'resource.scheduling.instanceTerminationAction'")
    told["maxRunDuration"] = {"seconds": str(seconds)}
    return told, spot, seconds * 1000, action == "DELETE"


def _accelerators(
    session: Session, body: dict[str, Any], kind: MachineType, scheduling: dict[str, Any]
) -> dict[str, int]:  # fmt: skip
    found = {kind.gpu: kind.gpus} if kind.gpu else {}
    for one in body.get("guestAccelerators", []):
        name = last(one.get("acceleratorType", ""))
        if name not in catalogue.ACCELERATORS:
            raise invalid("guestAccelerators[0].acceleratorType", name, "There is no such type in the zone.")
        if kind.gpu and (name != kind.gpu or one.get("acceleratorCount") != kind.gpus):
            raise ApiError("badRequest", f"[Conditions]: {kind.name} comes with {kind.gpus} {kind.gpu}.")
        if not kind.gpu and kind.family != "n1":
            raise ApiError("badRequest", f"[{name}] features are not compatible for creating instance of {kind.name}.")
        found[name] = int(one.get("acceleratorCount", 0))
    return found


def _disks(session: Session, body: dict[str, Any], kind: MachineType) -> tuple[list[Disk], list[dict[str, Any]]]:
    """The disks that are made, and how the instance tells of them."""
    asked = body.get("disks", [])
    if not asked:
        raise invalid("disks", "", "At least one disk must be specified.")
    if [one.get("boot", False) for one in asked] != [number == 0 for number in range(len(asked))]:
        raise invalid("disks[0].boot", "", "The first disk, and no other, must be the boot disk.")
    project, zone, made, told = session.project, session.zone, [], []
    for number, one in enumerate(asked):
        given = one.get("initializeParams")
        if given is None:
            raise session.unmodelled("a disk that is there already")
        if one.get("type") == "SCRATCH":
            told.append(_scratch(one, number))
            continue
        image = found_image(session, given["sourceImage"]) if "sourceImage" in given else None
        if number == 0 and image is None:
            raise invalid("disks[0].initializeParams.sourceImage", "", "The boot disk needs an image.")
        if image is not None and image.architecture != kind.architecture:
            raise ApiError("badRequest", f"[Conditions]: {kind.name} does not run images of {image.architecture}.")
        least = image.gb if image else 10
        size = int(given.get("diskSizeGb") or one.get("diskSizeGb") or least)
        if size < least:
            raise invalid(f"disks[{number}].initializeParams.diskSizeGb", size, f"It must be at least {least} GB.")
        check_labels(given.get("labels", {}), f"disks[{number}].initializeParams.labels")
        name = given.get("diskName") or (body["name"] if number == 0 else f"{body['name']}-{number}")
        if (zone, name) in project.disks:
            where = f"projects/{project.name}/zones/{zone}/disks/{name}"
            raise ApiError("alreadyExists", f"The resource '{where}' already exists")
        link = last(given.get("diskType", "pd-standard"))
        disk = Disk(project.next_number(), name, zone, size, link, image.path if image else "", session.now,
                    given.get("labels", {}), one.get("autoDelete", False), body["name"])  # fmt: skip
        made.append(disk)
        told.append({
            "kind": "compute#attachedDisk", "type": one.get("type", "PERSISTENT"),
            "mode": one.get("mode", "READ_WRITE"),
            "source": f"{LINK}projects/{project.name}/zones/{zone}/disks/{name}", "index": number, "boot": number == 0,
            "deviceName": one.get("deviceName", f"persistent-disk-{number}"), "autoDelete": disk.auto_delete,
            "interface": "SCSI", "diskSizeGb": str(size),
        })  # fmt: skip
    return made, told


def _scratch(one: dict[str, Any], number: int) -> dict[str, Any]:
    """A local SSD: it ends with the VM whatever happens, and is no disk to be listed."""
    if last(one["initializeParams"].get("diskType", "")) != "local-ssd" or not one.get("autoDelete"):
        raise invalid(f"disks[{number}]", "", "A scratch disk is a local SSD that is deleted with the VM.")
    return {
        "kind": "compute#attachedDisk", "type": "SCRATCH", "mode": "READ_WRITE", "index": number, "boot": False,
        "interface": one.get("interface", "SCSI"), "autoDelete": True, "diskSizeGb": "375",
        "deviceName": one.get("deviceName", f"local-ssd-{number}"),
    }  # fmt: skip


def _interfaces(session: Session, body: dict[str, Any], number: int) -> list[dict[str, Any]]:
    asked = body.get("networkInterfaces", [])
    if len(asked) != 1:
        raise invalid("networkInterfaces", len(asked), "The fake makes VMs with one interface.")
    (one,) = asked
    region = session.zone.rpartition("-")[0]
    root = f"{LINK}projects/{session.project.name}"
    network, networks = last(one.get("network", "default")), session.cloud.settings.networks
    if network not in networks and ("network" in one or "subnetwork" not in one):
        raise invalid("networkInterfaces[0].network", network, "The resource was not found")
    if "subnetwork" not in one and not networks[network]:
        raise invalid("networkInterfaces[0].subnetwork", "", "It must be given with a network of custom subnet mode.")
    name = last(one.get("subnetwork", "default"))
    if name not in session.cloud.settings.subnetworks or f"regions/{region}/" not in one.get(
        "subnetwork", f"regions/{region}/"
    ):
        where = f"projects/{session.project.name}/regions/{region}/subnetworks/{name}"
        raise invalid("networkInterfaces[0].subnetwork", one.get("subnetwork"), f"The resource '{where}' was not found")
    told: dict[str, Any] = {
        "kind": "compute#networkInterface", "name": "nic0", "network": f"{root}/global/networks/{network}",
        "subnetwork": f"{root}/regions/{region}/subnetworks/{name}", "stackType": "IPV4_ONLY",
        "networkIP": f"10.{128 + number // 62_500 % 100}.{number // 250 % 250}.{number % 250 + 2}",
        "fingerprint": fingerprint([name, number]),
    }  # fmt: skip
    if "nicType" in one:
        told["nicType"] = one["nicType"]
    if one.get("accessConfigs"):
        told["accessConfigs"] = [{
            "kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "networkTier": "PREMIUM",
            "name": one["accessConfigs"][0].get("name", "external-nat"),
            "natIP": f"34.{66 + number // 62_500 % 100}.{number // 250 % 250}.{number % 250 + 2}",
        }]  # fmt: skip
    return [told]


def _service_accounts(session: Session, body: dict[str, Any]) -> list[dict[str, Any]]:
    asked = body.get("serviceAccounts", [])
    if len(asked) > 1:
        raise invalid("serviceAccounts", len(asked), "There can be one service account.")
    told = []
    for one in asked:
        email = one.get("email", "default")
        if email == "default":
            email = f"{session.project.number}-compute@developer.gserviceaccount.com"
        known = session.cloud.settings.service_accounts
        if not _EMAIL.fullmatch(email) or (known is not None and email not in known):
            raise ApiError("badRequest", f"The resource '{email}' of type 'serviceAccount' was not found.", 400)
        session.permit("iam.serviceAccounts.actAs")
        told.append({"email": email, "scopes": one.get("scopes", [])})
    return told
