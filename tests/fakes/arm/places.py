"""Operations that say what there is: subscriptions, groups, rights, sizes, quotas, images, prices; and tags."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

from tests.fakes.arm import catalogue
from tests.fakes.arm.errors import ArmError
from tests.fakes.arm.launch import checked_tags
from tests.fakes.arm.records import Part, Vm
from tests.fakes.arm.routes import GROUP, SUBSCRIPTION, Answer, Session, route
from tests.fakes.arm.settings import LOCATION, Image

_COMPUTE = "Microsoft.Compute"
_IMAGES = (
    f"{SUBSCRIPTION}/providers/{_COMPUTE}/locations/{{location}}/publishers/{{publisher}}/artifacttypes/vmimage/offers/"
    "{offer}/skus/{sku}/versions"
)
_READ_IMAGES = f"{_COMPUTE}/locations/publishers/artifacttypes/offers/skus/versions/read"
_SIZED = re.compile(r"location eq '([^']+)'", re.IGNORECASE)


@route("GET", SUBSCRIPTION, "Subscriptions_Get", "Microsoft.Resources/subscriptions/read")
def subscription(session: Session) -> Answer:
    name = session.subscription.lower()
    return Answer(document={
        "id": f"/subscriptions/{name}", "subscriptionId": name, "displayName": "fake", "state": "Enabled",
        "tenantId": session.cloud.settings.tenant, "authorizationSource": "RoleBased",
    })  # fmt: skip


@route(
    "GET",
    f"{SUBSCRIPTION}/locations",
    "Subscriptions_ListLocations",
    "Microsoft.Resources/subscriptions/locations/read",
)
def locations(session: Session) -> Answer:
    return Answer(document={"value": [
        {
            "id": f"/subscriptions/{session.subscription}/locations/{name}", "name": name, "displayName": name,
            "type": "Region", "availabilityZoneMappings": [
                {"logicalZone": zone, "physicalZone": f"{name}-az{zone}"} for zone in session.cloud.settings.zones
            ],
        }
        for name in session.cloud.settings.locations
    ]})  # fmt: skip


@route("GET", GROUP, "ResourceGroups_Get", "Microsoft.Resources/subscriptions/resourceGroups/read")
def group(session: Session) -> Answer:
    name = next(name for name in session.cloud.settings.groups if name.lower() == session.at["group"].lower())
    return Answer(document={
        "id": f"/subscriptions/{session.subscription}/resourceGroups/{name}", "name": name, "location": LOCATION,
        "type": "Microsoft.Resources/resourceGroups", "properties": {"provisioningState": "Succeeded"},
    })  # fmt: skip


def _permissions(session: Session) -> Answer:
    """All, but what is denied."""
    return Answer(document={"value": [
        {"actions": ["*"], "notActions": sorted(session.cloud.denied), "dataActions": [], "notDataActions": []}
    ]})  # fmt: skip


_RIGHT = "Microsoft.Authorization/permissions/read"
_PERMISSIONS = "providers/Microsoft.Authorization/permissions"
route("GET", f"{GROUP}/{_PERMISSIONS}", "Permissions_ListForResourceGroup", _RIGHT)(_permissions)
route("GET", f"{GROUP}/providers/{{of+}}/{_PERMISSIONS}", "Permissions_ListForResource", _RIGHT)(_permissions)
route("GET", f"{SUBSCRIPTION}/{_PERMISSIONS}", "Permissions_ListForSubscription", _RIGHT)(_permissions)


# what can be had


@route("GET", f"{SUBSCRIPTION}/providers/{_COMPUTE}/skus", "ResourceSkus_List", f"{_COMPUTE}/skus/read",
       queries=["$filter", "includeExtendedLocations", "$skiptoken"])  # fmt: skip
def skus(session: Session) -> Answer:
    settings = session.cloud.settings
    asked = session.query.get("$filter", "")
    matched = _SIZED.fullmatch(asked.strip())
    if asked and matched is None:
        raise ArmError(
            "InvalidParameter", f"The filter '{asked}' is not supported: the location alone can be asked for."
        )
    places = [name for name in settings.locations if matched is None or matched[1].lower() == name]
    told: list[dict[str, Any]] = [
        catalogue.sku(size, place, settings) for place in places for size in catalogue.SIZES.values()
    ]
    told += [
        {"resourceType": "disks", "name": "Premium_LRS", "tier": "Premium", "size": "P4", "locations": [place],
         "locationInfo": [], "capabilities": [], "restrictions": []}
        for place in places
    ]  # fmt: skip
    return session.page((number, json.dumps(one)) for number, one in enumerate(told, 1))


@route("GET", f"{SUBSCRIPTION}/providers/{_COMPUTE}/locations/{{location}}/usages", "Usage_List",
       f"{_COMPUTE}/locations/usages/read", queries=["$skiptoken"])  # fmt: skip
def usages(session: Session) -> Answer:
    location = _location(session)
    estate = session.estate
    used = {
        name: count for (owner, place, name), count in estate.used.items()
        if owner.lower() == session.subscription.lower() and place == location
    }  # fmt: skip
    told = catalogue.usages(estate.limits(location), used)
    return session.page((number, json.dumps(one)) for number, one in enumerate(told, 1))


def _location(session: Session) -> str:
    location = session.at["location"].lower()
    if location not in session.cloud.settings.locations:
        raise ArmError(
            "NoRegisteredProviderFound", f"No registered resource provider found for location '{location}'.", 400
        )
    return location


def _matching(session: Session) -> list[Image]:
    _location(session)
    wanted = [session.at[name].lower() for name in ("publisher", "offer", "sku")]
    found = [
        image for image in session.cloud.settings.images
        if [image.publisher.lower(), image.offer.lower(), image.sku.lower()] == wanted
    ]  # fmt: skip
    if not found:
        raise ArmError("NotFound", f"Artifact: VMImage was not found: {':'.join(wanted)}")
    return found


@route("GET", _IMAGES, "VirtualMachineImages_List", _READ_IMAGES,
       queries=["$expand", "$top", "$orderby"])  # fmt: skip
def image_versions(session: Session) -> Answer:
    """A bare list, without pages."""
    if session.query.get("$expand"):
        raise session.unmodelled("$expand")
    found = sorted(_matching(session), key=lambda image: image.version)
    if session.query.get("$orderby", "").lower() == "name desc":
        found.reverse()
    most = int(session.query.get("$top", len(found)))
    return Answer(document=[
        {"name": image.version, "location": session.at["location"], "id": f"{session.path}/{image.version}"}
        for image in found[:most]
    ])  # fmt: skip


@route("GET", f"{_IMAGES}/{{version}}", "VirtualMachineImages_Get",
       _READ_IMAGES)  # fmt: skip
def image(session: Session) -> Answer:
    found = sorted(_matching(session), key=lambda image: image.version)
    wanted = session.at["version"]
    chosen = found[-1] if wanted == "latest" else next((one for one in found if one.version == wanted), None)
    if chosen is None:
        raise ArmError("NotFound", f"Artifact: VMImage was not found: version {wanted}")
    features = [{"name": "SecurityType", "value": "TrustedLaunchSupported"}] if chosen.trusted else []
    plan = (
        {"plan": {"name": chosen.plan, "publisher": chosen.publisher, "product": chosen.offer}} if chosen.plan else {}
    )
    return Answer(document={
        "name": chosen.version, "location": session.at["location"],
        "id": f"{session.path.rpartition('/')[0]}/{chosen.version}",
        "properties": {
            "osDiskImage": {"operatingSystem": "Linux", "sizeInGb": chosen.disk_gb}, "dataDiskImages": [],
            "hyperVGeneration": chosen.generation, "architecture": chosen.architecture, "features": features,
            "imageDeprecationStatus": {"imageState": "Active"}, **plan,
        },
    })  # fmt: skip


@route("GET", f"{GROUP}/providers/{_COMPUTE}/galleries/{{gallery}}/images/{{image}}", "GalleryImages_Get",
       f"{_COMPUTE}/galleries/images/read")  # fmt: skip
def definition(session: Session) -> Answer:
    """Of images that the settings have by their ids."""
    versions = f"{session.path}/versions/".lower()
    if not any(one.lower().startswith(versions) for one in session.cloud.settings.image_ids):
        raise ArmError("ResourceNotFound", f"The Resource '{session.path}' was not found.")
    facts = {"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2", "architecture": "x64"}
    return Answer(document={
        "name": session.at["image"], "id": session.path, "location": LOCATION, "properties": facts,
    })  # fmt: skip


# tags of anything


def _tagged(session: Session) -> Vm | Part:
    identity = (
        f"/subscriptions/{session.subscription}/resourceGroups/{session.at['group']}/providers/{session.at['of']}"
    )
    found = session.estate.vms.get(identity.lower()) or session.estate.parts.get(identity.lower())
    if found is None:
        raise ArmError("ResourceNotFound", f"The Resource '{identity}' was not found.")
    return found


def _tags_of(thing: Vm | Part) -> dict[str, str]:
    return thing.tags.true if isinstance(thing, Vm) else thing.tags


_TAGS = f"{GROUP}/providers/{{of+}}/providers/Microsoft.Resources/tags/default"


def _tags_told(session: Session, thing: Vm | Part) -> Answer:
    return Answer(document={
        "id": session.path, "name": "default", "type": "Microsoft.Resources/tags",
        "properties": {"tags": _tags_of(thing)},
    })  # fmt: skip


@route("GET", _TAGS, "Tags_GetAtScope", "Microsoft.Resources/tags/read")
def tags(session: Session) -> Answer:
    return _tags_told(session, _tagged(session))


@route("PATCH", _TAGS, "Tags_UpdateAtScope", "Microsoft.Resources/tags/write")
def update_tags(session: Session) -> Answer:
    """Merge, replace or delete tags, without the resource's own rights."""
    thing, body = _tagged(session), session.body or {}
    if set(body) != {"operation", "properties"} or set(body["properties"]) != {"tags"}:
        raise ArmError("InvalidRequestContent", "An operation and properties.tags are wanted.")
    given, before = body["properties"]["tags"], _tags_of(thing)
    names = {name.lower() for name in given}
    kept = {name: value for name, value in before.items() if name.lower() not in names}
    if body["operation"] == "Merge":
        new = {**kept, **given}
    elif body["operation"] == "Replace":
        new = dict(given)
    elif body["operation"] == "Delete":
        new = kept
    else:
        raise ArmError("InvalidParameter", f"The operation {body['operation']} is not valid.")
    new = checked_tags(new)
    if isinstance(thing, Vm):
        session.estate.retag(thing, new)
    else:
        thing.tags = new
    return _tags_told(session, thing)


