"""What the modules' variables take, asked of Terraform itself: they need no provider."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terraform.rendering import MODULES

pytestmark = pytest.mark.tools
TERRAFORM = shutil.which("terraform")
#: What must be said.
GIVEN = {"deployment": "lab", "day_limit": 5, "month_limit": 50, "alarm_emails": ["ops@example.org"]}
#: And by one module alone.
MORE = {"azure": {"region": "westeurope"}}
#: A role, and who signs for its account.
ROLE = "arn:aws:iam::123456789012:role/cloud-dispatch-lab-dispatcher"
ISSUER = "https://0a1b2c3d-1111-4222-8333-444444444444.tokens.sts.global.api.aws"
#: A key of the user's own.
KEY = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-1111-4222-8333-444444444444"
#: A service principal of Azure.
PRINCIPAL = "99999999-8888-4777-8666-555555555555"
#: One version, that is always the same: the control VM is made anew for any change.
PACKAGES: tuple[list[object], list[object]] = (
    [
        "cloud-dispatch[aws]==1.0",
        "cloud-dispatch==1.0.0rc1",
        "cloud-dispatch[aws]@https://a.example/c-1.0-py3-none-any.whl",
    ],
    ["x; rm", 'x"y', "cloud-dispatch[aws]", "cloud-dispatch>=1.0", "cloud-dispatch~=1.0", "cloud-dispatch==1.*"],
)
#: By module and variable, what is good, then what is not.
VALUES: dict[str, dict[str, tuple[list[object], list[object]]]] = {
    "aws": {
        "deployment": (["a", "lab-2"], ["", "Lab", "lab-", "x" * 33]),
        "package": PACKAGES,
        "alarm_emails": ([["a@b.c", "d@e.f"]], [[], ["ops"]]),
        "operator_cidrs": ([["192.0.2.0/24"]], [["0.0.0.0/0"], ["192.0.2"]]),
        "max_instances": ([1], [0, 1.5]),
        "month_limit": ([0.5], [0, -1]),
        "cidr": (["10.0.0.0/16"], ["10.0.0.0", "10.0.0.0/30"]),
        "files": (
            [{"google.json": "{}"}],
            [{"../x": ""}, {"config.toml": ""}, {"environment": ""}, {"restore-from": ""}],
        ),
        "token_audiences": ([[], ["api://AzureADTokenExchange"]], [["*"], [""]]),
        "restore_from": (["", "s3://lab-1/copies/latest"], ["latest", "gs://lab/copies/latest"]),
        "state_key": ([None, KEY], ["", "alias/lab", KEY.replace(":key/", ":alias/"), KEY.replace(":kms:", ":s3:")]),
    },
    "azure": {
        "package": PACKAGES,
        "restore_from": (["", "az://lab1/copies/latest"], ["latest", "s3://lab/copies/latest"]),
        "dispatcher": (
            [{"aws_role": ROLE, "aws_issuer": ISSUER}, {"principal": PRINCIPAL}, None],
            [
                {"principal": "lab"},
                {"aws_role": "dispatcher", "aws_issuer": ISSUER},
                {"aws_role": ROLE.replace("role/", "user/"), "aws_issuer": ISSUER},
                {"aws_role": ROLE, "aws_issuer": ISSUER.replace("https", "http")},
                {"aws_role": ROLE},
                {"aws_issuer": ISSUER},
                {"aws_role": ROLE, "aws_issuer": ISSUER, "principal": PRINCIPAL},
                {},
            ],
        ),
        "ssh_public_key": (["ssh-ed25519 AAAA= ops", None], ["AAAA"]),
    },
    "gcp": {
        "restore_from": (["", "gs://lab-1/copies/latest"], ["latest", "s3://lab/copies/latest"]),
        "deployment": (["a", "lab-2", "x" * 18], ["", "Lab", "lab-", "2lab", "lab--two", "x" * 19]),
        "package": PACKAGES,
        "alarm_emails": ([["a@b.c", "d@e.f"]], [[], ["ops"], ["a@b.c"] * 6]),
        "operator_cidrs": ([["192.0.2.0/24"]], [["0.0.0.0/0"], ["192.0.2"]]),
        "agent_cidrs": ([["192.0.2.0/24"]], [["0.0.0.0/0"]]),
        "names": ([["a.example.org"]], [["a b"], ["a_"]]),
        "regions": ([["us-central1", "europe-west4"]], [[], ["us-central1-a"]]),
        "zone": (["us-central1-b", None], ["us-central1"]),
        "max_instances": ([1], [0, 1.5]),
        "month_limit": ([0.5], [0, -1]),
        "billing_account": (["012345-6789AB-CDEF01", None], ["012345"]),
        "reaper_callers": ([["user:a@b.c"]], [["allUsers"], ["a@b.c"]]),
        "network": (["projects/p/global/networks/n", None], ["n"]),
        "subnets": ([{"us-central1": "projects/p/regions/us-central1/subnetworks/s"}], [{"us-central1": "s"}]),
        "cidr": (["10.0.0.0/16"], ["10.0.0.0", "10.0.0.0/30"]),
        "database": (["managed"], ["postgres"]),
        "dispatcher": (
            [{"aws_role": ROLE}, None],
            [{"aws_role": "dispatcher"}, {"aws_role": "arn:aws-cn:iam::123456789012:role/x"}],
        ),
        "labels": ([{"team": "x"}], [{"cloud-dispatch-deployment": "other"}]),
    },
}


@pytest.mark.skipif(TERRAFORM is None, reason="terraform is not on this machine")
@pytest.mark.parametrize("module", VALUES)
def test_wrong_values_are_refused_before_anything_is_asked(module: str, tmp_path: Path) -> None:
    shutil.copy(MODULES / module / "variables.tf", tmp_path)
    (tmp_path / "none.rc").write_text("")

    def complaint(**said: object) -> str:
        (tmp_path / "own.auto.tfvars.json").write_text(json.dumps({**GIVEN, **MORE.get(module, {}), **said}))
        done = subprocess.run(
            [str(TERRAFORM), f"-chdir={tmp_path}", "plan", "-no-color", "-lock=false"], capture_output=True, text=True,
            check=False, env={**os.environ, "TF_CLI_CONFIG_FILE": str(tmp_path / "none.rc")},
        )  # fmt: skip
        return done.stderr if done.returncode else ""

    for name, (good, wrong) in VALUES[module].items():
        assert [one for one in good if complaint(**{name: one})] == []
        for one in wrong:
            said = complaint(**{name: one})
            assert "Invalid value for variable" in said, (name, one, said)
            assert f"var.{name}" in said
