"""Disks and static addresses: listed, and deleted. Instances make them, and faults leave them behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.fakes.gce.filters import getter, page_of, passes
from tests.fakes.gce.operations import AGGREGATED, aggregated, listing
from tests.fakes.gce.records import LINK, Address, Disk, fingerprint, stamp
from tests.fakes.gce.session import Session, operation
from tests.fakes.google.errors import ApiError

_LISTED = ("filter", "maxResults", "pageToken", "orderBy")


def _disk(session: Session, disk: Disk) -> dict[str, Any]:
    root = f"{LINK}projects/{session.project.name}"
    where = f"{root}/zones/{disk.zone}"
    told: dict[str, Any] = {
        "kind": "compute#disk", "id": disk.number, "name": disk.name, "zone": where,
        "selfLink": f"{where}/disks/{disk.name}", "sizeGb": str(disk.gb), "type": f"{where}/diskTypes/{disk.kind}",
        "status": "READY", "creationTimestamp": stamp(disk.created_ms), "labelFingerprint": fingerprint(disk.labels),
        "physicalBlockSizeBytes": "4096",
    }  # fmt: skip
    if disk.labels:
        told["labels"] = disk.labels
    if disk.image:
        told["sourceImage"] = f"{LINK}{disk.image}"
    if disk.user:
        told["users"] = [f"{where}/instances/{disk.user}"]
    return told


def _address(session: Session, one: Address) -> dict[str, Any]:
    where = f"{LINK}projects/{session.project.name}/regions/{one.region}"
    told: dict[str, Any] = {
        "kind": "compute#address", "id": one.number, "name": one.name, "region": where,
        "selfLink": f"{where}/addresses/{one.name}", "address": one.address, "addressType": "EXTERNAL",
        "networkTier": "PREMIUM", "status": "IN_USE" if one.user else "RESERVED",
        "creationTimestamp": stamp(one.created_ms), "labelFingerprint": fingerprint(one.labels),
    }  # fmt: skip
    if one.labels:
        told["labels"] = one.labels
    if one.user:
        told["users"] = [f"{LINK}projects/{session.project.name}/{one.user}"]
    return told


def _page(session: Session, told: Iterable[tuple[str, dict[str, Any]]]) -> tuple[list[tuple[str, Any]], str]:
    """Resources with their scopes, as many as are asked for."""
    test = passes(session)
    items = [((scope, one["name"]), (scope, one)) for scope, one in told if test(getter(one))]
    return page_of(session, sorted(items, key=lambda item: item[0]))


def _disks(session: Session) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((f"zones/{disk.zone}", _disk(session, disk)) for disk in session.project.disks.values())


def _addresses(session: Session) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((f"regions/{one.region}", _address(session, one)) for one in session.project.addresses.values())


@operation("disks.list", *_LISTED, permission="compute.disks.list")
def list_disks(session: Session) -> Any:
    """The disks of a zone."""
    scope = f"zones/{session.zone}"
    page, token = _page(session, (item for item in _disks(session) if item[0] == scope))
    path = f"projects/{session.project.name}/{scope}/disks"
    return listing("compute#diskList", path, [one for _, one in page], token)


@operation("disks.aggregatedList", *AGGREGATED, permission="compute.disks.list")
def all_disks(session: Session) -> Any:
    """The disks of all zones."""
    page, token = _page(session, _disks(session))
    return aggregated(session, "disk", "disks", page, token, zonal=True)


@operation("addresses.list", *_LISTED, permission="compute.addresses.list")
def list_addresses(session: Session) -> Any:
    """The static addresses of a region."""
    scope = f"regions/{session.region}"
    page, token = _page(session, (item for item in _addresses(session) if item[0] == scope))
    path = f"projects/{session.project.name}/{scope}/addresses"
    return listing("compute#addressList", path, [one for _, one in page], token)


@operation("addresses.aggregatedList", *AGGREGATED, permission="compute.addresses.list")
def all_addresses(session: Session) -> Any:
    """The static addresses of all regions."""
    page, token = _page(session, _addresses(session))
    return aggregated(session, "address", "addresses", page, token, zonal=False)


@operation("disks.get", permission="compute.disks.get")
def get_disk(session: Session) -> Any:
    """One disk."""
    return _disk(session, _found_disk(session))


def _found_disk(session: Session) -> Disk:
    key = (session.zone, session.params["disk"])
    if key not in session.project.disks:
        raise session.missing(f"projects/{session.project.name}/zones/{key[0]}/disks/{key[1]}")
    return session.project.disks[key]


@operation("disks.delete", "requestId", permission="compute.disks.delete")
def delete_disk(session: Session) -> Any:
    """Delete one that nothing uses."""
    scope = f"zones/{session.zone}"
    before = session.remembered(scope)
    if before is not None:
        return before.resource
    disk, project = _found_disk(session), session.project
    path = f"projects/{project.name}/{scope}/disks/{disk.name}"
    if disk.user:
        user = f"projects/{project.name}/{scope}/instances/{disk.user}"
        raise ApiError(
            "resourceInUseByAnotherResource", f"The disk resource '{path}' is already being used by '{user}'"
        )  # fmt: skip
    begun = project.begin("delete", scope, path, disk.number, session.caller, session.request_id)
    session.remember(scope, begun)
    project.remove_disk(disk)
    project.timers.after(session.cloud.settings.change_ms, lambda: project.finish(begun))
    return begun.resource


@operation("addresses.delete", "requestId", permission="compute.addresses.delete")
def delete_address(session: Session) -> Any:
    """Give one back that nothing uses."""
    scope, name, project = f"regions/{session.region}", session.params["address"], session.project
    before = session.remembered(scope)
    if before is not None:
        return before.resource
    path = f"projects/{project.name}/{scope}/addresses/{name}"
    one = project.addresses.get((session.region, name))
    if one is None:
        raise session.missing(path)
    if one.user:
        raise ApiError(
            "resourceInUseByAnotherResource", f"The address resource '{path}' is already being used by '{one.user}'"
        )  # fmt: skip
    begun = project.begin("delete", scope, path, one.number, session.caller, session.request_id)
    session.remember(scope, begun)
    del project.addresses[one.region, one.name]
    project.timers.after(session.cloud.settings.change_ms, lambda: project.finish(begun))
    return begun.resource
