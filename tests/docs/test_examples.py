"""What the pages show as input is input that the product takes."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

from cloud_dispatch.cli.main import app
from cloud_dispatch.config import Embedded, load
from cloud_dispatch.demand.submission import parse
from cloud_dispatch.demand.taskfile import parse_tasks
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch_local import faults
from tests.docs.pages import DOCS, blocks, pages, steps

CONSOLE = [
    pytest.param(step.command, id=f"{page.stem}-{number}")
    for page in pages()
    for number, step in enumerate(step for block in blocks(page, "console") for step in steps(block))
]


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


@pytest.mark.parametrize("command", CONSOLE)
def test_commands_have_only_options_that_exist(command: str) -> None:
    """Every `cloud-dispatch` command line of every page names commands and options of the program."""
    words = shlex.split(command.partition("<<")[0])
    if words[0] != "cloud-dispatch":
        return
    position: object = typer.main.get_command(app)
    rest = words[1:]
    while rest and rest[0] in getattr(position, "commands", {}):
        position = position.commands[rest.pop(0)]  # type: ignore[attr-defined]
    known = {option for p in position.params for option in (*p.opts, *p.secondary_opts)}  # type: ignore[attr-defined]
    given = [
        word for word in rest[: rest.index("--") if "--" in rest else None] if re.fullmatch(r"--?[a-z][a-z-]*", word)
    ]
    assert not getattr(position, "commands", {}), f"no such command: {command}"
    assert [option for option in given if option not in known] == []


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
