"""The rights that a profile needs and no more, as a custom role of Azure. Owns which call needs which right. Pure.

Azure's roles know no tags of VMs: what bounds them is the resource group that the role is assigned on. So a deployment
gets a group of its own, in which nothing else lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_dispatch_azure import paths
from cloud_dispatch_azure.settings import AzureSettings

_VM, _DISK = "Microsoft.Compute/virtualMachines", "Microsoft.Compute/disks"
_NIC, _ADDRESS = "Microsoft.Network/networkInterfaces", "Microsoft.Network/publicIPAddresses"
_TAGS = "Microsoft.Resources/tags/read"
_SUBNET = "Microsoft.Network/virtualNetworks/subnets"


def document(settings: AzureSettings, deployment: str, profile: str) -> dict[str, Any]:
    """The roles for one profile, and where each is to be assigned: changes on the group, use on what is used, reads on
    the subscription. A custom role's name is the only one of its kind in a tenant, so that it names the profile too."""
    name = f"cloud-dispatch {deployment} {profile}"
    made = [
        (f"{name}: VMs", "Makes and ends the VMs of its group.", changes(settings), [_group(settings)]),
        (f"{name}: use", "Puts VMs into a network, and boots images.", uses(settings), used(settings)),
        (f"{name}: look", "Reads sizes, images, limits and states.", reads(settings), [paths.subscription(settings)]),
    ]
    if settings.reaper_sign:
        made.append((f"{name}: hear", "Reads the reaper's signs of life.", [_TAGS], [settings.reaper_sign]))
    return {
        "roles": [_role(*one) for one in made],
        "assignments": [{"role": role, "scope": scope} for role, _, _, scopes in made for scope in scopes],
    }


def _group(settings: AzureSettings) -> str:
    """As it is written, not as it stands in an address."""
    return f"{paths.subscription(settings)}/resourceGroups/{settings.resource_group}"


def used(settings: AzureSettings) -> list[str]:
    """What the settings name and VMs need beside their group. Of an image of a gallery its definition, as that is read
    too, and a right on it is one on its versions."""
    named = [settings.subnet, settings.security_group, settings.disk_encryption_set, settings.identity]
    return list(dict.fromkeys([*filter(None, named), *(_definition(name) for name in images(settings))]))


def _definition(image: str) -> str:
    return image.partition("/versions/")[0]


def _bound(scope: str) -> str:
    """The subscription or resource group that a scope is in: where a role can be assigned may be said by these alone,
    though it is then assigned on less."""
    parts = scope.split("/")
    return "/".join(parts[: 5 if len(parts) > 4 and parts[3].lower() == "resourcegroups" else 3])


def changes(settings: AzureSettings) -> list[str]:
    """On the resource group."""
    kinds = [_VM, _DISK, _NIC, _ADDRESS]
    rights = [f"{kind}/{right}" for kind in kinds for right in ("delete", "read", "write")]
    if not settings.public_address:  # one that is left over is found and deleted all the same
        rights.remove(f"{_ADDRESS}/write")
    else:
        rights.append(f"{_ADDRESS}/join/action")
    more = [
        f"{_NIC}/join/action",
        f"{_VM}/retrieveBootDiagnosticsData/action",
        "Microsoft.Authorization/permissions/read",
    ]
    return sorted([*rights, *more])


def uses(settings: AzureSettings) -> list[str]:
    """On the network and what else the settings name, which may be in other groups."""
    rights = [f"{_SUBNET}/join/action", f"{_SUBNET}/read"]
    if settings.security_group:
        rights += [f"Microsoft.Network/networkSecurityGroups/{right}" for right in ("join/action", "read")]
    if settings.disk_encryption_set:
        rights.append("Microsoft.Compute/diskEncryptionSets/read")
    if settings.identity:
        rights.append("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action")
    for name in images(settings):
        kind = name.partition("/providers/Microsoft.Compute/")[2].partition("/")[0]
        if kind == "galleries":
            rights += ["Microsoft.Compute/galleries/images/read", "Microsoft.Compute/galleries/images/versions/read"]
        else:
            rights.append("Microsoft.Compute/images/read")
    return sorted(set(rights))


def images(settings: AzureSettings) -> list[str]:
    """Images of one's own."""
    return [name for name in settings.images.values() if name.startswith("/subscriptions/")]


def reads(settings: AzureSettings) -> list[str]:
    """On the subscription: what state VMs are in is listed for all of it alone."""
    return [
        "Microsoft.Compute/locations/operations/read",
        "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",
        "Microsoft.Compute/locations/usages/read",
        "Microsoft.Compute/skus/read",
        f"{_VM}/read",
    ]


def unseen(settings: AzureSettings) -> list[str]:
    """Those that nothing but a launch shows: Azure tells rights of a group, and the others are tried by looking."""
    untried = {"Microsoft.Compute/locations/operations/read", "Microsoft.Compute/diskEncryptionSets/read"}
    return [one for one in (*uses(settings), *reads(settings)) if one.endswith("/action") or one in untried]


def _role(name: str, description: str, actions: list[str], scopes: list[str]) -> Mapping[str, Any]:
    return {
        "Name": name,
        "IsCustom": True,
        "Description": description,
        "Actions": actions,
        "NotActions": [],
        "DataActions": [],
        "NotDataActions": [],
        "AssignableScopes": list(dict.fromkeys(_bound(scope) for scope in scopes)),
    }
