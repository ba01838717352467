"""The wheel holds everything that the product needs at run time, and nothing else."""

from __future__ import annotations

import configparser
import re
import zipfile
from collections.abc import Iterable
from email import message_from_string
from pathlib import Path, PurePosixPath

import pytest

from tests.architecture.source import ROOT, files_in_git

pytestmark = [pytest.mark.tools, pytest.mark.xdist_group("packaging"), pytest.mark.timeout(300)]


def in_wheel(path: str) -> str | None:
    """Where a file of the checkout has to be in the wheel, or None when it has no business there."""
    first, _, rest = path.partition("/")
    homes = {"cloud_dispatch": path, "providers": rest, "cloud-init": f"cloud_dispatch/cloudinit/templates/{rest}"}
    return homes.get(first) if rest else None


def absent(checkout: Iterable[str], wheel: frozenset[str]) -> list[str]:
    """The files of the checkout that the wheel should hold and does not."""
    return [path for path in checkout if (place := in_wheel(path)) is not None and place not in wheel]


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [entry for entry in archive.namelist() if entry.endswith(f".dist-info/{name}")]
        return archive.read(path).decode()


def test_every_module_template_and_resource_is_in_the_wheel(names_in_wheel: frozenset[str]) -> None:
    """Each file that git has of the core, the drivers and the boot templates travels in the wheel."""
    assert absent(files_in_git(), names_in_wheel) == []


def test_a_template_that_the_wheel_lacks_is_found() -> None:
    """Templates, migrations, drivers and modules that are planted in a checkout and not in a wheel are found."""
    checkout = ["README.md", "cloud-init/agent.yaml.j2", "providers/cloud_dispatch_x/__init__.py", "tests/test_a.py"]
    assert absent(checkout, frozenset({"cloud-init/agent.yaml.j2"})) == checkout[1:3]
    assert absent(checkout, frozenset(filter(None, map(in_wheel, checkout)))) == []


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("boot templates", r"cloud_dispatch/cloudinit/templates/.+\.j2"),
        ("sources of the agent", r"cloud_dispatch/agent/__main__\.py"),
        ("wire messages", r"cloud_dispatch/wire/messages\.py"),
        ("migration environment", r"cloud_dispatch/statestore/migrations/env\.py"),
        ("migrations", r"cloud_dispatch/statestore/migrations/versions/.+\.py"),
        ("AWS driver", r"cloud_dispatch_aws/__init__\.py"),
        ("AWS prices", r"cloud_dispatch_aws/prices\.toml"),
        ("Azure driver", r"cloud_dispatch_azure/__init__\.py"),
        ("Azure prices", r"cloud_dispatch_azure/prices\.toml"),
        ("local driver", r"cloud_dispatch_local/__init__\.py"),
        ("type marker", r"cloud_dispatch/py\.typed"),
        ("licence", r".+\.dist-info/licenses/LICENSE"),
    ],
)
def test_what_is_read_at_run_time_is_in_the_wheel(what: str, pattern: str, names_in_wheel: frozenset[str]) -> None:
    """What the dispatcher opens or serves by path, rather than imports, is there by name."""
    assert [name for name in names_in_wheel if re.fullmatch(pattern, name)], f"no {what} in the wheel"


def test_nothing_else_is_in_the_wheel(names_in_wheel: frozenset[str]) -> None:
    """Tests, benchmarks and tools stay at home, and so does whatever was compiled on the way."""
    tops = {PurePosixPath(name).parts[0] for name in names_in_wheel}
    packages = {path.parent.name for path in (ROOT / "providers").glob("*/__init__.py")} | {"cloud_dispatch"}
    assert {top for top in tops if not top.endswith(".dist-info")} == packages
    assert not [name for name in names_in_wheel if name.endswith((".pyc", ".sqlite3"))]


def test_the_metadata_offers_the_command_the_drivers_and_the_extras(wheel: Path) -> None:
    """The installed distribution has its command, its drivers by entry point, its extras, and no other core need."""
    entry_points = configparser.ConfigParser()
    entry_points.read_string(metadata(wheel, "entry_points.txt"))
    assert entry_points["console_scripts"]["cloud-dispatch"] == "cloud_dispatch.cli.main:main"
    for name in ("aws", "local"):
        assert entry_points["cloud_dispatch.providers"][name] == f"cloud_dispatch_{name}:plugin"
    described = message_from_string(metadata(wheel, "METADATA"))
    assert {"aws", "gcp", "azure", "postgres", "all"} <= set(described.get_all("Provides-Extra", []))
    core = [need for need in described.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert not [need for need in core if re.match("boto|google|azure|psycopg", need)]
