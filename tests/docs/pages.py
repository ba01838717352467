"""The documents as the tests read them: pages, fenced blocks, and console sessions. Owns that reading only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of `page` in one language, in order."""
    return [body for kind, body in _BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


@dataclass(frozen=True)
class Step:
    """A command that a reader types, and what the page shows as its output (`...` stands for anything)."""

    command: str
    shown: str

    def matches(self, output: str) -> bool:
        pattern = re.escape(self.shown.strip()).replace(r"\.\.\.", ".*")
        return re.search(pattern, _plain(output), re.DOTALL) is not None


def _plain(output: str) -> str:
    """Without the spaces at the ends of lines that tables are padded with."""
    return "\n".join(line.rstrip() for line in output.splitlines())


def steps(block: str) -> list[Step]:
    """The commands of a console block: `$ ` begins one, `> ` continues it, everything else is output."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> "):
            found[-1][0].append(line[2:])
        elif found and not found[-1][1] and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        else:
            found[-1][1].append(line)
    return [Step("\n".join(command), "\n".join(output)) for command, output in found]
