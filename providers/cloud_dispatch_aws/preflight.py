"""What can be found out about a profile before it costs anything: `examine` asks AWS, the rest judges the answers.

Nothing is made: launches are tried with DryRun, by which EC2 checks the rights and goes no further, and so is each
other right (`rights`). That an instance profile exists can't be seen without rights of its own; the first launch tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import BatchId
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.resources import format_bytes
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.provider import hand
from cloud_dispatch.provider.errors import InvalidRequest, ProviderError
from cloud_dispatch.provider.spi import Finding, LaunchRequest, Level, Provider, Quota
from cloud_dispatch_aws import prices, regions, rights, translate
from cloud_dispatch_aws.calls import Calls
from cloud_dispatch_aws.catalogue import Catalogue
from cloud_dispatch_aws.errors import Asked
from cloud_dispatch_aws.images import Image, Images
from cloud_dispatch_aws.settings import AwsSettings
from cloud_dispatch_aws.subnets import Subnet, Subnets

_WEEK_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class Means:
    """What a driver answers its questions with, and the driver itself for those that have an answer of its own."""

    driver: Provider
    calls: Calls
    images: Images
    subnets: Subnets
    catalogue: Catalogue
    now: Callable[[], int]


async def examine(means: Means, settings: AwsSettings, deployment: str) -> Sequence[Finding]:
    """Look at everything that the profile needs, as it would be used by `deployment`."""
    return await _Examination(means, settings, deployment).all()


class _Examination:
    """The questions, each of which may fail by itself."""

    def __init__(self, means: Means, settings: AwsSettings, deployment: str) -> None:
        self._means = means
        self._settings = settings
        self._deployment = deployment
        self._offered: Sequence[Offering] = ()

    async def all(self) -> list[Finding]:
        means, settings = self._means, self._settings
        try:
            answer = await means.calls.patiently(Asked("GetCallerIdentity"), "sts", "get_caller_identity")
        except ProviderError as error:
            doubted = regions.doubt(settings.region)
            found = [Finding(Level.WARNING, "region", doubted)] if doubted else []
            return [*found, Finding(Level.ERROR, "credentials", error.message)]
        found = [of_caller(answer, settings), *of_settings(settings)]
        for about, look in (
            ("images", self._images),
            ("subnets", self._subnets),
            ("security_groups", self._groups),
            ("key_name", self._key),
            ("instance_types", self._types),
            ("quotas", self._quotas),
            (hand.ABOUT, self._reaper),
        ):
            try:
                found += await look()
            except ProviderError as error:
                found.append(Finding(Level.ERROR, about, error.message))
        found += [await self._launch(_cheapest(self._offered, market)) for market in self._markets()]
        return found + await rights.tried(means.calls, settings, self._deployment)

    async def _images(self) -> list[Finding]:
        images = [await self._means.images.of_architecture(name) for name in self._settings.images]
        return of_images(images, self._settings)

    async def _subnets(self) -> list[Finding]:
        return of_subnets(await self._means.subnets.found(), self._settings) if self._settings.subnets else []

    async def _groups(self) -> list[Finding]:
        """The error says which is not there."""
        groups = list(self._settings.security_groups)
        if groups:
            asked = Asked("DescribeSecurityGroups")
            await self._means.calls.patiently(asked, "ec2", "describe_security_groups", GroupIds=groups)
        return [Finding(Level.OK, "security_groups", name) for name in groups]

    async def _key(self) -> list[Finding]:
        name = self._settings.key_name
        if name:
            asked = Asked("DescribeKeyPairs")
            await self._means.calls.patiently(asked, "ec2", "describe_key_pairs", KeyNames=[name])
        return [Finding(Level.OK, "key_name", name)] if name else []

    async def _types(self) -> list[Finding]:
        means = self._means
        self._offered = await means.driver.offerings()
        sold = [one.type for one in await means.catalogue.sold()]
        unmatched = of_patterns([one.name for one in sold], self._settings)
        offered = of_offerings(self._offered, [one.architecture for one in sold], self._settings, means.now())
        return unmatched + offered

    async def _quotas(self) -> list[Finding]:
        return of_quotas(await self._means.driver.quotas())

    async def _reaper(self) -> list[Finding]:
        if not self._settings.reaper_sign:
            return []
        driver = self._means.driver
        return [hand.finding(await driver.heard(self._deployment), driver.traits, self._means.now())]

    def _markets(self) -> list[Market]:
        return sorted({one.market for one in self._offered})

    async def _launch(self, offering: Offering) -> Finding:
        """A launch of the cheapest, DryRun: the rights to all that it makes and uses."""
        about = f"launch {offering.market}"
        request = LaunchRequest(
            BatchId("b00000000000"), 1, offering, {DEPLOYMENT: self._deployment}, "#cloud-config\n", ends_ms=0
        )
        try:
            image = await self._means.images.of_id(offering.image)
            subnet = await self._means.subnets.choose(offering.zone, 1)
            call = translate.launch(
                request, self._settings, b"#cloud-config", image, subnet,
                burstable=await self._means.catalogue.burstable(offering.type.name),
            )  # fmt: skip
            asked = Asked("RunInstances", offering=offering)
            await self._means.calls.once(asked, "run_instances", **call, DryRun=True)
        except InvalidRequest as error:
            if error.code == rights.WOULD:
                return Finding(Level.OK, about, f"{offering.type.name} in {offering.zone} may be launched")
            return Finding(Level.ERROR, about, error.message)
        except ProviderError as error:
            return Finding(Level.ERROR, about, error.message)
        return Finding(Level.WARNING, about, "the answer to a DryRun was none")


def of_caller(answer: Mapping[str, Any], settings: AwsSettings) -> Finding:
    """Who we are, in the account that was meant."""
    account, who = str(answer["Account"]), str(answer["Arn"])
    if settings.account and account != settings.account:
        text = f"expected account {settings.account}, and these are credentials of account {account}: {who}"
        return Finding(Level.ERROR, "account", text)
    return Finding(Level.OK, "credentials", who)


def of_settings(settings: AwsSettings) -> list[Finding]:
    """What the settings leave out."""
    found = []
    if not settings.identity_certificate:
        text = "without the region's certificate VMs can't prove who they are, and each launch makes one VM"
        found.append(Finding(Level.WARNING, "identity_certificate", text))
    if not settings.reaper:
        found.append(Finding(Level.WARNING, hand.ABOUT, "without the reaper only a VM's own timer ends it"))
    elif not settings.reaper_sign:
        found.append(Finding(Level.WARNING, hand.ABOUT, hand.UNHEARD))
    if settings.endpoint_url:
        found.append(Finding(Level.WARNING, "endpoint_url", f"{settings.endpoint_url} is asked, not AWS"))
    return found


def of_images(images: Iterable[Image], settings: AwsSettings) -> list[Finding]:
    """Whether the root disk is large enough for each, and whether what it costs is known."""
    found = []
    for image in images:
        about = f"images.{image.architecture}"
        if image.root_bytes > settings.root_size:
            least = format_bytes(image.root_bytes)
            found.append(Finding(Level.ERROR, about, f"{image.id} needs root_size = {least} at least"))
        else:
            more = sum(disk.bytes for disk in image.more_disks)
            brings = f" brings other disks of {format_bytes(more)}, each VM's to pay" if more else ""
            found.append(Finding(Level.OK, about, f"{image.id}{brings}"))
        if image.billed:
            text = (
                f"{image.id} is billed beside the machine ({image.billed}), and what both cost is not known: under a"
                " limit only types are launched, on demand, whose price with it the profile's prices or pricing say"
            )
            found.append(Finding(Level.WARNING, about, text))
    return found


def of_subnets(found: Mapping[str, Subnet], settings: AwsSettings) -> list[Finding]:
    """Where each is, whether that is rented, and whether it has addresses left."""
    return [_of_subnet(found[name], settings.region) for name in settings.subnets if name in found]


def _of_subnet(subnet: Subnet, region: str) -> Finding:
    if not regions.own_zone(subnet.zone, region):
        text = f"{subnet.id} is in {subnet.zone}, whose prices are not those of {region}: nothing is rented there"
        return Finding(Level.WARNING, "subnets", text)
    text = f"{subnet.id} in {subnet.zone} has {subnet.free} addresses left"
    return Finding(Level.OK if subnet.free else Level.WARNING, "subnets", text)


def of_patterns(sold: Sequence[str], settings: AwsSettings) -> list[Finding]:
    """Patterns that no type matches, one by one: a slip of the pen rents nothing and says nothing."""
    return [
        Finding(
            Level.WARNING, "instance_types",
            f"no type that any of the images can boot is sold in {settings.region} as {pattern!r}",
        )
        for pattern in settings.instance_types
        if not any(fnmatchcase(name, pattern) for name in sold)
    ]  # fmt: skip


def of_offerings(
    offered: Sequence[Offering], architectures: Iterable[str], settings: AwsSettings, now_ms: int
) -> list[Finding]:
    """What could be rented, and how well its prices are known."""
    if not offered:
        return [Finding(Level.ERROR, "instance_types", "nothing could be rented: no type, zone and image go together")]
    types, zones = {one.type.name for one in offered}, {one.zone for one in offered}
    found = [Finding(Level.OK, "instance_types", f"{len(types)} types in {len(zones)} zones")]
    missing = sorted(set(architectures) - set(settings.images))
    if missing:
        found.append(Finding(Level.WARNING, "images", f"none for {', '.join(missing)}: such types are not offered"))
    unknown = sorted({one.type.name for one in offered if one.rate is None})
    if unknown:
        text = f"not known of {len(unknown)} types ({', '.join(unknown[:3])}): nothing is launched there under a limit"
        found.append(Finding(Level.WARNING, "prices", text))
    old = [one for one in offered if one.estimated and one.rate is not None and now_ms - one.priced_ms > _WEEK_MS]
    if old:
        age = format_duration(max(now_ms - one.priced_ms for one in old) // 86_400_000 * 86_400_000)
        text = f"{len(old)} offerings have estimates that are {age} old: nothing is launched there under a limit"
        found.append(Finding(Level.WARNING, "prices", text))
    warning = prices.stale(prices.embedded(settings.region).values(), now_ms) if old else ""
    if warning:
        found.append(Finding(Level.WARNING, "prices", warning))
    return found


def of_quotas(told: Iterable[Quota]) -> list[Finding]:
    """Whether the account may hold anything, and how much more."""
    found = []
    for quota in told:
        about = f"quota {quota.name}"
        where = f"{quota.scope.family} {quota.scope.market}"
        if quota.limit is None:
            found.append(Finding(Level.WARNING, about, f"{where}: the limit is not told"))
        elif quota.used is not None and quota.used >= quota.limit:
            level = Level.WARNING if quota.limit else Level.ERROR
            found.append(Finding(level, about, f"{where}: all {quota.limit} vCPUs are used"))
        else:
            found.append(Finding(Level.OK, about, f"{where}: {quota.used} of {quota.limit} vCPUs are used"))
    return found


def _cheapest(offered: Sequence[Offering], market: Market) -> Offering:
    return min((one for one in offered if one.market is market), key=lambda one: (one.rate is None, one.rate or 0))
