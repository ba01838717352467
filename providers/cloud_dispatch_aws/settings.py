"""The `aws` driver's own keys of a profile. Owns their names, defaults and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, StringConstraints, model_validator

from cloud_dispatch.domain.tags import PREFIX
from cloud_dispatch.provider.fields import Duration, HourlyPrice, Size
from cloud_dispatch_aws.identity import certificates

#: Ubuntu 24.04: it has cloud-init, systemd, a Python that the agent runs on, and iptables, by which tasks are kept from
#: the metadata service. Amazon Linux 2023 has neither iptables nor nft before they are installed.
_UBUNTU = "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"
DEFAULT_IMAGES = {"x86_64": _UBUNTU.format("amd64"), "arm64": _UBUNTU.format("arm64")}
#: General, compute and memory machines of the last generation that all large regions have, and current GPUs.
DEFAULT_TYPES = ("m7i.*", "c7i.*", "r7i.*", "m7g.*", "c7g.*", "r7g.*", "g6.*")
GIB = 2**30
#: EC2 lets a resource have 50 tags; ours are nine, and one may come with a later version.
_MOST_TAGS = 40


def _matching(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=pattern)


_Region = Annotated[str, _matching(r"^[a-z]{2}(-[a-z]+)+-[0-9]$")]
_Zone = Annotated[str, _matching(r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$")]
_Account = Annotated[str, _matching(r"^([0-9]{12})?$")]
_Subnet = Annotated[str, _matching(r"^subnet-[0-9a-f]+$")]
_Group = Annotated[str, _matching(r"^sg-[0-9a-f]+$")]
_Image = Annotated[str, _matching(r"^(ami-[0-9a-f]+|ssm:/[A-Za-z0-9_./-]+)$")]
_Architecture = Annotated[str, _matching(r"^(x86_64|arm64)$")]
_Pattern = Annotated[str, _matching(r"^[a-z0-9.*?-]+$")]
_Role = Annotated[str, _matching(r"^(arn:[a-z-]+:iam::[0-9]{12}:role/.+)?$")]
#: Names that begin with aws or ssm are not the account's own.
_Parameter = Annotated[str, _matching(r"^((/[A-Za-z0-9_.-]+)+)?$")]
_Url = Annotated[str, _matching(r"^(https?://[^\s@]+)?$")]
_Switch = Annotated[bool, Strict()]


def _volume(size: int) -> int:
    if size and not GIB <= size <= 16_384 * GIB:
        raise ValueError("expected 1GiB to 16TiB")
    return size


_Volume = Annotated[Size, AfterValidator(_volume)]


def _certificate(said: str) -> str:
    certificates(said)
    return said


def _tag(key: str, value: str) -> None:
    if key.lower().startswith("aws:") or key.startswith(PREFIX):
        raise ValueError(f"{key!r}: tags that begin with aws: or {PREFIX} are not yours to set")
    if not 1 <= len(key) <= 128 or len(value) > 256:
        raise ValueError(f"{key!r}: expected a key of 1-128 characters and a value of at most 256")


class AwsSettings(BaseModel):
    """`[profiles.NAME]` with `driver = "aws"`: one account in one region.

    Credentials are found where boto3 finds them (environment, files, the machine's own role); `named_profile`,
    `role_arn` and `web_identity_token_file` say which. No secret belongs here.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    region: _Region
    named_profile: str = ""
    role_arn: _Role = ""
    external_id: str = ""
    web_identity_token_file: Path | None = None
    account: _Account = ""
    endpoint_url: _Url = ""

    instance_types: Annotated[tuple[_Pattern, ...], Field(min_length=1)] = DEFAULT_TYPES
    zones: tuple[_Zone, ...] = ()
    spot: _Switch = True
    spot_max_percent: Annotated[int, Strict(), Field(ge=1, le=1000)] = 100
    price_list: _Switch = True
    prices: dict[str, HourlyPrice] = Field(default_factory=dict)

    images: Annotated[dict[_Architecture, _Image], Field(min_length=1)] = Field(
        default_factory=lambda: dict(DEFAULT_IMAGES)
    )
    subnets: tuple[_Subnet, ...] = ()
    security_groups: tuple[_Group, ...] = ()
    public_address: _Switch | None = None
    key_name: str = ""
    instance_profile: str = ""
    metadata_hops: Annotated[int, Strict(), Field(ge=1, le=64)] = 1
    root_size: Annotated[_Volume, Field(ge=GIB)] = 30 * GIB
    scratch: Annotated[tuple[_Volume, ...], Field(max_length=8)] = ()
    kms_key: str = ""
    tags: Annotated[dict[str, str], Field(max_length=_MOST_TAGS)] = Field(default_factory=dict)

    reaper: _Switch = False
    reaper_period: Duration = 60_000
    reaper_sign: _Parameter = ""
    identity_certificate: Annotated[str, AfterValidator(_certificate)] = ""
    consistency: Duration = 60_000
    boot: Duration = 60_000
    #: What EC2 lets an account do of RunInstances where nothing was raised.
    launches_per_s: Annotated[int, Strict(), Field(ge=1, le=1_000)] = 2
    launch_burst: Annotated[int, Strict(), Field(ge=1, le=10_000)] = 5

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for key, value in self.tags.items():
            _tag(key, value)
        if self.external_id and not self.role_arn:
            raise ValueError("external_id: expected a role_arn that it belongs to")
        if self.web_identity_token_file is not None and not self.role_arn:
            raise ValueError("web_identity_token_file: expected the role_arn that the token is for")
        if self.reaper_sign and not self.reaper:
            raise ValueError("reaper_sign: expected reaper = true, since that is who leaves it")
        stray = [zone for zone in self.zones if not zone.startswith(self.region)]
        if stray:
            raise ValueError(f"zones: {', '.join(stray)} are not in {self.region}")
        return self
