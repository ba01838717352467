"""The `gcp` driver's own keys of a profile. Owns their names, defaults and bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, StringConstraints, model_validator

from cloud_dispatch.domain.tags import PREFIX
from cloud_dispatch.provider.fields import Duration, HourlyPrice, Size

#: Ubuntu 24.04: it has cloud-init, systemd, a Python that the agent runs on, and iptables, by which tasks are kept from
#: the metadata service.
_UBUNTU = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-{}"
DEFAULT_IMAGES = {"x86_64": _UBUNTU.format("amd64"), "arm64": _UBUNTU.format("arm64")}
#: Ordinary machines that all large regions have, and GPUs that are part of their type.
DEFAULT_TYPES = ("e2-standard-*", "n2-standard-*", "n2-highmem-*", "n2d-standard-*", "c2-standard-*", "g2-standard-*")
GIB = 2**30
#: The least that a VM with a service account can be given: who it is, and nothing that it could read or change.
DEFAULT_SCOPES = ("https://www.googleapis.com/auth/userinfo.email",)
#: Compute Engine lets a resource have 64 labels; ours are nine, of which long ones take two.
_MOST_LABELS = 40
#: A zone's name: `us-central1-a`, and of those that are for accelerators `us-central1-ai1a`, which the list of zones
#: has where the project sees them (https://cloud.google.com/compute/docs/regions-zones/ai-zones).
ZONE = r"[a-z]+-[a-z]+[0-9]+-[a-z][a-z0-9]*"
_LABEL_KEY, _LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")


def _matching(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=pattern)


_Project = Annotated[str, _matching(r"^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$")]
_Region = Annotated[str, _matching(r"^[a-z]+-[a-z]+[0-9]+$")]
_Zone = Annotated[str, _matching(f"^{ZONE}$")]
_Pattern = Annotated[str, _matching(r"^[a-z0-9.*?-]+$")]
_Image = Annotated[str, _matching(r"^projects/[a-z0-9.:-]+/global/images/(family/)?[a-z]([a-z0-9-]*[a-z0-9])?$")]
_Architecture = Annotated[str, _matching(r"^(x86_64|arm64)$")]
_Network = Annotated[str, _matching(r"^(projects/[a-z0-9.:-]+/)?global/networks/[a-z]([a-z0-9-]*[a-z0-9])?$")]
_Subnet = Annotated[
    str, _matching(r"^((projects/[a-z0-9.:-]+/)?regions/[a-z0-9-]+/subnetworks/)?[a-z]([a-z0-9-]*[a-z0-9])?$")
]
_Account = Annotated[str, _matching(r"^([a-z0-9.-]+@[a-z0-9.-]+\.[a-z]+)?$")]
_Scope = Annotated[str, _matching(r"^https://www\.googleapis\.com/auth/[a-z._-]+$")]
_NetworkTag = Annotated[str, _matching(r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
_Accelerator = Annotated[str, _matching(r"^[a-z0-9-]+:[1-9][0-9]?$")]
_Object = Annotated[str, _matching(r"^(gs://[a-z0-9][a-z0-9._-]+/[A-Za-z0-9][A-Za-z0-9/._-]*)?$")]
_NamePrefix = Annotated[str, _matching(r"^([a-z][a-z0-9-]{0,38}-)?$")]
_DiskType = Annotated[str, _matching(r"^(|pd-standard|pd-balanced|pd-ssd|hyperdisk-balanced)$")]
_Url = Annotated[str, _matching(r"^(https?://[^\s@/]+)?$")]
_Switch = Annotated[bool, Strict()]


def _volume(size: int) -> int:
    if not 10 * GIB <= size <= 65_536 * GIB:
        raise ValueError("expected 10GiB to 64TiB")
    return size


def _label(key: str, value: str) -> None:
    if key.startswith((PREFIX, "goog")):
        raise ValueError(f"{key!r}: labels that begin with {PREFIX} or goog are not yours to set")
    if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
        raise ValueError(f"{key!r}: expected a key and a value of a-z, 0-9, _ and -, of 63 characters at most")


class GcpSettings(BaseModel):
    """`[profiles.NAME]` with `driver = "gcp"`: one project, in one or more regions.

    Credentials are found where Google's libraries find them (environment, gcloud's file, the machine's own account);
    `credentials_file` and `impersonate` say which. No secret belongs here.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: _Project
    regions: Annotated[tuple[_Region, ...], Field(min_length=1)]
    zones: tuple[_Zone, ...] = ()
    credentials_file: Path | None = None
    impersonate: _Account = ""
    endpoint_url: _Url = ""

    instance_types: Annotated[tuple[_Pattern, ...], Field(min_length=1)] = DEFAULT_TYPES
    #: GPUs to attach to types that match (N1), as `nvidia-tesla-t4:1`.
    accelerators: dict[_Pattern, _Accelerator] = Field(default_factory=dict)
    spot: _Switch = True
    price_list: _Switch = True
    prices: dict[str, HourlyPrice] = Field(default_factory=dict)

    images: Annotated[dict[_Architecture, _Image], Field(min_length=1)] = Field(
        default_factory=lambda: dict(DEFAULT_IMAGES)
    )
    #: What VMs' names begin with: rights on Compute Engine can be bound to names, and to nothing else that is ours.
    name_prefix: _NamePrefix = ""
    network: _Network = "global/networks/default"
    subnets: dict[_Region, _Subnet] = Field(default_factory=dict)
    network_tags: Annotated[tuple[_NetworkTag, ...], Field(max_length=64)] = ()
    public_address: _Switch = True
    service_account: _Account = ""
    scopes: Annotated[tuple[_Scope, ...], Field(min_length=1)] = DEFAULT_SCOPES
    shielded: _Switch = True
    secure_boot: _Switch = True
    root_size: Annotated[Size, AfterValidator(_volume)] = 30 * GIB
    disk_type: _DiskType = ""
    local_ssds: Annotated[int, Strict(), Field(ge=0, le=24)] = 0
    labels: Annotated[dict[str, str], Field(max_length=_MOST_LABELS)] = Field(default_factory=dict)

    reaper_period: Duration = 60_000
    reaper_sign: _Object = ""
    consistency: Duration = 30_000
    boot: Duration = 60_000
    #: How often pending launches are asked for.
    operation_poll: Annotated[Duration, Field(ge=100)] = 2_000
    #: VMs. Compute Engine allows 1,500 changes a minute in a region where nothing was raised: so many are these, with
    #: what may come at once.
    launches_per_s: Annotated[int, Strict(), Field(ge=1, le=1_000)] = 20

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for key, value in self.labels.items():
            _label(key, value)
        stray = [zone for zone in self.zones if region_of(zone) not in self.regions]
        if stray:
            raise ValueError(f"zones: {', '.join(stray)} are not in {', '.join(self.regions)}")
        strange = sorted(set(self.subnets) - set(self.regions))
        if strange:
            raise ValueError(f"subnets: {', '.join(strange)}: not among the regions")
        return self


def without_subnet(settings: GcpSettings) -> list[str]:
    """The regions in which VMs are attached to the network as such, and its own subnet is found by Google."""
    return [region for region in settings.regions if region not in settings.subnets]


def region_of(zone: str) -> str:
    """`us-central1` of `us-central1-a`."""
    return zone.rpartition("-")[0]


#: The termination time of a VM that stops is cleared ("Limit the run time of a VM").
_STOPPED = (
    "hard end: Google ends VMs that run. One that has powered off is kept, and its disk bills until the dispatcher "
    "deletes it; where none will come back, the reaper that Terraform makes or `reap --overdue --yes` does"
)


def notes(settings: GcpSettings) -> Sequence[str]:
    """What `config check` says without asking anybody."""
    if settings.service_account:
        return (_STOPPED,)
    return (_STOPPED, "service_account: VMs without one can't prove who they are, and each launch makes one VM")
