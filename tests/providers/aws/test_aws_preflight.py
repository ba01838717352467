"""What is found out about a profile before it costs anything, against the fake EC2."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cloud_dispatch_aws
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.errors import Scope
from cloud_dispatch.provider.spi import Level, ProfileContext, Quota, QuotaUnit
from cloud_dispatch_aws import plugin, preflight, rights
from cloud_dispatch_aws.images import Image
from cloud_dispatch_aws.settings import GIB
from cloud_dispatch_aws.subnets import Subnet
from tests.fakes.ec2 import FakeEc2
from tests.fakes.ec2.settings import IMAGES
from tests.fakes.faults import Fault, FaultKind
from tests.providers.aws import scenes

Found = dict[str, list[tuple[Level, str]]]


def context(fake: FakeEc2, **more: Any) -> ProfileContext:
    said = scenes.settings(
        **{
            "endpoint_url": fake.url, "instance_types": ["m5.large"], "images": {"x86_64": IMAGES[0].id},
            "identity_certificate": scenes.certificate(), "reaper": True, **more,
        }
    )  # fmt: skip
    return ProfileContext(ProfileName("aws"), said, Path(), now=lambda: time.time_ns() // 1_000_000)


async def look(fake: FakeEc2, deployment: str = "contract", **more: Any) -> Found:
    found: Found = {}
    driver = plugin.create(context(fake, **more))
    try:
        for one in await driver.preflight(deployment):
            found.setdefault(one.about, []).append((one.level, one.text))
    finally:
        await driver.close()
    return found


def worst(found: Found, about: str) -> Level:
    levels = [level for level, _ in found[about]]
    return next(level for level in (Level.ERROR, Level.WARNING, Level.OK) if level in levels)


async def test_a_good_profile_has_nothing_wrong_and_nothing_is_made(fake: FakeEc2) -> None:
    """Credentials, image, types, both markets, rights, quotas; only that it is no real AWS is told, that nobody looks
    for its reaper, and which rights can't be tried where there is nothing of the deployment's yet."""
    subnet = next(one.id for one in fake.region().subnets.values() if one.zone == scenes.ZONE)
    found = await look(fake, subnets=[subnet], account=scenes.ACCOUNT)
    assert {about for about in found if worst(found, about) is not Level.OK} == {"endpoint_url", "reaper", "rights"}
    (untold,) = [text for level, text in found["rights"] if level is Level.WARNING]
    assert set(re.findall(r"\w+:\w+", untold)) == {one.action for one in rights.RIGHTS if one.on}
    assert {
        "credentials",
        "images.x86_64",
        "subnets",
        "instance_types",
        "launch on-demand",
        "launch spot",
    } <= set(found)
    assert fake.all_instances() == []


async def test_without_credentials_nothing_more_is_asked(fake: FakeEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    found = await look(fake)
    assert (list(found), worst(found, "credentials")) == (["credentials"], Level.ERROR)


async def test_credentials_of_another_account_are_told(fake: FakeEc2) -> None:
    """Which one was expected, and which one was found."""
    found = await look(fake, account="210987654321")
    ((level, text),) = found["account"]
    assert (level, "210987654321" in text, scenes.ACCOUNT in text) == (Level.ERROR, True, True)


@pytest.mark.parametrize("market", ["on-demand", "spot"])
async def test_a_right_that_is_missing_is_told(fake: FakeEc2, market: str) -> None:
    fake.denied.add("ec2:RunInstances")
    found = await look(fake)
    assert worst(found, f"launch {market}") is Level.ERROR
    assert "UnauthorizedOperation" in found[f"launch {market}"][0][1]


#: A profile that needs every right that can be tried.
ALL = {
    "key_name": "k",
    "images": {"x86_64": "ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"},
}


async def holdings(fake: FakeEc2) -> None:
    """A VM of the deployment's with its disk and interface, and an address that carries its tag."""
    driver = plugin.create(context(fake))
    await driver.launch(scenes.request(slots=1))
    await driver.close()
    address = fake.hold_address()
    fake.client().create_tags(Resources=[address], Tags=[{"Key": DEPLOYMENT, "Value": "contract"}])


