"""The module of AWS: what its templates come to. The rights of its identities, and the function that it packages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from cloud_dispatch.config.load import load
from cloud_dispatch.config.source import Embedded
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch.statestore.engine import parse_url
from cloud_dispatch_aws.policy import document
from cloud_dispatch_azure import federation
from tests.terraform import hcl
from tests.terraform.rendering import MODULES, rendered
from tools import terraform_policies

AWS = MODULES / "aws"
CORE = MODULES.parents[1] / "cloud_dispatch"
SUBNETS, GROUP = ("subnet-0a1b2c3d4e5f60001", "subnet-0a1b2c3d4e5f60002"), "sg-0a1b2c3d4e5f60001"
TYPES = ["c7i.*", "m7i.large"]


SIGN = "/cloud-dispatch-lab/reaper"
SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:rds!db-1f2e-AbCdEf"


def store(tls: str = "sslmode=require") -> str:
    """The lines about a managed database."""
    host = "cloud-dispatch-lab.abc123.us-east-1.rds.amazonaws.com"
    return rendered(AWS / "templates" / "store.toml.tftpl", {"host": host, "port": 5432, "tls": tls, "arn": SECRET})


def settings(
    certificate: str = "", pools: str = "", *, database: str = "", copies: str = "everything"
) -> dict[str, Any]:
    """What the control VM's configuration says, as the module writes it; `pools`: in place of its own."""
    own = next(hcl.unquoted(one.body["default"]) for one in hcl.load(AWS).of("variable") if one.labels == ("pools",))
    text = rendered(AWS / "templates" / "config.toml.tftpl", {
        "deployment": "lab", "port": 7717, "host": "10.47.0.9", "profile": "public_address = true",
        "region": "us-east-1", "account": "123456789012",
        "instance_types": json.dumps(TYPES), "subnets": json.dumps(SUBNETS), "security_group": GROUP,
        "instance_profile": "cloud-dispatch-lab-worker", "identity_certificate": certificate, "reaper_period": "60s",
        "reaper_sign": SIGN,
        "names": json.dumps(["203.0.113.9"]), "max_instances": 20, "day_limit": 50, "month_limit": 500,
        "pools": pools or own,
        "store": database, "bucket": "cloud-dispatch-lab-1f2e", "copies": copies,
    })  # fmt: skip
    return tomllib.loads(text)


def test_the_control_vms_configuration_is_good() -> None:
    """With the pools of who says nothing about them; its limits are kept by the reaper that comes with it."""
    config = load(Embedded(settings()), plugin)
    profile = config.profiles["aws"]
    assert (profile.settings.reaper, profile.settings.reaper_period) == (True, 60_000)
    assert profile.settings.reaper_sign == SIGN
    assert [(one.key.scope, one.window, one.limit) for one in config.budgets()] == [
        ("profile", "month", 500_000_000), ("profile", "day", 50_000_000),
    ]  # fmt: skip
    assert config.pools()


