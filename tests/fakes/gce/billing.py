"""The Cloud Billing Catalog: a small set of SKUs, worded as the real ones are. Prices are near those of us-central1, of
no date, for tests alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.fakes.gce.session import Session, operation
from tests.fakes.google.errors import ApiError

SERVICE = "6F81-5844-456A"
#: As descriptions call families, with nano-dollars an hour of a core and a GiB on demand.
_FAMILIES = {
    "E2": (21_811_590, 2_923_530), "N2": (31_611_000, 4_237_000), "N2D AMD": (27_502_000, 3_686_000),
    "C3": (33_982_000, 4_555_000), "T2D AMD": (27_502_000, 3_686_000), "T2A Arm": (25_580_000, 3_430_000),
    "A2": (31_611_000, 4_237_000), "G2": (24_988_000, 2_927_000), "N1 Predefined": (31_611_000, 4_237_000),
    "N2 Custom": (33_191_000, 4_449_000), "E2 Custom": (22_902_170, 3_069_710),
}  # fmt: skip
_GPUS = {"Tesla T4": 350_000_000, "L4": 560_040_000, "Tesla A100": 2_933_908_000, "Tesla V100": 2_480_000_000}
#: Tokens are base64, whose alphabet a query takes for something else.
_MARK = "+/="
_PLACES = {"us-central1": ("Americas", 100), "europe-west4": ("Netherlands", 110)}


def _sku(
    description: str, group: str, usage: str, region: str, nano: int, unit: str, *, family: str = "Compute"
) -> dict[str, Any]:  # fmt: skip
    number = f"{abs(hash_of(description + usage + region)):012X}"
    identity = f"{number[:4]}-{number[4:8]}-{number[8:12]}"
    base = {"h": ("s", 3600.0, "hour", "second"),
            "GiBy.h": ("By.s", 3_865_470_566_400.0, "gibibyte hour", "byte second"),
            "GiBy.mo": ("By.s", 2_875_910_101_401_600.0, "gibibyte month", "byte second")}[unit]  # fmt: skip
    money = {"currencyCode": "USD", "units": str(nano // 10**9), "nanos": nano % 10**9}
    expression = {
        "usageUnit": unit, "displayQuantity": 1.0, "tieredRates": [{"startUsageAmount": 0.0, "unitPrice": money}],
        "usageUnitDescription": base[2], "baseUnit": base[0], "baseUnitDescription": base[3],
        "baseUnitConversionFactor": base[1],
    }  # fmt: skip
    return {
        "name": f"services/{SERVICE}/skus/{identity}", "skuId": identity, "description": description,
        "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": family, "resourceGroup": group,
                     "usageType": usage},
        "serviceRegions": [region], "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": [region]},
        "pricingInfo": [{"summary": "", "pricingExpression": expression, "currencyConversionRate": 1.0,
                         "effectiveTime": "2026-11-01T07:00:00Z"}],
    }  # fmt: skip


def hash_of(text: str) -> int:
    """The same in every process."""
    return int.from_bytes(hashlib.blake2s(text.encode(), digest_size=6).digest())


@cache
def skus() -> tuple[dict[str, Any], ...]:
    """All of them, with those that are no price of a VM: commitments, sole tenants, disks."""
    return tuple(one for region, (place, percent) in _PLACES.items() for one in _of_region(region, place, percent))


def _of_region(region: str, place: str, percent: int) -> Iterator[dict[str, Any]]:
    for name, (core, ram) in _FAMILIES.items():
        for what, nano, unit in (("Core", core, "h"), ("Ram", ram, "GiBy.h")):
            nano = nano * percent // 100
            said = f"{name} Instance {what} running in {place}"
            yield _sku(said, "CPU" if what == "Core" else "RAM", "OnDemand", region, nano, unit)
            yield _sku(f"Spot Preemptible {said}", "CPU" if what == "Core" else "RAM", "Preemptible", region,
                       nano * 3 // 10, unit)  # fmt: skip
            yield _sku(f"Commitment v1: {name} {what} in {place} for 1 Year", "CPU", "Commit1Yr", region,
                       nano * 63 // 100, unit)  # fmt: skip
            yield _sku(f"{name} Sole Tenancy Instance {what} running in {place}", "CPU", "OnDemand", region,
                       nano * 11 // 10, unit)  # fmt: skip
    for what, nano, unit in (("Core", 33_982_000, "h"), ("Ram", 4_555_000, "GiBy.h")):
        said = f"Compute optimized {what} running in {place}"
        yield _sku(said, "CPU", "OnDemand", region, nano * percent // 100, unit)
        yield _sku(f"Spot Preemptible {said}", "CPU", "Preemptible", region, nano * percent // 300, unit)
    for name, nano in _GPUS.items():
        nano = nano * percent // 100
        yield _sku(f"Nvidia {name} GPU running in {place}", "GPU", "OnDemand", region, nano, "h")
        yield _sku(f"Nvidia {name} GPU attached to Spot Preemptible VMs running in {place}", "GPU", "Preemptible",
                   region, nano * 4 // 10, "h")  # fmt: skip
    yield _sku(f"Balanced PD Capacity in {place}", "SSD", "OnDemand", region, 100_000_000, "GiBy.mo", family="Storage")


@operation("services.list", "pageSize", "pageToken", service="cloudbilling")
def list_services(session: Session) -> Any:
    """The services that have prices."""
    one = {"name": f"services/{SERVICE}", "serviceId": SERVICE, "displayName": "Compute Engine",
           "businessEntityName": "businessEntities/GCP"}  # fmt: skip
    return {"services": [one], "nextPageToken": ""}


@operation("services.skus.list", "pageSize", "pageToken", "currencyCode", service="cloudbilling")
def list_skus(session: Session) -> Any:
    """The SKUs of Compute Engine."""
    if session.params["servicesId"] != SERVICE:
        raise session.missing(f"services/{session.params['servicesId']}")
    if session.params.get("currencyCode", "USD") != "USD":
        raise session.unmodelled("another currency than USD")
    size = min(session.params.get("pageSize") or 5000, session.cloud.settings.skus_a_page)
    token = session.params.get("pageToken") or f"0{_MARK}"
    if not token.removesuffix(_MARK).isdecimal() or not token.endswith(_MARK):
        raise ApiError("badRequest", "Invalid page token.", worded=True)
    start = int(token.removesuffix(_MARK))
    fault = session.cloud.faults.breaks_off("services.skus.list", start // size + 1, session.now)
    if fault is not None:
        raise ApiError(fault.code or "backendError", "the page could not be made")
    page = list(skus()[start : start + size])
    return {"skus": page, "nextPageToken": f"{start + size}{_MARK}" if start + size < len(skus()) else ""}
