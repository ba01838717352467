"""The contract of a provider driver. Owns the protocol and its values; knows the domain and nothing else.

All values are frozen and serialisable, so that a driver can live in another process. Methods are asynchronous, raise
only `cloud_dispatch.provider.errors`, and must be safe to call again: a launch is idempotent by its batch id, a
terminate of what is gone succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from cloud_dispatch.domain.ids import BatchId, InstanceId, ProfileName, VmId
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider.errors import ProviderError


class VmState(StrEnum):
    """What a provider says of a VM. `stopped` may still bill (disks): it is deleted. `gone` may linger in lists."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM as its provider lists it."""

    id: VmId
    state: VmState
    type: str
    zone: str
    tags: Mapping[str, str]
    created_ms: int
    #: The slot, where the provider names VMs by slot (GCE, Azure, local); -1 where only the batch is known (EC2).
    slot: int = -1
    address: str = ""
    spot: bool = False


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """`slots` VMs of one offering in one call. `batch` is the idempotency token, `user_data` what cloud-init gets."""

    batch: BatchId
    slots: int
    offering: Offering
    tags: Mapping[str, str]
    user_data: str
    ends_ms: int
    #: Which slots are wanted, for providers that name VMs by slot: a repeated call makes only what is missing.
    instances: tuple[InstanceId, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The VMs that exist now for the batch, and why there are fewer than asked where there are."""

    vms: tuple[Vm, ...]
    shortfall: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """All VMs of the deployment that the provider admits to. Only a complete listing can prove an absence."""

    vms: tuple[Vm, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Traits:
    """What a driver can do and how its cloud behaves. Times in milliseconds."""

    #: How long after a create a listing or get may still miss the VM.
    consistency_ms: int = 0
    #: Largest number of VMs in one launch.
    max_batch: int = 1
    #: Largest user data in bytes.
    max_user_data: int = 16_384
    #: Whether a hand independent of the guest ends VMs at `ends_ms`.
    hard_end: bool = False
    #: Whether each slot is named by us, so that a launch may be repeated for ever.
    named_slots: bool = False


class Provider(Protocol):
    """A driver, made for one profile."""

    traits: Traits

    async def offerings(self) -> Sequence[Offering]:
        """Everything that the profile could rent now, with prices."""

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        """Make the batch's VMs, or say why not. Idempotent by batch id (and slot). A definitive error means that no VM
        of the batch was made; `InDoubt` that some may have been."""

    async def list(self, deployment: str) -> Listing:
        """All VMs tagged with `deployment`, whatever their state. An empty `deployment` lists nothing."""

    def vm_name(self, instance: InstanceId) -> VmId:
        """The id that the VM of this slot has or would have; only asked where `traits.named_slots`."""

    async def get(self, vm: VmId) -> Vm:
        """One VM, read as consistently as the provider can; VmNotFound when there is none."""

    async def terminate(self, vm: VmId) -> None:
        """Ask for the VM and all that belongs to it to be deleted. Returns once asked; success when already gone."""

    async def tag(self, vm: VmId, tags: Mapping[str, str]) -> None:
        """Set these tags, keep the others; VmNotFound when there is none."""

    async def console(self, vm: VmId) -> str:
        """The VM's console output, "" where there is none (yet)."""

    async def close(self) -> None:
        """Release connections; the VMs live on."""


@dataclass(frozen=True, slots=True)
class ProfileContext:
    """What a driver gets to make itself for a profile: its settings (validated) and a folder of its own."""

    profile: ProfileName
    settings: Any
    state_dir: Path
    #: Milliseconds since the epoch; a driver takes the time from nowhere else.
    now: Any = field(repr=False, default=None)


class Plugin(Protocol):
    """What the entry point `cloud_dispatch.providers` names. Importing it must not import the SDK."""

    name: str

    @property
    def settings(self) -> type[Any]:
        """A pydantic model class: the driver's own keys of a profile."""

    def create(self, context: ProfileContext) -> Provider:
        """A driver for one profile."""

    def template_variables(self) -> Mapping[str, str]:
        """What the driver adds to the variables of the cloud-init templates (folders, how a VM ends itself)."""
