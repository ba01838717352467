"""Snapshots of disks: listed, and deleted. A schedule makes them, of which the fake has nothing but what it made."""

from __future__ import annotations

from typing import Any

from tests.fakes.gce.filters import getter, page_of, passes
from tests.fakes.gce.operations import listing
from tests.fakes.gce.records import LINK, Snapshot, fingerprint, stamp
from tests.fakes.gce.session import Session, operation


def _told(session: Session, one: Snapshot) -> dict[str, Any]:
    told: dict[str, Any] = {
        "kind": "compute#snapshot", "id": one.number, "name": one.name, "status": "READY", "diskSizeGb": str(one.gb),
        "selfLink": f"{LINK}projects/{session.project.name}/global/snapshots/{one.name}", "autoCreated": True,
        "creationTimestamp": stamp(one.created_ms), "labelFingerprint": fingerprint(one.labels),
    }  # fmt: skip
    if one.labels:
        told["labels"] = one.labels
    return told


@operation(
    "snapshots.list", "filter", "maxResults", "pageToken", "orderBy",
    permission="compute.snapshots.list",
)  # fmt: skip
def listed(session: Session) -> Any:
    """The snapshots of the project."""
    test = passes(session)
    told = [((one.name,), _told(session, one)) for one in session.project.snapshots.values()]
    page, token = page_of(session, sorted((item for item in told if test(getter(item[1]))), key=lambda item: item[0]))
    return listing("compute#snapshotList", f"projects/{session.project.name}/global/snapshots", page, token)


@operation("snapshots.delete", "requestId", permission="compute.snapshots.delete")
def delete(session: Session) -> Any:
    """It is no more."""
    project, name = session.project, session.params["snapshot"]
    before = session.remembered("global")
    if before is not None:
        return before.resource
    path = f"projects/{project.name}/global/snapshots/{name}"
    one = project.snapshots.pop(name, None)
    if one is None:
        raise session.missing(path)
    begun = project.begin("delete", "global", path, one.number, session.caller, session.request_id)
    session.remember("global", begun)
    project.timers.after(session.cloud.settings.change_ms, lambda: project.finish(begun))
    return begun.resource
