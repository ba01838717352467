"""PUT of a virtual machine: whether the body is good, and what is made of it."""

from __future__ import annotations

import base64
import binascii
import copy
from collections.abc import Mapping
from typing import Any

from tests.fakes.arm import documents, hardware, models
from tests.fakes.arm.catalogue import SIZES, Size
from tests.fakes.arm.errors import ArmError
from tests.fakes.arm.estate import CREATE, at_once
from tests.fakes.arm.records import Condition, Part, Phase, Power, Vm
from tests.fakes.arm.routes import GROUP, Answer, Session, route, unheeded
from tests.fakes.arm.settings import Image
from tests.fakes.faults import Call, Market
from tests.fakes.shown import Shown

PATH = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/{{vm}}"
_MOST_DATA = 65_535
_MOST_TAGS, _LONGEST_KEY, _LONGEST_VALUE = 50, 512, 256
_FORBIDDEN_IN_KEYS = frozenset("<>%&\\?/")
#: Members of the body that mean something here.
HEEDS = frozenset({
    "location", "tags", "zones", "identity.type", "identity.userAssignedIdentities",
    "properties.hardwareProfile.vmSize", "properties.priority", "properties.evictionPolicy",
    "properties.billingProfile.maxPrice", "properties.storageProfile.imageReference",
    "properties.storageProfile.osDisk", "properties.storageProfile.diskControllerType",
    "properties.storageProfile.dataDisks", "properties.osProfile", "properties.networkProfile",
    "properties.securityProfile.securityType", "properties.securityProfile.uefiSettings",
    "properties.securityProfile.encryptionAtHost", "properties.userData",
    "properties.diagnosticsProfile.bootDiagnostics", "properties.scheduledEventsProfile",
    "properties.additionalCapabilities.ultraSSDEnabled", "properties.extensionsTimeBudget",
})  # fmt: skip


def _scope(session: Session) -> Call:
    """What faults of launches are matched against."""
    body = session.body if isinstance(session.body, Mapping) else {}
    properties = body.get("properties") or {}
    size = (properties.get("hardwareProfile") or {}).get("vmSize", "")
    location, zones = str(body.get("location", "")), body.get("zones") or []
    market = Market.SPOT if properties.get("priority") in ("Spot", "Low") else Market.ON_DEMAND
    return Call(CREATE, str(size), f"{location}-{zones[0]}" if zones else location, market)


@route("PUT", PATH, CREATE, "Microsoft.Compute/virtualMachines/write", call=_scope)
def put(session: Session) -> Answer:
    """Make it, or answer with the one that there is."""
    models.check("compute", "VirtualMachine", session.body, "Microsoft.Compute/virtualMachines")
    body: dict[str, Any] = session.body
    passed_over = unheeded(HEEDS, body)
    if passed_over:
        raise session.unmodelled(f"the member {passed_over}")
    known = session.estate.vms.get(session.path.lower())
    if known is not None:
        return _again(session, known, body)
    if session.headers.get("if-match"):
        raise ArmError("PreconditionFailed", "There is no resource that the condition of the request speaks of.")
    vm, parts = _made(session, body)
    failure = session.estate.no_room(vm)
    if failure and at_once(failure):
        raise ArmError(failure, f"The requested VM size {vm.size.name} is currently not available in {vm.place}.")
    session.estate.check_quota(vm)
    operation = session.estate.admit(vm, parts, failure)
    return session.accepted(operation, 201, documents.text(session.estate, vm, vm.condition.true, vm.tags.true))


def _again(session: Session, vm: Vm, body: dict[str, Any]) -> Answer:
    """A name that is taken: refused where the caller wanted a new one, else as a PUT of what is there."""
    if session.headers.get("if-none-match") == "*":
        raise ArmError("PreconditionFailed", "The condition 'If-None-Match: *' is not met: the resource exists.")
    check_match(session, vm)
    if vm.phase is Phase.DELETING:
        raise ArmError("OperationNotAllowed", f"The VM '{vm.name}' is being deleted.")
    bare = {name: value for name, value in body.items() if name != "tags"}
    if bare != {name: value for name, value in vm.asked.items() if name != "tags"}:
        raise ArmError("PropertyChangeNotAllowed", f"Changing properties of the VM '{vm.name}' is not allowed.")
    tags = checked_tags(body.get("tags") or {})
    if tags != vm.tags.true:
        session.estate.retag(vm, tags)
    return Answer(text=documents.text(session.estate, vm, vm.condition.true, vm.tags.true))


def check_match(session: Session, vm: Vm) -> None:
    """Refuse where If-Match names another state of it."""
    wanted = session.headers.get("if-match", "*")
    if wanted not in ("*", f'"{vm.etag}"'):
        raise ArmError("PreconditionFailed", "The condition 'If-Match' is not met: the resource has changed.")


