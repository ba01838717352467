"""What is offered and at which price, which images boot, and what the preflight says of what keeps from either."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.provider.errors import InvalidRequest, Transient
from cloud_dispatch.provider.spi import Finding, Level
from cloud_dispatch_azure import preflight, prices
from cloud_dispatch_azure.catalogue import Sold, judged
from cloud_dispatch_azure.images import Image, of_gallery, of_marketplace
from tests.fakes.arm import catalogue
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.settings import GROUP, SUBSCRIPTION, Settings
from tests.fakes.faults import Fault, FaultKind
from tests.providers.azure import scenes
from tests.providers.azure.steps import VM, Connect, launched

ONE = {"sizes": ["Standard_D2s_v5"], "zones": ["1"]}
LISTED, SPOT = Rate(115_000_000), Rate(28_750_000)
BILLED, PLANNED = "RedHat:RHEL:9-lvm-gen2:latest", "resf:rockylinux-x86_64:9-base:latest"
CONFIDENTIAL = "Standard_DC2as_v5"
GPU, OLD = "Standard_NC24ads_A100_v4", "Canonical:ubuntu-24_04-lts:server-gen1:latest"


def by_market(offered: Sequence[Offering]) -> dict[Market, Offering]:
    assert len(offered) == len({one.market for one in offered})
    return {one.market: one for one in offered}


def said(found: Sequence[Finding], about: str, level: Level = Level.WARNING) -> list[str]:
    return [one.text for one in found if (one.about, one.level) == (about, level)]


# prices


async def test_the_list_is_what_counts(connect: Connect) -> None:
    found = by_market(await connect(**ONE).offerings())
    assert {market: one.rate for market, one in found.items()} == {Market.ON_DEMAND: LISTED, Market.SPOT: SPOT}
    assert {one.max_rate for one in found.values()} == {LISTED}


async def test_what_the_operator_pays_comes_before_the_list(connect: Connect) -> None:
    """The bid follows it; spot has the list's price."""
    found = by_market(await connect(**ONE, prices={"Standard_D2s_v5": "0.09"}).offerings())
    assert found[Market.ON_DEMAND].rate == found[Market.SPOT].max_rate == 90_000_000
    assert found[Market.SPOT].rate == SPOT


async def test_where_the_list_can_not_be_read_the_table_counts(fake: FakeArm, connect: Connect) -> None:
    """With what the operator pays before it. Its prices are estimates, and it has none of spot."""
    more = {"prices_url": f"{fake.url}/nothing-here", "sizes": ["Standard_D2s_v5", "Standard_D4s_v5"], "zones": ["1"]}
    driver = connect(**more, region="eastus", prices={"Standard_D4s_v5": "0.2"})
    known = await driver._catalogue.known()
    table = prices.embedded("eastus")["Standard_D2s_v5"]
    assert known["Standard_D2s_v5", Market.ON_DEMAND] == table
    assert table.estimated
    assert known["Standard_D4s_v5", Market.ON_DEMAND].rate == 200_000_000
    assert ("Standard_D2s_v5", Market.SPOT) not in known
    fake.unmodelled.clear()


async def test_what_is_no_list_of_prices_is_as_good_as_none(fake: FakeArm, connect: Connect) -> None:
    """A proxy's page with status 200: sizes are offered without prices, and whoever asks for prices hears of it."""
    fake.add_faults(Fault(FaultKind.ERROR, operation="RetailPrices", code="InternalServerError"))
    driver = connect(**ONE)
    assert {one.rate for one in await driver.offerings()} == {None}
    with pytest.raises(Transient, match="prices: status 500"):
        await driver.prices()
    page = connect(**ONE)

    async def a_page(*_: object, **__: object) -> list[str]:
        return ["<html>sign in</html>"]

    page._calls.price_pages = a_page  # type: ignore[method-assign]
    assert {one.rate for one in await page.offerings()} == {None}
    with pytest.raises(Transient, match="no list of prices"):
        await page.prices()


