"""The local provider: instances are process trees on this host, booted from the same cloud-init templates as VMs.

Owns the plugin object and nothing else: importing it loads no settings model, no driver, no event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloud_dispatch.provider.spi import ProfileContext, Provider


class LocalPlugin:
    """What the entry point `local` of `cloud_dispatch.providers` names."""

    name = "local"
    #: Its prices are imagined: nobody sends a bill for process trees.
    bills = False

    @property
    def settings(self) -> type[Any]:
        from cloud_dispatch_local.settings import LocalSettings

        return LocalSettings

    def create(self, context: ProfileContext) -> Provider:
        """A driver over `<root>/vms`, `root` being the profile's setting or else the profile's own state folder."""
        from cloud_dispatch_local.driver import LocalProvider

        return LocalProvider(context)

    def template_variables(self) -> Mapping[str, Any]:
        """Paths are relative: to the VM's own disk, which is where its commands start. The last boot command is the
        service, and its end the power-off: nothing else keeps it, and there is no command to end with. Users are given
        to each VM by its machine, not to all of a batch by their user data. The proof of identity lies beside the
        disk, in the VM's own folder."""
        import sys

        return {
            "base_folder": "cloud-dispatch",
            "vm_id_command": 'printf %s "$CLOUD_DISPATCH_VM_ID"',
            "end_command": "",
            "python": sys.executable,
            "whole_machine": "",
            "service": "",
            "agent_user": "",
            "task_uids": "",
            "proof": [{"file": "../../identity"}],
        }


plugin = LocalPlugin()
