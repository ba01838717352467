"""What a fake EC2 is like from the start: places, delays, limits. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tests.fakes.aws.auth import Key

ACCOUNT = "123456789012"
REGION = "us-east-1"
KEY = Key("AKIAFAKEFAKEFAKEFAKE", "fake-secret", ACCOUNT, f"arn:aws:iam::{ACCOUNT}:user/fake")
#: Types that are known unless a test wants others; "*" in `Settings.types` is all that moto's table has.
TYPES = (
    "t3.micro", "t3.medium", "t4g.small", "m5.large", "m6i.large", "m6i.xlarge", "m6i.4xlarge", "m7g.large",
    "m7g.xlarge", "c5.xlarge", "c6i.large", "c6i.xlarge", "c6i.8xlarge", "c7g.large", "c7g.2xlarge", "r6i.large",
    "r6i.2xlarge", "c5d.large", "m5d.xlarge", "i3.large", "g4dn.xlarge", "g5.xlarge", "p4d.24xlarge", "m6i.metal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bucket:
    """Calls of an operation: `burst` at once, then `per_second`."""

    operation: str
    burst: int
    per_second: float


#: What EC2 documents for the calls that matter here ("Request throttling for the Amazon EC2 API").
DOCUMENTED_BUCKETS = (
    Bucket("RunInstances", 5, 2),
    Bucket("TerminateInstances", 100, 5),
    Bucket("CreateTags", 100, 10),
    Bucket("DescribeInstances", 100, 20),
)
DOCUMENTED_INSTANCES = Bucket("RunInstances", 1000, 2)


@dataclass(frozen=True, slots=True)
class ImageDisk:
    """A disk that an image brings beside its root."""

    device: str
    gb: int
    dies_with_instance: bool = False  # as it was of the machine that the image was made of
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """A machine image that the account may use."""

    id: str
    name: str
    architecture: str = "x86_64"
    owner: str = "137112412989"
    root_device: str = "/dev/xvda"
    root_gb: int = 8
    state: str = "available"
    created: str = "2026-08-01T00:00:00.000Z"
    platform: str = "Linux/UNIX"  # as what it is billed
    operation: str = "RunInstances"
    product: str = ""  # the code of a product that somebody sells
    disks: tuple[ImageDisk, ...] = ()


IMAGES = (
    Image("ami-0a1b2c3d4e5f60001", "al2023-ami-2023.8.20260801.0-kernel-6.1-x86_64"),
    Image("ami-0a1b2c3d4e5f60002", "al2023-ami-2023.8.20260801.0-kernel-6.1-arm64", "arm64"),
    Image("ami-0a1b2c3d4e5f60003", "debian-12-amd64-20260801-1", owner="136693071363"),
    Image("ami-0a1b2c3d4e5f60004", "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260801",
          owner="099720109477", root_device="/dev/sda1"),
    Image("ami-0a1b2c3d4e5f60005", "gone", state="deregistered"),
    Image("ami-0a1b2c3d4e5f60006", "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-20260801", "arm64",
          owner="099720109477", root_device="/dev/sda1"),
)  # fmt: skip
_AL = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default"
_UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current"
PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        f"{_AL}-x86_64": IMAGES[0].id,
        f"{_AL}-arm64": IMAGES[1].id,
        "/aws/service/debian/release/12/latest/amd64": IMAGES[2].id,
        f"{_UBUNTU}/amd64/hvm/ebs-gp3/ami-id": IMAGES[3].id,
        f"{_UBUNTU}/arm64/hvm/ebs-gp3/ami-id": IMAGES[5].id,
    }
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Delays are in ms of the fake's clock, `latency_ms` alone is real time. Zero is never or without limit."""

    regions: tuple[str, ...] = (REGION, "eu-west-1")
    zones: str = "abc"
    types: tuple[str, ...] = TYPES
    keys: tuple[Key, ...] = (KEY,)
    images: tuple[Image, ...] = IMAGES
    parameters: Mapping[str, str] = field(default_factory=lambda: PARAMETERS)
    # how fast
    latency_ms: int = 0
    latencies_ms: Mapping[str, int] = field(default_factory=dict)  # by operation
    pending_ms: int = 20
    shutting_down_ms: int = 20
    linger_ms: int = 3_600_000  # how long a terminated instance is still shown
    notice_ms: int = 120_000  # between the notice of an interruption and the end
    # eventual consistency: how much later reads show it
    appears_ms: int = 0  # a new instance
    tags_ms: int = 0  # a change of tags, those given at the launch included
    changes_ms: int = 0  # a change of state
    token_ms: int = 86_400_000  # how long after its last instance's end a client token is remembered
    # limits
    buckets: tuple[Bucket, ...] = ()
    instances_bucket: Bucket | None = None  # instances asked for, as RunInstances counts them
    quotas: Mapping[str, int] = field(default_factory=dict)  # vCPUs by quota code, others are ample
    instance_limit: int = 0
    quota_fills: bool = False  # whether a launch gets what the quota leaves, down to its MinCount
    capacity: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # instances by type, zone, market
    unoffered: frozenset[tuple[str, str]] = frozenset()  # type, zone
    key_pairs: frozenset[str] | None = None  # None: any name will do
    profiles: frozenset[str] | None = None
    roles: Mapping[str, str] = field(default_factory=dict)  # external id by role ARN; none listed: any role
