"""The roles have a right for each call that the driver makes and no other, and can be made as they are printed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import InvalidRequest, ProviderError
from cloud_dispatch.provider.spi import Leftover, LeftoverKind, Level, VmState
from cloud_dispatch_azure import plugin, policy
from tests.docs.pages import DOCS, blocks
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.routes import Session
from tests.fakes.arm.settings import GROUP, SECURITY_GROUP, SUBSCRIPTION
from tests.providers.azure import scenes
from tests.providers.azure.steps import Connect, settled

_IN = f"/subscriptions/{SUBSCRIPTION}/resourceGroups"
WALL = f"{_IN}/{GROUP}/providers/Microsoft.Network/networkSecurityGroups/{SECURITY_GROUP}"
_WHO = f"{_IN}/who/providers/Microsoft.ManagedIdentity/userAssignedIdentities/worker"
FULL: dict[str, Any] = {"security_group": WALL, "public_address": True, "reaper": True, "identity": _WHO}
_GALLERY = f"{_IN}/images/providers/Microsoft.Compute/galleries/ours/images/batch"
_KEYS = f"{_IN}/keys/providers/Microsoft.Compute/diskEncryptionSets/key"


def rights(document: Any) -> set[str]:
    return {action for role in document["roles"] for action in role["Actions"]}


async def everything(fake: FakeArm, connect: Connect) -> None:
    """All that a driver ever asks for."""
    driver = connect(**FULL)
    for one in await driver.preflight("contract"):
        if one.level is Level.ERROR:
            raise InvalidRequest(one.text)
    await driver.offerings()
    await driver.prices()
    await driver.quotas()
    request = replace(scenes.request(Market.SPOT), ends_ms=fake.clock.now() + 600_000)
    (vm,) = (await settled(driver, await driver.launch(request))).vms
    while (await driver.get(vm.id)).state is not VmState.RUNNING:
        await asyncio.sleep(0.02)
    await driver.list("contract")
    await driver.extend([vm.id], fake.clock.now() + 900_000)
    await driver.console(vm.id)
    await driver.leftovers("contract")
    await driver.terminate(vm.id)
    for kind in LeftoverKind:
        await driver.delete_leftover(Leftover("none", kind, scenes.REGION, {}))


async def test_the_roles_have_the_rights_that_are_asked_for_and_no_other(
    fake: FakeArm, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all that a driver ever does, with everything that a profile may use."""
    asked: set[str] = set()
    permit = Session.permit

    def noted(session: Session, action: str, linked: str = "") -> None:
        asked.add(action)
        permit(session, action, linked)

    monkeypatch.setattr(Session, "permit", noted)
    await everything(fake, connect)
    assert asked == rights(policy.document(scenes.settings(**FULL), "lab", "west"))


@pytest.mark.parametrize(
    "right",
    [
        "Microsoft.Compute/locations/usages/read", "Microsoft.Network/networkInterfaces/join/action",
        "Microsoft.Network/virtualNetworks/subnets/join/action", "Microsoft.Compute/disks/write",
        "Microsoft.Network/networkSecurityGroups/join/action", "Microsoft.Network/publicIPAddresses/join/action",
        "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
    ],
)  # fmt: skip
async def test_without_one_of_them_something_fails(fake: FakeArm, connect: Connect, right: str) -> None:
    fake.denied.add(right)
    with pytest.raises(ProviderError, match=re.escape(right)):
        await everything(fake, connect)


def test_what_a_profile_does_not_use_is_not_in_it() -> None:
    plain = rights(policy.document(scenes.settings(), "lab", "west"))
    full = rights(policy.document(scenes.settings(**FULL), "lab", "west"))
    walls = {f"Microsoft.Network/networkSecurityGroups/{right}" for right in ("read", "join/action")}
    addresses = {f"Microsoft.Network/publicIPAddresses/{right}" for right in ("write", "join/action")}
    assert full - plain == walls | addresses | {"Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"}
    own = scenes.settings(images={"x86_64": f"{_GALLERY}/versions/1.0.0"}, disk_encryption_set=_KEYS)
    more = rights(policy.document(own, "lab", "west")) - plain
    assert more == {
        "Microsoft.Compute/galleries/images/read", "Microsoft.Compute/galleries/images/versions/read",
        "Microsoft.Compute/diskEncryptionSets/read",
    }  # fmt: skip


