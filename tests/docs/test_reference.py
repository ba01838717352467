"""docs/reference agrees with the code in both directions; what is only documented is a finding here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.planner.obstacle import Obstacle
from tests.architecture.reference import events
from tests.architecture.source import product
from tests.architecture.test_reference_is_whole import MADE_OF_PARTS
from tests.docs.pages import DOCS, ROOT
from tools import reference, reference_parts

REFERENCE = DOCS / "reference"


def first_cells(page: str) -> set[str]:
    """What stands in backticks in the first column of a page's tables."""
    rows = re.findall(r"^\| (`.*?) \|", (REFERENCE / page).read_text(), re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def test_generated_parts_are_what_the_code_says() -> None:
    """Whoever changes a setting, a command, an error, a message or a state has to run `python -m tools.reference`."""
    assert [page.name for page in reference.stale_pages()] == []


def test_a_part_that_was_edited_by_hand_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generated part with another text counts as stale, and writing it again gives the code's words."""
    for page in REFERENCE.glob("*.md"):
        (tmp_path / page.name).write_text(page.read_text())
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    page = tmp_path / "cli.md"
    page.write_text(page.read_text().replace("`130`", "`131`"))
    assert list(reference.stale_pages()) == [page]
    assert reference.rendered(page.read_text()) == (REFERENCE / "cli.md").read_text()


def test_a_setting_without_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key must be given its meaning before the reference can be written."""
    said = dict(reference_parts.words.SETTINGS)
    said.pop("timing.lease")
    monkeypatch.setattr(reference_parts.words, "SETTINGS", said)
    with pytest.raises(reference_parts.Incomplete, match=r"timing\.lease"):
        reference_parts.settings()


def test_no_event_is_documented_that_nobody_sends() -> None:
    """Events that left the code leave the page."""
    sent = {name for _, name in events(product(), MADE_OF_PARTS)}
    assert first_cells("events.md") - sent == set()


def test_every_route_is_documented_and_no_other() -> None:
    """The headings of the REST page are the routes of the code, and the worker page has those of agents."""
    code = set()
    for path in sorted((ROOT / "cloud_dispatch" / "api").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "route":
                method, place = node.args[:2]
                if isinstance(method, ast.Constant):
                    code.add(f"{method.value} {place.value if isinstance(place, ast.Constant) else '/v1/health'}")
    said = set(
        re.findall(r"^### `((?:GET|POST|PUT|DELETE) [^`]+)`", (REFERENCE / "rest-api.md").read_text(), re.MULTILINE)
    )
    assert code == said
    from cloud_dispatch.wire import messages

    worker = (REFERENCE / "worker-protocol.md").read_text()
    routes = {value for name, value in vars(messages).items() if name.endswith("_PATH")}
    assert len(routes) >= 5
    assert [route for route in sorted(routes) if route not in worker] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("states.md", [*TaskState, *InstanceState]),
        ("task-file.md", list(Cause)),
        (
            "tags.md",
            [value for name, value in vars(tags).items() if name.isupper() and str(value).startswith(tags.PREFIX)],
        ),
    ],
)
def test_hand_written_tables_are_whole(page: str, words: list[str]) -> None:
    """States, causes and tags stand in the tables that explain them."""
    assert [str(word) for word in words if word not in first_cells(page) and word != tags.PREFIX] == []


def test_every_phase_of_a_boot_is_explained() -> None:
    """The table of the how-to has the phases that the boot script may fail in, and no others."""
    script = "".join(part.read_text() for part in (ROOT / "cloud-init" / "parts").iterdir())
    phases = set(re.findall(r"\b(?:phase=|begin )([a-z]+)\b", script))
    table = (DOCS / "how-to" / "boot-vms.md").read_text().partition("| phase |")[2].partition("\n\n")[0]
    assert len(phases) > 8
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == phases


def test_every_obstacle_is_explained_where_it_is_watched() -> None:
    """And no other word stands there but the one for what can never run."""
    page = (DOCS / "how-to" / "monitor.md").read_text()
    item = page.partition("`cloud_dispatch_tasks_unserved`")[2].partition("\n- ")[0]
    assert set(re.findall(r"`([a-z-]+)`", item)) - {"obstacle"} == {*Obstacle, "unsatisfiable"}


def test_the_index_of_decisions_has_each_in_its_order() -> None:
    """By number, one line for each record."""
    page = (DOCS / "adr" / "README.md").read_text()
    listed = re.findall(r"^\| \[(\d{4})\]\((\1-[\w-]+\.md)\)", page, re.MULTILINE)
    assert [name for _, name in listed] == sorted(path.name for path in (DOCS / "adr").glob("[0-9]*.md"))


def test_pages_that_messages_name_exist() -> None:
    """A hint that sends somebody to a page of the docs sends them to one that is there."""
    named = {name for source in product() for name in re.findall(r"docs/[\w/.-]+\.md", source.text)}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