async def test_a_preflight_says_what_keeps_prices_unknown(fake: FakeArm, connect: Connect) -> None:
    """Why the list can't be read, and of which sizes on which market nothing is known."""
    fake.add_faults(Fault(FaultKind.ERROR, operation="RetailPrices", code="ServerBusy"))
    found = await connect(**ONE, prices={"Standard_D2s_v5": "0.09"}).preflight("contract")
    unknown, unread = said(found, "prices")
    assert "Standard_D2s_v5 spot" in unknown
    assert "on-demand" not in unknown
    assert "status 503" in unread
    assert fake.prices_url in unread
    fake.clear_faults()
    assert said(await connect(**ONE).preflight("contract"), "prices", Level.WARNING) == []
    assert not said(await connect(**ONE, price_list=False).preflight("contract"), "prices", Level.OK)


async def test_spot_above_the_bid_is_offered_without_a_price(connect: Connect) -> None:
    """It would launch nothing: so that it counts as not known, and the preflight says why."""
    driver = connect(**ONE, spot_max_percent=10)
    spot = by_market(await driver.offerings())[Market.SPOT]
    assert (spot.rate, spot.max_rate) == (None, 11_500_000)
    (text,) = said(await driver.preflight("contract"), "prices")
    assert "spot_max_percent = 10" in text
    assert "Standard_D2s_v5" in text
    assert by_market(await connect(**ONE, spot_max_percent=25).offerings())[Market.SPOT].rate == SPOT


async def test_a_size_that_is_not_sold_as_spot_is_not_offered_there(connect: Connect) -> None:
    assert set(by_market(await connect(sizes=["Standard_B2s"], zones=["1"]).offerings())) == {Market.ON_DEMAND}
    assert set(by_market(await connect(**ONE, spot=False).offerings())) == {Market.ON_DEMAND}


async def test_an_image_that_bills_by_itself_has_no_price_but_the_operators(connect: Connect) -> None:
    """The list has plain Linux. The preflight says so and why; of spot the whole price on demand is what bounds it."""
    bare = connect(**ONE, images={"x86_64": BILLED})
    found = by_market(await bare.offerings())
    assert {(one.rate, one.highest_rate, one.unlisted) for one in found.values()} == {(None, None, True)}
    why, unknown = said(await bare.preflight("contract"), "prices")
    assert "RedHat:RHEL" in why
    assert "billed by the hour beside the machine" in why
    assert "Standard_D2s_v5 on-demand" in unknown
    told = connect(**ONE, images={"x86_64": BILLED}, prices={"Standard_D2s_v5": "0.17"}, spot_max_percent=50)
    found = by_market(await told.offerings())
    assert found[Market.ON_DEMAND].rate == found[Market.SPOT].max_rate == 170_000_000
    assert found[Market.SPOT].rate is None
    assert [one.id for one in await launched(told)] == [VM]


async def test_each_architecture_has_its_own_images_price(connect: Connect) -> None:
    driver = connect(
        sizes=["Standard_D2s_v5", "Standard_D2ps_v5"], zones=["1"], spot=False,
        images={"x86_64": BILLED, "arm64": "Canonical:ubuntu-24_04-lts:server-arm64:latest"},
    )  # fmt: skip
    assert {one.type.architecture: (one.rate, one.unlisted) for one in await driver.offerings()} == {
        "x86_64": (None, True),
        "arm64": (92_000_000, False),
    }


@pytest.mark.parametrize(
    ("name", "billed"),
    [
        ("Canonical:ubuntu-24_04-lts:server", False),
        ("Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2", False),
        ("Canonical:ubuntu-24_04-lts:ubuntu-pro", True),
        ("canonical:0001-com-ubuntu-pro-jammy:pro-22_04-lts-gen2", True),
        ("Canonical:ubuntu-22_04-lts:ubuntu-pro-fips", True),
        ("Canonical:0001-com-ubuntu-advantage-xenial:16_04-lts", True),
        ("Debian:debian-12:12-gen2", False),
        ("Oracle:Oracle-Linux:ol9-lvm-gen2", False),
        ("almalinux:almalinux-x86_64:9-gen2", False),
        ("RedHat:RHEL:9-lvm-gen2", True),
        ("redhat:rhel-sap-ha:9_4", True),
        ("RedHat:rhel-byos:rhel-lvm94", False),
        ("SUSE:sles-15-sp6:gen2", True),
        ("SUSE:sles-15-sp6-byos:gen2", False),
        ("SUSE:opensuse-leap-15-6:gen2", False),
        ("MicrosoftSQLServer:sql2022-ubuntu2204:standard-gen2", True),
    ],
)
def test_whose_images_are_billed_for(name: str, billed: bool) -> None:
    found = of_marketplace(f"{name}:1.2.3", {"properties": {"hyperVGeneration": "V2", "architecture": "x64"}})
    assert (found.billed, found.plan) == (billed, False)


