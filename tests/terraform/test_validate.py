"""What Terraform itself says, where the providers' plugins are on this machine.

`TERRAFORM_PLUGINS` names a folder with them, as `terraform providers mirror FOLDER` fills it. `TERRAFORM_PLAN` names
examples whose plan is asked of the cloud, with the credentials of the environment; a plan changes nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terraform.rendering import EXAMPLES, MODULES

ROOT = MODULES.parents[1]
TERRAFORM = shutil.which("terraform")
PLUGINS = os.environ.get("TERRAFORM_PLUGINS", "")
PLANNED = os.environ.get("TERRAFORM_PLAN", "").split()
USED = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())

pytestmark = pytest.mark.tools
here = pytest.mark.skipif(TERRAFORM is None, reason="terraform is not on this machine")
plugged = pytest.mark.skipif(not PLUGINS, reason="TERRAFORM_PLUGINS names no folder with the providers' plugins")


class Copy:
    """The tree in a folder of its own, which Terraform writes its data into. `plugins`: the only ones that it has."""

    def __init__(self, folder: Path, plugins: str) -> None:
        self.tree = folder / "tree"
        ignore = shutil.ignore_patterns(".terraform*", "__pycache__", "*.tfstate*")
        shutil.copytree(ROOT / "terraform", self.tree / "terraform", ignore=ignore)
        (self.tree / "cloud_dispatch").symlink_to(ROOT / "cloud_dispatch")
        own = folder / "terraform.rc"
        own.write_text(
            f"provider_installation {{\n  filesystem_mirror {{\n    path = {json.dumps(plugins)}\n  }}\n}}\n"
        )
        self.environment = {**os.environ, "TF_CLI_CONFIG_FILE": str(own), "TF_IN_AUTOMATION": "1", "TF_INPUT": "0"}

    def asked(self, folder: Path, *words: str) -> tuple[int, str]:
        """What Terraform says there, to `words`, and with which exit code."""
        command = [str(TERRAFORM), f"-chdir={folder}", *words, "-no-color"]
        environment = {**self.environment, "TF_DATA_DIR": str(folder / ".terraform")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)
        return done.returncode, done.stdout + done.stderr

    def validated(self, folder: Path) -> tuple[int, str]:
        code, said = self.asked(folder, "init", "-backend=false")
        return (code, said) if code else self.asked(folder, "validate")


@here
def test_a_mistake_is_told(tmp_path: Path) -> None:
    """The way of asking works: without any provider, a good configuration is good and a wrong one is not."""
    copy = Copy(tmp_path, str(tmp_path))
    folder = copy.tree / "own"
    folder.mkdir()
    (folder / "main.tf").write_text('resource "terraform_data" "one" {\n  input = "a"\n}\n')
    assert copy.validated(folder)[0] == 0
    (folder / "main.tf").write_text('resource "terraform_data" "one" {\n  inputs = "a"\n}\n')
    code, said = copy.validated(folder)
    assert (code, "Unsupported argument" in said) == (1, True)


@here
@plugged
@pytest.mark.parametrize("name", USED)
def test_an_example_is_valid(tmp_path: Path, name: str) -> None:
    copy = Copy(tmp_path, PLUGINS)
    code, said = copy.validated(copy.tree / "terraform" / "examples" / name)
    assert code == 0, said


@here
@plugged
@pytest.mark.skipif(not PLANNED, reason="TERRAFORM_PLAN names no example")
@pytest.mark.parametrize("name", PLANNED)
def test_an_example_can_be_planned(tmp_path: Path, name: str) -> None:
    copy = Copy(tmp_path, PLUGINS)
    folder = copy.tree / "terraform" / "examples" / name
    assert copy.validated(folder)[0] == 0
    code, said = copy.asked(folder, "plan", "-lock=false")
    assert code == 0, said


def test_every_module_is_in_an_example() -> None:
    """Examples are what is asked about: a module that is in none would go unasked."""
    sources = "".join(file.read_text() for file in EXAMPLES.rglob("*.tf"))
    modules = {folder.name for folder in MODULES.iterdir() if any(folder.glob("*.tf"))}
    assert {name for name in modules if f'"../../modules/{name}"' not in sources} == set()
