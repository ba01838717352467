"""The source files of the project as the architecture tests read them: paths, syntax trees, dotted names.

Owns reading; the rules are in `rules`. Knows nothing of what the code means.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = "cloud_dispatch"
DRIVERS = "providers"
GIT_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Source:
    """A Python file: `path` relative to the root of the project, with `/`, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def names(self) -> dict[str, str]:
        """What each imported name stands for: `from uuid import uuid4 as u` gives `u -> uuid.uuid4`."""
        meaning: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.split(".")[0]
                    meaning[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    meaning[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return meaning

    def dotted(self, node: ast.AST) -> str | None:
        """The full dotted name that an expression refers to through imports, or None."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return f"{before}.{node.attr}" if before else None
        return None

    def references(self) -> Iterator[tuple[int, str]]:
        """Every `(line, dotted name)` that the file refers to through imports, the imports themselves included."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Name, ast.Attribute)):
                name = self.dotted(node)
                if name:
                    yield node.lineno, name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"


def sources(*folders: str, root: Path = ROOT) -> list[Source]:
    """Every Python file below `folders` of `root`, sorted; a folder that does not exist has none."""
    found = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in found]


def product() -> list[Source]:
    """The sources of the core and of the drivers."""
    return sources(CORE, DRIVERS)


def files_in_git() -> list[str]:
    """The paths that git knows, relative to the root. Skips the test where there is no git checkout (a tarball)."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no list of the files in it")
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=GIT_TIMEOUT_SECONDS)
    return sorted(path for path in listed.stdout.split("\0") if path and (ROOT / path).is_file())