async def test_an_image_with_a_plan_can_not_be_booted(connect: Connect) -> None:
    """Azure wants it named, and what it costs is told nowhere: the preflight fails, before Azure refuses a launch."""
    driver = connect(**ONE, images={"x86_64": PLANNED})
    assert {one.rate for one in await driver.offerings()} == {None}
    (text,) = said(await driver.preflight("contract"), "images.x86_64", Level.ERROR)
    assert "plan of the marketplace" in text
    with pytest.raises(InvalidRequest, match="Plan information"):
        await driver.launch(scenes.request())


def test_an_image_of_ones_own_has_the_plan_that_it_was_made_from() -> None:
    facts = {"hyperVGeneration": "V2", "architecture": "x64"}
    plan = {"name": "9-base", "publisher": "resf", "product": "rockylinux-x86_64"}
    own, bought = (of_gallery("/g", {"properties": one}) for one in (facts, {**facts, "purchasePlan": plan}))
    assert (own.billed, own.plan) == (False, False)
    assert (bought.billed, bought.plan) == (True, True)


# images


async def test_a_size_that_boots_no_image_of_the_generation_is_not_offered(connect: Connect) -> None:
    """The preflight says that it is left out, and why; with an image that it boots it is there."""
    both = {"sizes": ["Standard_D2s_v5", GPU]}
    driver = connect(**both, images={"x86_64": OLD})
    assert {one.type.name for one in await driver.offerings()} == {"Standard_D2s_v5"}
    (text,) = said(await driver.preflight("contract"), "sizes")
    assert f"1 are not offered ({GPU})" in text
    assert "generation V1" in text
    assert "server-gen1" in text
    assert GPU in {one.type.name for one in await connect(**both).offerings()}
    with pytest.raises(InvalidRequest):
        await connect(sizes=[GPU], images={"x86_64": "Canonical:no:such:latest"}).offerings()


async def test_where_no_size_boots_the_image_the_preflight_fails(connect: Connect) -> None:
    driver = connect(sizes=[GPU], images={"x86_64": OLD})
    assert await driver.offerings() == ()
    assert said(await driver.preflight("contract"), "sizes", Level.ERROR)


async def test_a_size_of_confidential_vms_is_not_offered(connect: Connect) -> None:
    """Patterns of plain machines match it, its price is theirs, and it refuses each VM that is not confidential."""
    driver = connect(sizes=["Standard_D*as_v5"])
    assert {one.type.name for one in await driver.offerings()} == {"Standard_D2as_v5"}
    (text,) = said(await driver.preflight("contract"), "sizes")
    assert f"1 of 'Standard_D*as_v5' are not offered ({CONFIDENTIAL}): they boot confidential VMs (SNP)" in text
    with pytest.raises(InvalidRequest, match=f"no size '{CONFIDENTIAL}'"):
        await driver.launch(scenes.request(offering=scenes.offering(CONFIDENTIAL)))


@pytest.mark.parametrize(("kind", "left_out"), [("SNP", True), ("tdx", True), ("SGX", False), ("", False)])
def test_enclaves_alone_make_no_size_confidential(kind: str, left_out: bool) -> None:
    size = replace(catalogue.SIZES[scenes.SIZE.lower()], confidential=kind)
    found = judged(catalogue.sku(size, scenes.REGION, Settings()), scenes.settings())
    assert isinstance(found, str) == left_out


async def test_trusted_launch_takes_a_part_of_the_place_of_an_ephemeral_disk(connect: Connect) -> None:
    """A disk as large as the place is refused by Azure: such a size is offered for a smaller one, or without."""
    more = {"sizes": ["Standard_F2s_v2"], "ephemeral": True, "zones": ["1"]}
    fits = connect(**more, root_size="31GiB")
    offering = by_market(await fits.offerings())[Market.ON_DEMAND]
    assert await launched(fits, scenes.request(offering=offering))
    assert await connect(**more, root_size="32GiB", trusted_launch=False).offerings()
    with pytest.raises(InvalidRequest, match="none of them can be rented"):
        await connect(**more, root_size="32GiB").offerings()


