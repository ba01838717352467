"""What Terraform itself says of every example when something of its own stands in for what providers have."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.terraform.rendering import EXAMPLES
from tests.terraform.standins import stand_in
from tests.terraform.test_validate import Copy
from tests.terraform.test_variables import ISSUER

pytestmark = pytest.mark.tools
here = pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on this machine")
EVERY = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEk5NGpt ops"
GIVEN = {"TF_VAR_ssh_public_key": KEY, "TF_VAR_aws_issuer": ISSUER}

_SUBNET = "/subscriptions/s/resourceGroups/network/providers/Microsoft.Network/virtualNetworks/lab/subnets/vms"
#: What has to be known of what there is already.
TOLD = {"data.azurerm_subnet.vms": {"id": _SUBNET}}


class Planned:
    """An example and its modules, with stand-ins."""

    def __init__(self, tmp_path: Path, name: str) -> None:
        self._copy = Copy(tmp_path, str(tmp_path))
        self._copy.environment |= GIVEN
        self.terraform = self._copy.tree / "terraform"
        self.folder = self.terraform / "examples" / name
        for folder in (self.folder, *(self.terraform / "modules").iterdir()):
            stand_in(folder, TOLD)

    def asked(self, *words: str) -> tuple[int, str]:
        return self._copy.asked(self.folder, *words)

    def planned(self) -> str:
        """What Terraform complains of."""
        code, said = self.asked("init", "-backend=false")
        if not code:
            code, said = self.asked("plan", "-lock=false", "-out=plan")
        return said[said.find("\nError:") :] if code else ""

    def change(self, file: str, old: str, new: str) -> None:
        """Something else in a file, below `terraform`."""
        path = self.terraform / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new), encoding="utf-8")

    def needs(self) -> dict[str, set[str]]:
        """By resource, all that must be there before it and is destroyed after it, as Terraform has it."""
        code, said = self.asked("graph")
        assert code == 0, said
        direct: dict[str, set[str]] = {}
        for one, other in re.findall(
            r'^\s*"([^"]+)" -> "([^"]+)";$', said.replace("terraform_data.of_", ""), re.MULTILINE
        ):
            direct.setdefault(one, set()).add(other)
        whole: dict[str, set[str]] = {}
        for one in direct:
            new = set(direct[one])
            while new:
                whole.setdefault(one, set()).update(new)
                new = set().union(*(direct.get(each, set()) for each in new)) - whole[one]
        return whole

    def made(self) -> set[str]:
        """Of a plan: addresses of what would be made."""
        code, said = self.asked("show", "-json", "plan")
        assert code == 0
        return {one["address"].replace("terraform_data.of_", "") for one in json.loads(said)["resource_changes"]}


@here
@pytest.mark.parametrize("name", EVERY)
def test_an_example_can_be_planned_before_anything_is_known(tmp_path: Path, name: str) -> None:
    """There is no circle, and how many there are of each is known before any is made."""
    planned = Planned(tmp_path, name)
    assert planned.planned() == ""
    assert planned.made()


# -- several clouds


EXAMPLE = "examples/multi-cloud/main.tf"
BY_AWS = "{ aws_role = module.aws.dispatcher_role, aws_issuer = var.aws_issuer }"
CONTROL = "module.aws.aws_instance__control"


@pytest.fixture
def several(tmp_path: Path) -> Planned:
    return Planned(tmp_path, "multi-cloud")


@here
def test_with_several_clouds_there_is_one_control_vm(several: Planned) -> None:
    """In the others nothing that it alone needs, and all that VMs need: with addresses that stay, which are let in."""
    assert several.planned() == ""
    made = several.made()
    assert CONTROL in made
    others = {one for one in made if one.startswith(("module.google.", "module.azure."))}
    assert {
        one for one in others if re.search("control|state|copies|store|sql|postgres|vault|identity__dispatcher", one)
    } == {
        "module.google.google_service_account__control",
        "module.azure.azurerm_user_assigned_identity__dispatcher[0]",
    }
    for one in (
        "google.google_cloudfunctions2_function__reaper", "google.google_monitoring_alert_policy__reaper_silent",
        'google.google_compute_address__out["us-central1-0"]', "google.google_storage_bucket__own",
        "google.google_iam_workload_identity_pool_provider__dispatcher[0]",
        "azure.azurerm_linux_function_app__reaper", "azure.azurerm_public_ip__out[0]",
        "azure.azurerm_subnet_nat_gateway_association__workers[0]", "azure.azurerm_storage_account__own",
        'azure.azurerm_role_assignment__dispatcher_use["subnet"]',
        "azure.azurerm_federated_identity_credential__dispatcher[0]",
    ):  # fmt: skip
        assert f"module.{one}" in others
    let_in = "module.aws.aws_vpc_security_group_ingress_rule__outside"
    assert {one for one in made if one.startswith(let_in)} == {f'{let_in}["elsewhere-{at}"]' for at in (0, 1)}
    assert "module.aws.aws_iam_role_policy__tokens[0]" in made


@here
def test_a_principal_of_azure_has_no_identity_that_is_made(several: Planned) -> None:
    """A dispatcher elsewhere than on AWS brings its own, and has the same rights; AWS signs nothing then. Who it is may
    be made by the same plan, and be known late."""
    several.change(EXAMPLE, BY_AWS, "{ principal = terraform_data.client.id }")
    several.change(EXAMPLE, 'token_audiences = ["api://AzureADTokenExchange"]', "token_audiences = []")
    several.change(EXAMPLE, "locals {", 'resource "terraform_data" "client" {\n}\n\nlocals {')
    assert several.planned() == ""
    made = several.made()
    assert not {one for one in made if re.search("federated|identity__dispatcher|policy__tokens", one)}
    assert "module.azure.azurerm_role_assignment__dispatcher_vms" in made


@here
def test_who_launches_comes_after_what_ends_vms_in_every_cloud(several: Planned) -> None:
    """And is destroyed before it, and before the networks and identities of VMs."""
    assert several.asked("init", "-backend=false")[0] == 0
    assert several.needs()[CONTROL] >= {
        "module.aws.aws_lambda_invocation__end_everything",
        "module.google.terraform_data.end_everything", "module.google.google_cloud_scheduler_job__reaper",
        "module.google.google_compute_router_nat__own", "module.google.google_service_account_iam_member__dispatcher",
        "module.azure.azurerm_linux_function_app__reaper", "module.azure.azurerm_resource_group__vms",
        "module.azure.azurerm_subnet_nat_gateway_association__workers",
        "module.azure.azurerm_role_assignment__dispatcher_vms",
        "module.azure.azurerm_federated_identity_credential__dispatcher", "module.aws.aws_iam_role_policy__tokens",
    }  # fmt: skip


@here
@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("modules/aws/network.tf", '"elsewhere-${at}" =>', "one =>", "Invalid for_each argument"),
        (EXAMPLE, "module.aws.dispatcher_role }", "module.aws.control_instance }", "Error: Cycle"),
        (EXAMPLE, "module.aws.dispatcher_role,", "module.aws.control_instance,", "Error: Cycle"),
        ("modules/azure/main.tf", "try(var.dispatcher.aws_issuer, null)", "try(var.dispatcher.aws_role, null)",
         "Invalid count argument"),
    ],
    ids=["keys", "circle by Google", "circle by Azure", "count"],
)  # fmt: skip
def test_what_no_schema_shows_is_found(several: Planned, file: str, old: str, new: str, said: str) -> None:
    several.change(file, old, new)
    assert said in several.planned()


@here
@pytest.mark.parametrize(
    ("module", "more", "said"),
    [
        ("gcp", 'database = "managed"', "The database is where the dispatcher is"),
        ("gcp", 'agent_cidrs = ["192.0.2.0/24"]', "Who reaches the dispatcher"),
        ("gcp", "public_vms = true", "has to know where VMs come from"),
        ("azure", 'database = "managed"', "The database is where the dispatcher is"),
        ("azure", 'names = ["a.example.org"]', "Who reaches the dispatcher"),
        ("azure", "dispatcher = null", "no control VM without a public key"),
        ("aws", 'files = { "config.toml" = "" }', "none of the dispatcher's own"),
    ],
)
def test_what_makes_no_sense_with_a_dispatcher_elsewhere_is_refused(
    several: Planned, module: str, more: str, said: str
) -> None:
    name = more.partition(" ")[0]
    path = several.folder / "main.tf"
    head, source, tail = path.read_text().partition(f'source = "../../modules/{module}"\n')
    tail = re.sub(rf"(?m)^  {name} +=.*$", "", tail, count=1) if name in ("dispatcher", "files") else tail
    path.write_text(f"{head}{source}  {more}\n{tail}")
    assert said in " ".join(re.sub("[│╷╵]", "", several.planned()).split())


@here
@pytest.mark.parametrize(
    "more", ['operator_cidrs = ["192.0.2.0/24"]\n agent_cidrs = ["192.0.2.0/24"]',
             'agent_cidrs = ["192.0.2.0/24", "192.0.2.0/24"]'],
    ids=["both", "twice"],
)  # fmt: skip
def test_a_network_is_let_in_once(tmp_path: Path, more: str) -> None:
    """A group with a rule twice is refused by EC2 half-way through an apply."""
    example = Planned(tmp_path, "aws-smallest")
    example.change(
        "examples/aws-smallest/main.tf", 'source = "../../modules/aws"\n', f'source = "../../modules/aws"\n{more}\n'
    )
    assert "192.0.2.0/24 is let in twice" in " ".join(re.sub("[│╷╵]", "", example.planned()).split())
