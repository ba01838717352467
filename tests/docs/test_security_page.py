"""The page on security names tests; each of them exists, and every row has one or says what is missing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "security.md"
NAMED = re.compile(r"`(test_\w+)`")


def missing(page: str, sources: str) -> list[str]:
    """Tests that the page names and that are not there, and rows that neither name one nor say **Missing**."""
    found = [name for name in NAMED.findall(page) if not re.search(rf"def {name}\b", sources)]
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| could", "| ---"))]
    return found + [row for row in rows if not NAMED.search(row) and "**Missing**" not in row]


def test_every_threat_has_its_test_or_says_that_it_has_none() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    page = PAGE.read_text()
    assert len(NAMED.findall(page)) > 30
    assert missing(page, sources) == []


def test_a_page_that_promises_too_much_is_found() -> None:
    """The planted mistakes: a test that is none, and a row without one."""
    page = "| could | but | seen in |\n|---|---|---|\n| a | b | `test_none` |\n| c | d | |\n| e | f | **Missing** |"
    assert missing(page, "def test_other(): ...") == ["test_none", "| c | d | |"]
