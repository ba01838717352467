"""The role has a right for each call that the driver makes, and no other."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Leftover, LeftoverKind, ProfileContext, VmState
from cloud_dispatch_gcp import plugin, policy
from tests.fakes.gce import FakeGce
from tests.fakes.gce.session import Session
from tests.providers.gcp import scenes

FULL = {
    "service_account": scenes.ACCOUNT, "network_tags": ["batch"], "accelerators": {"n1-*": "nvidia-tesla-t4:1"},
    "subnets": {"us-central1": "workers"},
}  # fmt: skip


async def everything(fake: FakeGce, told: dict[str, Any], folder: Path) -> None:
    """All that a driver ever asks for."""
    said = scenes.settings(**told, **FULL, consistency="0s", operation_poll="100ms")
    driver = plugin.create(ProfileContext(ProfileName("gcp"), said, folder, now=fake.clock.now))
    try:
        await driver.preflight("contract")
        await driver.offerings()
        await driver.prices()
        await driver.quotas()
        spot = scenes.offering(market=Market.SPOT)
        request = replace(scenes.request(), offering=spot, ends_ms=fake.clock.now() + 600_000)
        (operation,) = (await driver.launch(request)).pending
        while (answer := await driver.resume(operation)).pending:
            await asyncio.sleep(0.02)
        (vm,) = answer.vms
        while (await driver.get(vm.id)).state is not VmState.RUNNING:
            await asyncio.sleep(0.02)
        await driver.list("contract")
        await driver.tag([vm.id], {"cloud-dispatch-x": "1"})
        await driver.console(vm.id)
        await driver.leftovers("contract")
        fake.preempt(vm.id.partition("/")[2], notice_ms=60_000)
        await driver.list("contract")
        await driver.terminate(vm.id)
        for kind in (LeftoverKind.DISK, LeftoverKind.ADDRESS):
            place = scenes.ZONE if kind is LeftoverKind.DISK else scenes.REGION
            await driver.delete_leftover(Leftover(f"{place}/none", kind, place, {}))
    finally:
        await driver.close()


#: Needed by the documents where a boot disk is made with labels; the fake does not ask for it.
UNSEEN = frozenset({"compute.disks.setLabels"})


async def test_the_role_has_the_rights_that_are_asked_for_and_no_other(
    fake: FakeGce, told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all that a driver ever does. What the fake never asks for is a list, each with its reason."""
    asked: set[str] = set()
    permit = Session.permit

    def noted(session: Session, *permissions: str) -> None:
        asked.update(permissions)
        permit(session, *permissions)

    monkeypatch.setattr(Session, "permit", noted)
    await everything(fake, told, tmp_path)
    held = set(policy.permissions(scenes.settings(**FULL)))
    # Of the service account, not of the project; and images of other projects are anybody's.
    assert asked - held == {"iam.serviceAccounts.actAs", "compute.images.getFromFamily"}
    assert held - asked == UNSEEN


@pytest.mark.parametrize(
    "right",
    ["compute.instances.create", "compute.instances.list", "compute.zoneOperations.list", "compute.machineTypes.list"],
)
async def test_without_one_of_them_something_fails(
    fake: FakeGce, told: dict[str, Any], tmp_path: Path, right: str
) -> None:
    fake.denied.add(right)
    with pytest.raises(ProviderError, match=re.escape(right)):
        await everything(fake, told, tmp_path)


def test_the_role_is_one_that_gcloud_reads() -> None:
    made = plugin.policy(scenes.settings(), "lab", "iowa")
    assert set(made) == {"title", "description", "stage", "includedPermissions"}
    assert "lab" in made["description"]
    names = made["includedPermissions"]
    assert names == sorted(set(names))
    assert all(re.fullmatch(r"compute\.[a-zA-Z]+\.[a-zA-Z]+", name) for name in names)


def test_what_a_profile_does_not_use_is_not_in_it() -> None:
    plain, full = policy.permissions(scenes.settings()), policy.permissions(scenes.settings(**FULL))
    more = {"compute.acceleratorTypes.list", "compute.instances.setServiceAccount", "compute.instances.setTags"}
    assert more <= set(full)
    assert not more & set(plain)
    own = scenes.settings(images={"x86_64": f"projects/{scenes.PROJECT}/global/images/own"})
    assert "compute.images.useReadOnly" in policy.permissions(own)
    both = policy.permissions(
        scenes.settings(regions=["us-central1", "europe-west4"], subnets={"us-central1": "workers"})
    )
    assert {"compute.networks.get", "compute.subnetworks.get"} <= set(both)
    assert "compute.networks.get" in plain
    assert "compute.networks.get" not in full
    hidden = scenes.settings(public_address=False)
    assert "compute.subnetworks.useExternalIp" not in policy.permissions(hidden)
