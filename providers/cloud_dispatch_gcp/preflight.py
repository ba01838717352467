"""What can be found out about a profile before it costs anything: `examine` asks Google, `findings` judges the answers.

Nothing is made: Compute Engine can't try a launch, so rights are asked for by name, and what a launch uses is looked
at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from cloud_dispatch.provider import hand
from cloud_dispatch.provider.errors import CredentialsRejected, ProviderError, VmNotFound
from cloud_dispatch.provider.spi import Finding, Level, Provider
from cloud_dispatch_gcp import findings, policy
from cloud_dispatch_gcp.calls import Calls
from cloud_dispatch_gcp.catalogue import Catalogue
from cloud_dispatch_gcp.errors import Asked
from cloud_dispatch_gcp.images import Images
from cloud_dispatch_gcp.settings import GcpSettings, without_subnet

_RESOURCES = "https://cloudresourcemanager.googleapis.com"
_IAM = "https://iam.googleapis.com"


@dataclass(frozen=True, slots=True)
class Means:
    """What a driver answers its questions with, and the driver itself for those that have an answer of its own."""

    driver: Provider
    calls: Calls
    images: Images
    catalogue: Catalogue
    now: Callable[[], int]


async def examine(means: Means, settings: GcpSettings, deployment: str) -> Sequence[Finding]:
    """Look at everything that the profile needs, as it would be used by `deployment`."""
    return await _Examination(means, settings, deployment).all()


class _Examination:
    """The questions, each of which may fail by itself."""

    def __init__(self, means: Means, settings: GcpSettings, deployment: str) -> None:
        self._means = means
        self._settings = settings
        self._deployment = deployment

    async def all(self) -> list[Finding]:
        try:
            found = [Finding(Level.OK, "credentials", await self._means.calls.who())]
            await self._means.calls.once(Asked("projects.get"), "Projects", "get")
        except CredentialsRejected as error:
            return [Finding(Level.ERROR, _refused(error), error.message)]
        except ProviderError as error:
            return [Finding(Level.ERROR, "project", error.message)]
        found.append(Finding(Level.OK, "project", self._settings.project))
        found += findings.of_settings(self._settings)
        looks: tuple[tuple[str, Callable[[], Awaitable[list[Finding]]]], ...] = (
            ("permissions", self._rights),
            ("images", self._images),
            ("service_account", self._account),
            ("network", self._network),
            ("subnets", self._subnets),
            ("instance_types", self._types),
            ("prices", self._prices),
            ("quotas", self._quotas),
            (hand.ABOUT, self._reaper),
        )
        for about, look in looks:
            try:
                found += await look()
            except ProviderError as error:
                level = Level.WARNING if about in ("permissions", hand.ABOUT) else Level.ERROR
                found.append(Finding(level, about, error.message))
        try:
            await self._means.driver.list(self._deployment)
            found.append(Finding(Level.OK, "list", "VMs can be listed"))
        except ProviderError as error:
            found.append(Finding(Level.ERROR, "list", error.message))
        return found

    async def _rights(self) -> list[Finding]:
        """Another API, which may be switched off: then the first launch tells."""
        wanted = policy.permissions(self._settings)
        asked = Asked("projects.testIamPermissions")
        path = f"/v1/projects/{self._settings.project}:testIamPermissions"
        answer = await self._means.calls.rest(asked, _RESOURCES, path, {"permissions": wanted})
        return findings.of_rights(wanted, answer.get("permissions", ()))

    async def _images(self) -> list[Finding]:
        images = [await self._means.images.found(name) for name in self._settings.images]
        return findings.of_images(images, self._settings)

    async def _account(self) -> list[Finding]:
        """Whether VMs may be given their account: a right on that account alone, and another API."""
        email = self._settings.service_account
        if not email:
            return []
        asked = Asked("serviceAccounts.testIamPermissions", vm=True)
        path = f"/v1/projects/{project_of(email)}/serviceAccounts/{email}:testIamPermissions"
        try:
            answer = await self._means.calls.rest(asked, _IAM, path, {"permissions": [policy.ACT_AS]})
        except VmNotFound as error:
            return [Finding(Level.ERROR, "service_account", error.message)]
        except ProviderError as error:
            text = f"whether VMs may be given {email} can't be asked: {error.message}"
            return [Finding(Level.WARNING, "service_account", text)]
        return findings.of_account(email, answer.get("permissions", ()))

    async def _network(self) -> list[Finding]:
        regions, parts = without_subnet(self._settings), self._settings.network.split("/")
        if not regions:
            return []
        asked = Asked("networks.get", vm=True)
        try:
            one = await self._means.calls.once(asked, "Networks", "get", network=parts[-1], **_project(parts))
        except VmNotFound as error:
            return [Finding(Level.ERROR, "network", error.message)]
        return findings.of_network(
            one.name, regions, bare="auto_create_subnetworks" in one and not one.auto_create_subnetworks
        )

    async def _subnets(self) -> list[Finding]:
        found = []
        for region, said in self._settings.subnets.items():
            parts = said.split("/")
            asked = Asked("subnetworks.get", vm=True)
            try:
                one = await self._means.calls.once(
                    asked, "Subnetworks", "get", region=region, subnetwork=parts[-1], **_project(parts)
                )
                found.append(Finding(Level.OK, "subnets", f"{region}: {one.name} {one.ip_cidr_range}"))
            except VmNotFound as error:
                found.append(Finding(Level.ERROR, "subnets", error.message))
        return found

    async def _types(self) -> list[Finding]:
        means = self._means
        offered = await means.driver.offerings()
        sold = await means.catalogue.sold()
        return [
            *findings.of_places([zone for one in sold for zone in one.zones], self._settings),
            *findings.of_patterns([one.type.name for one in sold], self._settings),
            *findings.of_offerings(offered),
        ]

    async def _prices(self) -> list[Finding]:
        """Another API too, and one that launches need not."""
        refused, offered = await self._means.catalogue.unpriced(), await self._means.driver.offerings()
        return findings.of_prices(offered, self._means.now(), "" if refused is None else refused.message)

    async def _reaper(self) -> list[Finding]:
        if not self._settings.reaper_sign:
            return []
        driver = self._means.driver
        return [hand.finding(await driver.heard(self._deployment), driver.traits, self._means.now())]

    async def _quotas(self) -> list[Finding]:
        return findings.of_quotas(await self._means.driver.quotas(), await self._means.driver.offerings())


def _refused(error: ProviderError) -> str:
    return "api" if error.code in ("accessNotConfigured", "SERVICE_DISABLED") else "credentials"


def _project(parts: Sequence[str]) -> dict[str, str]:
    """The project that a link names, where it is not the profile's own."""
    return {"project": parts[1]} if parts[0] == "projects" else {}


def project_of(account: str) -> str:
    """The project of a service account, as its address says; `-` where it does not: asked by that one, Google says "may
    not" of an account that is not there."""
    name = account.partition("@")[2].removesuffix(".iam.gserviceaccount.com")
    return "-" if "." in name else name
