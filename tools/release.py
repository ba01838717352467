"""Make a release of what is tagged: `python -m tools.release [--check]` (`make release`). Uploads nothing.

Owns what has to be true of a release before it is built, that it can be built again to the byte, and the checksums by
which whoever has one can tell. It is built twice: from two clones of the tag in folders of different names and lengths,
with different umasks, time zones and hash seeds, the wheel once by way of the sdist. With `--check` nothing is built.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.metadata import Metadata

from tools import changelog

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
TIMEOUT_S = 600
_TAG = re.compile(r"v(\d+\.\d+\.\d+)")
_AGENT = re.compile(r'^VERSION = "([^"]+)"$', re.MULTILINE)


class Refused(Exception):
    """Why there is no release; nothing was left behind."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how one of the two is built."""

    folder: str
    umask: int
    timezone: str
    options: tuple[str, ...]


#: Without options `build` makes the wheel from the sdist that it has just made.
PLACES = (
    Place("a", 0o022, "UTC", ()),
    Place("somewhere/else/altogether", 0o077, "Pacific/Kiritimati", ("--sdist", "--wheel")),
)


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise Refused(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def version_of(root: Path) -> str:
    """The version of the tag that is checked out; Refused where there is none, or more than one."""
    found = [match[1] for tag in git(root, "tag", "--points-at", "HEAD").split() if (match := _TAG.fullmatch(tag))]
    if len(found) != 1:
        had = ", ".join(found) or "none"
        raise Refused(f"expected one tag vX.Y.Z on what is checked out, got {had}: git tag -a v1.2.3")
    return found[0]


def problems(root: Path, version: str) -> list[str]:
    """What keeps `version` from being released, a line each."""
    said = []
    if git(root, "status", "--porcelain"):
        said.append("the working tree has changes that are not committed")
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    said += [f"CHANGELOG.md: {problem}" for problem in changelog.problems(text)]
    released = [one for one in changelog.releases(text) if one.version != changelog.UNRELEASED]
    if not released or released[0].version != version:
        newest = released[0].version if released else "none"
        said.append(f"CHANGELOG.md: expected [{version}] as its newest release, got {newest}")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    agent = _AGENT.search((root / "cloud_dispatch" / "agent" / "__init__.py").read_text(encoding="utf-8"))
    told = {
        "cloud_dispatch/agent/__init__.py: VERSION": agent[1] if agent else "none",
        "pyproject.toml: fallback-version": project["tool"]["hatch"]["version"]["fallback-version"],
    }
    minor = version.rpartition(".")[0]
    said += [f"{where}: expected that of {minor}, got {got}" for where, got in told.items() if not _is_of(got, minor)]
    return said


def _is_of(version: str, minor: str) -> bool:
    return version == minor or version.startswith(f"{minor}.")


def build(source: Path, folder: Path, place: Place, moment: int) -> dict[str, bytes]:
    """What a clone of `source`'s commit is built to, by name of file."""
    tree, out = folder / place.folder / "tree", folder / place.folder / "dist"
    tree.parent.mkdir(parents=True)
    git(folder, "clone", "--quiet", "--no-local", str(source), str(tree))
    git(tree, "checkout", "--quiet", "--detach", git(source, "rev-parse", "HEAD"))
    return built(tree, out, place, moment)


def built(tree: Path, out: Path, place: Place, moment: int) -> dict[str, bytes]:
    """What `tree` is built to; Refused where it can't be."""
    seed = str(1 + place.umask)
    told = {"SOURCE_DATE_EPOCH": str(moment), "TZ": place.timezone, "PYTHONHASHSEED": seed, "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "build", "--no-isolation", *place.options, "--outdir", str(out), str(tree)]
    done = subprocess.run(
        command, env={**os.environ, **told}, cwd=tree, umask=place.umask, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Refused(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()}")
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def differences(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    """Where two builds differ: the files, and what in them does."""
    said = [f"{name}: built once only" for name in sorted(one.keys() ^ other.keys())]
    for name in sorted(one.keys() & other.keys()):
        if one[name] == other[name]:
            continue
        mine, theirs = members(name, one[name]), members(name, other[name])
        inside = sorted(
            path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path)
        ) or ["the order or form of its members"]  # fmt: skip
        said.append(f"{name}: differs in {', '.join(inside)}")
    return said


def members(name: str, body: bytes) -> dict[str, tuple[object, ...]]:
    """What an sdist or a wheel has, by path: bytes, mode and time."""
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.seek(0)
        if name.endswith(".whl"):
            with zipfile.ZipFile(file) as wheel:
                return {one.filename: (wheel.read(one), one.external_attr, one.date_time) for one in wheel.infolist()}
        with tarfile.open(fileobj=file) as sdist:
            return {
                one.name: (taken.read() if (taken := sdist.extractfile(one)) else b"", one.mode, one.mtime)
                for one in sdist.getmembers()
            }


def metadata_problems(name: str, body: bytes, version: str) -> list[str]:
    """What an index would refuse of a wheel's metadata, or show otherwise than meant."""
    (path,) = [path for path in members(name, body) if path.endswith(".dist-info/METADATA")]
    text = members(name, body)[path][0]
    assert isinstance(text, bytes)
    try:
        found = Metadata.from_email(text)  # every field, by the specification
    except ExceptionGroup as error:
        return [f"{name}: {one}" for one in error.exceptions]
    said = []
    if str(found.version) != version:
        said.append(f"{name}: its metadata say {found.version}")
    if found.description_content_type != "text/markdown" or not (found.description or "").startswith("# "):
        said.append(f"{name}: its description is not the README, in Markdown")
    if not found.license_expression or not found.license_files:
        said.append(f"{name}: it names no licence")
    return said


def release(root: Path, out: Path) -> str:
    """Build the tag that is checked out in `root` twice, and leave it with its checksums in `out`, which holds nothing
    else then. The version; Refused with every reason why not."""
    version = version_of(root)
    found = problems(root, version)
    if found:
        raise Refused("\n".join(found))
    moment = int(git(root, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="release-") as scratch:
        one, other = (build(root, Path(scratch), place, moment) for place in PLACES)
    found = differences(one, other)
    for name, body in one.items():
        found += metadata_problems(name, body, version) if name.endswith(".whl") else []
    if not any(name.endswith(f"-{version}.tar.gz") for name in one) or len(one) != 2:
        found.append(f"expected an sdist and a wheel of {version}, got {', '.join(one)}")
    if found:
        raise Refused("\n".join(found))
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    for name, body in one.items():
        (out / name).write_bytes(body)
    sums = "".join(f"{hashlib.sha256(body).hexdigest()}  {name}\n" for name, body in one.items())
    (out / SUMS).write_text(sums, encoding="ascii")
    return version


def main(arguments: list[str]) -> int:
    """The exit code."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tools.release [--check]\n")
        return 2
    try:
        if arguments:
            version = version_of(ROOT)
            found = problems(ROOT, version)
            if found:
                raise Refused("\n".join(found))
            print(f"{version} can be released")
        else:
            version = release(ROOT, ROOT / "dist")
            print(f"{version} is in dist/, built twice to the same bytes; {SUMS} says which:")
            print((ROOT / "dist" / SUMS).read_text(encoding="ascii"), end="")
    except Refused as refused:
        sys.stderr.write(f"no release:\n{refused}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
