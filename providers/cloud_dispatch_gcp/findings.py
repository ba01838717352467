"""What Google's answers mean for a profile, as findings of its preflight. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.resources import format_bytes
from cloud_dispatch.provider.spi import Finding, Level, Quota, QuotaUnit
from cloud_dispatch_gcp import machines, policy
from cloud_dispatch_gcp.images import Image
from cloud_dispatch_gcp.settings import GcpSettings

_MARKETS = {Market.ON_DEMAND: "on demand", Market.SPOT: "on spot"}
_UNKNOWN = "nothing is launched there under a limit"
_WEEK_MS = 7 * 86_400_000


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
    """Whether the boot disk is large enough for each, and whether what it costs is known."""
    found = []
    for image in images:
        about = f"images.{image.architecture}"
        if image.size > settings.root_size:
            least = format_bytes(image.size)
            found.append(Finding(Level.ERROR, about, f"{image.link} needs root_size = {least} at least"))
        else:
            found.append(Finding(Level.OK, about, image.link))
        if image.billed:
            text = (
                f"{image.link} bills beside the machine, or may ({', '.join(image.billed)}), and no list has the price"
                f" of both: what you pay for a type with it goes into prices or pricing; without, {_UNKNOWN}"
            )
            found.append(Finding(Level.WARNING, about, text))
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
