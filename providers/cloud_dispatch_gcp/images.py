"""Which image the VMs of an architecture boot. Owns the way from a setting to an image, and what is known of it: its
size, and whether it bills beside the machine."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from cloud_dispatch.provider.errors import InvalidRequest, VmNotFound
from cloud_dispatch.provider.kept import Kept
from cloud_dispatch_gcp.calls import Calls
from cloud_dispatch_gcp.errors import Asked
from cloud_dispatch_gcp.machines import architecture_of
from cloud_dispatch_gcp.settings import GIB, GcpSettings

#: How long the image that a family names is taken for the current one.
_NAMED_MS = 3_600_000
#: The projects whose licences cost nothing beside the machine. An image made of another one keeps its licences.
_FREE = frozenset(
    {
        "almalinux-cloud", "centos-cloud", "click-to-deploy-images", "cloud-hpc-image-public", "cos-cloud",
        "cos-cloud-shielded", "debian-cloud", "deeplearning-platform-release", "fedora-cloud", "fedora-coreos-cloud",
        "freebsd-org-cloud-dev", "ml-images", "opensuse-cloud", "oracle-linux-cloud", "rocky-linux-accelerator-cloud",
        "rocky-linux-cloud", "ubuntu-os-accelerator-images", "ubuntu-os-cloud", "vm-options",
    }
)  # fmt: skip
#: So end the names of licences that were bought elsewhere.
_BROUGHT = "-byos"
_LICENSE = re.compile(r".*projects/([^/]+)/global/licenses/([^/]+)")


@dataclass(frozen=True, slots=True)
class Image:
    """What a launch needs to know of an image. `link`: `projects/P/global/images/NAME`, which never means another."""

    link: str
    architecture: str
    #: The least that its boot disk can have.
    size: int = 0
    #: The licences by which it bills, or may: nobody tells what they cost.
    billed: tuple[str, ...] = ()


class Images:
    """The images of one profile."""

    def __init__(self, calls: Calls, settings: GcpSettings, now: Callable[[], int]) -> None:
        self._calls = calls
        self._settings = settings
        self._known = {name: Kept(self._asking(said), _NAMED_MS, now) for name, said in settings.images.items()}

    async def of_architecture(self, architecture: str) -> str:
        """Its link; InvalidRequest where the settings name none, or what they name is for other machines."""
        return (await self.found(architecture)).link

    async def found(self, architecture: str) -> Image:
        if architecture not in self._known:
            raise InvalidRequest(f"images: none for {architecture}")
        image = await self._known[architecture].get()
        if image.architecture != architecture:
            raise InvalidRequest(f"images.{architecture}: {image.link} is for {image.architecture}")
        return image

    def _asking(self, said: str) -> Callable[[], Awaitable[Image]]:
        _, project, _, _, *rest = said.split("/")

        async def ask() -> Image:
            asked = Asked("images.get", vm=True)
            try:
                if len(rest) == 2:
                    found = await self._calls.once(asked, "Images", "get_from_family", project=project, family=rest[1])
                else:
                    found = await self._calls.once(asked, "Images", "get", project=project, image=rest[0])
            except VmNotFound as error:
                raise InvalidRequest(f"images: there is no {said}", code=error.code) from error
            # Old images do not say what they are for: all of those are for x86.
            return Image(
                f"projects/{project}/global/images/{found.name}", architecture_of("", found.architecture or "X86_64"),
                int(found.disk_size_gb) * GIB, billed(found.licenses),
            )  # fmt: skip

        return ask


def billed(licenses: Iterable[str]) -> tuple[str, ...]:
    """Those of an image's licences that are not known to cost nothing, as `PROJECT/NAME`."""
    found = []
    for link in licenses:
        named = _LICENSE.fullmatch(link)
        if named is None or not (named[1] in _FREE or named[2].endswith(_BROUGHT)):
            found.append(f"{named[1]}/{named[2]}" if named else link)
    return tuple(found)
