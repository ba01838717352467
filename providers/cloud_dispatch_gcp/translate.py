"""Between Compute Engine's words and ours: instances to insert, instances listed, leftovers. Pure: no clock.

Listed values are read as plain protocol buffers: the SDK's own wrapping of each field makes long listings slow.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from google.cloud import compute_v1

from cloud_dispatch.domain.ids import InstanceId, VmId, slot_of
from cloud_dispatch.domain.labels import filter_of, to_tags
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.spi import LaunchRequest, Leftover, LeftoverKind, Traits, Vm, VmState
from cloud_dispatch_gcp import labels, machines
from cloud_dispatch_gcp.settings import GIB, GcpSettings, region_of

#: Bytes of user data: one value of the metadata may have 256 KiB ("Metadata limitations"), and values are text, so that
#: what is packed travels as base64.
MAX_USER_DATA = 262_144 // 4 * 3
#: Each slot is an insert of its own, and all of a launch are sent at once.
MAX_BATCH = 25
#: What `maxRunDuration` may be ("Limit the run time of a VM").
MIN_RUN_S, MAX_RUN_S = 30, 120 * 86_400
_STATES = {
    "PROVISIONING": VmState.PENDING,
    "STAGING": VmState.PENDING,
    "PENDING": VmState.PENDING,
    "RUNNING": VmState.RUNNING,
    # It had an error of its host, and comes back by itself.
    "REPAIRING": VmState.RUNNING,
    "PENDING_STOP": VmState.STOPPING,
    "STOPPING": VmState.STOPPING,
    "SUSPENDING": VmState.STOPPING,
    "DEPROVISIONING": VmState.STOPPING,
    "STOPPED": VmState.STOPPED,
    "SUSPENDED": VmState.STOPPED,
    "TERMINATED": VmState.STOPPED,
}
#: A local SSD has 375 GiB.
_LOCAL_SSD = 375 * GIB


def check(request: LaunchRequest, user_data: bytes, traits: Traits) -> None:
    """InvalidRequest for what can be known to be wrong before anything is asked. `user_data`: as it is sent."""
    if not 1 <= request.slots <= traits.max_batch:
        raise InvalidRequest(f"{request.slots} VMs in one launch (expected 1-{traits.max_batch})")
    if request.min_slots != 1:
        raise InvalidRequest(f"min_slots = {request.min_slots}: this driver can't launch all or nothing")
    if len(request.instances) != request.slots:
        raise InvalidRequest(f"{len(request.instances)} names for {request.slots} slots")
    if len(user_data) > traits.max_user_data:
        raise InvalidRequest(f"user data is {len(user_data)} bytes as it is sent, over {traits.max_user_data}")
    labels.of_tags(request.tags)


def check_offering(offering: Offering, settings: GcpSettings) -> None:
    """InvalidRequest for what this profile does not rent."""
    if not any(fnmatchcase(offering.type.name, pattern) for pattern in settings.instance_types):
        raise InvalidRequest(f"the profile has no type {offering.type.name!r}")
    if region_of(offering.zone) not in settings.regions or (settings.zones and offering.zone not in settings.zones):
        raise InvalidRequest(f"the profile has no zone {offering.zone!r}")
    if offering.market is Market.SPOT and not settings.spot:
        raise InvalidRequest("the profile has no spot market: spot = false")


def accelerators(type_name: str, settings: GcpSettings) -> tuple[str, int]:
    """The GPUs that are attached to a type, and how many; ("", 0) for none."""
    for pattern, said in settings.accelerators.items():
        if fnmatchcase(type_name, pattern):
            kind, _, count = said.partition(":")
            return kind, int(count)
    return "", 0


def instance(
    request: LaunchRequest, slot: InstanceId, settings: GcpSettings, user_data: bytes, image: str, now_ms: int
) -> compute_v1.Instance:
    """The VM of one slot as it is inserted. `user_data`: as it is sent."""
    offering, zone = request.offering, request.offering.zone
    type_name, worn = offering.type.name, {**settings.labels, **labels.of_tags(request.tags)}
    made = compute_v1.Instance(
        name=name_of(slot, settings),
        machine_type=f"zones/{zone}/machineTypes/{type_name}",
        labels=worn,
        metadata=compute_v1.Metadata(items=_metadata(user_data)),
        disks=_disks(offering, settings, image, worn),
        network_interfaces=[_network(offering, settings)],
        scheduling=_scheduling(request, settings, now_ms),
    )
    if settings.network_tags:
        made.tags = compute_v1.Tags(items=list(settings.network_tags))
    if settings.service_account:
        account = compute_v1.ServiceAccount(email=settings.service_account, scopes=list(settings.scopes))
        made.service_accounts = [account]
    kind, count = accelerators(type_name, settings)
    if kind:
        where = f"zones/{zone}/acceleratorTypes/{kind}"
        made.guest_accelerators = [compute_v1.AcceleratorConfig(accelerator_type=where, accelerator_count=count)]
    # Of the Arm series T2A has no shielded VMs; asking for them would be refused.
    if settings.shielded and machines.family_of(type_name) != "t2a":
        made.shielded_instance_config = compute_v1.ShieldedInstanceConfig(
            enable_secure_boot=settings.secure_boot, enable_vtpm=True, enable_integrity_monitoring=True
        )
    return made


def _metadata(user_data: bytes) -> list[compute_v1.Items]:
    """What cloud-init unpacks by itself: the second line tells it of the base64, gzip it sees."""
    said = {"user-data": base64.b64encode(user_data).decode(), "user-data-encoding": "base64"}
    return [compute_v1.Items(key=key, value=value) for key, value in said.items()]


def _disks(offering: Offering, settings: GcpSettings, image: str, worn: Mapping[str, str]) -> list[Any]:
    """All end with the VM, and the boot disk says whose it is in case it does not."""
    zone = offering.zone
    disk_type = machines.disk_type_of(offering.type.name, settings.disk_type)
    boot = compute_v1.AttachedDisk(
        boot=True,
        auto_delete=True,
        initialize_params=compute_v1.AttachedDiskInitializeParams(
            source_image=image,
            disk_size_gb=-(-settings.root_size // GIB),
            disk_type=f"zones/{zone}/diskTypes/{disk_type}",
            labels=dict(worn),
        ),
    )
    scratch = [
        compute_v1.AttachedDisk(
            type_="SCRATCH",
            interface="NVME",
            auto_delete=True,
            initialize_params=compute_v1.AttachedDiskInitializeParams(disk_type=f"zones/{zone}/diskTypes/local-ssd"),
        )
        for _ in range(settings.local_ssds)
    ]
    return [boot, *scratch]


def _network(offering: Offering, settings: GcpSettings) -> Any:
    region = region_of(offering.zone)
    subnet = settings.subnets.get(region, "")
    where: dict[str, Any] = {"network": settings.network}
    if subnet:
        where = {"subnetwork": subnet if "/" in subnet else f"regions/{region}/subnetworks/{subnet}"}
    if settings.public_address:
        where["access_configs"] = [compute_v1.AccessConfig(name="External NAT", type_="ONE_TO_ONE_NAT")]
    return compute_v1.NetworkInterface(**where)


def _scheduling(request: LaunchRequest, settings: GcpSettings, now_ms: int) -> Any:
    """Deleted at its hard end and when it is taken back, and never started again by itself: what a task has left in the
    memory is gone, and the dispatcher makes another."""
    offering, spot = request.offering, request.offering.market is Market.SPOT
    gpus = offering.type.capacity.gpus > 0 or bool(accelerators(offering.type.name, settings)[0])
    stays = spot or not machines.migrates(offering.type.name, gpus=gpus)
    made = compute_v1.Scheduling(
        provisioning_model="SPOT" if spot else "STANDARD",
        automatic_restart=False,
        on_host_maintenance="TERMINATE" if stays else "MIGRATE",
    )
    if spot or request.ends_ms:
        made.instance_termination_action = "DELETE"
    if request.ends_ms:
        made.max_run_duration = compute_v1.Duration(seconds=run_seconds(request.ends_ms, now_ms))
    return made


def run_seconds(ends_ms: int, now_ms: int) -> int:
    """How long a VM may run that is asked for now: whole seconds, counted by Google from its start on."""
    return min(max((ends_ms - now_ms) // 1000, MIN_RUN_S), MAX_RUN_S)


def name_of(slot: InstanceId, settings: GcpSettings) -> str:
    """What a slot's VM is called."""
    return f"{settings.name_prefix}{slot}"


