"""Where ARM lists what is asked for without the SDK's models, and in which version of its words. Pure."""

from __future__ import annotations

from urllib.parse import quote

from cloud_dispatch.provider.spi import LeftoverKind
from cloud_dispatch_azure.settings import AzureSettings

#: The versions are those that the SDK asks for one of a kind in, so that both look alike.
_VMS = ("Microsoft.Compute/virtualMachines", "2026-04-01")
_PARTS = {
    LeftoverKind.DISK: ("Microsoft.Compute/disks", "2026-03-02"),
    LeftoverKind.NIC: ("Microsoft.Network/networkInterfaces", "2026-03-01"),
    LeftoverKind.ADDRESS: ("Microsoft.Network/publicIPAddresses", "2026-03-01"),
}
#: Of the definitions of images in galleries.
_DEFINITIONS = "2026-03-03"
_TAGS = ("Microsoft.Resources/tags/default", "2021-04-01")
_RIGHTS = ("Microsoft.Authorization/permissions", "2022-04-01")


def group(settings: AzureSettings) -> str:
    """The resource group, as a scope."""
    return f"{subscription(settings)}/resourceGroups/{quote(settings.resource_group)}"


def subscription(settings: AzureSettings) -> str:
    """The subscription, as a scope."""
    return f"/subscriptions/{settings.subscription}"


def machines(settings: AzureSettings) -> str:
    """The VMs of the group, without what state each is in."""
    return _all(group(settings), _VMS)


def states(settings: AzureSettings) -> str:
    """The states of the subscription's VMs."""
    return f"{_all(subscription(settings), _VMS)}&statusOnly=true"


def parts(settings: AzureSettings, kind: LeftoverKind) -> str:
    """The disks, interfaces or addresses of the group."""
    return _all(group(settings), _PARTS[kind])


def definition(image: str) -> str:
    """The definition of an image in a gallery, which may be of another subscription than the profile's."""
    return f"{quote(image)}?api-version={_DEFINITIONS}"


def permissions(scope: str) -> str:
    """What the credentials may do in a scope."""
    return _all(scope, _RIGHTS)


def tags(scope: str) -> str:
    """The tags of a resource, by themselves."""
    return _all(quote(scope), _TAGS)


def _all(scope: str, kind: tuple[str, str]) -> str:
    name, version = kind
    return f"{scope}/providers/{name}?api-version={version}"