def test_sizes_are_named_whose_generation_the_image_is_not() -> None:
    one = Sold(scenes.offering().type, frozenset(), frozenset(Market), generations=frozenset({"V2"}))
    old = Image("old", "x86_64", "V1")
    assert len(preflight.of_generations([one], [old])) == 1
    for fits in (Image("new", "x86_64"), replace(old, architecture="arm64"), replace(old, known=False)):
        assert preflight.of_generations([one], [fits]) == []


SHARED = (
    "/subscriptions/99999999-8888-4777-8666-555555555555/resourceGroups/shared/providers/Microsoft.Compute/galleries/all"
    "/images/batch/versions/1.0.0"
)


@pytest.mark.parametrize(
    "pace",
    [
        {
            "subscriptions": (SUBSCRIPTION, SHARED.split("/")[2]),
            "groups": (GROUP, "shared"),
            "image_ids": frozenset({SHARED}),
        }
    ],
    ids=["shared"],
)
async def test_an_image_may_be_of_another_subscription(connect: Connect) -> None:
    """It is looked for where its id says that it is, as galleries are shared."""
    driver = connect(**ONE, images={"x86_64": SHARED})
    offering = by_market(await driver.offerings())[Market.ON_DEMAND]
    assert offering.image == SHARED
    assert await launched(driver, scenes.request(offering=offering))


async def test_an_image_for_other_machines_is_refused(fake: FakeArm, connect: Connect) -> None:
    """Before anything is made: where it is asked for, where it is offered, and by the preflight."""
    driver = connect(images={"x86_64": "Canonical:ubuntu-24_04-lts:server-arm64:latest"})
    for ask in (driver.offerings(), driver.launch(scenes.request())):
        with pytest.raises(InvalidRequest, match=r"images\.x86_64: .*server-arm64.* is for arm64"):
            await ask
    assert any("is for arm64" in text for text in said(await driver.preflight("contract"), "images", Level.ERROR))
    assert fake.calls["NetworkInterfaces_CreateOrUpdate"] == 0


async def test_an_image_that_is_larger_than_the_disk_is_told(connect: Connect) -> None:
    """With the size that it needs."""
    (text,) = said(await connect(root_size="16GiB").preflight("contract"), "images.x86_64", Level.ERROR)
    assert "root_size = 30GiB" in text
    assert said(await connect(root_size="30GiB").preflight("contract"), "images.x86_64", Level.OK)


async def test_an_image_that_trusted_launch_can_not_boot_is_told(connect: Connect) -> None:
    (text,) = said(await connect(images={"x86_64": OLD}).preflight("contract"), "images.x86_64")
    assert "trusted launch" in text
    plain = connect(images={"x86_64": OLD}, trusted_launch=False)
    assert said(await plain.preflight("contract"), "images.x86_64", Level.OK)


# sizes


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"images": {"x86_64": "Canonical:ubuntu-24_04-lts:server:latest"}}, "`images` has none for them .x86_64"),
        ({"ephemeral": True}, "no room for an ephemeral disk"),
        ({"zones": ["9"]}, "in no zone that `zones` names"),
    ],
    ids=str,
)
async def test_a_preflight_says_why_sizes_are_not_offered(connect: Connect, more: dict[str, object], why: str) -> None:
    """By pattern; also where nothing is left."""
    found = await connect(sizes=["Standard_D?ps_v5"], **more).preflight("contract")
    (text,) = said(found, "sizes")
    assert re.match(r"2 of 'Standard_D\?ps_v5' are not offered \(Standard_D2ps_v5, Standard_D4ps_v5\): ", text)
    assert re.search(why, text)
    assert said(found, "sizes", Level.ERROR)


def test_a_preflight_says_what_the_subscription_is_kept_from() -> None:
    """With Azure's word for it; and patterns that match nothing."""
    size = catalogue.SIZES[scenes.SIZE.lower()]
    kept = catalogue.sku(size, scenes.REGION, Settings(unoffered=frozenset({(scenes.SIZE, scenes.REGION)})))
    said_of = preflight.of_patterns([kept], scenes.settings(sizes=[scenes.SIZE, "Standard_Z*"]))
    here = "not for this subscription here: NotAvailableForSubscription"
    assert [one.text for one in said_of] == [
        f"1 of '{scenes.SIZE}' are not offered ({scenes.SIZE}): {here}",
        f"no size is sold in {scenes.REGION} as 'Standard_Z*'",
    ]
