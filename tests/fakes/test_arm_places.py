"""What the fake Azure says there is: groups, rights, networks, sizes, images, prices."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator
from json import loads
from typing import Any
from urllib.parse import urlencode

import pytest
from azure.core.rest import HttpRequest

from tests.fakes.arm import FakeArm, Settings
from tests.fakes.arm.settings import GROUP, LOCATION, NETWORK, SECURITY_GROUP, SUBNET, SUBSCRIPTION
from tests.fakes.arm_asking import begin, refusal
from tests.fakes.clock import SetClock
from tests.fakes.faults import Fault, FaultKind

HERE = f"/subscriptions/{SUBSCRIPTION}"


@pytest.fixture
def azure() -> Iterator[FakeArm]:
    with FakeArm(clock=SetClock()) as fake:
        yield fake


def got(azure: FakeArm, path: str, version: str = "2021-04-01") -> tuple[int, Any]:
    """Status and document of what no SDK that is here asks for."""
    with_token = azure.compute()
    answer = with_token.send_request(HttpRequest("GET", f"{path}?api-version={version}"))
    return answer.status_code, answer.json()


def test_groups_subscriptions_and_rights(azure: FakeArm) -> None:
    azure.denied.add("Microsoft.Compute/disks/write")
    assert got(azure, HERE)[1]["state"] == "Enabled"
    assert got(azure, f"{HERE}/resourceGroups/{GROUP.upper()}")[1]["name"] == GROUP
    status, told = got(azure, f"{HERE}/resourceGroups/other")
    assert (status, told["error"]["code"]) == (404, "ResourceGroupNotFound")
    status, told = got(azure, f"/subscriptions/{'1' * 8}")
    assert (status, told["error"]["code"]) == (404, "SubscriptionNotFound")
    (told,) = got(azure, f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.Authorization/permissions")[1]["value"]
    assert (told["actions"], told["notActions"]) == (["*"], ["Microsoft.Compute/disks/write"])
    assert len(got(azure, f"{HERE}/locations")[1]["value"][0]["availabilityZoneMappings"]) == 3


def test_the_network_that_there_is(azure: FakeArm) -> None:
    network = azure.network()
    assert network.subnets.get(GROUP, NETWORK, SUBNET).provisioning_state == "Succeeded"
    assert network.virtual_networks.get(GROUP, NETWORK).location == LOCATION
    assert network.network_security_groups.get(GROUP, SECURITY_GROUP).location == LOCATION
    assert refusal(network.subnets.get, GROUP, NETWORK, "none") == (404, "NotFound")


def test_sizes_are_told_for_one_location_with_what_is_not_had() -> None:
    unoffered = frozenset({("Standard_D2s_v5", f"{LOCATION}-1"), ("Standard_E2s_v5", LOCATION)})
    with FakeArm(Settings(unoffered=unoffered, page=5)) as azure:
        compute = azure.compute()
        told = {sku.name: sku for sku in compute.resource_skus.list(filter=f"location eq '{LOCATION}'")}
        facts = {one.name: one.value for one in told["Standard_NC4as_T4_v3"].capabilities}
        assert [facts[name] for name in ("vCPUs", "MemoryGB", "GPUs", "CpuArchitectureType")] == ["4", "28", "1", "x64"]
        assert told["Standard_D2s_v5"].location_info[0].zones == ["2", "3"]
        assert told["Standard_E2s_v5"].restrictions[0].reason_code == "NotAvailableForSubscription"
        assert refusal(begin, compute, "a", zones=["1"]) == (409, "SkuNotAvailable")
        assert refusal(begin, compute, "a", size="Standard_E2s_v5") == (409, "SkuNotAvailable")
        assert refusal(list, compute.resource_skus.list(filter="name eq 'x'"))[0] == 400


def test_images_have_versions(azure: FakeArm) -> None:
    images = azure.compute().virtual_machine_images
    where = (LOCATION, "Canonical", "ubuntu-24_04-lts", "server")
    assert [one.name for one in images.list(*where)] == ["24.04.202607150", "24.04.202608010"]
    assert [one.name for one in images.list(*where, top=1, orderby="name desc")] == ["24.04.202608010"]
    found = images.get(*where, "latest")
    assert (found.name, found.hyper_v_generation, found.architecture) == ("24.04.202608010", "V2", "x64")
    assert refusal(images.get, LOCATION, "Canonical", "none", "server", "latest") == (404, "NotFound")


def prices(azure: FakeArm, wanted: str) -> list[dict[str, Any]]:
    """All pages of the price list."""
    link, found = f"{azure.prices_url}?{urlencode({'$filter': wanted})}", []
    while link:
        with urllib.request.urlopen(link, context=ssl.create_default_context(cafile=azure.ca_file)) as answer:
            page = loads(answer.read())
        found += page["Items"]
        link = page["NextPageLink"]
    return found


def test_prices_have_filters_and_pages(azure: FakeArm) -> None:
    """Without a token; windows, reservations and low priority stand beside what a caller wants."""
    machines = "serviceName eq 'Virtual Machines'"
    assert len(prices(azure, machines)) > 150
    mine = f"{machines} and armRegionName eq '{LOCATION}' and armSkuName eq 'Standard_D2s_v5'"
    assert len(prices(azure, mine)) == 6
    assert len(prices(azure, f"{mine} and (priceType eq 'Consumption' or priceType eq 'DevTestConsumption')")) == 5
    spot = [
        item for item in prices(azure, f"{mine} and contains(skuName, 'Spot')") if "Windows" not in item["productName"]
    ]
    assert [item["retailPrice"] for item in spot] == [0.02875]
    azure.add_faults(Fault(FaultKind.PRICE, type="Standard_D2s_v5", amount=99_000_000))
    assert 0.099 in [item["retailPrice"] for item in prices(azure, f"{mine} and contains(skuName, 'Spot')")]
