"""The zipapp that the dispatcher serves: the same bytes every time, and nothing needed but a Python 3.9."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest

from cloud_dispatch import __version__, agent, agentzip
from cloud_dispatch.agentzip import build
from tests.agent.conftest import RunningAgent
from tests.agent.stub import StubDispatcher

ROOT = Path(__file__).parents[2]


def test_the_same_sources_give_the_same_bytes() -> None:
    """So that its hash names a version of the agent."""
    body, digest = build()
    assert (body, digest) == build()
    assert len(digest) == 64


def test_it_holds_the_wire_and_the_agent_and_nothing_else() -> None:
    """The rest of the product has no business on a VM."""
    names = zipfile.ZipFile(io.BytesIO(build()[0])).namelist()
    assert names == sorted(names)
    assert {"/".join(name.split("/")[:2]) for name in names} == {
        "__main__.py",
        "cloud_dispatch/__init__.py",
        "cloud_dispatch/agent",
        "cloud_dispatch/wire",
    }


def test_it_is_of_the_version_that_serves_it() -> None:
    """What an agent says of itself when it registers is the minor version of the distribution that it came with: of the
    next release, until there is one (tools/release.py asks it of that too). Commits between don't change its bytes."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["fallback-version"]
    assert told.split(".")[:2] == agent.VERSION.split(".")
    with zipfile.ZipFile(io.BytesIO(build()[0])) as archive:
        assert not [name for name in archive.namelist() if __version__.encode() in archive.read(name)]


def test_its_entry_parses_on_any_python() -> None:
    """The sentence about an old Python must be said by that old Python: no newer syntax in it."""
    entry = zipfile.ZipFile(io.BytesIO(build()[0])).read("__main__.py").decode()
    tree = ast.parse(entry, feature_version=(3, 4))
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.AnnAssign))]
    assert "from __future__" not in entry


def test_an_old_python_is_told_what_is_needed(agent_zip: Path, tmp_path: Path) -> None:
    """One line and exit code 2; the version is the only thing pretended here."""
    entry = zipfile.ZipFile(agent_zip).read("__main__.py").decode()
    pretend = f"import sys; sys.version_info = (3, 8, 0); exec({entry!r})"
    done = subprocess.run([sys.executable, "-c", pretend], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stderr.startswith("cloud-dispatch agent: needs Python 3.9 or newer, this is ")
    assert done.stderr.count("\n") == 1


@cache
def other_pythons() -> list[str]:
    """Pythons from 3.9 on that this machine has beside the one that runs the tests."""
    candidates = [shutil.which(f"python3.{minor}") for minor in (9, 10, 12, 13)]
    return [path for path in candidates if path and runs(path)]


def runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, timeout=20).returncode == 0


@pytest.mark.process
@pytest.mark.parametrize("python", [sys.executable, *other_pythons()], ids=lambda path: os.path.basename(path))
def test_it_runs_isolated_on_every_python_there_is(
    stub: StubDispatcher, tmp_path: Path, agent_zip: Path, python: str
) -> None:
    """`python -S -I agent.pyz CONFIG` needs no site-packages and no environment."""
    agent = RunningAgent(tmp_path, agent_zip, stub.url, python)
    try:
        result = stub.result(stub.submit(shell="echo $CLOUD_DISPATCH_INSTANCE"))
        assert bytes(stub.logs[result.token]) == b"batch-0\n"
    finally:
        agent.stop()


@pytest.mark.process
def test_it_loads_no_more_than_the_standard_library(agent_zip: Path) -> None:
    """Everything that the agent imports comes from the zip or from Python itself."""
    script = (
        f"import sys; sys.path.insert(0, {str(agent_zip)!r})\n"
        "import cloud_dispatch.agent.incarnation, cloud_dispatch.agent.shell, cloud_dispatch.agent.supervisor\n"
        "print([n for n, m in sys.modules.items() if 'site-packages' in (getattr(m, '__file__', '') or '')])\n"
        "print(sorted({n.split('.')[1] for n in sys.modules if n.startswith('cloud_dispatch.')}))"
    )
    done = subprocess.run([sys.executable, "-S", "-I", "-c", script], capture_output=True, text=True, timeout=20)
    assert done.stdout.splitlines() == ["[]", "['agent', 'wire']"]


def test_a_registration_waits_for_nothing_that_only_tasks_need(agent_zip: Path) -> None:
    """What runs tasks is a third of the agent's own code, and is loaded once the dispatcher knows the VM."""
    script = (
        f"import sys; sys.path.insert(0, {str(agent_zip)!r})\n"
        "import cloud_dispatch.agent.incarnation\n"
        "print(*(n.rpartition('.')[2] for n in sys.modules if n.startswith('cloud_dispatch.agent.')))"
    )
    done = subprocess.run([sys.executable, "-S", "-I", "-c", script], capture_output=True, text=True, timeout=20)
    loaded = set(done.stdout.split())
    assert {"register", "channel", "identity"} <= loaded
    assert not {"shell", "machine", "attempt", "events", "courier", "uploads", "logs"} & loaded


