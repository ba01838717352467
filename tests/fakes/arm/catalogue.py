"""Sizes of VMs, as the SKU list and the price list tell them. Prices are near those of West Europe, of no date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.fakes.arm.settings import Settings

AMPLE = 100_000
#: Spot in thousandths of the price on demand, by zone: Azure has one price a location.
_SPOT = 250


@dataclass(frozen=True, slots=True)
class Size:
    """A size. `cache_gb` is what an ephemeral disk of the operating system may take."""

    name: str
    family: str
    vcpus: int
    memory_gb: float
    nano: int  # nano-dollars an hour, Linux, on demand
    architecture: str = "x64"
    gpus: int = 0
    generations: str = "V1,V2"
    cache_gb: int = 0
    local_gb: int = 0
    spot: bool = True
    trusted: bool = True
    #: Of what kind the confidential VMs are that it boots, and no others; "" for a size of plain ones.
    confidential: str = ""


_ALL = (
    Size("Standard_B2s", "standardBSFamily", 2, 4, 48_000_000, cache_gb=30, local_gb=8, spot=False),
    Size("Standard_D2s_v5", "standardDSv5Family", 2, 8, 115_000_000),
    Size("Standard_D4s_v5", "standardDSv5Family", 4, 16, 230_000_000),
    Size("Standard_D8s_v5", "standardDSv5Family", 8, 32, 460_000_000),
    Size("Standard_D2ds_v5", "standardDDSv5Family", 2, 8, 136_000_000, cache_gb=50, local_gb=75),
    Size("Standard_D4ds_v5", "standardDDSv5Family", 4, 16, 272_000_000, cache_gb=100, local_gb=150),
    Size("Standard_D16ds_v5", "standardDDSv5Family", 16, 64, 1_088_000_000, cache_gb=400, local_gb=600),
    Size("Standard_DC2as_v5", "standardDCASv5Family", 2, 8, 104_000_000, generations="V2", trusted=False,
         confidential="SNP"),
    Size("Standard_D2as_v5", "standardDASv5Family", 2, 8, 104_000_000),
    Size("Standard_D2ps_v5", "standardDPSv5Family", 2, 8, 92_000_000, "Arm64", generations="V2", trusted=False),
    Size("Standard_D4ps_v5", "standardDPSv5Family", 4, 16, 184_000_000, "Arm64", generations="V2", trusted=False),
    Size("Standard_F2s_v2", "standardFSv2Family", 2, 4, 97_000_000, cache_gb=32, local_gb=16),
    Size("Standard_F8s_v2", "standardFSv2Family", 8, 16, 388_000_000, cache_gb=128, local_gb=64),
    Size("Standard_E2s_v5", "standardESv5Family", 2, 16, 152_000_000),
    Size("Standard_E8ds_v5", "standardEDSv5Family", 8, 64, 688_000_000, cache_gb=200, local_gb=300),
    Size("Standard_NC4as_T4_v3", "Standard NCASv3_T4 Family", 4, 28, 618_000_000, gpus=1, cache_gb=100, local_gb=180),
    Size("Standard_NC24ads_A100_v4", "StandardNCADSA100v4Family", 24, 220, 4_775_000_000, gpus=1, generations="V2",
         cache_gb=256, local_gb=64, trusted=True),
)  # fmt: skip
SIZES = {size.name.lower(): size for size in _ALL}


def spot_nano(size: Size) -> int:
    """Without a fault."""
    return size.nano * _SPOT // 1000


def sku(size: Size, location: str, settings: Settings) -> dict[str, Any]:
    """As an element of Microsoft.Compute/skus."""
    told = {
        "MaxResourceVolumeMB": size.local_gb * 1024,
        "OSVhdSizeMB": 1_047_552,
        "vCPUs": size.vcpus,
        "vCPUsAvailable": size.vcpus,
        "vCPUsPerCore": 2 if size.architecture == "x64" else 1,
        "MemoryGB": size.memory_gb if size.memory_gb % 1 else int(size.memory_gb),
        "HyperVGenerations": size.generations,
        "CpuArchitectureType": size.architecture,
        "MaxDataDiskCount": 2 * size.vcpus,
        "LowPriorityCapable": size.spot,
        "PremiumIO": True,
        "VMDeploymentTypes": "IaaS",
        "EphemeralOSDiskSupported": size.cache_gb > 0,
        "EncryptionAtHostSupported": True,
        "AcceleratedNetworkingEnabled": size.vcpus >= 2,
        "RdmaEnabled": False,
        "MaxNetworkInterfaces": 2,
    }
    if size.cache_gb:
        told["CachedDiskBytes"] = size.cache_gb << 30
    if size.gpus:
        told["GPUs"] = size.gpus
    if not size.trusted:
        told["TrustedLaunchDisabled"] = True
    if size.confidential:
        told["ConfidentialComputingType"] = size.confidential
    zones = [zone for zone in settings.zones if (size.name, f"{location}-{zone}") not in settings.unoffered]
    restrictions = []
    if (size.name, location) in settings.unoffered:
        restrictions.append({
            "type": "Location", "values": [location], "reasonCode": "NotAvailableForSubscription",
            "restrictionInfo": {"locations": [location]},
        })  # fmt: skip
    return {
        "resourceType": "virtualMachines",
        "name": size.name,
        "tier": "Standard",
        "size": size.name.removeprefix("Standard_"),
        "family": size.family,
        "locations": [location],
        "locationInfo": [{"location": location, "zones": zones, "zoneDetails": []}],
        "capabilities": [{"name": name, "value": str(value)} for name, value in told.items()],
        "restrictions": restrictions,
    }


#: Usages that are no family's, with the names that Azure shows.
REGIONAL, SPOT, MACHINES = "cores", "lowPriorityCores", "virtualMachines"


def usages(limits: dict[str, int], used: dict[str, int]) -> list[dict[str, Any]]:
    """What there is of each, and how much is taken."""
    names = {REGIONAL: "Total Regional vCPUs", SPOT: "Total Regional Spot vCPUs", MACHINES: "Virtual Machines"}
    for size in _ALL:
        names.setdefault(size.family, f"{size.family} vCPUs")
    return [
        {
            "unit": "Count",
            "currentValue": used.get(name, 0),
            "limit": limits.get(name, AMPLE),
            "name": {"value": name, "localizedValue": shown},
        }
        for name, shown in names.items()
    ]


def prices(location: str, size: Size, spot: int) -> list[dict[str, Any]]:
    """The items of the retail price list: on demand, spot, and what is not wanted beside them."""
    base = {
        "currencyCode": "USD", "tierMinimumUnits": 0.0, "armRegionName": location, "location": location,
        "effectiveStartDate": "2026-08-01T00:00:00Z", "meterId": f"meter-{size.name}", "meterName": size.name[9:],
        "productId": "DZH318Z0BQPS", "skuId": f"DZH318Z0BQPS/{size.name}",
        "productName": f"Virtual Machines {size.family} Series", "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8", "serviceFamily": "Compute", "unitOfMeasure": "1 Hour", "type": "Consumption",
        "isPrimaryMeterRegion": True, "armSkuName": size.name,
    }  # fmt: skip

    def item(nano: int, suffix: str = "", **more: Any) -> dict[str, Any]:
        price = round(nano / 1e9, 6)
        name = f"{size.name[9:].replace('_', ' ')}{suffix}"
        return {**base, "retailPrice": price, "unitPrice": price, "skuName": name, **more}

    windows = {"productName": f"{base['productName']} Windows"}
    items = [
        item(size.nano),
        item(size.nano * 2, **windows),
        item(size.nano * 6 // 10 * 8760, type="Reservation", reservationTerm="1 Year"),
    ]
    if size.spot:
        items += [item(spot, " Spot"), item(spot * 2, " Spot", **windows), item(size.nano // 5, " Low Priority")]
    return items
