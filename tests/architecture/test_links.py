"""The documents lead somewhere: a link to a file of the project finds it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.source import ROOT, files_in_git

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def dead_links(page: Path) -> list[str]:
    """The relative links of a Markdown page to files or folders that are not there."""
    dead = []
    for target in _LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)):
        path = target.partition("#")[0]
        if path and "://" not in target and not target.startswith("mailto:") and not (page.parent / path).exists():
            dead.append(f"{page.name}: {target}")
    return dead


def test_links_within_the_project_lead_somewhere() -> None:
    """No page in git links to a file of the project that is not there."""
    pages = [ROOT / path for path in files_in_git() if path.endswith(".md")]
    assert ROOT / "README.md" in pages
    assert [link for page in pages for link in dead_links(page)] == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """A link to a missing page is found; addresses, anchors, code and pages that exist are not."""
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#top) [b](https://example.org/x) [c](#here) [d](missing.md)\n```\n[e](code.md)\n```\n")
    assert dead_links(page) == ["page.md: missing.md"]
