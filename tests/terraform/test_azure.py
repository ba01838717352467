"""The module of Azure: what its templates come to, the rights of its identities, the function that it packages, and
what is destroyed before what."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cloud_dispatch.config.load import load
from cloud_dispatch.config.source import Embedded
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.install import buckets
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch.provider.spi import ProfileContext
from cloud_dispatch_azure import federation, policy
from cloud_dispatch_azure.driver import AzureProvider
from tests.fakes.arm.fake import FakeArm
from tests.providers.azure import scenes
from tests.providers.azure.steps import settled
from tests.terraform import graph, hcl
from tests.terraform.rendering import EXAMPLES, MODULES, rendered
from tests.terraform.test_variables import ISSUER, PRINCIPAL, ROLE
from tools import terraform_policies

AZURE = MODULES / "azure"
CORE = MODULES.parents[1] / "cloud_dispatch"
_OWN = "/subscriptions/00000000-1111-4222-8333-444444444444/resourceGroups/cloud-dispatch-lab/providers"
SUBNET = f"{_OWN}/Microsoft.Network/virtualNetworks/cloud-dispatch-lab/subnets/workers"
WALL = f"{_OWN}/Microsoft.Network/networkSecurityGroups/cloud-dispatch-lab-worker"
SECRET = "https://cdlab0.vault.azure.net/secrets/database-password"
WORKER = f"{_OWN}/Microsoft.ManagedIdentity/userAssignedIdentities/cloud-dispatch-lab-worker"
REAPER = f"{_OWN}/Microsoft.ManagedIdentity/userAssignedIdentities/cloud-dispatch-lab-reaper"
CLIENT, TENANT = "99999999-bbbb-4ccc-8ddd-eeeeeeeeeeee", "00000000-cccc-4ddd-8eee-ffffffffffff"
MANAGED = f'credential = "managed"\nclient = "{CLIENT}"'
BY_AWS = f'credential = "aws"\nclient = "{CLIENT}"\ntenant = "{TENANT}"'
VM = "azurerm_linux_virtual_machine.control"
VMS = "azurerm_resource_group.vms"


def settings(public: str = "true", store: str = "", images: str = "") -> dict[str, Any]:
    """What the control VM's configuration says, as the module writes it."""
    variables = hcl.load(AZURE).named("variable")
    text = rendered(AZURE / "templates" / "config.toml.tftpl", {
        "deployment": "lab", "port": 7717, "host": "10.47.255.10", "names": json.dumps(["203.0.113.9"]), "store": store,
        "copies": "az://cdlab0/copies", "copied": "everything",
        "profile": profile(public, images), "pools": hcl.unquoted(variables["pools"].body["default"]),
    })  # fmt: skip
    return tomllib.loads(text)


def profile(public: str = "true", images: str = "", credential: str = MANAGED) -> str:
    """What a dispatcher is told of the module, wherever it is."""
    return rendered(AZURE / "templates" / "profile.toml.tftpl", {
        "subscription": _OWN.split("/")[2], "resource_group": "cloud-dispatch-lab-vms", "region": "westeurope",
        "credential": credential, "sizes": _default("sizes"), "subnet": SUBNET, "images": images,
        "security_group": WALL, "public_address": public, "identity": WORKER, "identity_certificates": "",
        "reaper_period": "60s", "reaper_sign": REAPER,
        "max_instances": 20, "day_limit": 50, "month_limit": 500, "profile": "ephemeral = true",
    })  # fmt: skip


def _default(name: str) -> str:
    return json.dumps([hcl.unquoted(one) for one in hcl.load(AZURE).named("variable")[name].body["default"]])


def test_the_control_vms_configuration_is_good() -> None:
    """With the pools of who says nothing about them; its limits are kept by the reaper that comes with it."""
    config = load(Embedded(settings()), plugin)
    profile = config.profiles["azure"]
    assert (profile.settings.reaper, profile.settings.reaper_period) == (True, 60_000)
    assert profile.settings.reaper_sign == REAPER
    assert (profile.settings.credential, profile.settings.identity) == ("managed", WORKER)
    assert [(one.key.scope, one.window, one.limit) for one in config.budgets()] == [
        ("profile", "month", 500_000_000), ("profile", "day", 50_000_000),
    ]  # fmt: skip
    assert config.pools()
    assert (config.backup.into, config.backup.what) == ("az://cdlab0/copies", "everything")
    assert buckets.is_address(str(config.backup.into))


@pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on this machine")
@pytest.mark.parametrize(
    ("dispatcher", "said"),
    [
        (None, MANAGED),
        ({"aws_role": ROLE, "aws_issuer": ISSUER}, BY_AWS),
        ({"principal": PRINCIPAL}, 'credential = "environment"'),
    ],
    ids=["here", "on AWS", "elsewhere"],
)
def test_a_profile_says_how_its_dispatcher_signs_in(dispatcher: object, said: str, tmp_path: Path) -> None:
    """By the module's own expressions, of which Terraform makes what they come to."""
    configuration = hcl.load(AZURE)
    names = ("elsewhere", "federated", "own_identity", "credential")
    own = {name: hcl_text(one.body[name]) for one in configuration.of("locals") for name in names if name in one.body}
    for kind, tells in (
        ("azurerm_user_assigned_identity", {"client_id": CLIENT}), ("azurerm_federated_identity_credential", {}),
    ):  # fmt: skip
        (block,) = resources(kind, "dispatcher")
        stand_in = f"[for at in range({hcl_text(block.body['count'])}) : {json.dumps(tells)}]"
        own["credential"] = own["credential"].replace(block.address, stand_in)
    own["credential"] = own["credential"].replace("data.azurerm_client_config.here.tenant_id", json.dumps(TENANT))
    kind = hcl_text(configuration.named("variable")["dispatcher"].body["type"])
    lines = [f'variable "dispatcher" {{\n  type = {kind}\n}}', "locals {", *map(" = ".join, own.items()), "}"]
    (tmp_path / "main.tf").write_text("\n".join(lines))
    (tmp_path / "own.auto.tfvars.json").write_text(json.dumps({"dispatcher": dispatcher}))
    (tmp_path / "none.rc").write_text("")
    done = subprocess.run(
        ["terraform", f"-chdir={tmp_path}", "console"], input="jsonencode(local.credential)", capture_output=True,
        text=True, check=False, env={**os.environ, "TF_CLI_CONFIG_FILE": str(tmp_path / "none.rc")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(json.loads(done.stdout)) == said


def test_of_what_aws_signs_azure_takes_the_role_alone() -> None:
    """Who signs, of whom and for whom are as they are told, the last as the rights of that role allow it; and the
    identity is the one that has the dispatcher's."""
    (trust,) = resources("azurerm_federated_identity_credential")
    assert (hcl_text(trust.body["issuer"]), hcl_text(trust.body["subject"])) == (
        "var.dispatcher.aws_issuer", "var.dispatcher.aws_role",
    )  # fmt: skip
    example = hcl.load(EXAMPLES / "multi-cloud").named("module")
    assert trust.body["audience"] == example["aws"].body["token_audiences"] == [json.dumps(federation.AUDIENCE)]
    identity = "azurerm_user_assigned_identity.dispatcher[0]"
    assert hcl_text(trust.body["parent_id"]) == f"{identity}.id"
    (principal,) = (one.body["principal"] for one in hcl.load(AZURE).of("locals") if "principal" in one.body)
    assert hcl_text(principal) == f"local.own_identity ? {identity}.principal_id : var.dispatcher.principal"


def test_a_managed_database_is_named_without_its_password() -> None:
    """By a name of the vault's secret that its driver takes, over TLS that checks who answers."""
    (lines,) = re.findall(
        r"  store = join\(.*?\[\n(.*?)\n  \]\]\)\)$", (AZURE / "database.tf").read_text(), re.DOTALL | re.MULTILINE
    )
    text = "\n".join(json.loads(line.strip().rstrip(",")) for line in lines.splitlines())
    for place, value in {
        "server.administrator_login": "dispatcher", "server.fqdn": "cdlab0.postgres.database.azure.com",
        "azurerm_postgresql_flexible_server_database.own[0].name": "cloud_dispatch",
        "azurerm_key_vault_secret.database[0].versionless_id": SECRET,
    }.items():  # fmt: skip
        text = text.replace(f"${{{place}}}", value)
    assert "${" not in text
    said = load(Embedded(settings(store=text)), plugin).store
    parts = urlsplit(said.url.get_secret_value())
    assert (parts.hostname, parts.username, parts.password) == (
        "cdlab0.postgres.database.azure.com",
        "dispatcher",
        None,
    )
    assert parse_qs(parts.query)["sslmode"] == ["verify-full"]
    assert said.password.get_secret_value() == f"azure-secret:{SECRET}"
    needed = graph.needs(hcl.load(AZURE))[VM]
    assert {"azurerm_role_assignment.dispatcher_secret", "azurerm_postgresql_flexible_server_database.own"} <= needed


@pytest.mark.parametrize(("public", "which"), [("true", "public addresses"), ("false", "no public addresses")])
def test_the_dispatcher_may_do_what_its_driver_says_and_no_more(public: str, which: str) -> None:
    """The roles that `iam-policy` prints for that configuration, of which the driver's tests prove that each right is
    used and each call allowed; and they are assigned where it says."""
    assert terraform_policies.files() == {path: path.read_text() for path in terraform_policies.files()}
    said = load(Embedded(settings(public)), plugin).profiles["azure"].settings
    printed = policy.document(said, "lab", "azure")
    rights = json.loads((AZURE / "policies" / "dispatcher.json").read_text())[which]
    kinds = {role["Name"]: role["Name"].partition(": ")[2].lower() for role in printed["roles"]}
    assert rights == {kinds[role["Name"]]: role["Actions"] for role in printed["roles"]}
    scopes = {"vms": ["azurerm_resource_group.vms.id"], "use": ["each.value"], "look": ["local.subscription"]}
    scopes["hear"] = ["azurerm_user_assigned_identity.reaper.id"]
    assigned = {
        kind: [hcl_text(one.body["scope"]) for one in resources("azurerm_role_assignment", f"dispatcher_{kind}")]
        for kind in scopes
    }
    assert assigned == scopes
    where = [one["scope"] for one in printed["assignments"]]
    assert where == [f"{_OWN.rpartition('/')[0]}-vms", SUBNET, WALL, WORKER, "/".join(_OWN.split("/")[:3]), REAPER]
    (used,) = (one.body["used"] for one in hcl.load(AZURE).of("locals") if "used" in one.body)
    assert {f"{root}.{name}" for root, name, _ in hcl.reads(used)} == {
        "local.image_scopes", "local.subnet_id", "azurerm_network_security_group.worker",
        "azurerm_user_assigned_identity.worker",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("image", "which"), [("images/one", "images"), ("galleries/own/images/one/versions/1.0.0", "images of galleries")]
)
def test_images_of_ones_own_are_one_more_right(image: str, which: str) -> None:
    """Written as the module writes them, beside what is booted else."""
    path = f"{_OWN}/Microsoft.Compute/{image}"
    said = load(Embedded(settings(images=f'images.x86_64 = "{path}"')), plugin).profiles["azure"].settings
    assert said.images["x86_64"] == path
    rights = json.loads((AZURE / "policies" / "dispatcher.json").read_text())
    (role,) = (one for one in policy.document(said, "lab", "azure")["roles"] if one["Name"].endswith(": use"))
    assert role["Actions"] == sorted(rights["public addresses"]["use"] + rights[which])


def hcl_text(value: object) -> str:
    return str(value).removeprefix("${").removesuffix("}")


def resources(kind: str, name: str = "") -> list[hcl.Block]:
    found = [one for one in hcl.load(AZURE).of("resource") if one.labels[0] == kind]
    return [one for one in found if name in ("", one.labels[1])]


def test_vms_may_end_nothing_and_only_two_identities_end_vms() -> None:
    """The reaper those in their group alone, with what goes with them; VMs put files and do nothing else. Azure's own
    roles are given for the state's disk and for what the function's host keeps, and none of them knows VMs."""
    files = {path.name: path.read_text() for path in (AZURE / "policies").iterdir()}
    enders = {name for name, text in files.items() if "virtualMachines/delete" in text or "*" in text}
    assert enders == {"dispatcher.json", "reaper.json"}
    assert json.loads(files["reaper.json"]) == [
        "Microsoft.Compute/disks/delete", "Microsoft.Compute/virtualMachines/delete",
        "Microsoft.Compute/virtualMachines/read", "Microsoft.Network/networkInterfaces/delete",
        "Microsoft.Network/publicIPAddresses/delete",
    ]  # fmt: skip
    assert all(one.partition("/containers/")[2].startswith("blobs/") for one in json.loads(files["worker.json"]))
    assert "delete" not in files["worker.json"]
    assert all(one.partition("/containers/")[2].startswith("blobs/") for one in json.loads(files["copies.json"]))
    scopes = {one.labels[1]: hcl_text(one.body["scope"]) for one in resources("azurerm_role_assignment")}
    assert scopes["reaper"] == "azurerm_resource_group.vms.id"
    assert json.loads(files["sign.json"]) == ["Microsoft.Resources/tags/write"]
    assert scopes["reaper_sign"] == "azurerm_user_assigned_identity.reaper.id"  # nobody's VM has its tags changed
    assert scopes["copies"] == 'azurerm_storage_container.own["copies"].resource_manager_id'
    assert scopes["worker"] == 'azurerm_storage_container.own["artifacts"].resource_manager_id'
    own = {
        one.labels[1]: hcl.unquoted(one.body["role_definition_name"])
        for one in resources("azurerm_role_assignment")
        if "role_definition_name" in one.body
    }
    assert own == {
        "snapshots": "${each.key}", "reaper_host": "Storage Blob Data Owner",
        "secrets_writer": "Key Vault Secrets Officer", "dispatcher_secret": "Key Vault Secrets User",
    }  # fmt: skip
    assert scopes["dispatcher_secret"] == "azurerm_key_vault_secret.database[0].resource_versionless_id"


# -- what is destroyed before what


def test_the_group_of_vms_goes_between_the_control_vm_and_the_network() -> None:
    """Destroying takes what needs something before what it needs: nobody launches when the group is emptied, the hand
    that ends VMs outlives who launches them, and the network is there as long as a VM may be."""
    needs = graph.needs(hcl.load(AZURE))
    first = needs[VM]
    assert {VMS, "azurerm_linux_function_app.reaper", "azurerm_role_assignment.reaper"} <= first
    assert VMS in needs["azurerm_linux_function_app.reaper"]
    last = needs[VMS]
    assert {
        "azurerm_subnet.workers", "azurerm_subnet_network_security_group_association.workers",
        "azurerm_virtual_network.own", "azurerm_network_security_group.worker",
        "azurerm_network_security_rule.nobody_works", "azurerm_user_assigned_identity.worker",
    } <= last  # fmt: skip
    assert not last & {VM, "azurerm_linux_function_app.reaper", "azurerm_managed_disk.state"}
    for name in ("dispatcher_vms", "dispatcher_use", "dispatcher_look", "dispatcher_hear"):
        assert f"azurerm_role_assignment.{name}" in first


def test_what_is_in_the_group_is_ended_with_it_in_every_example() -> None:
    """The provider refuses to destroy a group with something in it unless it is told."""
    for folder in EXAMPLES.glob("azure-*"):
        (provider,) = hcl.load(folder).of("provider")
        (features,) = provider.body["features"]
        assert features["resource_group"][0]["prevent_deletion_if_contains_resources"] is False, folder.name
        assert provider.body["storage_use_azuread"] is True


# -- the reaper's function


def test_the_reaper_leaves_its_sign_where_the_dispatcher_looks() -> None:
    """A tag of its own identity: the function is told of it, and what stands in it is nobody's to put back."""
    (function,) = resources("azurerm_linux_function_app")
    settings = {name.strip('"'): value for name, value in hcl.items(function.body["app_settings"])}
    assert settings["SIGN"] == "${azurerm_user_assigned_identity.reaper.id}"
    (identity,) = resources("azurerm_user_assigned_identity", "reaper")
    assert [str(one) for one in identity.body["lifecycle"][0]["ignore_changes"]] == ["tags"]
    assert "azurerm_role_assignment.reaper_sign" in graph.needs(hcl.load(AZURE))["azurerm_linux_function_app.reaper"]


def named(block: str) -> list[str]:
    (found,) = (one.body[block] for one in hcl.load(AZURE).of("locals") if block in one.body)
    return [hcl.unquoted(one) for one in found]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reaper's function, of the files that the module names."""
    path = tmp_path_factory.mktemp("reaper") / "reaper.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in named("reaper_files"):
            archive.write(CORE / name, f"cloud_dispatch/{name}")
        for name in named("function_files"):
            archive.write(AZURE / "function" / name, name)
    return path


def called(package: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the function's host does: the package is where it looks for modules, and there is nothing else."""
    start = f"import sys; sys.path[:] = [{str(package)!r}, *[p for p in sys.path if 'site-packages' not in p]]\n"
    words = [sys.executable, "-I", "-S", "-c", start + code]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60, env={"PATH": os.environ["PATH"], **environment}
    )


def test_the_function_has_all_that_it_imports_and_nothing_else(package: Path) -> None:
    done = called(package, (
        "import reaper; assert callable(reaper.main)\n"
        "print(*sorted(n for n in sys.modules if n.partition('.')[0] in ('cloud_dispatch', 'reaper')))"
    ))  # fmt: skip
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(package) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py")]
    assert set(done.stdout.split()) == {re.sub(r"(/__init__)?\.py$", "", name).replace("/", ".") for name in names}
    files = [str(path.relative_to(AZURE / "function")) for path in (AZURE / "function").rglob("*") if path.is_file()]
    assert sorted(one for one in files if "__pycache__" not in one) == named("function_files")


def test_its_timer_is_as_the_module_says(package: Path) -> None:
    """The host hands its timer to the argument of that name; a call has more time than the reaper takes itself."""
    with zipfile.ZipFile(package) as archive:
        function = json.loads(archive.read("reaper/function.json"))
        host = json.loads(archive.read("host.json"))
    (binding,) = function["bindings"]
    assert (binding["type"], binding["schedule"]) == ("timerTrigger", "0 * * * * *")
    (period,) = (one.body["reaper_period_s"] for one in hcl.load(AZURE).of("locals") if "reaper_period_s" in one.body)
    assert period == 60
    asked = f"import inspect, reaper; print(*inspect.signature(reaper.{function['entryPoint']}).parameters)"
    assert called(package, asked).stdout.split() == [binding["name"]]
    minutes = int(host["functionTimeout"].split(":")[1])
    limit = float(called(package, "from cloud_dispatch.reapers.azure import _CALL_S; print(_CALL_S)").stdout)
    assert limit + 20 <= minutes * 60


def test_from_its_package_alone_it_ends_what_is_past_its_end(package: Path, tmp_path: Path) -> None:
    """By the settings that the module gives it, a token of its own identity, and ARM over TLS; and a call that can't do
    it fails."""
    (app,) = resources("azurerm_linux_function_app")
    given = {name for name, _ in hcl.items(app.body["app_settings"])}
    with FakeArm() as fake:
        vm = launched(fake, tmp_path)
        told = {**fake.function_environment(), "DEPLOYMENT": "lab"}
        from_host = {"IDENTITY_ENDPOINT", "IDENTITY_HEADER"}
        assert set(told) - from_host - {"ARM", "SSL_CERT_FILE"} <= given
        fake.denied.add("Microsoft.Compute/virtualMachines/delete")
        refused = called(package, "import reaper; reaper.main(None)", **told)
        assert (refused.returncode, vm in refused.stderr) == (1, True)
        fake.denied.clear()
        done = called(package, "import reaper; reaper.main(None)", **told)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["ended"] == [vm]
        while fake.all_vms():
            fake.tick()


def launched(fake: FakeArm, folder: Path) -> str:
    """A VM past its end."""

    async def launch() -> str:
        said = scenes.settings(
            endpoint_url=fake.url, authority_url=fake.url, prices_url=fake.prices_url, ca_file=fake.ca_file,
        )  # fmt: skip
        driver = AzureProvider(ProfileContext(ProfileName("azure"), said, folder, now=fake.clock.now))
        worn = VmTags("lab", "store", PoolName("p"), BatchId("b1"), 5, 5).encode()
        asked = replace(scenes.request(), tags=worn, instances=(InstanceId("b1-0"),))
        (vm,) = (await settled(driver, await driver.launch(asked))).vms
        await driver.close()
        return str(vm.id)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in fake.environment().items():
            patch.setenv(name, value)
        return asyncio.run(launch())
