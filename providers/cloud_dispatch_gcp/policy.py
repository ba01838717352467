"""The rights that a profile needs and no more, as a custom IAM role. Owns which call needs which right. Pure.

A role says what may be done, and its binding where. Compute Engine can't be told by label what may be changed, but by
name: two deployments that shall not touch each other's VMs need a `name_prefix` each, or a project.
"""

from __future__ import annotations

from typing import Any

from cloud_dispatch_gcp.settings import GcpSettings, without_subnet

#: Asked of the VMs' service account, not of the project: it is in no role for the project.
ACT_AS = "iam.serviceAccounts.actAs"

_READS = (
    "compute.addresses.list", "compute.disks.list", "compute.instances.get", "compute.instances.getSerialPortOutput",
    "compute.instances.list", "compute.machineTypes.list", "compute.projects.get", "compute.regions.get",
    "compute.zoneOperations.get", "compute.zoneOperations.list", "compute.globalOperations.list", "compute.zones.list",
)  # fmt: skip
_CHANGES = (
    "compute.addresses.delete", "compute.disks.create", "compute.disks.delete", "compute.disks.setLabels",
    "compute.instances.create", "compute.instances.delete", "compute.instances.setLabels",
    "compute.instances.setMetadata",
)  # fmt: skip


def permissions(settings: GcpSettings) -> list[str]:
    """What the dispatcher's account must be allowed in the project."""
    found = [*_READS, *_CHANGES, "compute.subnetworks.use"]
    if settings.subnets:
        found.append("compute.subnetworks.get")
    if without_subnet(settings):
        found.append("compute.networks.get")
    if settings.public_address:
        found.append("compute.subnetworks.useExternalIp")
    if settings.service_account:
        found.append("compute.instances.setServiceAccount")
    if settings.network_tags:
        found.append("compute.instances.setTags")
    if settings.accelerators:
        found.append("compute.acceleratorTypes.list")
    if any(f"projects/{settings.project}/" in image for image in settings.images.values()):
        found += ["compute.images.get", "compute.images.getFromFamily", "compute.images.useReadOnly"]
    return sorted(set(found))


def role(settings: GcpSettings, deployment: str) -> dict[str, Any]:
    """For one profile of `deployment`, as `gcloud iam roles create --file` reads it. Beside it the account needs
    `roles/iam.serviceAccountUser` on the VMs' service account, where they have one."""
    return {
        "title": "cloud-dispatch",
        "description": f"Launches, watches and ends the VMs of the deployment {deployment}",
        "stage": "GA",
        "includedPermissions": permissions(settings),
    }