# prices


@route("GET", "/api/retail/prices", "RetailPrices", public=True,
       queries=["$filter", "$skip", "currencyCode", "meterRegion"])  # fmt: skip
def prices(session: Session) -> Answer:
    """100 a page, of what the filter lets through: `eq` and `contains`, joined by `and` (and `or` in brackets)."""
    version, wanted = session.query.get("api-version", "2023-01-01-preview"), session.query.get("$filter", "")
    if session.query.get("currencyCode", "USD").strip("'") != "USD":
        raise session.unmodelled("another currency")
    items = [
        item
        for place in session.cloud.settings.locations
        for size in catalogue.SIZES.values()
        for item in catalogue.prices(place, size, session.estate.spot_nano(size, place))
        if _passes(session, wanted, item)
    ]
    skip = int(session.query.get("$skip", 0))
    shown, link = items[skip : skip + 100], None
    if len(items) > skip + 100:
        query = urlencode({"api-version": version, "$filter": wanted, "$skip": skip + 100})
        link = f"{session.url}/api/retail/prices?{query}"
    return Answer(document={
        "BillingCurrency": "USD", "CustomerEntityId": "Default", "CustomerEntityType": "Retail", "Items": shown,
        "NextPageLink": link, "Count": len(shown),
    })  # fmt: skip


_TERM = re.compile(r"\s*(?:(\w+) (eq|ne) '([^']*)'|contains\((\w+), ?'([^']*)'\))\s*")


def _passes(session: Session, wanted: str, item: dict[str, Any]) -> bool:
    """Whether the item is meant. Names in the filter are compared as Azure does: with regard to case."""
    for part in re.split(r" and (?![^(]*\bor\b[^(]*\))", wanted) if wanted else []:
        choices = part.strip()
        if choices.startswith("(") and choices.endswith(")"):
            choices = choices[1:-1]
        if not any(_term(session, choice, item) for choice in choices.split(" or ")):
            return False
    return True


def _term(session: Session, text: str, item: dict[str, Any]) -> bool:
    matched = _TERM.fullmatch(text)
    name = (matched[1] or matched[4]) if matched else ""
    if matched is None or name == "type" or name not in {**item, "reservationTerm": "", "priceType": ""}:
        raise session.unmodelled(f"the filter {text!r}")
    value = str(item.get("type" if name == "priceType" else name, ""))  # the filter has another name for it
    if matched[4]:
        return matched[5] in value
    return (value == matched[3]) is (matched[2] == "eq")
