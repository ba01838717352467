"""What is around instances: zones, regions with their quotas, machine and accelerator types, networks, rights."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from tests.fakes.gce import catalogue
from tests.fakes.gce.catalogue import MachineType
from tests.fakes.gce.filters import getter, page_of, passes
from tests.fakes.gce.operations import AGGREGATED, aggregated, listing
from tests.fakes.gce.records import LINK
from tests.fakes.gce.session import Session, operation
from tests.fakes.google.errors import ApiError

_LISTED = ("filter", "maxResults", "pageToken", "orderBy")
_BORN = "1969-12-31T16:00:00.000-08:00"
_CARDS = {"nvidia-tesla-t4": 4, "nvidia-l4": 8, "nvidia-tesla-a100": 16, "nvidia-a100-80gb": 8, "nvidia-tesla-v100": 8}


def _id(path: str) -> str:
    return str(int.from_bytes(hashlib.blake2s(path.encode(), digest_size=7).digest()))


def _resource(kind: str, path: str, **more: Any) -> dict[str, Any]:
    name = path.rpartition("/")[2]
    return {"kind": f"compute#{kind}", "id": _id(path), "name": name, "selfLink": f"{LINK}{path}",
            "creationTimestamp": _BORN, **more}  # fmt: skip


def _listed(session: Session, kind: str, path: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    test = passes(session)
    page, token = page_of(session, sorted((((one["name"],), one) for one in items if test(getter(one))),
                                          key=lambda item: item[0]))  # fmt: skip
    return listing(f"compute#{kind}List", path, page, token)


# places


def _zone(session: Session, region: str, zone: str) -> dict[str, Any]:
    root = f"projects/{session.project.name}"
    return _resource("zone", f"{root}/zones/{zone}", description=zone, status="UP",
                     region=f"{LINK}{root}/regions/{region}", availableCpuPlatforms=["Intel Ice Lake"])  # fmt: skip


@operation("zones.list", *_LISTED, permission="compute.zones.list")
def list_zones(session: Session) -> Any:
    """All zones."""
    zones = [_zone(session, region, zone) for region, zones in session.cloud.settings.regions.items() for zone in zones]
    return _listed(session, "zone", f"projects/{session.project.name}/zones", zones)


@operation("zones.get", permission="compute.zones.get")
def get_zone(session: Session) -> Any:
    """One zone."""
    return _zone(session, session.zone.rpartition("-")[0], session.zone)


def _region(session: Session, region: str) -> dict[str, Any]:
    project, root = session.project, f"projects/{session.project.name}"
    quotas = [
        {"metric": metric, "limit": float(project.quota(region, metric)), "usage": float(project.used[region, metric])}
        for metric in catalogue.METRICS
    ]
    zones = [f"{LINK}{root}/zones/{zone}" for zone in session.cloud.settings.regions[region]]
    return _resource("region", f"{root}/regions/{region}", status="UP", zones=zones, quotas=quotas, description=region)


@operation("regions.get", permission="compute.regions.get")
def get_region(session: Session) -> Any:
    """One region, with what is used of its quotas."""
    return _region(session, session.region)


@operation("regions.list", *_LISTED, permission="compute.regions.list")
def list_regions(session: Session) -> Any:
    """All regions."""
    regions = [_region(session, region) for region in session.cloud.settings.regions]
    return _listed(session, "region", f"projects/{session.project.name}/regions", regions)


@operation("projects.get", permission="compute.projects.get")
def get_project(session: Session) -> Any:
    """The project, with the quotas that all regions share."""
    project = session.project
    quotas = [
        {"metric": metric, "limit": float(project.quota("", metric)), "usage": float(project.used["", metric])}
        for metric in catalogue.EVERYWHERE
    ]
    account = f"{project.number}-compute@developer.gserviceaccount.com"
    found = _resource("project", f"projects/{project.name}", quotas=quotas, defaultServiceAccount=account,
                      xpnProjectStatus="UNSPECIFIED_XPN_PROJECT_STATUS", defaultNetworkTier="PREMIUM")  # fmt: skip
    return {**found, "id": str(project.number)}


# types


def _type(session: Session, kind: MachineType, zone: str) -> dict[str, Any]:
    path = f"projects/{session.project.name}/zones/{zone}/machineTypes/{kind.name}"
    told = _resource("machineType", path, guestCpus=kind.cpus, memoryMb=kind.memory_mb, isSharedCpu=kind.shared,
                     imageSpaceGb=0, maximumPersistentDisks=128, maximumPersistentDisksSizeGb="263168", zone=zone,
                     architecture=kind.architecture, description=f"{kind.cpus} vCPUs")  # fmt: skip
    if kind.gpu:
        told["accelerators"] = [{"guestAcceleratorType": kind.gpu, "guestAcceleratorCount": kind.gpus}]
    return told


def _types(session: Session, zone: str) -> list[dict[str, Any]]:
    unoffered = session.cloud.settings.unoffered
    return [_type(session, kind, zone) for name, kind in catalogue.TYPES.items() if (name, zone) not in unoffered]


@operation("machineTypes.list", *_LISTED, permission="compute.machineTypes.list")
def list_types(session: Session) -> Any:
    """The machine types of a zone, custom ones apart."""
    zone = session.zone
    return _listed(session, "machineType", f"projects/{session.project.name}/zones/{zone}/machineTypes",
                   _types(session, zone))  # fmt: skip


@operation("machineTypes.get", permission="compute.machineTypes.get")
def get_type(session: Session) -> Any:
    """One machine type, a custom one too."""
    zone, name = session.zone, session.params["machineType"]
    kind = catalogue.machine_type(name)
    if kind is None or (name, zone) in session.cloud.settings.unoffered:
        raise session.missing(f"projects/{session.project.name}/zones/{zone}/machineTypes/{name}")
    return _type(session, kind, zone)


@operation("machineTypes.aggregatedList", *AGGREGATED, permission="compute.machineTypes.list")
def all_types(session: Session) -> Any:
    """The machine types of all zones."""
    test, items = passes(session), []
    for zones in session.cloud.settings.regions.values():
        for zone in zones:
            scope = f"zones/{zone}"
            items += [((scope, one["name"]), (scope, one)) for one in _types(session, zone) if test(getter(one))]
    page, token = page_of(session, sorted(items, key=lambda item: item[0]))
    return aggregated(session, "machineType", "machineTypes", page, token, zonal=True)


@operation("acceleratorTypes.list", *_LISTED, permission="compute.acceleratorTypes.list")
def list_accelerators(session: Session) -> Any:
    """The GPUs of a zone."""
    zone = session.zone
    path = f"projects/{session.project.name}/zones/{zone}/acceleratorTypes"
    items = [
        _resource("acceleratorType", f"{path}/{name}", zone=zone, maximumCardsPerInstance=most, description=name)
        for name, most in _CARDS.items()
    ]
    return _listed(session, "acceleratorType", path, items)


# networks


def _subnetwork(session: Session, name: str) -> dict[str, Any]:
    region, root = session.region, f"projects/{session.project.name}"
    number = session.cloud.settings.subnetworks.index(name)
    return _resource(
        "subnetwork", f"{root}/regions/{region}/subnetworks/{name}", network=f"{LINK}{root}/global/networks/default",
        region=f"{LINK}{root}/regions/{region}", ipCidrRange=f"10.{128 + number}.0.0/16", stackType="IPV4_ONLY",
        gatewayAddress=f"10.{128 + number}.0.1", privateIpGoogleAccess=True, purpose="PRIVATE",
    )  # fmt: skip


@operation("subnetworks.list", *_LISTED, permission="compute.subnetworks.list")
def list_subnetworks(session: Session) -> Any:
    """The subnetworks of a region."""
    path = f"projects/{session.project.name}/regions/{session.region}/subnetworks"
    items = [_subnetwork(session, name) for name in session.cloud.settings.subnetworks]
    return _listed(session, "subnetwork", path, items)


@operation("subnetworks.get", permission="compute.subnetworks.get")
def get_subnetwork(session: Session) -> Any:
    """One subnetwork."""
    name = session.params["subnetwork"]
    if name not in session.cloud.settings.subnetworks:
        raise session.missing(f"projects/{session.project.name}/regions/{session.region}/subnetworks/{name}")
    return _subnetwork(session, name)


@operation("networks.get", permission="compute.networks.get")
def get_network(session: Session) -> Any:
    """One network."""
    name, known = session.params["network"], session.cloud.settings.networks
    path = f"projects/{session.project.name}/global/networks/{name}"
    if name not in known:
        raise session.missing(path)
    return _resource("network", path, autoCreateSubnetworks=known[name])


# rights


@operation("instances.testIamPermissions", "permissions")
def instance_rights(session: Session) -> Any:
    """Which of these rights the caller has for an instance; the instance need not be there."""
    return _rights(session)


@operation("projects.testIamPermissions", "permissions", service="cloudresourcemanager")
def project_rights(session: Session) -> Any:
    """The same of a project, by the Resource Manager."""
    session.cloud.project(session.params["resource"])
    return _rights(session)


@operation("projects.serviceAccounts.testIamPermissions", "permissions", service="iam")
def account_rights(session: Session) -> Any:
    """The same of a service account. By `-` for its project it may not be asked of one that is not there."""
    project, account = session.params["projectsId"], session.params["serviceAccountsId"]
    known = session.cloud.settings.service_accounts
    if known is not None and account not in known:
        if project == "-":
            raise ApiError("forbidden", f"Permission denied on service account {account}", worded=True)
        raise ApiError("notFound", f"Unknown service account {account}", worded=True)
    return _rights(session)


def _rights(session: Session) -> Any:
    asked = session.body.get("permissions", [])
    if any("*" in permission or permission.count(".") < 2 for permission in asked):
        raise ApiError("badRequest", "Permission is not valid for this resource.", worded=True)
    held = [permission for permission in asked if permission not in session.cloud.denied]
    return {"permissions": held} if held else {}


@operation("projects.serviceAccounts.generateAccessToken", "scope", "lifetime", service="iamcredentials")
def impersonate(session: Session) -> Any:
    """A token of another account, for who may have it."""
    session.permit("iam.serviceAccounts.getAccessToken")
    account, known = session.params["serviceAccountsId"], session.cloud.settings.service_accounts
    if known is not None and account not in known:
        raise session.missing(f"projects/-/serviceAccounts/{account}")
    if not session.body.get("scope"):
        raise ApiError("badRequest", "Request contains an invalid argument.", worded=True)
    seconds = int(str(session.body.get("lifetime", "3600s")).removesuffix("s"))
    ends = datetime.fromtimestamp(session.now / 1000 + seconds, UTC)
    token = session.cloud.tokens.new(account, session.now, seconds * 1000)
    return {"accessToken": token, "expireTime": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