def everything(fake: FakeEc2) -> dict[str, Any]:
    region = fake.region()
    subnet = next(one.id for one in region.subnets.values() if one.zone == scenes.ZONE)
    return {**ALL, "subnets": [subnet], "security_groups": [next(iter(region.groups))]}


def test_every_right_of_the_policy_is_tried_or_said_to_be_beyond_trial() -> None:
    """Those to a key have no DryRun of their own; a role is given to VMs by their launch."""
    own = scenes.settings(
        key_name="k", subnets=["subnet-1"], security_groups=["sg-1"], instance_profile="worker", kms_key="alias/d"
    )
    needed = {one for one in rights.needed(own, "contract") if not one.startswith("kms:")}
    assert needed == {one.action for one in rights.RIGHTS} | rights.BY_LAUNCH


def inventory(fake: FakeEc2) -> object:
    """What there is; a VM that starts meanwhile is no change."""
    vms = [(vm.id, vm.state.value in ("pending", "running"), vm.tags.true.items) for vm in fake.all_instances()]
    return vms, fake.leftovers()


async def test_with_something_to_try_them_on_all_rights_are_known(fake: FakeEc2) -> None:
    """Those that hang on the deployment's tag, too; nothing is changed by the trial."""
    await holdings(fake)
    fake.scoped.update({one.action: (DEPLOYMENT, "contract") for one in rights.RIGHTS if one.on})
    before = inventory(fake)
    found = await look(fake, **everything(fake))
    number = len(rights.RIGHTS)
    assert found["rights"] == [(Level.OK, f"{number} of {number} that can be tried are given")]
    assert {about for about in found if worst(found, about) is not Level.OK} == {"endpoint_url", "reaper"}
    assert inventory(fake) == before


@pytest.mark.parametrize("right", rights.RIGHTS, ids=lambda right: right.action)
async def test_each_right_that_is_denied_is_found_by_name_with_what_it_is_for(
    fake: FakeEc2, right: rights.Right
) -> None:
    await holdings(fake)
    fake.denied.add(right.action.replace("servicequotas:", "service-quotas:"))
    found = await look(fake, **everything(fake))
    ((level, text),) = found[f"right {right.action}"]
    assert level is (Level.WARNING if right.action in rights.OPTIONAL else Level.ERROR)
    assert right.purpose in text
    assert [about for about in found if about.startswith("right ")] == [f"right {right.action}"]


async def test_a_right_on_things_that_are_not_there_is_not_told_missing(fake: FakeEc2) -> None:
    """It may hang on a VM's tags: without one nobody can tell, whatever is answered."""
    fake.denied.add("ec2:TerminateInstances")
    found = await look(fake)
    assert "right ec2:TerminateInstances" not in found
    assert "ec2:TerminateInstances (to end VMs)" in found["rights"][-1][1]


async def test_a_key_is_said_to_be_beyond_trial(fake: FakeEc2) -> None:
    found = await look(fake, kms_key="alias/disks")
    assert "kms:CreateGrant (to use kms_key)" in found["rights"][-1][1]


async def test_an_image_that_is_not_there_or_for_other_machines_is_told(fake: FakeEc2) -> None:
    for images in ({"x86_64": "ami-00000000000000000"}, {"x86_64": IMAGES[1].id}, {"x86_64": IMAGES[4].id}):
        found = await look(fake, images=images)
        assert worst(found, "images") is Level.ERROR


async def test_a_subnet_that_is_not_there_is_told(fake: FakeEc2) -> None:
    assert worst(await look(fake, subnets=["subnet-00000000000000000"]), "subnets") is Level.ERROR


async def test_quotas_that_are_used_up_are_told(fake: FakeEc2, quotas: dict[str, int]) -> None:
    quotas[scenes.STANDARD] = 0
    assert worst(await look(fake), f"quota {scenes.STANDARD}") is Level.ERROR


async def test_a_group_that_is_not_there_is_told(fake: FakeEc2) -> None:
    """A DryRun would not tell: it looks at rights."""
    found = await look(fake, security_groups=["sg-00000000000000000"])
    assert worst(found, "security_groups") is Level.ERROR
    assert "sg-0000" in found["security_groups"][0][1]


