"""What can be found out about a profile before it costs anything: `examine` asks Azure, the rest judges the answers.

Nothing is made. Azure tries no launch without making one, so that it is asked which rights there are.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.resources import format_bytes
from cloud_dispatch.provider import hand
from cloud_dispatch.provider.errors import CredentialsRejected, ProviderError
from cloud_dispatch.provider.spi import Finding, Level, Provider, Quota
from cloud_dispatch_azure import doubts, identity, paths, policy, prices
from cloud_dispatch_azure.calls import PRICES, Calls
from cloud_dispatch_azure.catalogue import Catalogue, Sold, judged
from cloud_dispatch_azure.errors import Asked
from cloud_dispatch_azure.images import Image, Images
from cloud_dispatch_azure.settings import AzureSettings

_WEEK_MS = 7 * 86_400_000
#: So many of several are named.
_NAMED = 4
_SUBNET = re.compile(
    r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Network/virtualNetworks/([^/]+)/subnets/(.+)",
    re.I,
)
_SECURITY_GROUP = re.compile(
    r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Network/networkSecurityGroups/(.+)", re.I
)


@dataclass(frozen=True, slots=True)
class Means:
    """What a driver answers its questions with, and the driver itself for those that have an answer of its own."""

    driver: Provider
    calls: Calls
    images: Images
    catalogue: Catalogue
    now: Callable[[], int]


async def examine(means: Means, settings: AzureSettings, deployment: str) -> Sequence[Finding]:
    """Look at everything that the profile needs, as it would be used by `deployment`."""
    return await _Examination(means, settings, deployment).all()


class _Examination:
    """The questions, each of which may fail by itself."""

    def __init__(self, means: Means, settings: AzureSettings, deployment: str) -> None:
        self._means = means
        self._settings = settings
        self._deployment = deployment

    async def all(self) -> list[Finding]:
        found = [Finding(Level.WARNING, about, text) for about, text in doubts.of_settings(self._settings)]
        looks: tuple[tuple[str, Callable[[], Awaitable[list[Finding]]]], ...] = (
            ("subscription", self._subscription),
            ("resource_group", self._group),
            ("rights", self._rights),
            ("subnet", self._subnet),
            ("security_group", self._security_group),
            ("images", self._images),
            ("sizes", self._patterns),
            ("sizes", self._sizes),
            ("prices", self._prices),
            ("quotas", self._quotas),
            ("leftovers", self._leftovers),
            (hand.ABOUT, self._reaper),
            ("identity_certificates", self._proofs),
        )
        for about, look in looks:
            try:
                found += await look()
            except CredentialsRejected as error:
                if about == "subscription":  # then nothing else can be asked
                    return [*found, Finding(Level.ERROR, "credentials", error.message)]
                found.append(Finding(Level.ERROR, about, error.message))
            except ProviderError as error:
                found.append(Finding(Level.ERROR, about, error.message))
        return found

    async def _subscription(self) -> list[Finding]:
        """The states of its VMs are what every listing needs."""
        await self._means.calls.listed(Asked("list"), paths.states(self._settings))
        return [Finding(Level.OK, "subscription", f"{self._settings.subscription} can be read")]

    async def _group(self) -> list[Finding]:
        listed = await self._means.driver.list(self._deployment)
        text = f"{self._settings.resource_group} has {len(listed.vms)} VMs of this deployment"
        return [Finding(Level.OK, "resource_group", text)]

    async def _rights(self) -> list[Finding]:
        """What may be done in the group, as Azure says, and what else is needed that it does not say."""
        group = paths.group(self._settings)
        try:
            granted = await self._means.calls.listed(Asked("permissions"), paths.permissions(group))
        except ProviderError as error:
            return [Finding(Level.WARNING, "rights", f"they can't be told: {error.message}")]
        text = f"outside of the group nothing but a launch shows: {', '.join(policy.unseen(self._settings))}"
        return [*of_rights(policy.changes(self._settings), granted), Finding(Level.WARNING, "rights", text)]

    async def _subnet(self) -> list[Finding]:
        found = _SUBNET.fullmatch(self._settings.subnet)
        if found is None or found[1].lower() != self._settings.subscription.lower():
            return [Finding(Level.WARNING, "subnet", "it is in another subscription, and was not looked at")]
        _, group, network, subnet = found.groups()
        asked = Asked("subnet")
        await self._means.calls.once(asked, lambda clients: clients.network.subnets.get(group, network, subnet))
        return [Finding(Level.OK, "subnet", f"{network}/{subnet}")]

    async def _security_group(self) -> list[Finding]:
        found = _SECURITY_GROUP.fullmatch(self._settings.security_group)
        if found is None:
            return []
        _, group, name = found.groups()
        await self._means.calls.once(
            Asked("security group"), lambda clients: clients.network.network_security_groups.get(group, name)
        )
        return [Finding(Level.OK, "security_group", name)]

    async def _images(self) -> list[Finding]:
        images = [await self._means.images.of_architecture(name) for name in self._settings.images]
        return of_images(images, self._settings)

    async def _patterns(self) -> list[Finding]:
        return of_patterns(await self._means.catalogue.skus(), self._settings)

    async def _sizes(self) -> list[Finding]:
        means = self._means
        offered, sold = await means.driver.offerings(), await means.catalogue.sold()
        images = [await means.images.of_architecture(name) for name in self._settings.images]
        return of_generations(sold, images) + of_offerings(offered, sold, self._settings, means.now())

    async def _prices(self) -> list[Finding]:
        """What the list says, asked for anew: that it can't be read stops no VM, but for its price."""
        if not self._settings.price_list:
            return []
        where = self._settings.prices_url or PRICES
        try:
            listed = await self._means.catalogue.told()
        except ProviderError as error:
            return [Finding(Level.WARNING, "prices", f"the list at {where} can't be read: {error.message}")]
        return [Finding(Level.OK, "prices", f"{len(listed)} of the profile's sizes and markets are on the list")]

    async def _quotas(self) -> list[Finding]:
        return of_quotas(await self._means.driver.quotas())

    async def _reaper(self) -> list[Finding]:
        if not self._settings.reaper_sign:
            return []
        driver = self._means.driver
        return [hand.finding(await driver.heard(self._deployment), driver.traits, self._means.now())]

    async def _proofs(self) -> list[Finding]:
        return of_certificates(identity.certificates(self._settings.identity_certificates), self._means.now())

    async def _leftovers(self) -> list[Finding]:
        """It reads disks, interfaces and addresses: rights that only the cleaning up needs."""
        left = await self._means.driver.leftovers(self._deployment)
        return [Finding(Level.OK, "leftovers", f"{len(left)} disks, interfaces and addresses of no VM")]


