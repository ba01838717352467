"""VMs that were there before: ``python -m bench.listed_fleet CONFIG VMS NAME=URL...`` fills the fakes of these
profiles, whose back doors are at these places, with so many each.

Owns the requests, in the drivers' own words: EC2 gets them from boto3, a hundred VMs a launch, the others at their back
door, one request repeated with other names. What is listed afterwards looks as the product's own VMs do.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.fake_ec2 import IMAGE, ROOT_DEVICE, TYPE, ZONE, Fake
from bench.three_clouds import AWS, AZURE, GCP, GCP_TYPE, GCP_ZONES, GROUP, LOCATION, PROJECT, SIZE, SUBSCRIPTION
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, instance_id
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.spi import LaunchRequest

#: So many VMs a launch of EC2, and requests a call of a back door.
BATCH, CHUNK = 100, 500
LIFETIME_MS = 43_200_000
USER_DATA = "#cloud-config\n"
#: The batch of a request that is repeated, and what the fake makes of it; each VM is of another one.
_ANY, _NUMBERED = "b00000000any", "b{number}"
_RATE = Rate(96_000_000)


def fill(config: Path, count: int, places: Mapping[str, str]) -> None:
    """So many VMs for each profile."""
    profiles = load(TomlFile(config), registry.plugin).profiles
    for name, url in places.items():
        {AWS: _aws, GCP: _gcp, AZURE: _azure}[name](Fake(url, name), profiles[name].settings, count)


def _request(profile: str, type_name: str, zone: str, batch: str, slots: int, region: str) -> LaunchRequest:
    kind = InstanceType(type_name, Resources(2_000, 8 * GIB, 30 * GIB))
    offering = Offering(ProfileName(profile), kind, zone, Market.ON_DEMAND, _RATE, max_rate=_RATE, region=region)
    ends = int(time.time() * 1000) + LIFETIME_MS
    tags = VmTags("bench", "store-1", PoolName(profile), BatchId(batch), _RATE, ends).encode()
    instances = tuple(instance_id(BatchId(batch), slot) for slot in range(slots))
    return LaunchRequest(BatchId(batch), slots, offering, tags, USER_DATA, ends, instances)


def _repeat(fake: Fake, method: str, target: str, body: Any, first: int, count: int) -> None:
    body = json.loads(json.dumps(body).replace(_ANY, _NUMBERED))
    for start in range(first, first + count, CHUNK):
        fake.do(
            "fill", method=method, target=target, body=body, first=start, count=min(CHUNK, first + count - start)
        )  # fmt: skip


def _aws(fake: Fake, settings: Any, count: int) -> None:
    from bench.bare_ec2 import client
    from cloud_dispatch_aws import translate
    from cloud_dispatch_aws.images import Image

    ec2 = client(fake.url)
    for start in range(0, count, BATCH):
        request = _request(AWS, TYPE, ZONE, f"b{start:011d}", min(BATCH, count - start), settings.region)
        ec2.run_instances(
            **translate.launch(
                request, settings, USER_DATA.encode(), Image(IMAGE, ROOT_DEVICE, "x86_64"), burstable=False
            )
        )


def _gcp(fake: Fake, settings: Any, count: int) -> None:
    """Over the zones of the region, as evenly as can be."""
    from google.protobuf.json_format import MessageToDict

    from cloud_dispatch_gcp import translate

    first = 0
    for place, zone in enumerate(GCP_ZONES):
        some = (count + place) // len(GCP_ZONES)
        request = _request(GCP, GCP_TYPE, zone, _ANY, 1, settings.regions[0])
        image = "projects/ubuntu-os-cloud/global/images/ubuntu-2404-noble-amd64-v20260801"
        now = request.ends_ms - LIFETIME_MS
        made = translate.instance(request, request.instances[0], settings, USER_DATA.encode(), image, now)
        target = f"/compute/v1/projects/{PROJECT}/zones/{zone}/instances"
        _repeat(fake, "POST", target, MessageToDict(type(made).pb(made)), first, some)
        first += some


def _azure(fake: Fake, settings: Any, count: int) -> None:
    """The interfaces first, then the VMs that have them."""
    from cloud_dispatch_azure import translate
    from cloud_dispatch_azure.catalogue import Sold
    from cloud_dispatch_azure.images import Image

    request = _request(AZURE, SIZE, f"{LOCATION}-1", _ANY, 1, LOCATION)
    instance = InstanceId(request.instances[0])
    resources = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
    nic = f"{resources}/Microsoft.Network/networkInterfaces/{translate.nic_name(instance)}"
    vm = f"{resources}/Microsoft.Compute/virtualMachines/{instance}"
    image = Image("Canonical:ubuntu-24_04-lts:server:24.04.202608010", "x86_64")
    size = Sold(request.offering.type, frozenset({request.offering.zone}), frozenset({Market.ON_DEMAND}))
    body = translate.vm_body(request, instance, settings, USER_DATA.encode(), image, size, nic)
    for path, said in ((nic, translate.nic_body(request, settings, "")), (vm, body)):
        target = f"{path}?api-version=2026-04-01".replace(_ANY, _NUMBERED)
        _repeat(fake, "PUT", target, said, 0, count)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]), dict(one.split("=", 1) for one in sys.argv[3:]))  # type: ignore[misc]
