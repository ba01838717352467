"""Write down which packages of npm the tests install: versions and hashes, a line each, and nothing of where they are.

Owns ``tests/install/azurite/package-lock.json``: the emulator of Azure's blobs that ``package.json`` beside it names,
and all that it needs. What npm itself would write says more, some of it addresses, on twelve times as many lines; what
it needs to install the same again is kept. A package without a hash, or an address, is refused and nothing is written.

Usage: ``python -m tools.npm_lock``. ``package.json`` says which version.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "install" / "azurite"
LOCK = "package-lock.json"
TIMEOUT_S = 600
_RESOLVE = ("npm", "install", "--silent", "--package-lock-only", "--omit-lockfile-registry-resolved", "--no-audit")
#: What `npm ci` goes by.
_KEPT = (
    "version", "integrity", "dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta",
    "bundleDependencies", "optional", "peer", "dev", "os", "cpu", "libc", "bin",
)  # fmt: skip


def slim(resolved: dict[str, Any]) -> str:
    """The text of a lock with the same packages as `resolved`, which npm made."""
    packages = {
        name: {field: said[field] for field in _KEPT if field in said} for name, said in resolved["packages"].items()
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(said)}" for name, said in packages.items())
    version = resolved["lockfileVersion"]
    return f'{{"lockfileVersion": {version}, "requires": true, "packages": {{\n{lines}\n}}}}\n'


def complaint(text: str) -> str | None:
    """What is wrong with a lock, or None: an address in it, or a package without a hash."""
    if "://" in text:
        return "it names an address"
    bare = [name for name, said in json.loads(text)["packages"].items() if name and "integrity" not in said]
    return f"packages without a hash: {', '.join(bare)}" if bare else None


def main() -> int:
    """Resolve anew and write; 1 with the reason where that can't be kept."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(FOLDER / "package.json", scratch)
        subprocess.run(_RESOLVE, cwd=scratch, check=True, timeout=TIMEOUT_S)
        text = slim(json.loads((Path(scratch) / LOCK).read_text()))
    wrong = complaint(text)
    if wrong:
        print(f"{LOCK} was not written: {wrong}", file=sys.stderr)
        return 1
    (FOLDER / LOCK).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
