"""One dispatcher with several clouds, as the example joins them: its configuration, and who it is to Google."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.auth import aws as federation

from cloud_dispatch.config.load import load
from cloud_dispatch.config.source import Embedded
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch_gcp.credentials import of_settings
from tests.terraform import hcl, test_aws, test_azure, test_gcp
from tests.terraform.rendering import EXAMPLES, MODULES, rendered

EXAMPLE = EXAMPLES / "multi-cloud"
ACCOUNT = f"cd-lab-control@{test_gcp.PROJECT}.iam.gserviceaccount.com"
PROVIDER = "projects/123456789012/locations/global/workloadIdentityPools/cd-lab-0a1b2c3d/providers/dispatcher"


def _whole() -> dict[str, Any]:
    """The control VM's configuration, of the modules' templates and the example's own pools."""
    file = (MODULES / "gcp" / "control.tf").read_text()
    assert r'local.elsewhere ? "credentials_file = \"/etc/cloud-dispatch/google.json\"" : ""' in file
    google = test_gcp.section(credentials='credentials_file = "/etc/cloud-dispatch/google.json"')
    azure = test_azure.profile("false", credential=test_azure.BY_AWS)
    return test_aws.settings(pools="\n".join([google, azure, (EXAMPLE / "pools.toml").read_text()]))


def test_the_joined_configuration_is_good_and_its_limits_hold() -> None:
    """Each cloud's own, and one for all; the pool has all three."""
    config = load(Embedded(_whole()), plugin)
    assert set(config.profiles) == {"aws", "azure", "gcp"}
    assert str(config.profiles["gcp"].settings.credentials_file) == "/etc/cloud-dispatch/google.json"
    azure = config.profiles["azure"].settings
    assert (azure.credential, azure.client, azure.tenant) == ("aws", test_azure.CLIENT, test_azure.TENANT)
    assert {(one.key.scope, str(one.key.name), one.window, one.limit) for one in config.budgets()} == {
        ("deployment", "", "day", 100_000_000), ("deployment", "", "month", 1_000_000_000),
        *(("profile", name, window, limit) for name in ("aws", "azure", "gcp")
          for window, limit in (("day", 50_000_000), ("month", 500_000_000))),
    }  # fmt: skip
    (pool,) = config.pools()
    assert {str(one) for one in pool.profiles} == {"aws", "azure", "gcp"}


def test_google_takes_the_role_of_the_control_vm_by_a_file_without_a_secret(tmp_path: Path) -> None:
    """The driver and Google's library read it: what AWS signs for the machine becomes the dispatcher's account."""
    text = rendered(MODULES / "gcp" / "templates" / "google.json.tftpl", {"provider": PROVIDER, "account": ACCOUNT})
    told = json.loads(text)
    path = tmp_path / "google.json"
    path.write_text(text)
    found = of_settings(test_gcp.profile().model_copy(update={"credentials_file": path}))
    assert isinstance(found, federation.Credentials)
    assert found.service_account_email == ACCOUNT
    assert told["audience"] == f"//iam.googleapis.com/{PROVIDER}"
    assert "imdsv2_session_token_url" in told["credential_source"]
    assert not [key for key in told if "secret" in key or "private" in key]


def test_azure_takes_the_same_role_by_what_aws_is_let_sign() -> None:
    """Who it is comes from the module of AWS, and who signs from the account."""
    module = hcl.load(EXAMPLE).named("module")["azure"].body["dispatcher"]
    assert module == {"aws_role": "${module.aws.dispatcher_role}", "aws_issuer": "${var.aws_issuer}"}


def test_its_file_is_called_as_the_profile_names_it() -> None:
    assert '"google.json" => templatefile(' in (MODULES / "gcp" / "elsewhere.tf").read_text()
    (module,) = (one.body for name, one in hcl.load(EXAMPLE).named("module").items() if name == "aws")
    assert {(name, rest) for _, name, rest in hcl.reads(module["files"])} == {
        ("google", ("files",)),
        ("azure", ("files",)),
    }


def test_the_control_vm_has_what_each_module_would_install() -> None:
    """A driver of each cloud, and what its own module installs beside it."""
    own = {
        extra
        for name in ("aws", "azure", "gcp")
        for extra in _extras(hcl.load(MODULES / name).named("variable")["package"].body["default"])
    }
    assert set(_extras(hcl.load(EXAMPLE).named("module")["aws"].body["package"])) == own


def _extras(package: str) -> list[str]:
    return hcl.unquoted(package).partition("[")[2].partition("]")[0].split(",")
