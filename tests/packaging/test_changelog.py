"""The changelog keeps its shape, by which releases are made; each way to lose it is found."""

from __future__ import annotations

import pytest

from tests.architecture.source import ROOT
from tools import changelog

GOOD = """\
# Changelog

## [Unreleased]

### Added
- A thing
  on two lines.

## [0.2.0] - 2026-12-01

### Fixed
- Another.

## [0.1.0] - 2026-11-22

### Added
- The first.
- The second.
"""


def test_the_changelog_has_its_shape() -> None:
    assert changelog.problems((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == []


def test_its_sections_are_read() -> None:
    """What is not released first, then versions with their days and the lines of each kind of change."""
    unreleased, second, first = changelog.releases(GOOD)
    assert changelog.problems(GOOD) == []
    assert (unreleased.version, unreleased.day) == ("Unreleased", "")
    assert (second.version, second.day, second.number) == ("0.2.0", "2026-12-01", (0, 2, 0))
    assert first.changes == (("Added", ("The first.", "The second.")),)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "## [Unreleased]\n\n### Added\n- A thing\n  on two lines.\n",
            "",
            "expected [Unreleased] as the first section",
        ),
        ("- 2026-12-01", "", "## [0.2.0] : expected [X.Y.Z]"),
        (" - 2026-12-01", "", "0.2.0: expected the day"),
        ("2026-12-01", "2026-13-01", "0.2.0: expected the day"),
        ("[0.2.0]", "[0.0.9]", "0.1.0: expected versions from the newest to the oldest"),
        ("[0.2.0]", "[0.1.0]", "0.1.0: expected versions from the newest to the oldest"),
        ("[0.2.0]", "[0.2]", "0.2: expected [X.Y.Z]"),
        ("### Fixed", "### Mended", "0.2.0: Mended: expected one of Added"),
        ("### Fixed\n- Another.\n", "", "0.2.0: says nothing"),
        ("- Another.\n", "", "0.2.0: Fixed: has no line"),
        ("- The second.", "### Added\n- The second.", "0.1.0: Added: stands there twice"),
    ],
)
def test_a_lost_shape_is_found(old: str, new: str, said: str) -> None:
    """With the version that it is about."""
    assert old in GOOD
    found = changelog.problems(GOOD.replace(old, new, 1))
    assert any(said in problem for problem in found), found