@pytest.mark.parametrize("tls", ["sslmode=require", "sslmode=verify-full&sslrootcert=/etc/cloud-dispatch/database.pem"])
def test_a_managed_database_is_reached_by_tls_with_the_password_that_rds_keeps(
    tls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its backups are its own, and the copies have the keys. A name of RDS is one of a secret."""
    config = load(Embedded(settings(database=store(tls), copies="keys")), plugin)
    monkeypatch.setattr("cloud_dispatch.provider.secrets.ask", lambda target, name: json.dumps({"password": "p/w"}))
    url = parse_url(config.store_url)
    assert (url.username, url.password, url.database, url.query["sslmode"]) == (
        "dispatch", "p/w", "queue", tls.partition("=")[2].partition("&")[0],
    )  # fmt: skip
    assert (config.backup.into, config.backup.region) == ("s3://cloud-dispatch-lab-1f2e/copies", "us-east-1")
    assert config.backup.what == "keys"
    (right,) = policy("database", secret=SECRET)
    assert (right["Action"], right["Resource"]) == ("secretsmanager:GetSecretValue", SECRET)


def test_of_the_bucket_the_control_vm_has_its_copies_alone() -> None:
    """Those it lists, reads, writes and deletes."""
    rights = {one["Sid"]: one for one in policy("control", bucket="arn:b", key="arn:k")}
    assert rights["Copies"]["Resource"] == "arn:b/copies/*"
    assert {"s3:DeleteObject", "s3:GetObject", "s3:PutObject"} <= set(rights["Copies"]["Action"])
    assert rights["FindCopies"]["Condition"] == {"StringLike": {"s3:prefix": ["copies", "copies/*"]}}
    config = load(Embedded(settings()), plugin)
    assert (config.backup.into, config.backup.what) == ("s3://cloud-dispatch-lab-1f2e/copies", "everything")


def test_the_dispatcher_may_do_what_its_driver_says_and_no_more() -> None:
    """The same document that `iam-policy` prints for that configuration, of which the driver's tests prove that each
    right is used and each call allowed."""
    assert terraform_policies.files() == {path: path.read_text() for path in terraform_policies.files()}
    ec2 = "arn:aws:ec2:us-east-1"
    used = [f"{ec2}::image/*", *(f"{ec2}:123456789012:subnet/{one}" for one in SUBNETS)]
    used.append(f"{ec2}:123456789012:security-group/{GROUP}")
    text = rendered(AWS / "policies" / "dispatcher.json.tftpl", {
        "partition": "aws", "region": "us-east-1", "account": "123456789012", "deployment": "lab",
        "role": "cloud-dispatch-lab-worker", "instance_types": json.dumps(TYPES),
        "launch_with": json.dumps(sorted(used)),
    })  # fmt: skip
    said = load(Embedded(settings()), plugin).profiles["aws"].settings
    assert json.loads(text) == json.loads(json.dumps(document(said, "lab", "123456789012")))


def test_aws_signs_who_the_control_vm_is_for_those_alone_that_are_named() -> None:
    """As Azure's driver asks for it, and no longer; where nobody is named there is no such right."""
    (right,) = policy("tokens", audiences=json.dumps([federation.AUDIENCE]))
    assert right["Action"] == "sts:GetWebIdentityToken"
    assert "GetWebIdentityToken" in botocore.session.get_session().get_service_model("sts").operation_names
    assert right["Condition"] == {
        "ForAllValues:StringEquals": {"sts:IdentityTokenAudience": [federation.AUDIENCE]},
        "Null": {"sts:IdentityTokenAudience": "false"},
        "NumericLessThanEquals": {"sts:DurationSeconds": str(federation._LASTS_S)},
        "StringEquals": {"sts:SigningAlgorithm": federation._ALGORITHM},
    }
    configuration = hcl.load(AWS)
    (given,) = (one for one in configuration.of("resource") if one.labels == ("aws_iam_role_policy", "tokens"))
    assert given.body["count"] == "${length(var.token_audiences) > 0 ? 1 : 0}"
    assert configuration.named("variable")["token_audiences"].body["default"] == []
    others = {path.name for path in (AWS / "policies").iterdir() if "sts:GetWeb" in path.read_text()}
    assert others == {"tokens.json.tftpl"}


def test_what_may_stay_is_readable_and_named_anew_each_time() -> None:
    """Snapshots are encrypted as what they are of: by no key that a destroy deletes. Two last snapshots of a database
    do not have the same name: its parameter group gets another one whenever it is made."""
    made = {one.address: one.body for one in hcl.load(AWS).of("resource")}
    disk, database = made["aws_ebs_volume.state"], made["aws_db_instance.own"]
    assert (disk["encrypted"], database["storage_encrypted"]) == (True, True)
    assert {str(one["kms_key_id"]) for one in (disk, database)} == {"${var.state_key}"}
    assert hcl.load(AWS).named("variable")["state_key"].body["default"] is None
    assert "${aws_db_parameter_group.own[0].name}-final" in str(database["final_snapshot_identifier"])
    assert "name_prefix" in made["aws_db_parameter_group.own"]


def test_what_holds_the_state_is_not_replaced_for_another_zone_or_key() -> None:
    """It stays as it is, and the plan of a control VM in another zone, or with another key, is refused before anything
    is destroyed."""
    made = {one.address: one.body for one in hcl.load(AWS).of("resource")}
    disk, database = (made[name]["lifecycle"][0] for name in ("aws_ebs_volume.state", "aws_db_instance.own"))
    assert [str(one) for one in disk["ignore_changes"]] == ["availability_zone", "kms_key_id"]
    assert [str(one) for one in database["ignore_changes"]] == ["kms_key_id"]
    asked = [one["condition"] for one in made["aws_instance.control"]["lifecycle"][0]["precondition"]]
    assert "${aws_ebs_volume.state.availability_zone == data.aws_subnet.control.availability_zone}" in asked
    assert "${var.state_key == null || aws_ebs_volume.state.kms_key_id == var.state_key}" in asked
    (held,) = (one["condition"] for one in database["postcondition"])
    assert held == "${var.state_key == null || self.kms_key_id == var.state_key}"


def policy(name: str, **values: object) -> list[dict[str, Any]]:
    text = rendered(AWS / "policies" / f"{name}.json.tftpl", values)
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return found


def test_vms_may_end_nothing_and_only_two_identities_end_vms() -> None:
    """The reaper those of its deployment alone; VMs and what the control VM does beside its work, nothing."""
    reaper = _reaper_rights()
    worker = policy("worker", bucket="arn:b", key="arn:k")
    control = policy("control", bucket="arn:b", key="arn:k")
    changes = [one for one in reaper if one["Sid"] not in ("Find", "Log", "Sign")]
    assert {one["Sid"] for one in changes} == {"End", "Unprotect", "DeleteTheRest"}
    assert all("ec2:Describe" in action for one in reaper if one["Sid"] == "Find" for action in one["Action"])
    for one in changes:
        assert one["Condition"]["StringEquals"] == {"aws:ResourceTag/cloud-dispatch-deployment": "lab"}
    assert "ec2:" not in json.dumps([worker, control])
    assert all(one["Resource"] != "*" for one in (*worker, *control))
    assert {one["Resource"] for one in worker} == {"arn:b/artifacts/*", "arn:k"}


def test_the_control_vm_reads_no_parameters_but_images_and_its_reapers_sign() -> None:
    """What Session Manager needs is a policy of the module's own: AWS's lets its role read every parameter of the
    account. No policy of AWS's is given to the dispatcher's role, under whatever name."""
    configuration = hcl.load(AWS)
    roles = {one.labels[1]: str(one.body["role"]) for one in configuration.of("resource")
             if one.labels[0] == "aws_iam_role_policy_attachment"}  # fmt: skip
    assert [name for name, role in roles.items() if "dispatcher" in role] == []
    assert "shell" in {one.labels[1] for one in configuration.of("resource") if one.labels[0] == "aws_iam_role_policy"}
    (shell,) = json.loads((AWS / "policies" / "shell.json").read_text())["Statement"]
    assert {one for one in shell["Action"] if not one.startswith("ssmmessages:")} == {"ssm:UpdateInstanceInformation"}
    assert {one.partition(":")[2] for one in shell["Action"] if one.startswith("ssmmessages:")} == {
        f"{verb}{channel}Channel" for verb in ("Create", "Open") for channel in ("Control", "Data")
    }
    named = re.findall(r'"(arn:[^"]*:ssm:[^"]*)"', "".join(one.read_text() for one in (AWS / "policies").iterdir()))
    assert {one for one in named if "/aws/service/" not in one} == {
        "arn:${partition}:ssm:${region}:${account}:parameter/cloud-dispatch-${deployment}/reaper"
    }


def test_the_reaper_leaves_its_sign_where_the_dispatcher_looks() -> None:
    """One parameter: the function is told of it, its role may write it and nothing else there, the dispatcher's may
    read it. What stands in it is nobody's to put back."""
    configuration = hcl.load(AWS)
    made = {one.address: one.body for one in configuration.of("resource")}
    sign = made["aws_ssm_parameter.reaper"]
    assert hcl.unquoted(sign["name"]).replace("${local.name}", "cloud-dispatch-lab") == SIGN
    assert [str(one) for one in sign["lifecycle"][0]["ignore_changes"]] == ["value"]
    (environment,) = made["aws_lambda_function.reaper"]["environment"]
    assert environment["variables"]["SIGN"] == "${aws_ssm_parameter.reaper.name}"
    (right,) = (one for one in _reaper_rights() if one["Sid"] == "Sign")
    assert (right["Action"], right["Resource"]) == ("ssm:PutParameter", "arn:sign")
    text = (AWS / "identity.tf").read_text()
    assert "sign       = aws_ssm_parameter.reaper.arn" in text


def _reaper_rights() -> list[dict[str, Any]]:
    places = {"partition": "aws", "region": "r", "account": "1", "log_group": "arn:log", "sign": "arn:sign"}
    return policy("reaper", deployment="lab", **places)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reaper's function, of the files that the module names."""
    (names,) = (one.body["reaper_files"] for one in hcl.load(AWS).of("locals") if "reaper_files" in one.body)
    path = tmp_path_factory.mktemp("reaper") / "reaper.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in map(hcl.unquoted, names):
            archive.write(CORE / name, f"cloud_dispatch/{name}")
    return path


def test_the_function_runs_from_its_package_alone(package: Path) -> None:
    """It has all that its handler imports, and nothing else; no other package of ours or of anybody is needed."""
    code = (
        f"import sys; sys.path[:] = [{str(package)!r}, *[p for p in sys.path if 'site-packages' not in p]]\n"
        "import cloud_dispatch.reapers.aws as it; assert callable(it.handler)\n"
        "print(*sorted(n for n in sys.modules if n.partition('.')[0] == 'cloud_dispatch'))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(package) as archive:
        names = {re.sub(r"(/__init__)?\.py$", "", name).replace("/", ".") for name in archive.namelist()}
    assert set(done.stdout.split()) == names
