"""What can be rented, what it costs and what limits it, as the driver makes it of the fake's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.provider.errors import InvalidRequest, QuotaExceeded, Scope
from cloud_dispatch.provider.spi import ProfileContext, QuotaUnit
from cloud_dispatch_gcp import images, plugin, prices
from cloud_dispatch_gcp.prices import Made
from tests.fakes.clock import SetClock
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce import FakeGce, Settings
from tests.providers.gcp import scenes
from tests.providers.gcp.launching import Connect, asked, finished


async def test_a_custom_type_is_offered_where_its_family_is(fake: FakeGce, connect: Connect) -> None:
    driver = connect(instance_types=["n2-custom-4-10240"])
    offers = [one for one in await driver.offerings() if one.market is Market.ON_DEMAND]
    assert {one.zone for one in offers} == {f"us-central1-{letter}" for letter in "abcf"}
    assert offers[0].rate == 4 * 33_191_000 + 10 * 4_449_000
    result = await finished(driver, await driver.launch(asked(fake, offering=offers[0])))
    assert [vm.type for vm in result.vms] == ["n2-custom-4-10240"]


async def test_a_spot_vm_may_cost_the_list_price_whatever_was_agreed_on_demand(fake: FakeGce, connect: Connect) -> None:
    """What the operator pays on demand bounds no spot machine; without the list nobody knows what does."""
    agreed = connect(instance_types=["n2-standard-2"], prices={"n2-standard-2": "0.03"})
    by_market = {one.market: one for one in await agreed.offerings()}
    assert by_market[Market.ON_DEMAND].rate == by_market[Market.ON_DEMAND].max_rate == 30_000_000
    assert by_market[Market.SPOT].max_rate == 97_118_000
    blind = connect(instance_types=["n2-standard-2"], prices={"n2-standard-2": "0.03"}, price_list=False)
    assert {one.max_rate for one in await blind.offerings() if one.market is Market.SPOT} == {None}


async def test_what_the_operator_pays_comes_before_the_list_and_that_before_the_table(
    fake: FakeGce, connect: Connect
) -> None:
    """Of each price its own age, and whether it is Google's word; a list that can't be read stops no VM."""

    async def on_demand(**more: Any) -> Offering:
        offers = await connect(
            instance_types=["n2-standard-2"], zones=["us-central1-a"], spot=False, **more
        ).offerings()
        (found,) = offers
        return found

    own, listed = await on_demand(prices={"n2-standard-2": "0.03"}), await on_demand()
    fake.add_faults(Fault(FaultKind.ERROR, operation="services.skus.list", code="accessNotConfigured"))
    table = await on_demand()
    known = prices.price(
        Made("n2-standard-2", 2, 8_192), scenes.REGION, Market.ON_DEMAND, prices.embedded(scenes.REGION)
    )
    assert known is not None
    assert [(one.rate, one.max_rate, one.estimated) for one in (own, listed, table)] == [
        (30_000_000, 30_000_000, False),
        (97_118_000, 97_118_000, False),
        (known.rate, known.rate, True),
    ]
    assert table.priced_ms == known.priced_ms
    assert own.priced_ms > known.priced_ms
    assert listed.priced_ms > known.priced_ms


async def test_a_spot_vm_costs_its_own_price_and_at_most_the_one_on_demand(fake: FakeGce, connect: Connect) -> None:
    (spot,) = [
        one
        for one in await connect(instance_types=["n2-standard-2"], zones=["us-central1-a"]).offerings()
        if one.market is Market.SPOT
    ]
    assert spot.rate is not None
    assert spot.rate < 30_000_000
    assert spot.max_rate == spot.highest_rate == 97_118_000


@pytest.mark.parametrize(
    ("apart", "found"),
    [
        (0, {("N2_CPUS", "family=N2_CPUS region=us-central1")}),
        (
            8,
            {
                ("N2_CPUS", "family=N2_CPUS market=on-demand region=us-central1"),
                ("PREEMPTIBLE_CPUS", "market=spot region=us-central1"),
            },
        ),
    ],
)
async def test_spot_shares_the_ordinary_limit_without_one_of_its_own(
    fake: FakeGce, quotas: dict[tuple[str, str], int], connect: Connect, apart: int, found: set[tuple[str, str]]
) -> None:
    """Where the limit of spot cores is 0, as of projects that never asked for one."""
    quotas[scenes.REGION, "PREEMPTIBLE_CPUS"] = apart
    told_ = await connect(instance_types=["n2-standard-2"]).quotas()
    assert {(one.name, str(one.scope)) for one in told_ if one.name in ("N2_CPUS", "PREEMPTIBLE_CPUS")} == found


RHEL = {"x86_64": "projects/rhel-cloud/global/images/family/rhel-9"}


async def test_what_a_machine_costs_with_an_image_that_bills_too_only_the_operator_knows(connect: Connect) -> None:
    """Neither list nor table, nor what was agreed on demand for the spot market; and no price that was kept counts."""
    more = {"instance_types": ["n2-standard-2", "e2-standard-2"], "zones": ["us-central1-a"], "images": RHEL}
    driver = connect(**more, prices={"n2-standard-2": "0.2"})
    offers = {(one.type.name, one.market): one for one in await driver.offerings()}
    known = offers.pop(("n2-standard-2", Market.ON_DEMAND))
    assert (known.rate, known.max_rate, known.estimated, known.unlisted) == (200_000_000, 200_000_000, False, True)
    assert len(offers) == 3
    assert {(one.rate, one.highest_rate, one.unlisted) for one in offers.values()} == {(None, None, True)}


@pytest.mark.parametrize(
    ("licenses", "found"),
    [
        ([], ()),
        (["debian-cloud/debian-12-bookworm", "vm-options/enable-vmx"], ()),
        (["rhel-cloud/rhel-8-byos"], ()),
        (["debian-cloud/debian-12-bookworm", "windows-cloud/windows-server-2022-dc"],
         ("windows-cloud/windows-server-2022-dc",)),
        (["ubuntu-os-pro-cloud/ubuntu-pro-2404-lts"], ("ubuntu-os-pro-cloud/ubuntu-pro-2404-lts",)),
        (["somebodys-public/product"], ("somebodys-public/product",)),
    ],
    ids=["none", "free", "brought along", "one of two", "pro", "unheard of"],
)  # fmt: skip
def test_a_licence_bills_unless_it_is_known_not_to(licenses: list[str], found: tuple[str, ...]) -> None:
    """An image of one's own has those of the image that it was made of."""
    root = "https://www.googleapis.com/compute/v1/"
    assert images.billed(root + "projects/{}/global/licenses/{}".format(*one.split("/")) for one in licenses) == found


