"""Which image the VMs of an architecture boot. Owns the way from a setting to an AMI, and what of it matters: its
disks, and whether it costs anything beside the machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.kept import Kept
from cloud_dispatch_aws.calls import Calls
from cloud_dispatch_aws.errors import Asked
from cloud_dispatch_aws.settings import GIB, AwsSettings

#: How long the image that a parameter names is taken for the current one.
_NAMED_MS = 3_600_000
PARAMETER = "ssm:"
#: As what EC2 bills an image that costs nothing.
_PLATFORM, _OPERATION = "Linux/UNIX", "RunInstances"


#: What every gp3 disk has without being paid for.
GP3_IOPS, GP3_THROUGHPUT = 3_000, 125


@dataclass(frozen=True, slots=True)
class Disk:
    """One that an AMI brings. `paced`: it says operations or bytes a second that are not what every gp3 disk has."""

    device: str
    bytes: int
    paced: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """What a launch needs to know of an AMI."""

    id: str
    root_device: str
    architecture: str
    #: The least that its root disk can have.
    root_bytes: int = 0
    #: As what it is billed, "" where the machine is all that costs: plain Linux, nobody's product.
    billed: str = ""
    #: All that a launch makes of it, the root disk among them.
    disks: tuple[Disk, ...] = ()

    @property
    def more_disks(self) -> tuple[Disk, ...]:
        """Those beside the root disk."""
        return tuple(disk for disk in self.disks if disk.device != self.root_device)


class Images:
    """The images of one account in one region. An AMI never changes; the parameter that names one does."""

    def __init__(self, calls: Calls, settings: AwsSettings, now: Callable[[], int]) -> None:
        self._calls = calls
        self._settings = settings
        self._known: dict[str, Image] = {}
        self._named = {name: Kept(self._asking(name), _NAMED_MS, now) for name in settings.images.values()}

    async def of_architecture(self, architecture: str) -> Image:
        """InvalidRequest where the settings name none, or what they name is for other machines."""
        said = self._settings.images.get(architecture)
        if said is None:
            raise InvalidRequest(f"images: none for {architecture}")
        image = await self.of_id(await self._named[said].get() if said.startswith(PARAMETER) else said)
        if image.architecture != architecture:
            raise InvalidRequest(f"images.{architecture}: {image.id} is for {image.architecture}")
        return image

    async def of_id(self, ami: str) -> Image:
        if ami not in self._known:
            asked = Asked("DescribeImages")
            answer = await self._calls.patiently(asked, "ec2", "describe_images", ImageIds=[ami])
            if not answer.get("Images"):
                raise InvalidRequest(f"there is no image {ami} in {self._settings.region}")
            found = answer["Images"][0]
            self._known[ami] = of_description(found)
        return self._known[ami]

    def _asking(self, name: str) -> Callable[[], Awaitable[str]]:
        async def ask() -> str:
            answer = await self._calls.patiently(
                Asked("GetParameter"), "ssm", "get_parameter", Name=name.removeprefix(PARAMETER)
            )
            return str(answer["Parameter"]["Value"])

        return ask


def of_description(found: Mapping[str, Any]) -> Image:
    """An image as DescribeImages tells it."""
    disks = tuple(
        Disk(one["DeviceName"], one["Ebs"].get("VolumeSize", 0) * GIB, _paced(one["Ebs"]))
        for one in found.get("BlockDeviceMappings", ())
        if "Ebs" in one
    )
    root = _root(found["RootDeviceName"], disks)
    least = max((disk.bytes for disk in disks if disk.device == root), default=0)
    return Image(found["ImageId"], root, found["Architecture"], least, _billed(found), disks)


def _root(said: str, disks: tuple[Disk, ...]) -> str:
    """What the root disk is called. Some images say /dev/sda1 and have no disk of that name, but one that is /dev/sda:
    EC2 boots them all the same, and told of both names it would make a disk more. The first one is the root then."""
    return said if not disks or any(disk.device == said for disk in disks) else disks[0].device


def _paced(said: Mapping[str, Any]) -> bool:
    """Fewer count too: an io2 disk may have a hundred operations a second, which EC2 refuses of a gp3 one."""
    return bool(said.get("Iops", GP3_IOPS) != GP3_IOPS or said.get("Throughput", GP3_THROUGHPUT) != GP3_THROUGHPUT)


def _billed(found: Mapping[str, Any]) -> str:
    """As what EC2 bills the image beside the machine, "" for not at all. What it does not say is not taken for free."""
    platform, operation = str(found.get("PlatformDetails") or "?"), str(found.get("UsageOperation") or "?")
    codes = sorted(str(one.get("ProductCodeId", "?")) for one in found.get("ProductCodes") or ())
    if (platform, operation) == (_PLATFORM, _OPERATION) and not codes:
        return ""
    return f"{platform}, {operation}" + "".join(f", product {code}" for code in codes)
