"""Every module and example: what Terraform's own tools and the providers' official schemas say of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terraform import graph, hcl
from tests.terraform.checker import SCHEMAS, check, schema
from tests.terraform.rendering import EXAMPLES, MODULES

ROOT = MODULES.parent
TERRAFORM = shutil.which("terraform")
FOLDERS = sorted({file.parent for file in ROOT.rglob("*.tf")})


def test_there_is_something_to_check() -> None:
    assert {folder.parent for folder in FOLDERS} == {MODULES, EXAMPLES}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_it_is_what_the_providers_take(folder: Path) -> None:
    """Types, arguments, blocks, what is required, what is read of others; and nothing is declared that nobody reads."""
    assert [str(one) for one in check(hcl.load(folder))] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_nothing_needs_itself(folder: Path) -> None:
    """Terraform can make it in some order, and destroy it in the other one."""
    assert graph.needs(hcl.load(folder)) or folder.parent == EXAMPLES


@pytest.mark.skipif(TERRAFORM is None, reason="terraform is not on this machine")
def test_it_is_written_as_terraform_writes_it() -> None:
    done = subprocess.run(
        [str(TERRAFORM), "fmt", "-check", "-recursive", str(ROOT)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_every_input_that_is_free_text_is_validated(folder: Path) -> None:
    """Where a wrong one would only be found by a cloud, minutes later; or by a shell."""
    free = ("deployment", "package", "cidr", "operator_cidrs", "alarm_emails", "day_limit", "month_limit")
    found = hcl.load(folder).named("variable")
    assert [name for name in free if name in found and "validation" not in found[name].body] == []


def test_the_control_vm_gets_the_release_that_the_modules_come_with() -> None:
    """The last one of the changelog, in what the modules say by themselves and in the examples: a change of something
    else brings no newer one along."""
    changes = (ROOT.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    (release, *_) = re.findall(r"(?m)^## \[(\d+\.\d+\.\d+)\]", changes)
    texts = [file.read_text(encoding="utf-8") for file in ROOT.rglob("*.tf")]
    said = [one for text in texts for one in re.findall(r'"cloud-dispatch\[[a-z,]+\]([^"]*)"', text)]
    assert said == [f"=={release}"] * 4  # three modules, and the example with all their extras


def test_the_extract_of_the_schemas_is_of_what_is_used() -> None:
    """One provider a file, of one version; a type that nobody uses any more goes with the next extract."""
    for file in SCHEMAS.glob("*.json"):
        told = schema(file.stem)
        assert told["source"] == f"hashicorp/{file.stem}"
        assert told["version"].count(".") == 2
        assert told["package"].startswith(f"cdktf-cdktf-provider-{file.stem} ")
    used = {one.labels[0] for folder in FOLDERS for one in hcl.load(folder).blocks if one.kind in ("resource", "data")}
    schemas = [schema(file.stem) for file in SCHEMAS.glob("*.json")]
    assert {name for one in schemas for kind in ("resource", "data") for name in one[kind]} == used - {"terraform_data"}