async def test_an_image_for_other_machines_is_refused(connect: Connect) -> None:
    arm = scenes.settings().images["arm64"]
    with pytest.raises(InvalidRequest, match="is for arm64"):
        await connect(images={"x86_64": arm}).offerings()


async def test_the_catalogue_is_read_to_its_last_page(tmp_path: Path) -> None:
    """Its tokens are base64: they have to survive the query."""
    with FakeGce(Settings(skus_a_page=40), SetClock(scenes.NOW_MS)) as fake:
        said = scenes.settings(
            endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)), instance_types=["n2-custom-4-10240"]
        )
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=fake.clock.now))
        offers = await driver.offerings()
        await driver.close()
        assert fake.calls["services.skus.list"] > 2
        assert all(one.rate and not one.estimated for one in offers)


async def test_a_newer_family_has_a_limit_that_no_region_tells_of(
    fake: FakeGce, quotas: dict[tuple[str, str], int], connect: Connect
) -> None:
    """Used up cores of the ordinary families keep none of it back; its own refusal keeps nothing else back. What counts
    as ordinary is not taken for limited by what is told of E2 and never used."""
    quotas[scenes.REGION, "CPUS_PER_VM_FAMILY"] = quotas[scenes.REGION, "CPUS"] = quotas[scenes.REGION, "E2_CPUS"] = 0
    driver = connect(
        instance_types=["c4-standard-2", "e2-standard-2", "n2-standard-2"], zones=[scenes.ZONE], spot=False
    )
    new, old, other = sorted(await driver.offerings(), key=lambda one: one.type.name)
    full = [one for one in await driver.quotas() if one.limit == 0]
    assert [(one.name, [one.scope.covers(offer) for offer in (new, old, other)]) for one in full] == [
        ("CPUS", [False, True, False])
    ]
    for offer, scope in ((new, "C4_CPUS"), (old, "CPUS")):
        with pytest.raises(QuotaExceeded) as refused:
            await driver.launch(asked(fake, offering=offer))
        assert refused.value.scope == Scope(family=scope, region=scenes.REGION)


