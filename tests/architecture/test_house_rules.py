"""The sources keep the rules of the house. Exemptions are listed here, each with its reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture import rules
from tests.architecture.source import ROOT, files_in_git, product, sources

#: Who may read a clock, draw chance or make identities. Everybody else is handed them.
CLOCK_EXEMPTIONS: dict[str, str] = {
    "cloud_dispatch/adapters/": "the real clock and the real entropy are made here",
    "cloud_dispatch/agent/adapters.py": "the agent's own adapters: it may import nothing but wire",
    "cloud_dispatch/cli/session.py": "a command is a composition root of its own: it waits in real time",
    "cloud_dispatch/reapers/aws.py": "the composition root of an account's function",
    "cloud_dispatch/reapers/gcp.py": "the composition root of a project's function",
    "cloud_dispatch/reapers/azure.py": "the composition root of a subscription's function",
    "cloud_dispatch/provider/process_child.py": "the composition root of a driver's process",
    "cloud_dispatch/statestore/patience.py": "how long a socket is silent: the driver waits on it in real time",
    "cloud_dispatch/testing/provider_contract_blocking.py": "whether a loop stands still its own clock can not tell",
    "providers/cloud_dispatch_local/vm.py": "the composition root of a local VM, a process of its own",
    "providers/cloud_dispatch_local/watch.py": "the composition root of the local watchdog, a process of its own",
}
#: Who may move work to threads or processes.
THREAD_EXEMPTIONS: dict[str, str] = {
    "cloud_dispatch/adapters/executors.py": "the adapter of the executor port",
    "cloud_dispatch/agent/adapters.py": "the agent's own adapters: it may import nothing but wire",
    "cloud_dispatch/provider/blocking.py": "the threads of a driver whose SDK blocks, in the driver's own process",
    "cloud_dispatch/reapers/gcp.py": "a project's function, which has no loop: it deletes several VMs at once",
    "cloud_dispatch/reapers/azure.py": "a function of its own: VMs past their ends would wait for each other's answers",
    "cloud_dispatch/provider/host.py": "the host that gives a driver an event loop in a thread of its own",
}
#: Empty, and meant to stay so: split what grows.
SIZE_EXEMPTIONS: dict[str, str] = {}
#: What a rented machine may import beyond the standard library.
ON_THE_MACHINE = ("cloud_dispatch.agent", "cloud_dispatch.wire")


def test_clock_chance_and_identity_are_injected() -> None:
    """Only the composition root and the adapters touch the real clock, chance and random identities."""
    assert not rules.unclocked(product(), CLOCK_EXEMPTIONS)


def test_work_leaves_the_loop_by_the_executor_port_only() -> None:
    """Nobody but the adapters of the executor port starts threads or processes for work."""
    assert not rules.threads(product(), THREAD_EXEMPTIONS)


def test_modules_and_functions_stay_short() -> None:
    """A module or function past the limit has a concept missing."""
    everything = sources("cloud_dispatch", "providers", "tools", "bench", "tests")
    assert not rules.oversized(everything, SIZE_EXEMPTIONS)


def test_what_runs_on_a_machine_is_python_39_and_needs_nothing() -> None:
    """The agent and the wire messages run on the Python that a machine has: 3.9 syntax, standard library only."""
    on_machine = sources("cloud_dispatch/agent", "cloud_dispatch/wire")
    assert on_machine
    assert not rules.beyond_python_39(on_machine, ON_THE_MACHINE)


def test_no_file_names_a_package_index_or_a_machine() -> None:
    """A checkout works anywhere: no file in git names the host of an index or a path of a developer's machine."""
    findings = []
    for path in files_in_git():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not text
        findings += rules.foreign(path, text)
    assert not findings


def vermin(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Run the detector of minimum versions; it exits with 1 for whatever needs more than Python 3.9."""
    command = [
        str(Path(sys.executable).with_name("vermin")),
        "--target=3.9-",
        "--violations",
        "--no-tips",
        *map(str, paths),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_what_runs_on_a_machine_uses_nothing_newer_than_python_39() -> None:
    """Functions, arguments and members of the standard library that came after 3.9 are not used on a machine."""
    found = vermin(ROOT / "cloud_dispatch" / "agent", ROOT / "cloud_dispatch" / "wire")
    assert found.returncode == 0, found.stdout


def test_a_newer_argument_is_found(tmp_path: Path) -> None:
    """An argument that 3.9 does not know is found although its syntax is old."""
    (tmp_path / "planted.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass(slots=True)\nclass A:\n    x: int\n"
    )
    found = vermin(tmp_path)
    assert found.returncode == 1
    assert "slots" in found.stdout
