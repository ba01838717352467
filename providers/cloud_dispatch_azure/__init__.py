"""The Azure provider: VMs of Azure Compute, rented through Azure's own SDK.

Owns the plugin object and nothing else: importing it loads no settings model, no driver, no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from cloud_dispatch.provider.spi import HardEnd, Host, ProfileContext, Provider

_AT = "http://169.254.169.254/metadata"
_HEADERS = {"Metadata": "true"}
#: The attested document: signed by Azure, and made out to the batch by its nonce.
#: (https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service, "Attested data")
PROOF = ({"url": f"{_AT}/attested/document?api-version=2021-02-01&nonce={{nonce}}", "headers": _HEADERS},)
#: What a spot VM hears half a minute before it is taken back ("Scheduled Events for Linux VMs"). An event that has
#: started has no time any more.
NOTICES = (
    {
        "steps": ({"url": f"{_AT}/scheduledevents?api-version=2020-07-01", "headers": _HEADERS},),
        "match": {"EventType": "Preempt", "Resources": "{vm}"},
        "field": "NotBefore",
        "in_ms": 30_000,
    },
)
#: What the SPI knows the VM by is its name, which the metadata service tells cloud-init; `instance-id` is its vmId.
VM_ID = "cloud-init query ds.meta_data.imds.compute.name"


class AzurePlugin:
    """What the entry point `azure` of `cloud_dispatch.providers` names."""

    name = "azure"
    #: Pages of hundreds of VMs are parsed here: in the dispatcher's process that would slow its loop.
    host = Host.PROCESS
    #: The best that a profile can have: with `reaper = true`.
    hard_end = HardEnd.EXTENDABLE

    @property
    def settings(self) -> type[Any]:
        from cloud_dispatch_azure.settings import AzureSettings

        return AzureSettings

    def create(self, context: ProfileContext) -> Provider:
        """A driver for one subscription, resource group and region. ImportError without the SDK."""
        from cloud_dispatch_azure.driver import AzureProvider

        return AzureProvider(context)

    def policy(self, settings: Any, deployment: str, profile: str) -> Mapping[str, Any]:
        """Custom roles, and where to assign them. Needs no SDK."""
        from cloud_dispatch_azure.policy import document

        return document(settings, deployment, profile)

    def notes(self, settings: Any) -> Sequence[str]:
        """What may be wrong with a profile. ImportError without the SDK; imports it not."""
        from cloud_dispatch_azure.doubts import of_settings

        for name in ("azure.identity", "azure.mgmt.compute", "azure.mgmt.network"):
            if not _there(name):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return [f"{about}: {text}" for about, text in of_settings(settings)]

    def check_secret(self, name: str) -> None:
        """ValueError for what names nothing in Key Vault."""
        from cloud_dispatch_azure.secret import check

        check(name)

    def secret(self, name: str) -> str:
        """What Key Vault keeps under this name. ImportError without the SDK."""
        from cloud_dispatch_azure.secret import value

        return value(name)

    def template_variables(self) -> Mapping[str, Any]:
        """A guest that powers off ends only itself: its VM bills on until the dispatcher, or the reaper, deletes it."""
        return {
            "vm_id_command": VM_ID,
            "proof": [dict(step) for step in PROOF],
            "notices": [dict(source) for source in NOTICES],
        }


def _there(module: str) -> bool:
    """Whether it is installed. Looking for a part imports what it is a part of: a package without any code."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


plugin = AzurePlugin()
