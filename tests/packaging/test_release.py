"""A release is what is tagged, said in the changelog, and built twice to the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from cloud_dispatch import agent
from tests.architecture.source import ROOT, files_in_git
from tools import release

VERSION = f"{agent.VERSION}.7"
TAGGED_S = 1_795_000_000
SECTION = f"## [{VERSION}] - 2026-11-18\n\n### Added\n- Everything.\n\n## [0.1.0]"
pytestmark = [pytest.mark.tools, pytest.mark.xdist_group("packaging"), pytest.mark.timeout(300)]


def git(folder: Path, *words: str) -> None:
    named = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
             "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_COMMITTER_DATE": f"{TAGGED_S} +0000",
             "GIT_CONFIG_GLOBAL": os.devnull}  # fmt: skip
    subprocess.run(["git", *words], cwd=folder, env={**os.environ, **named}, check=True, capture_output=True)


def repository(folder: Path, names: Iterable[str]) -> Path:
    """Of these files of this very tree, whose changelog has a release, tagged."""
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    log = folder / "CHANGELOG.md"
    log.write_text(log.read_text().replace("## [0.1.0]", SECTION, 1))
    git(folder, "init", "-q")
    commit(folder)
    git(folder, "tag", f"v{VERSION}")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """All that is built from."""
    tops = ("cloud-init", "cloud_dispatch", "profiles", "providers")
    return repository(
        tmp_path / "checkout", [name for name in files_in_git() if "/" not in name or name.split("/")[0] in tops]
    )


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """What is looked at before anything is built."""
    return repository(tmp_path / "asked", ["CHANGELOG.md", "pyproject.toml", "cloud_dispatch/agent/__init__.py"])


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--no-gpg-sign", "-m", "all")


def tag_again(folder: Path) -> None:
    commit(folder)
    git(folder, "tag", "--force", f"v{VERSION}")


def test_a_release_is_built_to_the_same_bytes_and_has_its_checksums(checkout: Path, tmp_path: Path) -> None:
    """In folders of other names, with other umasks, time zones and hash seeds, and once by way of the sdist; of the
    version of the tag. What was in the folder before is gone."""
    out = tmp_path / "dist"
    out.mkdir()
    (out / "cloud_dispatch-0.0.1.tar.gz").write_text("old")
    assert release.release(checkout, out) == VERSION
    names = [f"cloud_dispatch-{VERSION}-py3-none-any.whl", f"cloud_dispatch-{VERSION}.tar.gz"]
    assert sorted(path.name for path in out.iterdir()) == ["SHA256SUMS", *names]
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("OK")) == (0, 2), done.stderr
    inside = release.members(names[1], (out / names[1]).read_bytes())
    assert f"cloud_dispatch-{VERSION}/profiles/aws/mixed.toml" in inside
    assert {facts[2] for facts in inside.values()} == {TAGGED_S}


def test_a_difference_is_found_and_named(checkout: Path, tmp_path: Path) -> None:
    """A build that writes the moment down, and one that writes its folder: neither is released, and nothing is left."""
    with (checkout / "pyproject.toml").open("a") as project:
        project.write('\n[tool.hatch.build.targets.wheel.hooks.custom]\npath = "stamp.py"\n')
        project.write('[tool.hatch.build.targets.sdist.force-include]\n"stamp.py" = "stamp.py"\n')
    (checkout / "stamp.py").write_text(
        "import pathlib, time\n"
        "from hatchling.builders.hooks.plugin.interface import BuildHookInterface\n"
        "class Stamp(BuildHookInterface):\n"
        "    def initialize(self, version, data):\n"
        "        said = pathlib.Path(self.root) / 'stamp.txt'\n"
        "        said.write_text(f'{time.time_ns()}')\n"
        "        data['force_include'][str(said)] = 'cloud_dispatch/stamp.txt'\n"
    )
    tag_again(checkout)
    with pytest.raises(release.Refused, match=r"whl: differs in .*cloud_dispatch/stamp.txt"):
        release.release(checkout, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_every_kind_of_difference_is_one() -> None:
    """Another file, other bytes; the same are none."""
    assert release.differences({"a.whl": b"1"}, {"a.whl": b"1"}) == []
    assert release.differences({"a.whl": b"1"}, {}) == ["a.whl: built once only"]


def no_tag(folder: Path) -> None:
    git(folder, "tag", "-d", f"v{VERSION}")


def another_tag(folder: Path) -> None:
    git(folder, "tag", "v9.9.9")


def dirty(folder: Path) -> None:
    (folder / "new.txt").touch()


def beyond(folder: Path) -> None:
    dirty(folder)
    commit(folder)


def undated(folder: Path) -> None:
    log = folder / "CHANGELOG.md"
    log.write_text(log.read_text().replace(" - 2026-11-18", "", 1))
    tag_again(folder)


def unsaid(folder: Path) -> None:
    log = folder / "CHANGELOG.md"
    log.write_text(log.read_text().replace(SECTION, "## [0.1.0]", 1))
    tag_again(folder)


def older_agent(folder: Path) -> None:
    (folder / "cloud_dispatch" / "agent" / "__init__.py").write_text('VERSION = "0.0"\n')
    tag_again(folder)


def older_fallback(folder: Path) -> None:
    project = folder / "pyproject.toml"
    project.write_text(project.read_text().replace('fallback-version = "', 'fallback-version = "9', 1))
    tag_again(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (no_tag, "expected one tag vX.Y.Z on what is checked out, got none"),
        (another_tag, f"got {VERSION}, 9.9.9"),
        (beyond, "expected one tag vX.Y.Z on what is checked out, got none"),
        (dirty, "the working tree has changes that are not committed"),
        (undated, f"{VERSION}: expected the day"),
        (unsaid, rf"expected \[{VERSION}\] as its newest release, got 0.1.0"),
        (older_agent, "agent/__init__.py: VERSION: expected that of"),
        (older_fallback, "fallback-version: expected that of"),
    ],
)
def test_what_is_not_ready_is_refused_before_it_is_built(
    asked: Path, tmp_path: Path, change: Callable[[Path], None], why: str
) -> None:
    """With the reason, and nothing is left."""
    assert release.problems(asked, release.version_of(asked)) == []
    change(asked)
    with pytest.raises(release.Refused, match=why):
        release.release(asked, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_without_history_there_is_a_version(checkout: Path, tmp_path: Path) -> None:
    """An archive of the sources, as people download them, and a clone without tags are built too, as what comes before
    the next release; after a tag it is what comes next."""
    place = release.Place("x", 0o022, "UTC", ("--wheel",))

    def version() -> str:
        out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        (name,) = release.built(checkout, out, place, TAGGED_S)
        return name.split("-")[1]

    beyond(checkout)
    assert version() == f"{agent.VERSION}.8.dev1"
    no_tag(checkout)
    assert version().startswith(f"{agent.VERSION}.0.dev")
    shutil.rmtree(checkout / ".git")
    assert version() == f"{agent.VERSION}.0.dev0"


def test_a_wheel_that_an_index_would_refuse_is_found(wheel: Path) -> None:
    """Of the metadata: what is not by the specification, and another version than the tag's."""
    body, version = wheel.read_bytes(), wheel.name.split("-")[1]
    assert release.metadata_problems(wheel.name, body, version) == []
    assert release.metadata_problems(wheel.name, body, "1.2.3") == [f"{wheel.name}: its metadata say {version}"]


def test_the_command_says_what_is_in_the_way() -> None:
    """`make release` on a tree that is no release exits with 1, and builds nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (0, 1)
    assert ("can be released" in done.stdout) == (done.returncode == 0)
    assert done.stderr.startswith("no release:\n") == (done.returncode == 1)
