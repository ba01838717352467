"""The `azure` driver's own keys of a profile. Owns their names, defaults and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, StringConstraints, model_validator

from cloud_dispatch.domain.tags import PREFIX
from cloud_dispatch.provider.fields import Duration, HourlyPrice, Size
from cloud_dispatch_azure.identity import certificates

#: Ubuntu 24.04: it has cloud-init, systemd, a Python that the agent runs on, and iptables.
DEFAULT_IMAGES = {
    "x86_64": "Canonical:ubuntu-24_04-lts:server:latest",
    "arm64": "Canonical:ubuntu-24_04-lts:server-arm64:latest",
}
#: General, memory and compute machines that all large regions have, and small GPUs.
DEFAULT_SIZES = ("Standard_D*s_v5", "Standard_E*s_v5", "Standard_F*s_v2", "Standard_D*ps_v5", "Standard_NC*_T4_v3")
GIB = 2**30
#: A resource may have 50 tags; ours are nine, and one may come with a later version.
_MOST_TAGS = 40
_NOT_IN_TAGS = frozenset("<>%&\\?/")
_GUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def _matching(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=pattern)


def _resource(kind: str) -> StringConstraints:
    return _matching(rf"^(/subscriptions/{_GUID}/resourceGroups/[^/]+/providers/{kind}/.+)?$")


_Region = Annotated[str, _matching(r"^[a-z][a-z0-9]+$")]
_Zone = Annotated[str, _matching(r"^[1-9]$")]
_Id = Annotated[str, _matching(rf"^{_GUID}$")]
_MaybeId = Annotated[str, _matching(rf"^({_GUID})?$")]
_Group = Annotated[str, _matching(r"^[-\w.()]{1,90}$")]
_Subnet = Annotated[str, _resource(r"Microsoft\.Network/virtualNetworks/[^/]+/subnets")]
_SecurityGroup = Annotated[str, _resource(r"Microsoft\.Network/networkSecurityGroups")]
_Identity = Annotated[str, _resource(r"Microsoft\.ManagedIdentity/userAssignedIdentities")]
_DiskKey = Annotated[str, _resource(r"Microsoft\.Compute/diskEncryptionSets")]
_Resource = Annotated[str, _resource(r"[^/]+")]
_Image = Annotated[str, _matching(r"^([\w.-]+(:[\w.-]+){3}|/subscriptions/.+|/communityGalleries/.+)$")]
_Architecture = Annotated[str, _matching(r"^(x86_64|arm64)$")]
_Pattern = Annotated[str, _matching(r"^[A-Za-z0-9_.*?-]+$")]
_Url = Annotated[str, _matching(r"^(https://[^\s@]+)?$")]
_Switch = Annotated[bool, Strict()]


def _disk(size: int) -> int:
    if size and not GIB <= size <= 32_767 * GIB:
        raise ValueError("expected 1GiB to 32767GiB")
    return size


_Disk = Annotated[Size, AfterValidator(_disk)]


def _certificates(said: str) -> str:
    certificates(said)
    return said


def _tag(key: str, value: str) -> None:
    if key.lower().startswith((PREFIX, "azure", "microsoft", "windows")):
        raise ValueError(f"{key!r}: tags that begin with {PREFIX}, azure, microsoft or windows are not yours to set")
    if not 1 <= len(key) <= 512 or len(value) > 256 or _NOT_IN_TAGS & set(key):
        raise ValueError(f"{key!r}: expected 1-512 characters without <>%&\\?/, and a value of at most 256")


class AzureSettings(BaseModel):
    """`[profiles.NAME]` with `driver = "azure"`: one region of one subscription, and a resource group there.

    Credentials are found where Azure's SDK finds them; `credential`, `tenant` and `client` say which. No secret belongs
    here.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    subscription: _Id
    resource_group: _Group
    region: _Region
    credential: Literal["default", "environment", "managed", "workload", "cli", "aws"] = "default"
    tenant: _MaybeId = ""
    client: _MaybeId = ""
    endpoint_url: _Url = ""
    authority_url: _Url = ""
    prices_url: _Url = ""
    ca_file: Path | None = None

    sizes: Annotated[tuple[_Pattern, ...], Field(min_length=1)] = DEFAULT_SIZES
    zones: tuple[_Zone, ...] = ()
    spot: _Switch = True
    spot_max_percent: Annotated[int, Strict(), Field(ge=1, le=1000)] = 100
    eviction: Literal["delete", "deallocate"] = "delete"
    price_list: _Switch = True
    prices: dict[str, HourlyPrice] = Field(default_factory=dict)

    images: Annotated[dict[_Architecture, _Image], Field(min_length=1)] = Field(
        default_factory=lambda: dict(DEFAULT_IMAGES)
    )
    subnet: Annotated[_Subnet, Field(min_length=1)]
    security_group: _SecurityGroup = ""
    public_address: _Switch = False
    accelerated_network: _Switch = False
    admin_user: Annotated[str, _matching(r"^[a-z_][a-z0-9_-]{0,31}$")] = "dispatch"
    ssh_key: Annotated[str, _matching(r"^(ssh-(rsa|ed25519) \S+( .*)?)?$")] = ""
    trusted_launch: _Switch = True
    ephemeral: _Switch = False
    disk_type: Literal["Standard_LRS", "StandardSSD_LRS", "Premium_LRS"] = "StandardSSD_LRS"
    root_size: Annotated[_Disk, Field(ge=GIB)] = 32 * GIB
    scratch: Annotated[tuple[_Disk, ...], Field(max_length=8)] = ()
    disk_encryption_set: _DiskKey = ""
    identity: _Identity = ""
    tags: Annotated[dict[str, str], Field(max_length=_MOST_TAGS)] = Field(default_factory=dict)

    reaper: _Switch = False
    reaper_period: Duration = 60_000
    reaper_sign: _Resource = ""
    identity_certificates: Annotated[str, AfterValidator(_certificates)] = ""
    consistency: Duration = 60_000
    boot: Duration = 90_000

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for key, value in self.tags.items():
            _tag(key, value)
        if self.credential == "aws" and not (self.client and self.tenant):
            raise ValueError('credential = "aws" needs client and tenant: of the identity that trusts a role of AWS')
        if self.client and self.credential not in ("default", "managed", "workload", "aws"):
            raise ValueError(f"client: credential = {self.credential!r} has no client to choose")
        if self.tenant and self.credential == "managed":
            raise ValueError("tenant: a machine's identity is of one tenant, and has no other to choose")
        if self.reaper_sign and not self.reaper:
            raise ValueError("reaper_sign: expected reaper = true, since that is who leaves it")
        if self.ephemeral and self.spot and self.eviction == "deallocate":
            raise ValueError('eviction: a VM with an ephemeral disk can\'t be deallocated; expected "delete"')
        return self
