"""Which image the VMs of an architecture boot. Owns the way from a setting to a version that stays what it is."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.kept import Kept
from cloud_dispatch_azure import paths
from cloud_dispatch_azure.calls import Calls
from cloud_dispatch_azure.errors import Asked
from cloud_dispatch_azure.settings import GIB, AzureSettings

#: How long the newest version is taken for that.
_NEWEST_MS = 3_600_000
LATEST = "latest"
_ARCHITECTURES = {"x64": "x86_64", "arm64": "arm64", "": "x86_64"}
_GALLERY = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/galleries/[^/]+/images/[^/]+", re.I
)
#: Whose images Azure bills for by the hour beside the machine, by publisher, offer and SKU: without a plan no answer
#: says it. Subscriptions that one brings oneself, and openSUSE, are not among them.
_BILLED = re.compile(
    r"(redhat|suse):(?!.*byos|opensuse)|canonical:.*[:_-](pro|advantage)([:_-]|$)|microsoftsqlserver:", re.I
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image, and what has to be known of it. Of one that is not of the marketplace little is told: then it is what
    the setting says."""

    id: str
    architecture: str
    generation: str = "V2"
    root_bytes: int = 0
    trusted: bool = True
    known: bool = True
    #: Whether it costs something by the hour, or may: what a plan costs is told nowhere.
    billed: bool = False
    #: Of the marketplace, which has to be bought by its name: the driver names none.
    plan: bool = False

    @property
    def reference(self) -> dict[str, str]:
        """As a VM names it."""
        if self.id.startswith("/communityGalleries/"):
            return {"communityGalleryImageId": self.id}
        if self.id.startswith("/"):
            return {"id": self.id}
        publisher, offer, sku, version = self.id.split(":")
        return {"publisher": publisher, "offer": offer, "sku": sku, "version": version}


class Images:
    """The images of one profile. What a version is never changes; which one is the newest does."""

    def __init__(self, calls: Calls, settings: AzureSettings, now: Callable[[], int]) -> None:
        self._calls = calls
        self._settings = settings
        self._known: dict[str, Image] = {}
        self._newest = {said: Kept(self._asking(said), _NEWEST_MS, now) for said in settings.images.values()}

    async def of_architecture(self, architecture: str) -> Image:
        """InvalidRequest where the settings name none, or what they name is for other machines."""
        said = self._settings.images.get(architecture)
        if said is None:
            raise InvalidRequest(f"images: none for {architecture}")
        name = await self._newest[said].get() if said.endswith(f":{LATEST}") else said
        image = await self.of_id(name, architecture)
        if image.architecture != architecture:
            raise InvalidRequest(f"images.{architecture}: {image.id} is for {image.architecture}")
        return image

    async def of_id(self, name: str, architecture: str) -> Image:
        """`architecture` is believed of an image that does not say its own."""
        if name not in self._known:
            if name.startswith("/"):
                self._known[name] = await self._own(name, architecture)
            else:
                publisher, offer, sku, version = name.split(":")
                asked, region = Asked("images"), self._settings.region
                answer = await self._calls.once(
                    asked,
                    lambda clients: clients.compute.virtual_machine_images.get(region, publisher, offer, sku, version),
                )
                self._known[name] = of_marketplace(name, answer)
        return self._known[name]

    async def _own(self, name: str, architecture: str) -> Image:
        found = _GALLERY.match(name)
        if not found:
            return Image(name, architecture, known=False)
        return of_gallery(name, await self._calls.told(Asked("images"), paths.definition(found[0])))

    def _asking(self, said: str) -> Callable[[], Awaitable[str]]:
        async def ask() -> str:
            publisher, offer, sku, _ = said.split(":")
            region = self._settings.region
            found = await self._calls.pages(
                Asked("images"),
                lambda clients: clients.compute.virtual_machine_images.list(
                    region, publisher, offer, sku, top=1, orderby="name desc"
                ),
            )
            if not found:
                raise InvalidRequest(f"there is no image {said} in {region}")
            return f"{publisher}:{offer}:{sku}:{found[0]['name']}"

        return ask


def of_marketplace(name: str, found: Mapping[str, Any]) -> Image:
    """A version as the marketplace tells it."""
    facts = found.get("properties") or {}
    features = {one.get("name"): one.get("value") for one in facts.get("features") or ()}
    size = (facts.get("osDiskImage") or {}).get("sizeInGb") or 0
    plan = bool(facts.get("plan"))
    return Image(
        name,
        _architecture(facts.get("architecture")),
        str(facts.get("hyperVGeneration") or "V1"),
        int(size) * GIB,
        "TrustedLaunch" in str(features.get("SecurityType", "")),
        billed=plan or bool(_BILLED.match(name)),
        plan=plan,
    )


def of_gallery(name: str, found: Mapping[str, Any]) -> Image:
    """The definition that a gallery's version belongs to."""
    facts = found.get("properties") or {}
    features = {one.get("name"): one.get("value") for one in facts.get("features") or ()}
    trusted = "TrustedLaunch" in str(features.get("SecurityType", ""))
    generation = str(facts.get("hyperVGeneration") or "V1")
    plan = bool(facts.get("purchasePlan"))  # that of the marketplace's image that it was made from
    return Image(name, _architecture(facts.get("architecture")), generation, 0, trusted, billed=plan, plan=plan)


def _architecture(said: object) -> str:
    return _ARCHITECTURES.get(str(said or "").lower(), str(said))
