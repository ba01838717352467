"""Mistakes planted in a copy of a module: the checker finds each, says where, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.terraform import graph, hcl
from tests.terraform.checker import check
from tests.terraform.rendering import EXAMPLES, MODULES

#: What is replaced by what in which file, and what has to be said of it.
PLANTED = {
    "argument": ("control.tf", "monitoring  ", "monitorng  ", "aws_instance.control: has no argument monitorng"),
    "nested argument": ("control.tf", "http_tokens  ", "http_token  ", "metadata_options: has no argument http_token"),
    "required": ("storage.tf", "  availability_zone = data", "  #", "aws_ebs_volume.state: lacks availability_zone"),
    "required in a block": ("storage.tf", '      sse_algorithm     = "aws:kms"\n', "", "lacks sse_algorithm"),
    "resource": ("main.tf", '"aws_kms_alias"', '"aws_kms_nickname"', "the provider has no resource aws_kms_nickname"),
    "data": ("main.tf", 'data "aws_region"', 'data "aws_regionn"', "the provider has no data aws_regionn"),
    "list for a number": ("storage.tf", "size              = var", "size = [1] #", "takes a number, not [1]"),
    "text for a number": ("reaper.tf", "= 600", '= "ten"', "timeout: takes a number"),
    "number for a list": ("reaper.tf", '["arm64"]', "64", "architectures: takes a list of string, not 64"),
    "text for a truth": ("storage.tf", "encrypted         = true", 'encrypted         = "yes"', "takes a boolean"),
    "block as an argument": ("control.tf", "  metadata_options {", "  metadata_options = {", "is a block, not"),
    "argument as a block": ("alarms.tf", "dimensions          = { F", "dimensions { F", "dimensions: is no block"),
    "block twice": ("control.tf", "  root_block_device {", "  root_block_device {\n}\n root_block_device {", "once"),
    "variable": ("main.tf", "var.tags", "var.tagz", "reads var.tagz, which is not declared"),
    "local": ("outputs.tf", "local.reaper_period_s", "local.period", "reads local.period, which is not declared"),
    "reference": ("outputs.tf", "aws_instance.control.id", "aws_instance.controll.id", "controll, which is not"),
    "attribute": ("outputs.tf", "aws_s3_bucket.own.id", "aws_s3_bucket.own.ident", "own.ident, which it does not tell"),
    "of data": ("control.tf", "aws_subnet.control.id\n  sec", "aws_subnet.control.no\n  sec", "which it does not"),
    "unused variable": ("main.tf", "merge(var.tags, ", "merge({}, ", "variable.tags: nothing reads it"),
    "undescribed": ("outputs.tf", '  description = "The dispatcher\'s identity."\n', "", "has no description"),
    "version": ("versions.tf", ">= 6.0, < 7.0", ">= 5.0, < 6.0", "does not admit it"),
    "source": ("versions.tf", '"hashicorp/aws"', '"hashycorp/aws"', "comes from hashicorp/aws"),
    "dynamic": ("alarms.tf", 'dynamic "notification"', 'dynamic "notifications"', "has no argument notifications"),
    "in a dynamic": ("alarms.tf", "threshold_type ", "thresholds_type ", "has no argument thresholds_type"),
}  # fmt: skip


#: The same, of what Terraform has itself.
PLANTED_GCP = {
    "argument": ("reaper.tf", "  input = {", "  inputs = {", "terraform_data.end_everything: has no argument inputs"),
    "attribute": ("control.tf", "[terraform_data.user_data]", "[terraform_data.user_data.hash]", "hash, which it does"),
    "provisioner": ("reaper.tf", '"local-exec"', '"remote-exec"', 'provisioner "remote-exec" is not for use here'),
    "of a provisioner": ("reaper.tf", "    command =", "    comand =", "provisioner: has no argument comand"),
    "command": ("reaper.tf", "    command =", "    comand =", "provisioner: lacks command"),
    "gone": ("reaper.tf", "URL       = self.input.url", "URL = local.name", "reads local.name where only self is"),
}  # fmt: skip


def found(folder: Path) -> list[str]:
    return [str(one) for one in check(hcl.load(folder))]


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_is_found(mistake: str, tmp_path: Path) -> None:
    file, old, new, said = PLANTED[mistake]
    shutil.copytree(MODULES / "aws", tmp_path / "aws")
    text = (tmp_path / "aws" / file).read_text()
    assert old in text
    (tmp_path / "aws" / file).write_text(text.replace(old, new, 1))
    lines = found(tmp_path / "aws")
    assert any(said in line for line in lines), lines
    assert all(line.startswith(tuple(path.name for path in MODULES.rglob("*.tf"))) for line in lines)


@pytest.mark.parametrize("mistake", PLANTED_GCP)
def test_a_mistake_in_what_terraform_has_itself_is_found(mistake: str, tmp_path: Path) -> None:
    file, old, new, said = PLANTED_GCP[mistake]
    shutil.copytree(MODULES / "gcp", tmp_path / "gcp")
    text = (tmp_path / "gcp" / file).read_text()
    assert old in text
    (tmp_path / "gcp" / file).write_text(text.replace(old, new, 1))
    assert any(said in line for line in found(tmp_path / "gcp")), found(tmp_path / "gcp")


def test_a_circle_is_found(tmp_path: Path) -> None:
    """What is ended before the reaper's last call must not be what the call needs."""
    shutil.copytree(MODULES / "gcp", tmp_path / "gcp")
    text = (tmp_path / "gcp" / "reaper.tf").read_text()
    wrong = text.replace("google_compute_subnetwork.own,", "google_compute_instance.control,", 1)
    (tmp_path / "gcp" / "reaper.tf").write_text(wrong)
    with pytest.raises(ValueError, match=r"control -> terraform_data\.end_everything -> google"):
        graph.needs(hcl.load(tmp_path / "gcp"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('deployment   = "lab"', 'deploymnt   = "lab"', "the module has no variable deploymnt"),
        ("  day_limit    = 50\n", "", "module.cloud_dispatch: lacks day_limit"),
        ("value       = module.cloud_dispatch", "value = module.cloud_dispatch.uri", "which the module does not tell"),
        ('"../../modules/aws"', '"../../modules/awz"', "is no folder here"),
        ('region = "us-east-1"', 'regoin = "us-east-1"', "has no argument regoin"),
    ],
)
def test_a_mistake_in_the_use_of_a_module_is_found(old: str, new: str, said: str, tmp_path: Path) -> None:
    shutil.copytree(MODULES.parent, tmp_path / "terraform")
    folder = tmp_path / "terraform" / EXAMPLES.name / "aws-smallest"
    text = (folder / "main.tf").read_text()
    assert old in text
    (folder / "main.tf").write_text(text.replace(old, new, 1))
    assert any(said in line for line in found(folder)), found(folder)