def _made(session: Session, body: dict[str, Any]) -> tuple[Vm, list[Part]]:
    estate, asked = session.estate, body.get("properties") or {}
    location = _location(session, body["location"])
    zone = _zone(session, body.get("zones") or [])
    size = _size((asked.get("hardwareProfile") or {}).get("vmSize"))
    place = f"{location}-{zone}" if zone else location
    if {(size.name, place), (size.name, location)} & session.cloud.settings.unoffered:
        raise ArmError("SkuNotAvailable", f"The requested VM size for resource {size.name} is currently not "
                       f"available in location '{location}' zones '{zone}' for the "
                       f"subscription '{session.subscription}'.")  # fmt: skip
    spot, evict_deletes, max_price = _market(session, asked, size, location)
    image = image_of(session, asked.get("storageProfile") or {})
    _check_boot(asked, size, image)
    name = session.at["vm"]
    _check_os(asked.get("osProfile") or {}, name)
    number = estate.new_number("vm")
    parts, network, address = hardware.network_of(session, asked, location, zone, number)
    disks, storage = hardware.disks_of(
        session, asked, size, image, location, zone, checked_tags(body.get("tags") or {})
    )
    properties = _told(asked, storage, network, estate.new_id("vm"))
    tags = Shown(checked_tags(body.get("tags") or {}), 0)
    vm = Vm(
        session.path, session.subscription, session.at["group"], name, location, zone, size, spot, evict_deletes,
        max_price, properties["vmId"], number, properties, copy.deepcopy(body), _around(session, body),
        _decoded((asked.get("osProfile") or {}).get("customData"), "customData"),
        asked.get("userData") or "", Shown(Condition(Phase.CREATING, Power.STARTING), estate.now +
        session.cloud.settings.appears_ms), tags, estate.now, address, image.urn,
    )  # fmt: skip
    _decoded(asked.get("userData"), "userData")
    for part in (*parts, *disks):
        part.holder = part.holder or vm.key
    return vm, [*parts, *disks]


def _told(asked: dict[str, Any], storage: dict[str, Any], network: dict[str, Any], vm_id: str) -> dict[str, Any]:
    """What is told of the request afterwards: no secrets, no user data."""
    told = {name: value for name, value in copy.deepcopy(asked).items() if name != "userData"}
    system = told.get("osProfile", {})
    for secret in ("customData", "adminPassword"):
        system.pop(secret, None)
    system.setdefault("allowExtensionOperations", True)
    system.setdefault("secrets", [])
    return {**told, "vmId": vm_id, "storageProfile": storage, "networkProfile": network}


