"""What a fake Azure is like from the start: places, delays, limits, who may ask. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

TENANT = "11111111-2222-4333-8444-555555555555"
SUBSCRIPTION = "00000000-1111-4222-8333-444444444444"
LOCATION = "westeurope"
GROUP = "dispatch-vms"
CLIENT, SECRET = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "fake-secret"
#: An identity that machines of the owner may have: client id, and where it is.
IDENTITY_CLIENT = "99999999-bbbb-4ccc-8ddd-eeeeeeeeeeee"
NETWORK, SUBNET = "dispatch-net", "vms"
SECURITY_GROUP = "dispatch-vms"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Calls of an operation: `burst` at once, then `per_second`."""

    operation: str
    burst: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Image:
    """A version of an image of the marketplace."""

    publisher: str
    offer: str
    sku: str
    version: str
    architecture: str = "x64"
    generation: str = "V2"
    disk_gb: int = 30
    trusted: bool = True  # whether trusted launch can boot it
    plan: str = ""  # the name of its plan

    @property
    def urn(self) -> str:
        return f"{self.publisher}:{self.offer}:{self.sku}:{self.version}"


IMAGES = (
    Image("Canonical", "ubuntu-24_04-lts", "server", "24.04.202607150"),
    Image("Canonical", "ubuntu-24_04-lts", "server", "24.04.202608010"),
    Image("Canonical", "ubuntu-24_04-lts", "server-gen1", "24.04.202608010", generation="V1", trusted=False),
    Image("Canonical", "ubuntu-24_04-lts", "server-arm64", "24.04.202608010", architecture="Arm64"),
    Image("Debian", "debian-12", "12-gen2", "0.20260801.2200"),
    Image("Debian", "debian-12", "12-arm64", "0.20260801.2200", architecture="Arm64"),
    Image("RedHat", "RHEL", "9-lvm-gen2", "9.6.2026080112"),
    Image("resf", "rockylinux-x86_64", "9-base", "9.6.20260801", plan="9-base"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Delays are in ms of the fake's clock, `latency_ms` and `token_s` alone are real time. Zero is never or without
    limit."""

    tenant: str = TENANT
    subscriptions: tuple[str, ...] = (SUBSCRIPTION,)
    groups: tuple[str, ...] = (GROUP,)
    locations: tuple[str, ...] = (LOCATION, "northeurope")
    zones: tuple[str, ...] = ("1", "2", "3")
    clients: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({CLIENT: SECRET}))
    identities: tuple[str, ...] = (IDENTITY_CLIENT,)
    identity_header: str = "fake-identity-header"  # what a function's own process shows for a token
    images: tuple[Image, ...] = IMAGES
    token_s: int = 3600
    # how fast
    latency_ms: int = 0
    latencies_ms: Mapping[str, int] = field(default_factory=dict)  # by operation
    poll_after_s: int = 0  # what Retry-After says of an operation under way; Azure says 10
    starting_ms: int = 20  # until the power is on
    provisioning_ms: int = 0  # from then until provisioningState is Succeeded
    deleting_ms: int = 20
    deallocating_ms: int = 20
    notice_ms: int = 30_000  # between the notice of an eviction and the end
    # eventual consistency: how much later listings show it (a GET of one resource shows it at once)
    appears_ms: int = 0
    tags_ms: int = 0
    changes_ms: int = 0
    page: int = 500  # VMs a page; other listings too
    shouts: bool = True  # listings of VMs and disks tell the resource group in upper case, as Azure does
    # limits
    buckets: tuple[Bucket, ...] = ()
    quotas: Mapping[str, int] = field(default_factory=dict)  # vCPUs by name of usage, others are ample
    # A place is a zone, as "westeurope-1", or a location for VMs of no zone; so it is in faults.
    capacity: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # VMs by size, place, market
    unoffered: frozenset[tuple[str, str]] = frozenset()  # size, place
    image_ids: frozenset[str] = frozenset()  # ids of images of the account's own, for x64 and generation 2
