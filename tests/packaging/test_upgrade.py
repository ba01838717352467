"""Two wheels, two environments, one statestore: a dispatcher is upgraded and taken back while tasks run, and each of
them ends once with its result.

The later version is this one under another number, with tables that this one does not know. Stood in for is systemd:
what it is told to start is started here.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict, Unavailable
from cloud_dispatch.install import host, upgrading, versions
from cloud_dispatch.install.upgrading import Machine
from cloud_dispatch.install.versions import Home, Wanted
from tests.packaging.conftest import BUILD_TIMEOUT_SECONDS, ROOT
from tests.system.house import House

pytestmark = [pytest.mark.tools, pytest.mark.xdist_group("packaging"), pytest.mark.process, pytest.mark.timeout(600)]
LATER = "9.9.9"
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "{head}", None, None


def upgrade():
    op.create_table("later", sa.Column("word", sa.Text(), nullable=False))
    op.execute("INSERT INTO later (word) VALUES ('known to later versions')")
    op.add_column("tasks", sa.Column("mood", sa.Text(), nullable=True))


def downgrade():
    op.drop_table("later")
    with op.batch_alter_table("tasks") as table:
        table.drop_column("mood")
"""
WAITS = "echo begin >> {marks}; while [ ! -e {go} ]; do sleep 0.05; done; echo end"


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a later version."""
    tree = tmp_path_factory.mktemp("later")
    for name in ("cloud_dispatch", "providers", "terraform"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", ".terraform"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    steps = tree / "cloud_dispatch" / "statestore" / "migrations" / "versions"
    head = max(path.name for path in steps.glob("0*.py"))[:4]
    (steps / "9999_later.py").write_text(MIGRATION.format(head=head))
    return built(tree, tmp_path_factory.mktemp("later-dist"))


def built(tree: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(tree)]
    numbered = {**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": LATER}  # the tree has no history to have one from
    run = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_SECONDS, cwd=out, env=numbered)
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


class Control(House):
    """A control VM in a folder: the dispatcher is whichever program its home says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, idle="60s", lease="20s")
        self.home = Home(folder / "opt")
        self.machine = Machine(self.home, self.config, "root", self.run, lambda seconds: time.sleep(0.1))
        self.copies = 0
        self.first = ""  # its version at the start

    def command(self, *words: str) -> list[str]:
        return [str(self.home.program), *words, "--config", str(self.config)]

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(self, words: Sequence[str]) -> str:
        """As `host.run`; what is systemd's is done here, and nothing is fetched."""
        if words[0] == "systemctl":
            self.systemctl(*words[1:])
            return ""
        if words[1] == "install":
            return ""  # its units would be this machine's
        if "pip" in words:
            return host.run([*words[:-1], "--no-deps", "--no-index", words[-1]])
        said = host.run(words)
        if "venv" in words:
            self.lend(Path(words[-1]))
        return said

    def lend(self, environment: Path) -> None:
        """What the program needs beside itself is this environment's."""
        (packages,) = environment.glob("lib/python*/site-packages")
        (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))

    def systemctl(self, *words: str) -> None:
        if words[0] in ("stop", "restart") and self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        if words[0] in ("start", "restart"):
            if "backup" in words[1]:
                self.copies += 1
                host.run(self.command("backup", "--into", str(self.state / "backups" / str(self.copies))))
                return
            try:
                self.up()
            except AssertionError as error:
                raise Unavailable(str(error)) from None
        if words[0] == "is-active" and (self.process is None or self.process.poll() is not None):
            raise Unavailable("inactive")

    def version(self) -> str:
        return str(self.get("/v1/health")["version"])


@pytest.fixture
def control(tmp_path: Path, wheel: Path) -> Iterator[Control]:
    """This version runs, in the home's first environment."""
    made = Control(tmp_path)
    first = Wanted.of(str(wheel), ())
    host.run([sys.executable, "-m", "venv", "--without-pip", str(made.home.root)])
    made.lend(made.home.root)  # pip too: to unpack another takes seconds
    made.run([str(made.home.root / "bin" / "python"), "-m", "pip", "install", "--quiet", first.requirement])
    made.home.point(made.home.root)
    made.first = wheel.name.split("-")[1]
    made.up()
    yield made
    made.clean_up()


def test_tasks_run_through_an_upgrade_and_back(control: Control, later: Path, tmp_path: Path) -> None:
    """One from before, one that the later version was given, one that waits through all of it."""
    go, marks = tmp_path / "go", tmp_path / "marks"
    assert control.version() == control.first
    first = control.submit({"command": ["sh", "-c", WAITS.format(go=go, marks=marks)]})
    control.until(lambda: marks.exists(), 30, "it runs")
    upgrading.upgrade(control.machine, Wanted.of(str(later), ()), control.home.root, lambda text: None)
    assert control.version() == LATER
    assert control.copies == 1
    second = control.submit({"command": ["sh", "-c", WAITS.format(go=go, marks=marks)]})
    control.until(lambda: marks.read_text() == "begin\n" * 2, 30, "it runs beside the first")
    waiting = control.submit({"command": ["sh", "-c", f"echo begin >> {marks}; echo end"], "cpus": 2})

    assert upgrading.roll_back(control.machine, lambda text: None) == control.home.root
    assert control.version() == control.first
    assert control.copies == 2
    go.write_text("")
    for (number,) in (first, second, waiting):
        ended = control.until_ended(number)
        assert (ended["state"], ended["attempts"]) == ("succeeded", 1)
        assert control.logs(number) == b"end\n"
    assert marks.read_text() == "begin\n" * 3, "each ran once"


def test_one_that_does_not_come_up_makes_way_for_the_one_before(
    control: Control, later: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has migrated the store when it fails, which the version of before could not read: the store is taken back."""
    go, marks = tmp_path / "go", tmp_path / "marks"
    (number,) = control.submit({"command": ["sh", "-c", WAITS.format(go=go, marks=marks)]})
    control.until(lambda: marks.exists(), 30, "it runs")
    fill = versions.make

    def spoilt(environment: Path, given: object) -> None:
        fill(environment, given)  # type: ignore[arg-type]
        (server,) = environment.glob("lib/python*/site-packages/cloud_dispatch/api/server.py")
        server.write_text(server.read_text().replace("listener = _bind(listen)", 'raise SystemExit("spoilt")'))

    monkeypatch.setattr(versions, "make", spoilt)
    with pytest.raises(Unavailable, match="does not come up, the one before runs again"):
        upgrading.upgrade(control.machine, Wanted.of(str(later), ()), control.home.root, lambda text: None)
    assert "spoilt" in control.log_tail(500)
    assert control.version() == control.first
    go.write_text("")
    assert (control.until_ended(number)["state"], control.task(number)["attempts"]) == ("succeeded", 1)
    with pytest.raises(Conflict):
        upgrading.roll_back(control.machine, lambda text: None)
