"""A few instance types of each cloud. Owns their sizes and prices, which make simulations plausible and bill nobody.

Roughly what was asked for Linux in 2025, on demand and spot, in the region that the dialect's defaults name. Estimates:
no real driver asks here.
"""

from __future__ import annotations

from cloud_dispatch.domain.money import parse_rate
from cloud_dispatch.domain.offering import InstanceType
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.simulation.clouds.settings import Cloud, Sold

_DISK = 30 * GIB
#: name, vCPUs, GiB, family, dollars an hour on demand, on the spot market
_Row = tuple[str, int, int, str, str, str]
_ROWS: dict[Cloud, tuple[_Row, ...]] = {
    Cloud.EC2: (
        ("c7i.large", 2, 4, "standard", "0.08925", "0.0357"),
        ("c7i.2xlarge", 8, 16, "standard", "0.357", "0.1428"),
        ("m7i.large", 2, 8, "standard", "0.1008", "0.0403"),
        ("m7i.2xlarge", 8, 32, "standard", "0.4032", "0.1613"),
        ("r7i.xlarge", 4, 32, "standard", "0.2646", "0.1058"),
    ),
    Cloud.GCE: (
        ("n2-standard-2", 2, 8, "n2", "0.097118", "0.0235"),
        ("n2-standard-8", 8, 32, "n2", "0.388472", "0.094"),
        ("n2-highcpu-4", 4, 4, "n2", "0.143408", "0.0347"),
        ("e2-standard-4", 4, 16, "e2", "0.134012", "0.0402"),
    ),
    Cloud.ARM: (
        ("Standard_D2s_v5", 2, 8, "dsv5", "0.096", "0.0192"),
        ("Standard_D8s_v5", 8, 32, "dsv5", "0.384", "0.0768"),
        ("Standard_F4s_v2", 4, 8, "fsv2", "0.169", "0.0676"),
    ),
}
_ZONES = {
    Cloud.EC2: ("us-east-1a", "us-east-1b", "us-east-1c"),
    Cloud.GCE: ("us-central1-a", "us-central1-b", "us-central1-c"),
    Cloud.ARM: ("eastus-1", "eastus-2", "eastus-3"),
}


def sold(cloud: Cloud) -> tuple[Sold, ...]:
    """What the cloud sells in all its zones, on both markets."""
    return tuple(
        Sold(
            InstanceType(name, Resources(vcpus * 1000, memory * GIB, _DISK), family=family),
            _ZONES[cloud],
            parse_rate(rate),
            parse_rate(spot),
        )
        for name, vcpus, memory, family, rate, spot in _ROWS[cloud]
    )
