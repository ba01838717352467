"""Images: by name and by family."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from tests.fakes.gce.records import LINK
from tests.fakes.gce.session import Session, operation
from tests.fakes.gce.settings import Image
from tests.fakes.google.errors import ApiError

_LINK = re.compile(r"(?:https://[^/]+/compute/v1/)?projects/([^/]+)/global/images/(family/)?([^/]+)")


def found_image(session: Session, link: str) -> Image:
    """The image that a link means, by name or by family."""
    named = _LINK.fullmatch(link)
    image = named and _image(session, named[1], named[3], family=bool(named[2]))
    if not image:
        where = link.removeprefix(LINK)
        field = "resource.disks[0].initializeParams.sourceImage"
        why = f"The referenced image resource '{where}' cannot be found."
        raise ApiError("invalid", f"Invalid value for field '{field}': '{link}'. {why}")
    return image


def _image(session: Session, project: str, name: str, *, family: bool) -> Image | None:
    for image in session.cloud.settings.images:
        if image.project != project:
            continue
        if image.name == name and not family:
            return image
        if image.family == name and family and not image.deprecated:
            return image
    return None


def _told(image: Image) -> dict[str, Any]:
    path = image.path
    number = int.from_bytes(hashlib.blake2s(path.encode(), digest_size=7).digest())
    told: dict[str, Any] = {
        "kind": "compute#image", "id": str(number), "name": image.name, "family": image.family,
        "selfLink": f"{LINK}{path}",
        "architecture": image.architecture, "diskSizeGb": str(image.gb), "status": image.status, "sourceType": "RAW",
        "creationTimestamp": "2026-08-01T00:00:00.000-07:00", "archiveSizeBytes": "1200000000",
    }  # fmt: skip
    if image.licenses:
        told["licenses"] = [LINK + "projects/{}/global/licenses/{}".format(*one.split("/")) for one in image.licenses]
    if image.deprecated:
        told["deprecated"] = {"state": image.deprecated}
    return told


@operation("images.get", permission="compute.images.get")
def get(session: Session) -> Any:
    """An image by its name."""
    return _answer(session, session.params["image"], family=False)


@operation("images.getFromFamily", permission="compute.images.getFromFamily")
def get_from_family(session: Session) -> Any:
    """The newest of a family that is not deprecated."""
    return _answer(session, session.params["family"], family=True)


def _answer(session: Session, name: str, *, family: bool) -> Any:
    image = _image(session, session.params["project"], name, family=family)
    if image is None:
        kind = "images/family" if family else "images"
        raise session.missing(f"projects/{session.params['project']}/global/{kind}/{name}")
    return _told(image)
