"""What a profile's settings leave out, in words for `config check`. Needs no SDK."""

from __future__ import annotations

from cloud_dispatch.provider import hand
from cloud_dispatch_azure.settings import AzureSettings

NO_REAPER = (
    "without the reaper NOTHING ends a VM whose dispatcher is gone: on Azure one that shuts itself down bills on. "
    "There is no ceiling on what such a VM costs"
)


def of_settings(settings: AzureSettings) -> list[tuple[str, str]]:
    """Keys, and what to know of them."""
    found = []
    if not settings.reaper:
        found.append((hand.ABOUT, NO_REAPER))
    elif not settings.reaper_sign:
        found.append((hand.ABOUT, hand.UNHEARD))
    if not settings.identity_certificates:
        text = "without the certificates of Azure's signer VMs can't prove who they are, and each launch makes one VM"
        found.append(("identity_certificates", text))
    if settings.endpoint_url:
        found.append(("endpoint_url", f"{settings.endpoint_url} is asked, not Azure"))
    return found
