"""What a fake Compute Engine is like from the start: places, delays, limits. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

PROJECT = "fake-project"
REGION = "us-central1"
ZONE = "us-central1-a"
#: The account in whose name the fake's own key asks.
CALLER = f"dispatch@{PROJECT}.iam.gserviceaccount.com"
#: Zones by region.
REGIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "us-central1": ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"),
        "europe-west4": ("europe-west4-a", "europe-west4-b", "europe-west4-c"),
    }
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Calls of an operation ("" for all together): `burst` at once, then `per_second`."""

    operation: str
    burst: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Image:
    """A public image."""

    project: str
    name: str
    family: str
    architecture: str = "X86_64"
    gb: int = 10
    status: str = "READY"
    deprecated: str = ""
    licenses: tuple[str, ...] = ()  # as "debian-cloud/debian-12-bookworm"

    @property
    def path(self) -> str:
        """Below the root of the API."""
        return f"projects/{self.project}/global/images/{self.name}"


IMAGES = (
    Image("debian-cloud", "debian-12-bookworm-v20260801", "debian-12", licenses=("debian-cloud/debian-12-bookworm",)),
    Image("debian-cloud", "debian-12-bookworm-v20260701", "debian-12", deprecated="DEPRECATED"),
    Image("debian-cloud", "debian-12-bookworm-arm64-v20260801", "debian-12-arm64", "ARM64"),
    Image("debian-cloud", "debian-13-trixie-v20260801", "debian-13"),
    Image(
        "ubuntu-os-cloud", "ubuntu-2404-noble-amd64-v20260801", "ubuntu-2404-lts-amd64",
        licenses=("ubuntu-os-cloud/ubuntu-2404-lts",),
    ),
    Image(
        "ubuntu-os-cloud", "ubuntu-2404-noble-arm64-v20260801", "ubuntu-2404-lts-arm64", "ARM64",
        licenses=("ubuntu-os-cloud/ubuntu-2404-lts",),
    ),
    Image("rhel-cloud", "rhel-9-v20260801", "rhel-9", gb=20, licenses=("rhel-cloud/rhel-9-server",)),
    Image("ubuntu-os-cloud", "ubuntu-2204-jammy-v20260801", "ubuntu-2204-lts"),
    Image(PROJECT, "own-image", "own"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """Delays are in ms of the fake's clock; `latency_ms` and `wait_ms` are real time. Zero is never or no limit."""

    projects: Mapping[str, int] = field(default_factory=lambda: {PROJECT: 123456789012})
    regions: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: REGIONS)
    images: tuple[Image, ...] = IMAGES
    caller: str = CALLER
    anonymous: bool = False  # whether requests without a token are heard as the caller's
    token_ms: int = 3_600_000  # how long an access token is good
    # how fast
    latency_ms: int = 0
    latencies_ms: Mapping[str, int] = field(default_factory=dict)  # by operation, as "instances.insert"
    provisioning_ms: int = 10
    staging_ms: int = 10
    stopping_ms: int = 20
    change_ms: int = 10  # setLabels, and deleting disks and addresses
    notice_ms: int = 30_000  # between a preemption and the end
    wait_ms: int = 120_000  # how long `wait` waits for an operation
    operations_ms: int = 1_209_600_000  # how long an operation that is done is kept
    request_ms: int = 3_600_000  # how long a requestId is remembered
    # eventual consistency: how much later lists show it (a get shows what is)
    appears_ms: int = 0  # a new instance
    labels_ms: int = 0
    changes_ms: int = 0  # a change of state, the end included
    skus_a_page: int = 5_000  # the most; fewer than were asked for may come
    # limits
    buckets: tuple[Bucket, ...] = ()
    #: What filters leave out counts, by so many things of a request, and so often in a minute of a region.
    left_out: int = 10_000
    left_outs: int = 75
    quotas: Mapping[str, int] = field(default_factory=dict)  # by metric, as "PREEMPTIBLE_CPUS", others are ample
    region_quotas: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by region and metric
    quota_in_operation: bool = False  # whether a quota's refusal comes with the operation and not with the call
    capacity: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # by type, zone, "spot" or "on-demand"
    unoffered: frozenset[tuple[str, str]] = frozenset()  # type, zone
    service_accounts: frozenset[str] | None = None  # None: any will do
    #: Whether a network makes subnetworks by itself.
    networks: Mapping[str, bool] = field(default_factory=lambda: {"default": True, "custom": False})
    subnetworks: tuple[str, ...] = ("default", "workers")  # in every region