def _around(session: Session, body: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if body.get("zones"):
        told["zones"] = body["zones"]
    identity = body.get("identity")
    if identity:
        told["identity"] = {"type": identity["type"]}
        if "SystemAssigned" in identity["type"]:
            told["identity"] |= {
                "principalId": session.estate.new_id("principal"), "tenantId": session.cloud.settings.tenant,
            }  # fmt: skip
        for named in identity.get("userAssignedIdentities") or ():
            session.permit("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", named)
        if identity.get("userAssignedIdentities"):
            told["identity"]["userAssignedIdentities"] = identity["userAssignedIdentities"]
    return told


def _location(session: Session, asked: str) -> str:
    location = asked.replace(" ", "").lower()
    if location not in session.cloud.settings.locations:
        raise ArmError("LocationNotAvailableForResourceType", f"The provided location '{asked}' is not available.")
    return location


def _zone(session: Session, zones: list[str]) -> str:
    if len(zones) > 1:
        raise ArmError("InvalidParameter", "A virtual machine is in one availability zone.")
    if zones and zones[0] not in session.cloud.settings.zones:
        raise ArmError("AvailabilityZoneNotSupported", f"The zone '{zones[0]}' is not supported.")
    return zones[0] if zones else ""


def _size(name: str | None) -> Size:
    size = SIZES.get((name or "").lower())
    if size is None:
        raise ArmError("InvalidParameter", f"The value {name} provided for the VM size is not valid.")
    return size


def _market(session: Session, asked: Mapping[str, Any], size: Size, location: str) -> tuple[bool, bool, float]:
    spot = asked.get("priority", "Regular") == "Spot"
    policy, price = asked.get("evictionPolicy"), (asked.get("billingProfile") or {}).get("maxPrice", -1)
    if not spot:
        if policy is not None or "billingProfile" in asked:
            raise ArmError("InvalidParameter", "Eviction policy and billing profile can be set on Spot VMs only.")
        return False, False, -1.0
    if not size.spot:
        raise ArmError("OperationNotAllowed", f"Azure Spot is not supported for the VM size {size.name}.")
    if policy not in (None, "Delete", "Deallocate"):
        raise ArmError("InvalidParameter", f"The eviction policy {policy} is not valid.")
    now = session.estate.spot_nano(size, location) / 1e9
    if price != -1 and price < now:
        raise ArmError(
            "SpotPriceGreaterThanProvidedMaxPrice",
            f"Unable to perform operation 'Create VM' since the provided max price '{price} USD' is lower than the "
            f"current spot price '{now} USD' for Azure Spot VM size '{size.name}'.",
        )
    return True, policy == "Delete", float(price)


def image_of(session: Session, storage: Mapping[str, Any]) -> Image:
    """The version that the reference names; the latest where it says so."""
    asked = storage.get("imageReference") or {}
    if "id" in asked:
        if asked["id"].lower() not in {one.lower() for one in session.cloud.settings.image_ids}:
            raise ArmError("NotFound", f"The image '{asked['id']}' was not found.")
        return Image("", "", "", "", "x64")
    names = [str(asked.get(name, "")) for name in ("publisher", "offer", "sku")]
    if set(asked) - {"publisher", "offer", "sku", "version"}:
        raise session.unmodelled("an image reference of another kind")
    found = [
        image
        for image in session.cloud.settings.images
        if [part.lower() for part in (image.publisher, image.offer, image.sku)] == [name.lower() for name in names]
        and asked.get("version", "latest") in ("latest", image.version)
    ]
    if not found:
        raise ArmError("PlatformImageNotFound", f"The platform image '{':'.join(names)}:{asked.get('version')}' is not "
                       "available. Verify that all fields in the storage profile are correct.")  # fmt: skip
    return max(found, key=lambda image: image.version)


def _check_boot(asked: Mapping[str, Any], size: Size, image: Image) -> None:
    """Whether this size boots this image so."""
    if image.plan:  # one can't be named here
        raise ArmError("VMMarketplaceInvalidInput", "Creating a virtual machine from this Marketplace image requires "
                       "Plan information in the request.")  # fmt: skip
    if image.architecture != size.architecture:
        raise ArmError("BadRequest", f"Cannot create a VM of size '{size.name}' because this VM size only supports a "
                       f"CPU Architecture of '{size.architecture}', but an image or disk with CPU Architecture "
                       f"'{image.architecture}' was given.")  # fmt: skip
    if image.generation not in size.generations.split(","):
        raise ArmError("BadRequest", f"The selected VM size '{size.name}' cannot boot Hypervisor Generation "
                       f"'{image.generation[1:]}'.")  # fmt: skip
    security = asked.get("securityProfile") or {}
    if size.confidential:  # a confidential VM can't be made here
        raise ArmError("BadRequest", f"The VM size '{size.name}' is not supported for creation of VMs with "
                       f"'{security.get('securityType', '<NULL>')}' security type.")  # fmt: skip
    if security.get("securityType") == "TrustedLaunch" and not (size.trusted and image.trusted):
        raise ArmError("BadRequest", f"Trusted launch is not supported by {size.name} with this image.")
    if security.get("securityType") not in (None, "TrustedLaunch", "Standard"):
        raise ArmError("BadRequest", f"Security type {security['securityType']} is not supported here.")
    if "uefiSettings" in security and security.get("securityType") != "TrustedLaunch":
        raise ArmError("BadRequest", "UEFI settings are of trusted launch.")


def _check_os(profile: Mapping[str, Any], name: str) -> None:
    if not 1 <= len(name) <= 64 or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise ArmError("InvalidParameter", f"The VM name '{name}' is not valid.")
    for member in ("computerName", "adminUsername"):
        if not profile.get(member):
            raise ArmError("InvalidParameter", f"Required parameter 'osProfile.{member}' is missing (null).")
    host = str(profile["computerName"])
    if len(host) > 64 or "_" in host or host.isdecimal():
        raise ArmError("InvalidParameter", f"Linux host name '{host}' is not valid.")
    linux = profile.get("linuxConfiguration") or {}
    keys = (linux.get("ssh") or {}).get("publicKeys") or []
    if linux.get("disablePasswordAuthentication") and not keys:
        raise ArmError("InvalidParameter", "Parameter 'linuxConfiguration.ssh.publicKeys' is required.")
    if not keys and not profile.get("adminPassword"):
        raise ArmError(
            "InvalidParameter", "Authentication using either SSH or by user name and password must be enabled."
        )
    for key in keys:
        if not str(key.get("keyData", "")).startswith(("ssh-rsa ", "ssh-ed25519 ")):
            raise ArmError(
                "InvalidParameter", "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid."
            )


def _decoded(text: str | None, name: str) -> bytes:
    """User data as they were before base64, within their limit."""
    try:
        found = base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        raise ArmError("InvalidParameter", f"{name} is not in valid base64.") from None
    if len(found) > _MOST_DATA:
        raise ArmError("InvalidParameter", f"{name} is longer than {_MOST_DATA} bytes.")
    return found


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as Azure allows them: names differ in more than case."""
    if len(tags) > _MOST_TAGS:
        raise ArmError("InvalidTagsCount", f"A resource has at most {_MOST_TAGS} tags.", 400)
    if len({name.lower() for name in tags}) != len(tags):
        raise ArmError("DuplicateTag", "Names of tags are the same but for case.", 400)
    for name, value in tags.items():
        reserved = name.lower().startswith(("microsoft", "azure", "windows"))
        if not 1 <= len(name) <= _LONGEST_KEY or set(name) & _FORBIDDEN_IN_KEYS or reserved:
            raise ArmError("InvalidTagNameCharacters", f"The tag name '{name}' is not valid.", 400)
        if not isinstance(value, str) or len(value) > _LONGEST_VALUE:
            raise ArmError("InvalidTagValue", f"The value of the tag '{name}' is too long.", 400)
    return dict(tags)
