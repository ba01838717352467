"""The import contracts hold, cover every driver, and break when they are violated."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import CORE, DRIVERS, ROOT

CONFIG = ".importlinter"
LINT_TIMEOUT_SECONDS = 100


def contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / CONFIG)
    return parser


def lint(folder: Path) -> tuple[int, str]:
    """The exit code and output of the import linter for the tree in `folder`."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{folder / DRIVERS}", "COLUMNS": "200"}
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    command = [sys.executable, "-c", code, "--config", CONFIG, "--no-cache"]
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LINT_TIMEOUT_SECONDS
    )
    return run.returncode, run.stdout + run.stderr


def drivers() -> set[str]:
    return {path.parent.name for path in (ROOT / DRIVERS).glob("cloud_dispatch_*/__init__.py")}


def test_the_contracts_hold() -> None:
    """Nobody imports what its layer must not know."""
    code, output = lint(ROOT)
    assert code == 0, output


def test_every_driver_is_under_contract() -> None:
    """A driver that is added to the tree must be added to every contract about drivers."""
    parser = contracts()

    def listed(section: str, key: str) -> set[str]:
        return {name for name in parser[section][key].split() if re.fullmatch("cloud_dispatch_[a-z0-9_]+", name)}

    assert listed("importlinter", "root_packages") == drivers()
    assert listed("importlinter:contract:no-provider", "forbidden_modules") == drivers()
    assert listed("importlinter:contract:drivers", "source_modules") == drivers()
    assert listed("importlinter:contract:drivers-apart", "modules") == drivers()


#: For each contract a line that breaks it, and the module that the line is planted in.
PLANTED = {
    "layers": ("statestore", "import cloud_dispatch.api"),
    "domain-pure": ("domain", "import asyncio"),
    "planner-pure": ("planner", "import time"),
    "spend-pure": ("spend", "import random"),
    "ports": ("ports", "import sqlalchemy"),
    "spi": ("provider/spi", "import structlog"),
    "wire": ("wire", "import cloud_dispatch.domain"),
    "agent": ("agent", "import cloud_dispatch.domain"),
    "store-only": ("reconcile", "import sqlalchemy"),
    "no-provider": ("telemetry", "import boto3"),
    "drivers": ("../providers/cloud_dispatch_local", "import cloud_dispatch.statestore"),
    "reapers": ("reapers", "import structlog"),
    "drivers-apart": ("../providers/cloud_dispatch_aws", "import cloud_dispatch_local"),
}


@pytest.fixture(scope="module")
def broken_tree(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The linter's output for an empty tree of the same packages with one violation of each contract planted."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / CONFIG, root / CONFIG)
    words = re.findall(rf"\b{CORE}\.([a-z.]+)", (ROOT / CONFIG).read_text())
    layers = re.findall(r"\((\w+)\)", contracts()["importlinter:contract:layers"]["layers"])
    for name in {*words, *layers, ""}:
        package = root / CORE / name.replace(".", "/")
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
    for name in drivers():
        (root / DRIVERS / name).mkdir(parents=True)
        (root / DRIVERS / name / "__init__.py").touch()
    for module, line in PLANTED.values():
        with (root / CORE / module / "__init__.py").open("a") as file:
            file.write(f"{line}\n")
    code, output = lint(root)
    assert code == 1, output
    return output


@pytest.mark.parametrize("contract", PLANTED)
def test_a_contract_breaks_when_it_is_violated(contract: str, broken_tree: str) -> None:
    """The violation planted for each contract is reported under that contract's name."""
    name = contracts()[f"importlinter:contract:{contract}"]["name"]
    assert re.search(rf"^{re.escape(name)}\s+BROKEN", broken_tree, re.MULTILINE), broken_tree


def test_every_contract_has_a_violation_planted() -> None:
    """A contract that no plant exercises may be worded so that it can't break; two drivers are needed for the last."""
    named = {section.rpartition(":")[2] for section in contracts().sections() if ":contract:" in section}
    assert named - set(PLANTED) == ({"drivers-apart"} if len(drivers()) < 2 else set())
