"""What a profile offers: types, zones, markets, prices, images; and which quota each counts in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.resources import GIB, MIB
from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest
from cloud_dispatch_aws import quotas
from cloud_dispatch_aws.catalogue import Catalogue, instance_type, sold
from cloud_dispatch_aws.images import Images
from cloud_dispatch_aws.prices import of_extras
from cloud_dispatch_aws.subnets import Subnets
from tests.providers.aws.scenes import NOW_MS, REGION, settings
from tests.providers.aws.scripted import Scripted
from tests.providers.aws.test_aws_prices import product


def info(name: str, vcpus: int = 2, architecture: str = "x86_64", **more: Any) -> dict[str, Any]:
    return {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "MemoryInfo": {"SizeInMiB": 8192},
        "ProcessorInfo": {"SupportedArchitectures": [architecture]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        **more,
    }


def place(name: str, zone: str) -> dict[str, str]:
    return {"InstanceType": name, "LocationType": "availability-zone", "Location": zone}


FREE = {"PlatformDetails": "Linux/UNIX", "UsageOperation": "RunInstances"}
MARKETPLACE = [{"ProductCodeId": "p1", "ProductCodeType": "marketplace"}]


def image(told: Mapping[str, Any] = FREE, **asked: Any) -> dict[str, Any]:
    """ami-a is for ARM and free, every other one is not for ARM, and what is told of it."""
    name = asked["ImageIds"][0]
    architecture, more = ("arm64", FREE) if name == "ami-a" else ("x86_64", told)
    return {"Images": [{"ImageId": name, "RootDeviceName": "/dev/xvda", "Architecture": architecture, **more}]}


def script(**more: Any) -> Scripted:
    """An account that sells m5.large in two zones and the ARM type m7gd.large in one."""
    answers: dict[str, Any] = {
        "describe_instance_types": {"InstanceTypes": [info("m5.large"), info("m7gd.large", architecture="arm64")]},
        "describe_instance_type_offerings": {
            "InstanceTypeOfferings": [
                place("m5.large", "us-east-1a"), place("m5.large", "us-east-1b"), place("m7gd.large", "us-east-1a"),
            ]
        },
        "describe_spot_price_history": {"SpotPriceHistory": []},
        "get_products": {"PriceList": [product("m5.large", "0.1")]},
        "get_parameter": lambda **asked: {"Parameter": {"Value": "ami-" + ("a" if "arm64" in asked["Name"] else "b")}},
        "describe_images": image,
        **more,
    }  # fmt: skip
    return Scripted(answers)


def catalogued(calls: Scripted, now_ms: int = NOW_MS, **said: Any) -> Catalogue:
    own = settings(**{"instance_types": ["m5.*", "m7gd.*"], **said})
    images, subnets = Images(calls, own, lambda: now_ms), Subnets(calls, own, lambda: now_ms)
    return Catalogue(ProfileName("aws"), own, calls, images, subnets, lambda: now_ms)


async def offered(calls: Scripted, now_ms: int = NOW_MS, **said: Any) -> dict[str, Offering]:
    catalogue = catalogued(calls, now_ms, **said)
    return {one.key.removeprefix("aws/"): one for one in await catalogue.offerings()}


def spot(name: str, zone: str, dollars: str) -> Mapping[str, Any]:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    return {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": dollars, "Timestamp": since}


async def test_every_type_in_every_zone_has_an_offering_and_a_price_where_one_is_known() -> None:
    """The price list's word; what it does not say, the table's estimate; else none at all."""
    found = await offered(script())
    assert set(found) == {
        "m5.large/us-east-1a/on-demand", "m5.large/us-east-1b/on-demand", "m7gd.large/us-east-1a/on-demand",
    }  # fmt: skip
    known, unknown = found["m5.large/us-east-1a/on-demand"], found["m7gd.large/us-east-1a/on-demand"]
    assert (known.rate, known.max_rate, known.priced_ms, known.estimated) == (100_000_000, 100_000_000, NOW_MS, False)
    assert (unknown.rate, unknown.max_rate, unknown.priced_ms) == (None, None, 0)
    assert (known.region, known.minimum_ms, known.increment_ms) == (REGION, 60_000, 1_000)
    assert (known.image, unknown.image, unknown.type.architecture) == ("ami-b", "ami-a", "arm64")
    assert known.extra_rate > 0


async def test_without_the_price_list_the_table_estimates_and_nothing_stops() -> None:
    """A right to prices is one of its own; what is from the table says so and how old it is."""

    def refuse(**_: Any) -> None:
        raise CredentialsRejected("no")

    found = (await offered(script(get_products=refuse)))["m5.large/us-east-1a/on-demand"]
    assert (found.rate, found.estimated) == (96_000_000, True)
    assert 0 < found.priced_ms < NOW_MS


async def test_what_the_operator_says_he_pays_wins() -> None:
    found = (await offered(script(), prices={"m5.large": "0.05"}))["m5.large/us-east-1a/on-demand"]
    assert (found.rate, found.priced_ms, found.estimated) == (50_000_000, NOW_MS, False)


async def test_spot_is_offered_where_it_has_a_price_below_the_bid() -> None:
    """The bid is a part of the price on demand; where the market asks more there is no offering."""
    rows = [
        spot("m5.large", "us-east-1a", "0.04"),
        spot("m5.large", "us-east-1b", "0.09"),
        spot("m7gd.large", "us-east-1a", "0.03"),
    ]
    calls = script(describe_spot_price_history={"SpotPriceHistory": rows})
    found = await offered(calls, spot_max_percent=80)
    cheap = found["m5.large/us-east-1a/spot"]
    assert (cheap.rate, cheap.max_rate, cheap.priced_ms) == (40_000_000, 80_000_000, NOW_MS)
    assert "m5.large/us-east-1b/spot" not in found
    without_a_price_on_demand = found["m7gd.large/us-east-1a/spot"]
    assert (without_a_price_on_demand.rate, without_a_price_on_demand.max_rate) == (30_000_000, None)
    assert not [key for key in await offered(calls, spot=False) if key.endswith("spot")]


async def test_zones_are_those_of_the_settings_and_of_the_subnets() -> None:
    assert {key.split("/")[1] for key in await offered(script(), zones=["us-east-1b"])} == {"us-east-1b"}
    subnet = {"SubnetId": "subnet-1", "AvailabilityZone": "us-east-1b", "AvailableIpAddressCount": 9}
    calls = script(describe_subnets={"Subnets": [subnet]})
    assert {key.split("/")[1] for key in await offered(calls, subnets=["subnet-1"])} == {"us-east-1b"}


async def test_zones_with_prices_of_their_own_are_not_offered() -> None:
    """Local Zones and Wavelength Zones are told as zones of their region, which they cost more than."""
    near = ("us-east-1-bos-1a", "us-east-1-wl1-nyc-wlz-1", "us-east-11a", "us-east-1")
    places = [place("m5.large", zone) for zone in (*near, "us-east-1b")]
    calls = script(
        describe_instance_type_offerings={"InstanceTypeOfferings": places},
        describe_spot_price_history={"SpotPriceHistory": [spot("m5.large", zone, "0.01") for zone in near]},
        describe_subnets={
            "Subnets": [
                {"SubnetId": f"subnet-{number}", "AvailabilityZone": zone, "AvailableIpAddressCount": 9}
                for number, zone in enumerate((near[0], "us-east-1b"))
            ]
        },
    )
    for said in ({}, {"subnets": ["subnet-0", "subnet-1"]}):
        assert {one.zone for one in (await offered(calls, **said)).values()} == {"us-east-1b"}


async def test_an_architecture_without_an_image_is_not_offered() -> None:
    found = await offered(script(), images={"arm64": "ami-a"})
    assert {one.type.name for one in found.values()} == {"m7gd.large"}


BILLED = [
    {"PlatformDetails": "Red Hat Enterprise Linux", "UsageOperation": "RunInstances:0010"},
    {**FREE, "UsageOperation": "RunInstances:0100"},
    {**FREE, "ProductCodes": MARKETPLACE},
    {},
]


@pytest.mark.parametrize("told", BILLED, ids=["platform", "operation", "product", "untold"])
async def test_what_a_machine_costs_with_an_image_that_is_billed_for_only_the_operator_knows(
    told: Mapping[str, Any],
) -> None:
    """The list, the spot prices and the table are of plain Linux: none is told then, nor kept, nor bid."""
    rows = [spot("m5.large", "us-east-1a", "0.04"), spot("m7gd.large", "us-east-1a", "0.03")]
    products = [product("m5.large", "0.1"), product("m7gd.large", "0.2")]
    more = {
        "describe_images": partial(image, told),
        "describe_spot_price_history": {"SpotPriceHistory": rows},
        "get_products": {"PriceList": products},
    }
    found = await offered(script(**more))
    for market in Market:
        unknown = found[f"m5.large/us-east-1a/{market}"]
        assert (unknown.rate, unknown.max_rate, unknown.unlisted) == (None, None, True)
        assert found[f"m7gd.large/us-east-1a/{market}"].rate is not None
    assert {one.type for one in await catalogued(script(**more)).told()} == {"m7gd.large"}
    found = await offered(script(**more), prices={"m5.large": "0.25"})
    known = found["m5.large/us-east-1a/on-demand"]
    assert (known.rate, known.max_rate, known.priced_ms, known.estimated) == (250_000_000, 250_000_000, NOW_MS, False)
    assert found["m5.large/us-east-1a/spot"].highest_rate is None


async def test_disks_that_an_image_brings_are_in_what_a_vm_costs() -> None:
    """Whoever boots it gets them, and AWS bills them by their size."""
    disks = [
        {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8}}, {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
        {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 500}},
    ]  # fmt: skip
    plain = await offered(script(), root_size="30GiB")
    more = await offered(script(describe_images=partial(image, {**FREE, "BlockDeviceMappings": disks})))
    key = "m5.large/us-east-1a/on-demand"
    gib = of_extras(REGION, GIB, public_address=False)
    assert abs(more[key].extra_rate - plain[key].extra_rate - 500 * gib) < 500
    assert more[key].type == plain[key].type


async def test_an_image_for_other_machines_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is for x86_64"):
        await offered(script(), images={"arm64": "ami-b"})


async def test_types_that_nobody_sells_are_a_mistake_in_the_settings() -> None:
    with pytest.raises(InvalidRequest, match="instance_types"):
        await offered(script(describe_instance_types={"InstanceTypes": []}))


def test_patterns_choose_again_what_ec2_may_have_chosen_otherwise() -> None:
    found = sold(
        [info("m5.large"), info("t3.large")],
        [place("m5.large", "us-east-1a"), place("t3.large", "us-east-1a")],
        settings(),
    )
    assert [one.type.name for one in found] == ["m5.large"]


async def test_a_type_bursts_where_ec2_says_so_and_where_it_says_nothing_any_more() -> None:
    """By its description and not its name."""
    bursting = info("m5.large", BurstablePerformanceSupported=True)
    steady = info("m7gd.large", architecture="arm64", BurstablePerformanceSupported=False)
    catalogue = catalogued(script(describe_instance_types={"InstanceTypes": [bursting, steady]}))
    names = ("m5.large", "m7gd.large", "m5.gone")
    assert [await catalogue.burstable(name) for name in names] == [True, False, True]


def test_a_machine_is_told_by_what_tasks_ask_for() -> None:
    cards = {"Gpus": [{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": 4, "MemoryInfo": {"SizeInMiB": 24576}}]}
    made = instance_type(info("g5.12xlarge", 48, GpuInfo=cards), settings())
    assert made is not None
    assert (made.capacity.cpus_milli, made.capacity.memory, made.capacity.disk) == (48_000, 8 * GIB, 30 * GIB)
    assert (made.capacity.gpus, made.gpu_type, made.gpu_memory, made.family) == (4, "a10g", 24576 * MIB, "g-vt")
    scratch = instance_type(info("m5.large"), settings(scratch=["100GiB"]))
    assert scratch is not None
    assert scratch.capacity.disk == 100 * GIB
    assert instance_type(info("mac1.metal", architecture="x86_64_mac"), settings()) is None


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("m7i.large", "standard"), ("t3.micro", "standard"), ("im4gn.large", "standard"), ("i4i.large", "standard"),
        ("g6.xlarge", "g-vt"), ("gr6.4xlarge", "g-vt"), ("gr6f.4xlarge", "g-vt"), ("vt1.3xlarge", "g-vt"),
        ("p4d.24xlarge", "p"), ("p5.48xlarge", "p5"), ("p5en.48xlarge", "p5"), ("p6-b200.48xlarge", "p6"),
        ("inf2.xlarge", "inf"),
        ("trn1.2xlarge", "trn"), ("x2gd.large", "x"), ("u-6tb1.metal", "high-memory"),
        ("u7i-12tb.224xlarge", "high-memory"),
        ("dl1.24xlarge", "dl"), ("d3.xlarge", "standard"), ("hpc7a.96xlarge", "hpc"), ("h1.2xlarge", "standard"),
        ("f1.2xlarge", "f"), ("m7i-flex.large", "standard"),
    ],
)  # fmt: skip
def test_families_are_the_buckets_of_quotas(name: str, family: str) -> None:
    assert quotas.family_of(name) == family


def test_quotas_tell_limit_and_use_by_bucket_and_market() -> None:
    """Anybody's instances count; a limit that was not told is not known."""
    listed = [
        {"Instances": [
            {"InstanceType": "m5.large"},
            {"InstanceType": "c5.xlarge", "CpuOptions": {"CoreCount": 2, "ThreadsPerCore": 2}},
            {"InstanceType": "m5.large", "InstanceLifecycle": "spot"},
            {"InstanceType": "p5.48xlarge", "CpuOptions": {"CoreCount": 96, "ThreadsPerCore": 2}},
        ]}
    ]  # fmt: skip
    used = quotas.used(listed, {"m5.large": 2})
    told = {
        (q.scope.family, q.scope.market): (q.limit, q.used)
        for q in quotas.told({"L-1216C47A": 64.0}, used, {"standard", "g-vt"}, REGION)
    }
    assert told == {
        ("standard", "on-demand"): (64, 6), ("standard", "spot"): (None, 2),
        ("g-vt", "on-demand"): (None, 0), ("g-vt", "spot"): (None, 0),
    }  # fmt: skip
    of_spot = [code for (_, market), code in quotas.CODES.items() if market is Market.SPOT]
    assert len(set(of_spot)) == len(of_spot)
    assert all(market in Market for _, market in quotas.CODES)


def test_the_fifth_generation_of_p_has_a_spot_quota_of_its_own_and_shares_that_on_demand() -> None:
    """Both spot quotas are nothing until somebody asks for one of them: the one says nothing of the other."""
    listed = [
        {"Instances": [
            {"InstanceType": "p4d.24xlarge"}, {"InstanceType": "p5.48xlarge"},
            {"InstanceType": "p5.48xlarge", "InstanceLifecycle": "spot"},
        ]}
    ]  # fmt: skip
    used = quotas.used(listed, {"p4d.24xlarge": 96, "p5.48xlarge": 192})
    limits = {"L-417A185B": 960.0, "L-7212CCBC": 0.0, "L-C4BD4855": 384.0}
    told = {
        (q.scope.family, q.scope.market): (q.name, q.limit, q.used)
        for q in quotas.told(limits, used, {"p", "p5", "p6"}, REGION)
    }
    on_demand = ("L-417A185B", 960, 288)
    assert told == {
        ("p", "on-demand"): on_demand, ("p5", "on-demand"): on_demand, ("p6", "on-demand"): on_demand,
        ("p", "spot"): ("L-7212CCBC", 0, 0), ("p5", "spot"): ("L-C4BD4855", 384, 192),
    }  # fmt: skip
