"""The rights that a profile needs and no more, as a custom role of Azure. Owns which call needs which right. Pure.

Azure's roles know no tags of VMs: what bounds them is the resource group that the role is assigned on. So a deployment
gets a group of its own, in which nothing else lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_dispatch_azure.settings import AzureSettings

_VM, _DISK = "Microsoft.Compute/virtualMachines", "Microsoft.Compute/disks"
_NIC, _ADDRESS = "Microsoft.Network/networkInterfaces", "Microsoft.Network/publicIPAddresses"
_SUBNET = "Microsoft.Network/virtualNetworks/subnets"
_PERMISSIONS = "Microsoft.Authorization/permissions/read"


def document(settings: AzureSettings, deployment: str) -> dict[str, Any]:
    """The roles for one profile, each to be assigned on its scopes: changes on the group, reads on the subscription."""
    subscription = f"/subscriptions/{settings.subscription}"
    group = f"{subscription}/resourceGroups/{settings.resource_group}"
    used = [one for one in (settings.subnet, settings.security_group, settings.disk_encryption_set) if one]
    return {
        "roles": [
            _role(
                f"cloud-dispatch {deployment}: VMs", "Makes and ends the VMs of its group.", changes(settings),
                [group],
            ),
            _role(
                f"cloud-dispatch {deployment}: use", "Puts VMs into a network.", uses(settings),
                [*used, *images(settings)],
            ),
            _role(
                f"cloud-dispatch {deployment}: look", "Reads sizes, images, limits and states.", reads(settings),
                [subscription],
            ),
        ]
    }  # fmt: skip


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
        "AssignableScopes": scopes,
    }
