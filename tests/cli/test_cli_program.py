"""What a command line loads before it does anything: its own module, and nothing heavy for help."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from cloud_dispatch.cli.exitcodes import UNAVAILABLE
from cloud_dispatch.cli.main import MODULES, program
from tests.cli.test_cli_commands import COMMANDS, tree


def signature(command: Any) -> Any:
    """What a command is called with and says of itself."""
    return (command.name, command.help, command.hidden, [(p.name, p.opts, p.secondary_opts) for p in command.params])


@pytest.mark.parametrize("module", MODULES)
def test_a_module_alone_has_its_commands_as_all_have_them(module: str) -> None:
    """Those, and no others, are found by their first word: a command line loads no other module."""
    alone = program(module)
    assert set(alone.commands) == set(MODULES[module])  # type: ignore[attr-defined]
    whole = {path: signature(command) for path, command in COMMANDS if path[0] in MODULES[module]}
    assert {path: signature(command) for path, command in tree(alone)} == whole


def test_a_command_loads_its_module_alone() -> None:
    """Of the others nothing is made, which would take most of its start."""
    code = (
        "import sys\nfrom cloud_dispatch.cli.main import MODULES, run\nrun(['stop', '--help'])\n"
        "print([m for m in MODULES if f'cloud_dispatch.cli.{m}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "['stop']"


def test_help_loads_nothing_heavy() -> None:
    """Help is quick: neither HTTP nor the configuration nor the dispatcher is loaded for it."""
    code = (
        "import sys\nfrom cloud_dispatch.cli.main import run\nrun(['--help'])\n"
        "print([m for m in ('httpx', 'pydantic', 'sqlalchemy', 'starlette', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_client_of_another_host_loads_no_configuration() -> None:
    """It has none there, and its start would take twice as long."""
    code = (
        "import sys\nfrom cloud_dispatch.cli.main import run\ncode = run(['tasks'])\n"
        "print(code, 'cloud_dispatch.client.client' in sys.modules, 'cloud_dispatch.config' in sys.modules)"
    )
    there = {**os.environ, "CLOUD_DISPATCH_URL": "http://127.0.0.1:9", "CLOUD_DISPATCH_TOKEN": "x"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=there
    )
    assert done.stdout.splitlines()[-1] == f"{UNAVAILABLE} True False"