def test_a_role_is_assignable_where_azure_lets_it_be_said() -> None:
    """In subscriptions and resource groups alone; what it is assigned on is within these, and no more than is used: of
    an image in a gallery the definition, which is read beside its version."""
    own = {"x86_64": f"{_GALLERY}/versions/1.0.0", "arm64": f"{_GALLERY}/versions/1.0.1"}
    made = plugin.policy(scenes.settings(**FULL, images=own, disk_encryption_set=_KEYS), "lab", "west")
    scopes = {role["Name"]: role["AssignableScopes"] for role in made["roles"]}
    for scope in (one for found in scopes.values() for one in found):
        assert re.fullmatch(r"/subscriptions/[^/]+(/resourceGroups/[^/]+)?", scope), scope
    on = [(one["role"].partition(": ")[2], one["scope"]) for one in made["assignments"]]
    network = [scenes.SUBNET, WALL, _KEYS, _WHO, _GALLERY]
    assert on == [
        ("VMs", f"{_IN}/{GROUP}"), *(("use", one) for one in network), ("look", f"/subscriptions/{SUBSCRIPTION}")
    ]  # fmt: skip
    for one in made["assignments"]:
        assert any(f"{one['scope']}/".startswith(f"{scope}/") for scope in scopes[one["role"]])


def test_two_profiles_have_roles_of_their_own() -> None:
    """A custom role's name is the only one of its kind in a tenant."""
    names = [
        role["Name"]
        for profile in ("west", "north")
        for deployment in ("lab", "plant")
        for role in plugin.policy(scenes.settings(), deployment, profile)["roles"]
    ]
    assert len(set(names)) == len(names) == 12
    assert max(map(len, names)) <= 128


_AZ = """#!{python}
import json, os, sys
with open(os.environ["ASKED"], "a") as file:
    file.write(json.dumps([sys.argv[1:], sys.stdin.read()]) + "\\n")
"""
_CONFIG = """
[dispatcher]
state_dir = "state"
deployment = "lab"
advertise = "https://10.0.0.5:7717"
listen = "0.0.0.0:7717"
[profiles.west]
driver = "azure"
subscription = "{subscription}"
resource_group = "{group}"
region = "westeurope"
subnet = "{subnet}"
guest_enforced = true
caps = {{ instances = 1 }}
budget = {{ total = "1" }}
[pools.default]
profiles = ["west"]
"""


@pytest.mark.skipif(not shutil.which("jq"), reason="the page's commands need jq")
def test_the_commands_of_the_page_make_and_assign_each_role(tmp_path: Path) -> None:
    """As they are printed, with another `az`: one role a call, as it takes no list of them."""
    (commands,) = [body for body in blocks(DOCS / "how-to" / "use-azure.md", "bash") if "az role" in body]
    (tmp_path / "az").write_text(_AZ.format(python=sys.executable))
    (tmp_path / "az").chmod(0o755)
    config = tmp_path / "config.toml"
    config.write_text(_CONFIG.format(subscription=SUBSCRIPTION, group=GROUP, subnet=scenes.SUBNET))
    found = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}", "ASKED": str(tmp_path / "asked"),
        "CLOUD_DISPATCH_CONFIG": str(config), "HOME": str(tmp_path),
    }  # fmt: skip
    subprocess.run(["bash", "-eu", "-c", commands], cwd=tmp_path, env=found, check=True, timeout=60)
    calls = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    printed = plugin.policy(plugin.settings.model_validate({
        "subscription": SUBSCRIPTION, "resource_group": GROUP, "region": "westeurope", "subnet": scenes.SUBNET,
    }), "lab", "west")  # fmt: skip
    said = [dict(zip(words[3::2], words[4::2], strict=True)) for words, _ in calls]
    made = [one for one in said if "--role-definition" in one]
    assert [json.loads(one["--role-definition"]) for one in made] == printed["roles"]
    given = [{"role": one["--role"], "scope": one["--scope"]} for one in said if "--role" in one]
    assert given == printed["assignments"]
    assert all(one["--assignee-principal-type"] == "ServicePrincipal" for one in said if "--role" in one)
