"""What `config check --online` finds before a launch would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.spi import Finding, Level, ProfileContext
from cloud_dispatch_gcp import plugin, preflight
from tests.fakes.clock import SetClock
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce import FakeGce, Settings
from tests.fakes.gce.settings import Image
from tests.providers.gcp import scenes

OTHER = f"nobody@{scenes.PROJECT}.iam.gserviceaccount.com"


async def found(folder: Path, cloud: Settings, *faults: Fault, denied: str = "", **more: Any) -> Sequence[Finding]:
    """What a profile of these settings is told of a cloud of those."""
    with FakeGce(cloud, SetClock(scenes.NOW_MS)) as fake:
        fake.add_faults(*faults)
        fake.denied |= {denied} - {""}
        key = folder / "key.json"
        key.write_text(json.dumps(fake.key))
        base = {"instance_types": ["n2-standard-2"], "service_account": scenes.ACCOUNT, "endpoint_url": fake.url}
        said = scenes.settings(**{**base, "credentials_file": str(key), **more})
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, folder, now=fake.clock.now))
        try:
            return await driver.preflight("contract")
        finally:
            await driver.close()


def told(findings: Sequence[Finding], level: Level) -> dict[str, str]:
    return {one.about: one.text for one in findings if one.level is level}


def refusal(operation: str, code: str = "accessNotConfigured") -> Fault:
    return Fault(FaultKind.ERROR, operation=operation, code=code)


async def test_a_good_profile_has_no_errors(tmp_path: Path) -> None:
    findings = await found(tmp_path, Settings())
    assert told(findings, Level.ERROR) == {}
    assert set(told(findings, Level.WARNING)) == {"endpoint_url"}
    assert told(findings, Level.OK)["network"] == "default"
    assert told(findings, Level.OK)["service_account"] == scenes.ACCOUNT


@pytest.mark.parametrize(
    ("cloud", "more", "about", "said"),
    [
        ({}, {"network": "global/networks/nosuch"}, "network", "nosuch"),
        ({}, {"network": "global/networks/custom"}, "network", "us-central1"),
        ({"service_accounts": frozenset({scenes.ACCOUNT})}, {"service_account": OTHER}, "service_account", OTHER),
        ({}, {"denied": "iam.serviceAccounts.actAs"}, "service_account", "iam.serviceAccounts.actAs"),
    ],
    ids=["no such network", "a network without subnets", "no such account", "an account that may not be given"],
)
async def test_what_a_launch_would_be_refused_for(
    tmp_path: Path, cloud: dict[str, Any], more: dict[str, Any], about: str, said: str
) -> None:
    errors = told(await found(tmp_path, Settings(**cloud), **more), Level.ERROR)
    assert set(errors) == {about}
    assert said in errors[about]


ARM = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-arm64"
LARGE = Image("lab", "large", "large", gb=40)


@pytest.mark.parametrize(
    ("cloud", "more", "about", "said"),
    [
        ({}, {"images": {"x86_64": ARM}}, "images", "arm64"),
        ({"images": (LARGE,)}, {"images": {"x86_64": LARGE.path}}, "images.x86_64", "root_size = 40GiB"),
        ({}, {"regions": ["us-central1", "nowhere-east1"]}, "regions", "nowhere-east1"),
        ({}, {"zones": ["us-central1-a", "us-central1-z"]}, "zones", "us-central1-z"),
        ({"unoffered": frozenset({("n2-standard-2", "us-central1-b")})}, {"zones": ["us-central1-a", "us-central1-b"]},
         "zones", "us-central1-b"),
    ],
    ids=["an image for other machines", "an image that is too large", "no such region", "no such zone", "sold out"],
)  # fmt: skip
async def test_images_and_places_that_nothing_could_be_rented_with(
    tmp_path: Path, cloud: dict[str, Any], more: dict[str, Any], about: str, said: str
) -> None:
    """Each by the setting that has to change."""
    assert said in told(await found(tmp_path, Settings(**cloud), **more), Level.ERROR)[about]


async def test_an_image_that_bills_is_told_with_its_licence(tmp_path: Path) -> None:
    """Its prices are not known, but for those that the operator says."""
    more = {"images": {"x86_64": "projects/rhel-cloud/global/images/rhel-9-v20260801"}, "spot": False}
    warnings = told(await found(tmp_path, Settings(), **more), Level.WARNING)
    assert "rhel-cloud/rhel-9-server" in warnings["images.x86_64"]
    assert "n2-standard-2" in warnings["prices"]
    said = await found(tmp_path, Settings(), **more, prices={"n2-standard-2": "0.2"})
    assert not [one for one in said if one.about == "prices"]


async def test_a_disk_as_large_as_its_image_will_do(tmp_path: Path) -> None:
    findings = await found(
        tmp_path, Settings(images=(LARGE,)), images={"x86_64": LARGE.path}, root_size="40GiB"
    )  # fmt: skip
    assert told(findings, Level.ERROR) == {}


async def test_a_network_counts_where_no_subnet_is_named(tmp_path: Path) -> None:
    """For a region with a subnet nobody asks what the network is like."""
    findings = await found(tmp_path, Settings(networks={}), subnets={"us-central1": "workers"})
    assert told(findings, Level.ERROR) == {}
    assert "network" not in told(findings, Level.OK)


async def test_an_account_that_can_not_be_asked_about_is_a_warning(tmp_path: Path) -> None:
    """The API of rights may be switched off, and launches go on without it."""
    findings = await found(tmp_path, Settings(), refusal("projects.serviceAccounts.testIamPermissions"))
    assert told(findings, Level.ERROR) == {}
    assert "accessNotConfigured" in told(findings, Level.WARNING)["service_account"]


async def test_a_price_list_that_can_not_be_read_is_told_with_what_is_not_known_for_it(tmp_path: Path) -> None:
    """By its name, as somebody has to switch it on; what the driver's table has is known all the same."""
    findings = await found(tmp_path, Settings(), refusal("services.skus.list"))
    texts = [one.text for one in findings if one.about == "prices"]
    assert told(findings, Level.ERROR) == {}
    assert "Cloud Billing API" in texts[0]
    assert "accessNotConfigured" in texts[0]
    assert [text for text in texts if "not known" in text] == [
        "not known on spot of n2-standard-2: nothing is launched there under a limit"
    ]