def of_certificates(trusted: tuple[bytes, ...], now_ms: int) -> list[Finding]:
    """Whether those who vouch for proofs of identity can: a VM that nobody vouches for is paid for and does nothing."""
    about, ended = "identity_certificates", identity.ended(trusted, now_ms)
    if not ended:
        return [Finding(Level.OK, about, f"{len(trusted)} are good")] if trusted else []
    which = f"{', '.join(ended[:_NAMED])}{_more(ended)}"
    if len(ended) == len(trusted):
        return [Finding(Level.ERROR, about, f"all have ended ({which}): no VM can register")]
    return [Finding(Level.WARNING, about, f"{len(ended)} of {len(trusted)} have ended, and vouch for nobody ({which})")]


def of_rights(wanted: Iterable[str], granted: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Which of the rights are not granted. `granted`: sets of actions, each less its exceptions."""
    missing = [
        action
        for action in wanted
        if not any(
            _matched(action, one.get("actions") or ()) and not _matched(action, one.get("notActions") or ())
            for one in granted
        )
    ]
    if missing:
        return [Finding(Level.ERROR, "rights", f"{action} is missing") for action in missing]
    return [Finding(Level.OK, "rights", "the group's resources may be made, changed and deleted")]


def _matched(action: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)


def of_images(images: Iterable[Image], settings: AzureSettings) -> list[Finding]:
    """Whether the root disk is large enough for each, trusted launch can boot it, and what it costs is known."""
    found = []
    for image in images:
        about = f"images.{image.architecture}"
        if not image.known:
            found.append(Finding(Level.WARNING, about, f"{image.id}: what machines it is for is not told"))
        elif image.plan:
            text = f"{image.id} has a plan of the marketplace, which this driver does not buy: Azure refuses its VMs"
            found.append(Finding(Level.ERROR, about, text))
        elif image.root_bytes > settings.root_size:
            least = format_bytes(image.root_bytes)
            found.append(Finding(Level.ERROR, about, f"{image.id} needs root_size = {least} at least"))
        elif settings.trusted_launch and not (image.trusted and image.generation == "V2"):
            found.append(Finding(Level.WARNING, about, f"{image.id} can't be booted by trusted launch, and is without"))
        else:
            found.append(Finding(Level.OK, about, image.id))
        if image.billed and not image.plan:
            text = (
                f"{image.id} is billed by the hour beside the machine, and no list says with how much: the prices of"
                f" {image.architecture} machines are not known, and under a limit none is launched, until `prices` (or"
                " `pricing`) says what they cost with it"
            )
            found.append(Finding(Level.WARNING, "prices", text))
    return found


def of_patterns(skus: Sequence[Mapping[str, Any]], settings: AzureSettings) -> list[Finding]:
    """Patterns that no size matches, and sizes that match one and are not offered, by what keeps them from it."""
    found = []
    for pattern in settings.sizes:
        matched = {name: one for one in skus if fnmatchcase(name := str(one.get("name")), pattern)}
        if not matched:
            text = f"no size is sold in {settings.region} as {pattern!r}"
            found.append(Finding(Level.WARNING, "sizes", text))
        kept: dict[str, list[str]] = {}
        for name in sorted(matched):
            why = judged(matched[name], settings)
            if isinstance(why, str):
                kept.setdefault(why, []).append(name)
        for why, names in kept.items():
            text = f"{len(names)} of {pattern!r} are not offered ({', '.join(names[:_NAMED])}{_more(names)}): {why}"
            found.append(Finding(Level.WARNING, "sizes", text))
    return found


def of_generations(sold: Sequence[Sold], images: Iterable[Image]) -> list[Finding]:
    """Sizes that are not offered, since they can't boot their architecture's image."""
    found = []
    for image in images:
        kept = [one.type.name for one in sold if one.type.architecture == image.architecture and not one.boots(image)]
        if kept:
            which = f"{', '.join(kept[:_NAMED])}{_more(kept)}"
            text = f"{len(kept)} are not offered ({which}): no image of generation {image.generation}, as {image.id} is"
            found.append(Finding(Level.WARNING, "sizes", text))
    return found


def of_offerings(
    offered: Sequence[Offering], sold: Sequence[Sold], settings: AzureSettings, now_ms: int
) -> list[Finding]:
    """What could be rented, and how well its prices are known."""
    if not offered:
        return [Finding(Level.ERROR, "sizes", "nothing could be rented: no size, zone and image go together")]
    sizes, zones = {one.type.name for one in offered}, {one.zone for one in offered}
    found = [Finding(Level.OK, "sizes", f"{len(sizes)} sizes in {len(zones)} zones")]
    unknown = sorted({f"{one.type.name} {one.market}" for one in offered if one.rate is None and not one.priced_ms})
    if unknown:
        text = f"not known of {', '.join(unknown[:_NAMED])}{_more(unknown)}: nothing is launched there under a limit"
        found.append(Finding(Level.WARNING, "prices", text))
    over = sorted({one.type.name for one in offered if one.rate is None and one.priced_ms})
    if over:
        bid = f"spot_max_percent = {settings.spot_max_percent}"
        text = (
            f"the spot price of {', '.join(over[:_NAMED])}{_more(over)} is above the bid ({bid}), and counts as unknown"
        )
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


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""


def of_quotas(told: Iterable[Quota]) -> list[Finding]:
    """Whether the subscription may hold anything, and how much more."""
    found = []
    for quota in told:
        about, where = f"quota {quota.name}", f"{quota.scope.family} {quota.scope.market}".strip()
        if quota.limit is None:
            found.append(Finding(Level.WARNING, about, f"{where}: the limit is not told"))
        elif quota.used is not None and quota.used >= quota.limit:
            level = Level.WARNING if quota.limit or quota.scope.market == "spot" or quota.scope.family else Level.ERROR
            found.append(Finding(level, about, f"{where}: all {quota.limit} vCPUs are used"))
        else:
            found.append(Finding(Level.OK, about, f"{where}: {quota.used} of {quota.limit} vCPUs are used"))
    return found
