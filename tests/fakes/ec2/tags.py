"""The operations on tags, of instances and of what belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.fakes.aws.errors import AwsError
from tests.fakes.ec2.instances import visible
from tests.fakes.ec2.places import page_of_things
from tests.fakes.ec2.records import Instance, Tags
from tests.fakes.ec2.session import Session, operation
from tests.fakes.ec2.tagging import checked

_KINDS = {
    "vol-": ("volumes", "InvalidVolume.NotFound", "volume"),
    "eni-": ("interfaces", "InvalidNetworkInterfaceID.NotFound", "network-interface"),
    "eipalloc-": ("addresses", "InvalidAllocationID.NotFound", "elastic-ip"),
    "snap-": ("snapshots", "InvalidSnapshot.NotFound", "snapshot"),
    "sir-": ("spot_requests", "InvalidSpotInstanceRequestID.NotFound", "spot-instances-request"),
}
#: So many resources may be tagged at once.
_MOST_RESOURCES = 1_000


def _taggable(session: Session, identity: str) -> tuple[Any, str]:
    """A resource that has tags, and the word for its kind."""
    if identity.startswith("i-"):
        ((vm, _, _),) = visible(session, [identity])
        return vm, "instance"
    for prefix, (attribute, code, kind) in _KINDS.items():
        if identity.startswith(prefix):
            found = getattr(session.region, attribute).get(identity)
            if found is None:
                raise AwsError(code, f"The {kind} ID '{identity}' does not exist")
            return found, kind
    raise AwsError("InvalidID", f"The ID '{identity}' is not valid")


def _true_tags(thing: Any) -> dict[str, str]:
    tags: Tags = thing.tags.true if isinstance(thing, Instance) else thing.tags
    return tags.items


@operation("ec2", "CreateTags", "Resources", "Tags")
def create_tags(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """CreateTags: all resources or none."""
    if len(params["Resources"]) > _MOST_RESOURCES:
        raise AwsError("InvalidParameterValue", f"at most {_MOST_RESOURCES} resources a call")
    visible(session, [identity for identity in params["Resources"] if identity.startswith("i-")])  # names all missing
    things = [_taggable(session, identity)[0] for identity in params["Resources"]]
    given = checked(params["Tags"])
    merged = [Tags({**_true_tags(thing), **given}) for thing in things]
    for tags in merged:
        checked(tags.members)
    for thing, tags in zip(things, merged, strict=True):
        session.region.retag(thing, tags)
    return {}


@operation("ec2", "DeleteTags", "Resources", "Tags")
def delete_tags(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DeleteTags. A tag with a value goes only where it has that value; without tags all go."""
    for thing, _ in [_taggable(session, identity) for identity in params["Resources"]]:
        gone = params.get("Tags", [{"Key": key} for key in _true_tags(thing)])
        dropped = {(tag.get("Key"), tag.get("Value")) for tag in gone}
        left = {key: value for key, value in _true_tags(thing).items() if not dropped & {(key, value), (key, None)}}
        session.region.retag(thing, Tags(left))
    return {}


@operation("ec2", "DescribeTags", "Filters", "NextToken", "MaxResults")
def describe_tags(session: Session, params: dict[str, Any]) -> Mapping[str, Any]:
    """DescribeTags."""
    region, at = session.region, session.now - session.staleness_ms()
    everything: list[tuple[str, str, Mapping[str, str]]]
    everything = [(vm.id, "instance", _shown(vm, at)) for vm in region.instances.values()]
    everything += [(one.id, "volume", one.tags.items) for one in region.volumes.values()]
    everything += [(one.id, "network-interface", one.tags.items) for one in region.interfaces.values()]
    everything += [(one.id, "spot-instances-request", one.tags.items) for one in region.spot_requests.values()]
    things = [
        {"ResourceId": identity, "ResourceType": kind, "Key": key, "Value": value}
        for identity, kind, tags in everything
        for key, value in tags.items()
    ]
    getters: Mapping[str, Callable[[Any], Iterable[str]]] = {
        "resource-id": lambda one: (one["ResourceId"],),
        "resource-type": lambda one: (one["ResourceType"],),
        "key": lambda one: (one["Key"],),
        "value": lambda one: (one["Value"],),
    }
    found, token = page_of_things(session, params, things, getters)
    return {"Tags": found, "NextToken": token}


def _shown(vm: Instance, at: int) -> Mapping[str, str]:
    shown = vm.shown(at)
    return shown[1].items if shown else {}
