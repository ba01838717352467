"""The page of complaints and the scenarios say the same."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS
from tests.simulation.complaints import STORIES

PAGE = (DOCS / "explanation" / "what-peers-complain-about.md").read_text(encoding="utf-8")


def differences(text: str) -> list[str]:
    """Where the page's table and the scenarios, or its issues and the projects that it names, differ."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] != "|--"]
    table = {int(row[0]): row for row in rows if len(row) == 5 and row[0].isdecimal()}
    told = {(number, name) for number, row in table.items() for name in re.findall(r"`([^`]+)`", row[4])}
    played = {(story.number, story.name) for story in STORIES}
    found = [f"{number} {name} is on the page only" for number, name in sorted(told - played)]
    found += [f"{number} {name} is not on the page" for number, name in sorted(played - told)]
    found += [f"{number} has no row" for number in range(1, 26) if number not in table]
    projects = set(re.findall(r"\b([A-Z]{2}) [\w-]+/[\w-]+", text))
    for number, row in table.items():
        issues = re.findall(r"([A-Z]{2})#\d+", row[2])
        found += [f"{number} names an issue of {short}, which is no project here" for short in {*issues} - projects]
        found += [f"{number} says nothing of what is done here" for _ in [0] if len(row[3]) < 20]
    return found


def test_the_page_and_the_scenarios_agree() -> None:
    """Each complaint has its row, each row its scenarios under their names, each issue its project."""
    assert differences(PAGE) == []


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("`a-retry-keeps-its-priority`", "`another-name`", "20 a-retry-keeps-its-priority is not on the page"),
        ("`a-retry-keeps-its-priority`", "`another-name`", "20 another-name is on the page only"),
        ("| 20 |", "| twenty |", "20 has no row"),
        ("DS#4246", "XX#4246", "20 names an issue of XX, which is no project here"),
    ],
)
def test_a_page_that_differs_is_found(was: str, becomes: str, said: str) -> None:
    """Renaming a scenario on one side only, or losing a row, does not go by unseen."""
    assert PAGE.count(was) == 1
    assert said in differences(PAGE.replace(was, becomes))
