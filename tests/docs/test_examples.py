"""What the pages show as input is input that the product takes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from cloud_dispatch.config import Embedded, load
from cloud_dispatch.demand.submission import parse
from cloud_dispatch.demand.taskfile import parse_tasks
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch_local import faults
from tests.docs.pages import DOCS, blocks, pages


@pytest.mark.parametrize("body", blocks(DOCS / "how-to" / "configure-pools.md", "toml"))
def test_configurations_are_good(body: str) -> None:
    """Each configuration of the how-to passes the check, unknown keys being errors."""
    config = load(Embedded(tomllib.loads(body), "a page"), plugin)
    assert config.pool_sections


@pytest.mark.parametrize(("language", "suffix", "count"), [("json", ".jsonl", 2), ("toml", ".toml", 7)])
def test_task_files_are_good(language: str, suffix: str, count: int) -> None:
    """The example of each form expands to the tasks that it describes."""
    (body,) = blocks(DOCS / "reference" / "task-file.md", language)
    found = parse_tasks(body.encode(), f"page{suffix}", suffix)
    assert len(parse(found.inputs, places=found.places)) == count


def test_the_faults_file_is_good() -> None:
    """The example of the explanation is one that the local driver takes."""
    (body,) = blocks(DOCS / "explanation" / "local-provider.md", "json")
    assert len(faults.parse(body, "page")) == 4


def test_python_examples_compile() -> None:
    """The Python of the pages is Python."""
    found = [(page, body) for page in pages() for body in blocks(page, "python")]
    assert len(found) > 3
    for page, body in found:
        compile(body, str(page), "exec")


def test_every_page_can_be_reached() -> None:
    """From the index, following links, a reader gets to every page."""
    seen: set[Path] = set()
    frontier = [DOCS / "README.md"]
    while frontier:
        page = frontier.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())
        frontier.extend((page.parent / target).resolve() for target in targets if "://" not in target)
    assert [str(page.relative_to(DOCS)) for page in pages() if page not in seen] == []


def test_links_to_headings_lead_somewhere() -> None:
    """A link with an anchor names a heading of its page."""
    wrong = []
    for page in pages():
        for path, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text()):
            target = (page.parent / path).resolve() if path else page
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            if anchor not in anchors:
                wrong.append(f"{page.name}: {path}#{anchor}")
    assert wrong == []