async def test_prices_that_are_known_are_not_worth_a_word(tmp_path: Path) -> None:
    """Nor that nobody wanted Google's, but for what is not known then."""
    assert not [one for one in await found(tmp_path, Settings()) if one.about == "prices"]
    own = await found(tmp_path, Settings(), price_list=False, prices={"n2-standard-2": "0.05"})
    assert [one.text[:17] for one in own if one.about == "prices"] == ["not known on spot"]


CPUS, N2, GPUS = ("us-central1", "CPUS"), ("us-central1", "N2_CPUS"), ("us-central1", "NVIDIA_L4_GPUS")


@pytest.mark.parametrize(
    ("types", "limits", "level"),
    [
        (["n2-standard-2", "e2-standard-2"], {N2: 0}, Level.WARNING),
        (
            ["n2-standard-2", "g2-standard-4"],
            {GPUS: 0, ("us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"): 0},
            Level.WARNING,
        ),
        (["n2-standard-2"], {N2: 0}, Level.WARNING),
        (["n2-standard-2"], {N2: 0, ("us-central1", "PREEMPTIBLE_CPUS"): 0}, Level.ERROR),
        (["n2-standard-2", "e2-standard-2"], {N2: 0, CPUS: 0, ("us-central1", "PREEMPTIBLE_CPUS"): 0}, Level.ERROR),
        (["g2-standard-4"], {GPUS: 0, ("us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"): 0}, Level.ERROR),
    ],
    ids=["a family", "a kind of GPU", "on demand", "the only family", "all families", "the only kind of GPU"],
)
async def test_a_quota_of_none_is_an_error_where_nothing_is_left(
    tmp_path: Path, types: list[str], limits: dict[tuple[str, str], int], level: Level
) -> None:
    """Usual projects may hold no GPUs and nothing of the newest families, and rent the rest."""
    findings = await found(tmp_path, Settings(region_quotas=limits), instance_types=types)
    none = [one for one in findings if one.text.endswith("granted")]
    assert none
    assert {one.level for one in none} == {level}


async def test_a_project_may_have_no_gpus_anywhere(tmp_path: Path) -> None:
    """As all new ones: what has none is rented all the same."""
    findings = await found(
        tmp_path, Settings(quotas={"GPUS_ALL_REGIONS": 0}), instance_types=["n2-standard-2", "g2-standard-4"]
    )
    assert told(findings, Level.ERROR) == {}
    assert "GPUs" in told(findings, Level.WARNING)["quota GPUS_ALL_REGIONS"]


async def test_a_quota_that_is_used_up_is_a_warning(tmp_path: Path) -> None:
    """It may be free again tomorrow."""
    with FakeGce(Settings(region_quotas={N2: 2}), SetClock(scenes.NOW_MS)) as fake:
        said = scenes.settings(
            endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)), instance_types=["n2-standard-2"]
        )
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=fake.clock.now))
        await driver.launch(replace(scenes.request(), ends_ms=scenes.NOW_MS + 600_000))
        findings = await driver.preflight("contract")
        await driver.close()
    assert told(findings, Level.ERROR) == {}
    assert told(findings, Level.WARNING)["quota N2_CPUS us-central1"] == "all 2 vCPUs are used"


@pytest.mark.parametrize(
    ("account", "project"),
    [
        ("worker@lab-123456.iam.gserviceaccount.com", "lab-123456"),
        ("123-compute@developer.gserviceaccount.com", "-"),
        ("worker@lab.example.com.iam.gserviceaccount.com", "-"),
    ],
)
def test_the_project_of_an_account(account: str, project: str) -> None:
    assert preflight.project_of(account) == project