def vm_id(zone: str, name: str) -> VmId:
    return VmId(f"{zone}/{name}")


def place_of(vm: VmId) -> tuple[str, str] | None:
    """Zone and name; None for what is no id of a VM of ours."""
    zone, separator, name = vm.partition("/")
    return (zone, name) if separator and zone and name and "/" not in name else None


def vm(found: Any, taken_back: frozenset[int] = frozenset()) -> Vm:
    """An instance, a plain protocol buffer. `taken_back`: the numbers of those that have been preempted."""
    zone = last(found.zone)
    try:
        slot = slot_of(InstanceId(found.name))[1]
    except ValueError:
        slot = -1
    interface = found.network_interfaces[0] if found.network_interfaces else None
    outside = interface.access_configs[0].nat_i_p if interface and interface.access_configs else ""
    return Vm(
        id=vm_id(zone, found.name),
        state=_STATES.get(found.status, VmState.PENDING),
        type=last(found.machine_type),
        zone=zone,
        tags=to_tags(found.labels),
        created_ms=milliseconds(found.creation_timestamp),
        slot=slot,
        address=(interface.network_i_p if interface else "") or outside,
        spot=found.scheduling.provisioning_model == "SPOT" or found.scheduling.preemptible,
        preempted=found.id in taken_back,
        why=found.status_message,
    )


def ending_spot(found: Any) -> bool:
    """Whether an instance may be one that was taken back: then the operations have to be asked."""
    spot = found.scheduling.provisioning_model == "SPOT" or found.scheduling.preemptible
    return spot and _STATES.get(found.status) in (VmState.STOPPING, VmState.STOPPED)


def disk(found: Any) -> Leftover:
    """A disk that no instance uses."""
    return Leftover(
        f"{last(found.zone)}/{found.name}", LeftoverKind.DISK, last(found.zone), to_tags(found.labels),
        milliseconds(found.creation_timestamp),
    )  # fmt: skip


def address(found: Any) -> Leftover:
    """A reserved address that nothing uses. The driver reserves none; one may carry our labels all the same."""
    region = last(found.region)
    return Leftover(
        f"{region}/{found.name}", LeftoverKind.ADDRESS, region, to_tags(found.labels),
        milliseconds(found.creation_timestamp),
    )  # fmt: skip


def ours(deployment: str) -> str:
    """The filter of lists for what carries a deployment's tag."""
    return filter_of(DEPLOYMENT, deployment)


def last(link: str) -> str:
    """The name at the end of a link."""
    return link.rpartition("/")[2]


def milliseconds(moment: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 text, 0 for none."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000) if moment else 0


def disk_bytes(settings: GcpSettings) -> int:
    """What tasks have room in."""
    return settings.local_ssds * _LOCAL_SSD or settings.root_size
