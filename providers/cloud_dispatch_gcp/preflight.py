"""What can be found out about a profile before it costs anything: `examine` asks Google, the rest judges the answers.

Nothing is made: Compute Engine can't try a launch, so rights are asked for by name, and what a launch uses is looked
at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.resources import format_bytes
from cloud_dispatch.provider.errors import CredentialsRejected, ProviderError, VmNotFound
from cloud_dispatch.provider.spi import Finding, Level, Provider, Quota, QuotaUnit
from cloud_dispatch_gcp import machines, policy
from cloud_dispatch_gcp.calls import Calls
from cloud_dispatch_gcp.catalogue import Catalogue
from cloud_dispatch_gcp.errors import Asked
from cloud_dispatch_gcp.images import Image, Images
from cloud_dispatch_gcp.settings import GcpSettings, without_subnet

_RESOURCES = "https://cloudresourcemanager.googleapis.com"
_IAM = "https://iam.googleapis.com"
_MARKETS = {Market.ON_DEMAND: "on demand", Market.SPOT: "on spot"}
_UNKNOWN = "nothing is launched there under a limit"
_WEEK_MS = 7 * 86_400_000


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
        found += of_settings(self._settings)
        looks: tuple[tuple[str, Callable[[], Awaitable[list[Finding]]]], ...] = (
            ("permissions", self._rights),
            ("images", self._images),
            ("service_account", self._account),
            ("network", self._network),
            ("subnets", self._subnets),
            ("instance_types", self._types),
            ("prices", self._prices),
            ("quotas", self._quotas),
        )
        for about, look in looks:
            try:
                found += await look()
            except ProviderError as error:
                level = Level.WARNING if about == "permissions" else Level.ERROR
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
        return of_rights(wanted, answer.get("permissions", ()))

    async def _images(self) -> list[Finding]:
        images = [await self._means.images.found(name) for name in self._settings.images]
        return of_images(images, self._settings)

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
        return of_account(email, answer.get("permissions", ()))

    async def _network(self) -> list[Finding]:
        regions, parts = without_subnet(self._settings), self._settings.network.split("/")
        if not regions:
            return []
        asked = Asked("networks.get", vm=True)
        try:
            one = await self._means.calls.once(asked, "Networks", "get", network=parts[-1], **_project(parts))
        except VmNotFound as error:
            return [Finding(Level.ERROR, "network", error.message)]
        return of_network(one.name, regions, bare="auto_create_subnetworks" in one and not one.auto_create_subnetworks)

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
            *of_places([zone for one in sold for zone in one.zones], self._settings),
            *of_patterns([one.type.name for one in sold], self._settings),
            *of_offerings(offered),
        ]

    async def _prices(self) -> list[Finding]:
        """Another API too, and one that launches need not."""
        refused, offered = await self._means.catalogue.unpriced(), await self._means.driver.offerings()
        return of_prices(offered, self._means.now(), "" if refused is None else refused.message)

    async def _quotas(self) -> list[Finding]:
        return of_quotas(await self._means.driver.quotas(), await self._means.driver.offerings())


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


def of_settings(settings: GcpSettings) -> list[Finding]:
    """What the settings leave out."""
    found = []
    if not settings.service_account:
        text = "VMs without one can't prove who they are, and each launch makes one VM"
        found.append(Finding(Level.WARNING, "service_account", text))
    broad = [scope for scope in settings.scopes if scope.endswith(("/cloud-platform", "/compute"))]
    if settings.service_account and broad:
        text = f"{', '.join(broad)}: whoever has a VM has all that its account may do"
        found.append(Finding(Level.WARNING, "scopes", text))
    if settings.endpoint_url:
        found.append(Finding(Level.WARNING, "endpoint_url", f"{settings.endpoint_url} is asked, not Google"))
    return found


def of_rights(wanted: Iterable[str], held: Iterable[str]) -> list[Finding]:
    """Each right that is missing, by name."""
    missing = sorted(set(wanted) - set(held))
    if not missing:
        return [Finding(Level.OK, "permissions", f"all {len(list(wanted))} are held")]
    return [Finding(Level.ERROR, "permissions", f"missing: {name}") for name in missing]


def of_account(email: str, held: Iterable[str]) -> list[Finding]:
    """Whether VMs may be given their account. Google may answer nothing at all of one that is not there."""
    if policy.ACT_AS in held:
        return [Finding(Level.OK, "service_account", email)]
    text = f"{email}: there is none, or missing: {policy.ACT_AS} on it (roles/iam.serviceAccountUser has it)"
    return [Finding(Level.ERROR, "service_account", text)]


def of_network(name: str, regions: Sequence[str], *, bare: bool) -> list[Finding]:
    """`bare`: the network makes no subnets by itself, and a VM has to be told one."""
    if not bare:
        return [Finding(Level.OK, "network", name)]
    text = f"{name} has no subnets of its own making: name one in subnets for {', '.join(regions)}"
    return [Finding(Level.ERROR, "network", text)]


def of_images(images: Iterable[Image], settings: GcpSettings) -> list[Finding]:
    """Whether the boot disk is large enough for each."""
    found = []
    for image in images:
        about = f"images.{image.architecture}"
        if image.size > settings.root_size:
            least = format_bytes(image.size)
            found.append(Finding(Level.ERROR, about, f"{image.link} needs root_size = {least} at least"))
        else:
            found.append(Finding(Level.OK, about, image.link))
    return found


def of_places(zones: Iterable[str], settings: GcpSettings) -> list[Finding]:
    """Regions and zones in which nothing could be rented: they are not there, or sell none of it."""
    there = set(zones)
    found = [
        Finding(Level.ERROR, "regions", f"{region}: there is no such region, or it sells none of instance_types")
        for region in settings.regions
        if not any(zone.startswith(f"{region}-") for zone in there)
    ]
    return found + [
        Finding(Level.ERROR, "zones", f"{zone}: there is no such zone, or it sells none of instance_types")
        for zone in settings.zones
        if zone not in there
    ]


def of_patterns(sold: Sequence[str], settings: GcpSettings) -> list[Finding]:
    """Patterns that no type matches, one by one: a slip of the pen rents nothing and says nothing. A type may also be
    left out because it boots none of the images."""
    found = []
    for pattern in settings.instance_types:
        if not any(fnmatchcase(name, pattern) for name in sold):
            kind = machines.architecture_of(pattern)
            why = "" if kind in settings.images else f": it is {kind}, and images has none for that"
            text = f"no type that any of the images can boot is sold as {pattern!r}{why}"
            found.append(Finding(Level.WARNING, "instance_types", text))
    return found


def of_offerings(offered: Sequence[Offering]) -> list[Finding]:
    """What could be rented."""
    if not offered:
        return [Finding(Level.ERROR, "instance_types", "nothing could be rented: no type, zone and image go together")]
    types, zones = {one.type.name for one in offered}, {one.zone for one in offered}
    return [Finding(Level.OK, "instance_types", f"{len(types)} types in {len(zones)} zones")]


def of_prices(offered: Sequence[Offering], now_ms: int, refused: str) -> list[Finding]:
    """How well prices are known, by market. `refused`: why the price list could not be read, "" where it could."""
    found = []
    if refused:
        text = f"the Cloud Billing API does not tell them, and the table that comes with the driver counts: {refused}"
        found.append(Finding(Level.WARNING, "prices", text))
    for market in Market:
        unknown = sorted({one.type.name for one in offered if one.market is market and one.rate is None})
        if unknown:
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            text = f"not known {_MARKETS[market]} of {', '.join(unknown[:3])}{more}: {_UNKNOWN}"
            found.append(Finding(Level.WARNING, "prices", text))
    old = [one for one in offered if one.estimated and one.rate is not None and now_ms - one.priced_ms > _WEEK_MS]
    if old:
        age = format_duration(max(now_ms - one.priced_ms for one in old) // 86_400_000 * 86_400_000)
        text = f"{len(old)} offerings have estimates that are {age} old: {_UNKNOWN}"
        found.append(Finding(Level.WARNING, "prices", text))
    return found


_UNITS = {QuotaUnit.VCPUS: "vCPUs", QuotaUnit.GPUS: "GPUs", QuotaUnit.INSTANCES: "VMs"}


def of_quotas(told: Sequence[Quota], offered: Sequence[Offering]) -> list[Finding]:
    """Whether the project may hold anything of what is offered, and how much more. A quota of none is usual (GPUs,
    newer families), and an error where those of none leave nothing over."""
    none = [quota for quota in told if quota.limit == 0]
    left = any(not any(_binds(quota, one) for quota in none) for one in offered)
    found = []
    for quota in told:
        about = f"quota {quota.name}" + (f" {quota.scope.region}" if quota.scope.region else "")
        what = _UNITS[quota.unit]
        if quota in none:
            found.append(Finding(Level.WARNING if left else Level.ERROR, about, f"no {what} at all are granted"))
        elif quota.limit is not None and quota.used is not None and quota.used >= quota.limit:
            found.append(Finding(Level.WARNING, about, f"all {quota.limit} {what} are used"))
        else:
            found.append(Finding(Level.OK, about, f"{quota.used} of {quota.limit} {what} are used"))
    return found


def _binds(quota: Quota, offering: Offering) -> bool:
    """Whether such a machine would count against it."""
    return quota.scope.covers(offering) and (quota.unit is not QuotaUnit.GPUS or offering.type.capacity.gpus > 0)
