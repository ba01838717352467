"""Objects of Cloud Storage: their metadata alone. One is there once a test has put it there."""

from __future__ import annotations

from typing import Any

from tests.fakes.gce.session import Session, operation
from tests.fakes.google.errors import ApiError


def _found(session: Session) -> dict[str, str]:
    bucket, name = session.params["bucket"], session.params["object"]
    found = session.cloud.objects.get((bucket, name))
    if found is None:
        raise ApiError("notFound", f"No such object: {bucket}/{name}")
    return found


def _told(session: Session) -> dict[str, Any]:
    return {
        "kind": "storage#object", "bucket": session.params["bucket"], "name": session.params["object"],
        "metadata": dict(_found(session)),
    }  # fmt: skip


@operation("objects.get", service="storage", permission="storage.objects.get")
def get_object(session: Session) -> Any:
    """One object."""
    return _told(session)


@operation("objects.patch", "metadata", service="storage", permission="storage.objects.update")
def patch_object(session: Session) -> Any:
    """Other metadata: what is named is changed, the rest stays."""
    session.permit("storage.objects.get")  # its answer is what there is then
    _found(session).update(session.body.get("metadata", {}))
    return _told(session)
