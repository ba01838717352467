"""The Google Cloud provider: VMs are Compute Engine instances, rented through google-cloud-compute.

Owns the plugin object and nothing else: importing it loads no settings model, no driver, no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from cloud_dispatch.provider.spi import HardEnd, Host, ProfileContext, Provider

_AT = "http://169.254.169.254/computeMetadata/v1/instance"
_HEADERS = {"Metadata-Flavor": "Google"}
#: A token that Google signs for the VM's service account, made out to the batch; `format=full` has the VM in it.
PROOF = ({"url": f"{_AT}/service-accounts/default/identity?audience={{audience}}&format=full", "headers": _HEADERS},)
#: What a spot VM hears: TRUE once it is being taken back, and thirty seconds are left ("Spot VMs", preemption process).
#: A maintenance event that a VM can't be moved away from (GPUs) is told an hour ahead: an advice, and it drains
#: ("Monitor and plan for a host maintenance event").
NOTICES = (
    {"steps": ({"url": f"{_AT}/preempted", "headers": _HEADERS},), "answer": "TRUE", "in_ms": 30_000},
    {
        "steps": ({"url": f"{_AT}/maintenance-event", "headers": _HEADERS},),
        "answer": "TERMINATE_ON_HOST_MAINTENANCE",
        "advice": True,
    },
)

#: The VM's id as the driver has it, ZONE/NAME: cloud-init knows a number. By Python, since that is on every image that
#: an agent runs on, and past any proxy; for as long as it takes until the network is there.
VM_ID = f""""$python" - <<'END'
import time, urllib.request
direct = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
def ask(what):
    said = urllib.request.Request("{_AT}/" + what, headers={_HEADERS})
    for left in range(30, -1, -1):
        try:
            return direct.open(said, timeout=5).read().decode().rpartition("/")[2]
        except OSError:
            if not left:
                raise
            time.sleep(1)
print(ask("zone") + "/" + ask("name"))
END
"""


class GcpPlugin:
    """What the entry point `gcp` of `cloud_dispatch.providers` names."""

    name = "gcp"
    #: Pages of hundreds of VMs are parsed here: in the dispatcher's process that would slow its loop.
    host = Host.PROCESS
    #: Compute Engine deletes a VM that runs at the end of its `maxRunDuration`, which is set when it is made.
    hard_end = HardEnd.FIXED

    @property
    def settings(self) -> type[Any]:
        from cloud_dispatch_gcp.settings import GcpSettings

        return GcpSettings

    def create(self, context: ProfileContext) -> Provider:
        """A driver for one project. ImportError without google-cloud-compute."""
        from cloud_dispatch_gcp.driver import GcpProvider

        return GcpProvider(context)

    def policy(self, settings: Any, deployment: str, profile: str) -> Mapping[str, Any]:
        """A custom IAM role, as `gcloud iam roles create --file` reads it. Needs no SDK."""
        from cloud_dispatch_gcp.policy import role

        return role(settings, deployment)

    def notes(self, settings: Any) -> Sequence[str]:
        """What may be wrong with a profile. ImportError without the SDK; imports it not."""
        from cloud_dispatch_gcp.settings import notes

        if find_spec("google") is None or find_spec("google.cloud") is None or not find_spec("google.cloud.compute_v1"):
            raise ModuleNotFoundError("No module named 'google.cloud.compute_v1'", name="google.cloud.compute_v1")
        return notes(settings)

    def check_secret(self, name: str) -> None:
        """ValueError for what names nothing in Secret Manager."""
        from cloud_dispatch_gcp.secret import check

        check(name)

    def secret(self, name: str) -> str:
        """What Secret Manager keeps under this name. ImportError without the SDK."""
        from cloud_dispatch_gcp.secret import value

        return value(name)

    def template_variables(self) -> Mapping[str, Any]:
        """A guest that powers off leaves a stopped VM without a hard end, whose disk bills until somebody deletes it:
        the dispatcher, the reaper, or `reap --overdue`. Staying on until Google deletes it would bill cores and GPUs
        meanwhile."""
        return {
            "proof": [dict(step) for step in PROOF],
            "notices": [dict(source) for source in NOTICES],
            "vm_id_command": VM_ID,
        }


plugin = GcpPlugin()