async def test_gpus_have_limits_of_their_own(tmp_path: Path) -> None:
    """Of each kind in its region, spot apart where it has one; of all regions together. What is rented counts."""
    limits = {
        ("us-central1", "NVIDIA_T4_GPUS"): 2, ("us-central1", "PREEMPTIBLE_NVIDIA_T4_GPUS"): 3,
        ("europe-west4", "NVIDIA_T4_GPUS"): 0, ("europe-west4", "PREEMPTIBLE_NVIDIA_T4_GPUS"): 0,
    }  # fmt: skip
    with FakeGce(Settings(region_quotas=limits, quotas={"GPUS_ALL_REGIONS": 4}), SetClock(scenes.NOW_MS)) as fake:
        said = scenes.settings(
            endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)), instance_types=["n1-standard-4"],
            regions=["us-central1", "europe-west4"], accelerators={"n1-*": "nvidia-tesla-t4:1"},
        )  # fmt: skip
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=fake.clock.now))
        offers = {(one.zone, one.market): one for one in await driver.offerings()}
        spot = offers["us-central1-a", Market.SPOT]
        await driver.launch(asked(fake, offering=spot))
        fake.advance(20)
        told = {(one.name, one.scope): one for one in await driver.quotas() if one.unit is QuotaUnit.GPUS}
        found = {(name, str(scope)): (one.limit, one.used) for (name, scope), one in told.items()}
        assert found == {
            ("GPUS_ALL_REGIONS", "account"): (4, 1),
            ("PREEMPTIBLE_NVIDIA_T4_GPUS", "gpu=t4 gpu_memory=16GiB market=spot region=us-central1"): (3, 1),
            ("NVIDIA_T4_GPUS", "gpu=t4 gpu_memory=16GiB market=on-demand region=us-central1"): (5, 1),
            ("NVIDIA_T4_GPUS", "gpu=t4 gpu_memory=16GiB region=europe-west4"): (0, 0),
        }
        far = offers["europe-west4-a", Market.SPOT]
        assert [scope.covers(far) for _, scope in told] == [scope.region in ("", "europe-west4") for _, scope in told]
        with pytest.raises(QuotaExceeded) as refused:
            await driver.launch(asked(fake, batch="b1111111111", instances=("b1111111111-0",), offering=far))
        assert refused.value.scope == Scope(gpu="t4", gpu_memory=16 * GIB, region="europe-west4")
        without = plugin.create(ProfileContext(ProfileName("gcp"), scenes.settings(
            endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)), instance_types=["n2-*"],
        ), tmp_path, now=fake.clock.now))  # fmt: skip
        assert not [one for one in await without.quotas() if one.unit is QuotaUnit.GPUS]
        await driver.close()
        await without.close()


async def test_the_larger_of_two_cards_of_one_name_is_told_by_its_memory(tmp_path: Path) -> None:
    """Tasks ask for `a100`, as of any cloud, and say the memory where they need the larger one; Google's limits of the
    one are none of the other's."""
    limits = {("us-central1", f"{market}NVIDIA_A100_80GB_GPUS"): 0 for market in ("", "PREEMPTIBLE_")}
    with FakeGce(Settings(region_quotas=limits), SetClock(scenes.NOW_MS)) as fake:
        said = scenes.settings(
            endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)), zones=["us-central1-a"],
            instance_types=["a2-highgpu-1g", "a2-ultragpu-1g"], spot=False,
        )  # fmt: skip
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=fake.clock.now))
        small, large = sorted(await driver.offerings(), key=lambda one: one.type.name)
        assert [(one.type.gpu_type, one.type.gpu_memory) for one in (small, large)] == [
            ("a100", 40 * GIB),
            ("a100", 80 * GIB),
        ]
        none = [one.scope for one in await driver.quotas() if one.limit == 0]
        assert [(scope.covers(small), scope.covers(large)) for scope in none] == [(False, True)]
        with pytest.raises(QuotaExceeded) as refused:
            await driver.launch(asked(fake, offering=large))
        assert (refused.value.scope.covers(small), refused.value.scope.covers(large)) == (False, True)
        await driver.close()