async def test_patterns_that_match_nothing_are_named_one_by_one(fake: FakeEc2) -> None:
    found = await look(fake, instance_types=["m5.large", "m55.*", "c5.lagre"])
    texts = [text for level, text in found["instance_types"] if level is Level.WARNING]
    assert [pattern in text for pattern, text in zip(("'m55.*'", "'c5.lagre'"), texts, strict=True)] == [True, True]


async def test_a_region_that_the_sdk_does_not_know_is_told_with_the_credentials(
    fake: FakeEc2, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing answers there, which alone looks like a network that is down."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    found = await look(fake, region="us-esat-1")
    assert "us-east-1" in found["region"][0][1]
    assert "region" not in await look(fake)


def test_notes_of_a_profile_name_a_doubtful_region_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plugin.notes(scenes.settings()) == ()
    (note,) = plugin.notes(scenes.settings(region="us-esat-1"))
    assert "us-east-1" in note
    monkeypatch.setattr(cloud_dispatch_aws, "find_spec", lambda name: None)
    (note,) = registry.plugin("aws").notes(scenes.settings())
    assert "boto3" in note
    assert "pip install" in note


async def test_prices_that_are_not_known_are_told(fake: FakeEc2) -> None:
    """Of the table, an estimate that is too old to spend by; of a type that it has not, nothing at all."""
    fake.add_faults(Fault(FaultKind.ERROR, operation="GetProducts", code="AccessDeniedException"))
    found = await look(fake, instance_types=["m5.large", "c5d.large"])
    texts = " ".join(text for _, text in found["prices"])
    assert worst(found, "prices") is Level.WARNING
    assert "c5d.large" in texts
    assert "estimates that are" in texts


def test_a_root_disk_that_is_too_small_is_told() -> None:
    image = Image("ami-1", "/dev/xvda", "x86_64", 40 * GIB)
    (found,) = preflight.of_images([image], scenes.settings())
    assert (found.level, "40GiB" in found.text) == (Level.ERROR, True)
    (found,) = preflight.of_images([replace(image, root_bytes=8 * GIB)], scenes.settings())
    assert found.level is Level.OK


async def test_an_image_that_is_billed_for_is_told_with_why(fake: FakeEc2) -> None:
    """Its price is not known either, and is where the operator says it."""
    red = replace(
        IMAGES[0], id="ami-0a1b2c3d4e5f60009", platform="Red Hat", operation="RunInstances:0010", product="p1"
    )
    fake.region().images[red.id] = red
    found = await look(fake, images={"x86_64": red.id})
    (text,) = [text for level, text in found["images.x86_64"] if level is Level.WARNING]
    assert "Red Hat, RunInstances:0010, product p1" in text
    assert "m5.large" in found["prices"][0][1]
    found = await look(fake, images={"x86_64": red.id}, prices={"m5.large": "0.2"}, spot=False)
    assert "prices" not in found


def test_a_subnet_where_nothing_is_rented_is_told() -> None:
    found = {one.id: one for one in (Subnet("subnet-1", "us-east-1-bos-1a", 9), Subnet("subnet-2", scenes.ZONE, 9))}
    told = preflight.of_subnets(found, scenes.settings(subnets=list(found)))
    assert [(one.level, "nothing is rented" in one.text) for one in told] == [(Level.WARNING, True), (Level.OK, False)]


def test_what_the_settings_leave_out_is_told() -> None:
    assert {one.about for one in preflight.of_settings(scenes.settings())} == {"identity_certificate", "reaper"}


def test_types_without_an_image_are_told() -> None:
    own = scenes.settings(images={"x86_64": "ami-1"})
    found = preflight.of_offerings([scenes.offering()], ["x86_64", "arm64"], own, scenes.NOW_MS)
    assert [one.about for one in found if one.level is Level.WARNING] == ["images"]
    (nothing,) = preflight.of_offerings([], [], own, scenes.NOW_MS)
    assert nothing.level is Level.ERROR


@pytest.mark.parametrize(
    ("limit", "used", "level"), [(None, 4, Level.WARNING), (0, 0, Level.ERROR), (8, 8, Level.WARNING), (8, 4, Level.OK)]
)
def test_quotas_are_judged(limit: int | None, used: int, level: Level) -> None:
    (found,) = preflight.of_quotas(
        [Quota("L-1", Scope(family="standard", market="spot"), QuotaUnit.VCPUS, limit, used)]
    )
    assert found.level is level
