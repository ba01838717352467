"""The role has a right for each call that the driver makes, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch_gcp import plugin, policy
from tests.fakes.gce import FakeGce
from tests.fakes.gce.session import Session
from tests.providers.gcp import scenes
from tests.providers.gcp.launching import QUICK, everything

FULL: dict[str, Any] = {
    "service_account": scenes.ACCOUNT, "network_tags": ["batch"], "accelerators": {"n1-*": "nvidia-tesla-t4:1"},
    "subnets": {"us-central1": "workers"},
}  # fmt: skip


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
    await everything(fake, scenes.settings(**told, **FULL, **QUICK), tmp_path)
    held = set(policy.permissions(scenes.settings(**FULL)))
    # Of the service account, not of the project; and images of other projects are anybody's.
    assert asked - held == {"iam.serviceAccounts.actAs", "compute.images.getFromFamily"}
    assert held - asked == UNSEEN


@pytest.mark.parametrize(
    "right",
    ["compute.instances.create", "compute.instances.list", "compute.zoneOperations.get", "compute.machineTypes.list"],
)
async def test_without_one_of_them_something_fails(
    fake: FakeGce, told: dict[str, Any], tmp_path: Path, right: str
) -> None:
    fake.denied.add(right)
    with pytest.raises(ProviderError, match=re.escape(right)):
        await everything(fake, scenes.settings(**told, **FULL, **QUICK), tmp_path)


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