def test_what_only_people_read_stays_at_home() -> None:
    """Neither comments nor docstrings travel; what runs is the same, on the lines of the source."""
    archive = zipfile.ZipFile(io.BytesIO(build()[0]))
    for name in archive.namelist():
        if name == "__main__.py" or name == "cloud_dispatch/__init__.py":
            continue
        source, sent = (ROOT / name).read_text(), archive.read(name).decode()
        assert "#" not in "".join(re.sub(r"\".*?\"", "", line) for line in sent.splitlines()), name
        assert code(sent) == code(source), name


def code(source: str) -> list[str]:
    """All statements with their places, but for docstrings and what stands for them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            bare = [ast.dump(part) for part in ast.iter_child_nodes(node) if not isinstance(part, ast.stmt)]
            found.append(f"{node.lineno} {node.col_offset} {type(node).__name__} {bare}")
    return sorted(found)


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("'''Prose.'''\nx = 1  # why\n", "\nx = 1\n"),
        ("def f():\n\t'''Prose.'''\n", "def f():\n\t0\n"),
        ("'''Prose.'''\n#", "\n"),
        ("def f():\n    '''Prose\n\n    of lines # and so on'''\n", "def f():\n    0\n\n\n"),
        ("x = '#' + \"'#\" + r'\\#'  # '\n", "x = '#' + \"'#\" + r'\\#'\n"),
        ("x = (  # two\n    'a'\n    '#b'  # that are one\n)\n", "x = (\n    'a'\n    '#b'\n)\n"),
        ("x = {\n    'no prose',\n}\n", "x = {\n    'no prose',\n}\n"),
        ("x = \\\n    'no prose'\n", "x = \\\n    'no prose'\n"),
        ("'no prose'.strip()  # at all\n", "'no prose'.strip()\n"),
        ("x = '''\n# no comment\n'''\n", "x = '''\n# no comment\n'''\n"),
    ],
)
def test_strings_that_are_values_stay(source: str, sent: str) -> None:
    """Whatever looks like a comment inside of them, and wherever they stand."""
    assert agentzip.slim(source) == sent


def test_it_stays_small() -> None:
    """Every VM of a fleet fetches it while it boots: less than 100 KB."""
    assert len(build()[0]) < 100_000


def test_the_agents_of_the_last_dispatchers_are_kept(tmp_path: Path) -> None:
    """A few, the newest; one that was damaged is not served as what it is not."""
    bodies = {hashlib.sha256(body).hexdigest(): body for body in (b"one", b"two", b"three", b"four", b"five")}
    for age, (name, body) in enumerate(bodies.items()):
        known = agentzip.former(tmp_path / "agents", body, name)
        os.utime(tmp_path / "agents" / f"{name}.pyz", (age, age))
    *before, last = bodies
    assert known == {name: bodies[name] for name in before[-3:]}
    (tmp_path / "agents" / f"{before[-1]}.pyz").write_bytes(b"damaged")
    again = agentzip.former(tmp_path / "agents", bodies[last], last)
    assert set(again) == set(before[-3:-1])


@pytest.mark.process
@pytest.mark.parametrize("python", [sys.executable, *other_pythons()], ids=lambda path: os.path.basename(path))
def test_each_of_its_modules_is_compiled_once(agent_zip: Path, python: str) -> None:
    """zipimport alone does it twice. Modules still know the file that they are from, for whoever reads a traceback."""
    script = (
        "import runpy, sys, zipimport\n"
        "seen, original = [], zipimport._compile_source\n"
        "zipimport._compile_source = lambda path, source: (seen.append(path), original(path, source))[1]\n"
        f"sys.argv = [{str(agent_zip)!r}]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit: pass\n"
        "from cloud_dispatch import agent; from cloud_dispatch.agent import incarnation\n"
        "print(agent.__file__, incarnation.__file__)\n"
        "print(len(seen) > 20, [path for path in seen if 'cloud_dispatch' in path and seen.count(path) != 1])"
    )
    done = subprocess.run([python, "-S", "-I", "-c", script], capture_output=True, text=True, timeout=20)
    folder = f"{agent_zip}/cloud_dispatch/agent"
    assert done.stdout.splitlines() == [f"{folder}/__init__.py {folder}/incarnation.py", "True []"], done.stderr
