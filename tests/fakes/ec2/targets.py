"""What a request is done to, as permissions and DryRun see it: things that exist, with their tags, or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.aws.errors import AwsError
from tests.fakes.ec2.session import Session

_IDS = ("InstanceId", "VolumeId", "NetworkInterfaceId", "AllocationId", "SnapshotId")
_LISTS = ("InstanceIds", "Resources")
#: By how ids begin: where they are kept, and what is said of one that is not there.
_KINDS = {
    "i-": ("instances", "InvalidInstanceID.NotFound"),
    "vol-": ("volumes", "InvalidVolume.NotFound"),
    "eni-": ("interfaces", "InvalidNetworkInterfaceID.NotFound"),
    "eipalloc-": ("addresses", "InvalidAllocationID.NotFound"),
    "snap-": ("snapshots", "InvalidSnapshot.NotFound"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """One id of a request. `tags` is None where nothing has that id."""

    id: str
    code: str
    tags: Mapping[str, str] | None

    def carries(self, key: str, value: str) -> bool:
        """Whether it is there and has this tag; "*" for any value."""
        return self.tags is not None and key in self.tags and value in ("*", self.tags[key])

    def check(self) -> None:
        """Fail where it is not there."""
        if self.tags is None:
            raise AwsError(self.code, f"The ID '{self.id}' does not exist")


def targets(session: Session, params: Mapping[str, Any]) -> list[Target]:
    """What the request names to be changed or looked at, by its id."""
    if session.operation.service.name != "ec2" or session.operation.name.startswith(("Describe", "Run")):
        return []
    ids = [params[name] for name in _IDS if name in params]
    ids += [one for name in _LISTS for one in params.get(name, ())]
    return [_target(session, one) for one in ids]


def _target(session: Session, identity: str) -> Target:
    for prefix, (attribute, code) in _KINDS.items():
        if identity.startswith(prefix):
            found = getattr(session.region, attribute).get(identity)
            if found is None:
                return Target(identity, code, None)
            tags = found.tags.true if attribute == "instances" else found.tags
            return Target(identity, code, dict(tags.items))
    return Target(identity, "InvalidID", None)
