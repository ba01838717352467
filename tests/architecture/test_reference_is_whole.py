"""Everything that people can set, type, watch or meet stands in docs/reference, and the collectors see all of it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel, ConfigDict, Field

from cloud_dispatch.domain.errors import DispatchError
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.spend.budget import Stage
from tests.architecture import reference
from tests.architecture.reference import Reference
from tests.architecture.source import ROOT, Source, product

#: Names of events that are put together when they happen, and what can come of them.
MADE_OF_PARTS = {
    "f'instance.{changed.state}'": tuple(f"instance.{state}" for state in InstanceState),
    "f'budget.{one.stage}'": tuple(f"budget.{stage}" for stage in Stage if stage is not Stage.CALM),
    "f'operator.{word}'": ("operator.hold", "operator.drain", "operator.resume", "operator.kill"),
}


@pytest.fixture(scope="module")
def docs() -> Reference:
    return Reference(ROOT / "docs" / "reference")


def missing(docs: Reference, named: list[tuple[str, str]]) -> list[str]:
    return sorted({f"{name} ({where})" for where, name in named if not docs.names(name)})


def command_line() -> Any:
    return importlib.import_module("cloud_dispatch.cli.main").program()


def test_every_setting_is_documented(docs: Reference) -> None:
    """A key of the configuration file that the reference does not name is a finding."""
    config = importlib.import_module("cloud_dispatch.config.load").Config
    paths = [path for path in reference.settings(config) if path not in {("origin",), ("profiles", "NAME", "settings")}]
    assert len(paths) > 40
    assert [".".join(path) for path in paths if not docs.names_setting(path)] == []


def test_every_command_and_option_is_documented(docs: Reference) -> None:
    """A command or an option that the reference does not name is a finding."""
    found = list(reference.options(command_line()))
    assert ("cloud-dispatch demo", "") in found
    pages = "\n".join(docs.pages.values())
    assert [command for command, option in found if not option and command not in pages] == []
    assert missing(docs, [(command, option) for command, option in found if option]) == []


def test_every_metric_is_documented(docs: Reference) -> None:
    """A metric that the reference does not name is a finding."""
    found = list(reference.metrics(product()))
    assert found
    assert missing(docs, found) == []


def test_every_event_is_documented_and_well_named(docs: Reference) -> None:
    """An event without a stable dotted name, or that the reference does not name, is a finding."""
    shipped = [source for source in product() if not source.path.startswith("cloud_dispatch/testing/")]  # test suites
    found = list(reference.events(shipped, MADE_OF_PARTS))
    assert found
    assert [f"{where}: {name}" for where, name in found if not reference.is_event_name(name)] == []
    assert missing(docs, found) == []


def test_every_error_is_documented(docs: Reference) -> None:
    """An error that the reference does not name is a finding."""
    found = list(reference.errors("cloud_dispatch", DispatchError, ProviderError))
    assert len(found) > 12
    assert missing(docs, found) == []


# What follows plants one thing of each kind and looks whether it is seen.


class Inner(BaseModel):
    idle_ms: int = Field(default=0, alias="idle")


class Outer(BaseModel):
    model_config = ConfigDict(frozen=True)
    pools: dict[str, Inner] = Field(default_factory=dict)
    rules: tuple[Inner, ...] = ()
    listen: str = ""


def page(folder: Path, text: str) -> Reference:
    (folder / "page.md").write_text(text)
    return Reference(folder)


def test_settings_are_collected_through_tables_and_lists() -> None:
    """Nested tables, tables by name and lists of tables give one path a key, by its name in the file."""
    assert set(reference.settings(Outer)) == {("pools", "NAME", "idle"), ("rules", "idle"), ("listen",)}


def test_a_setting_counts_as_documented_under_the_heading_of_its_table_only(tmp_path: Path) -> None:
    """The same key under another table's heading documents another setting."""
    docs = page(tmp_path, "## `[pools.NAME]`\n\n`idle` is...\n\n## `[other]`\n\n`wait` is...\n")
    assert docs.names_setting(("pools", "NAME", "idle"))
    assert not docs.names_setting(("pools", "NAME", "wait"))
    assert not docs.names_setting(("rules", "idle"))


def test_options_are_collected_from_every_command() -> None:
    """Options of nested commands are found, with their negative forms; hidden commands are not."""
    app, inner = typer.Typer(), typer.Typer()
    app.add_typer(inner, name="config")

    @inner.command()
    def check(*, strict: bool = False) -> None: ...

    @inner.command()
    def show() -> None: ...

    @app.command(hidden=True)
    def secret() -> None: ...

    found = set(reference.options(typer.main.get_command(app)))
    assert {("cloud-dispatch config check", "--strict"), ("cloud-dispatch config check", "--no-strict")} <= found
    assert ("cloud-dispatch config show", "") in found
    assert not [command for command, _ in found if "secret" in command]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('from prometheus_client import Counter\nCounter("tasks_total", "help")', ["tasks_total"]),
        ('import prometheus_client as p\np.Gauge("depth", "help")', ["depth"]),
        ('from prometheus_client.core import GaugeMetricFamily\nGaugeMetricFamily("age", "help")', ["age"]),
        ('from collections import Counter\nCounter("abc")', []),
    ],
)
def test_metrics_are_collected(text: str, names: list[str]) -> None:
    """Metrics are found under whatever name their class was imported; other Counters are not metrics."""
    assert [name for _, name in reference.metrics([Source("planted.py", text)])] == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('log.info("task.submitted", task=1)', ["task.submitted"]),
        ('self._log.warning("store.slow")', ["store.slow"]),
        ('self._c.note("pool.full")', ["pool.full"]),
        ('Event(now, "task.claimed")', ["task.claimed"]),
        ('Event(at_ms=now, action="task.claimed")', ["task.claimed"]),
        ("log.info(f'task.{state}')", ["f'task.{state}'"]),
        ("log.info(action)", []),
        ("Event(row.at_ms, row.action)", []),
        ('math.log("x.y")', []),
    ],
)
def test_events_are_collected(text: str, names: list[str]) -> None:
    """Logged and recorded events are found; a name made of parts is given as its source, to be refused."""
    assert [name for _, name in reference.events([Source("planted.py", text)], {})] == names


def test_what_the_reference_lacks_is_missing(tmp_path: Path) -> None:
    """A name counts only where it stands as code, not as a word of the text."""
    docs = page(tmp_path, "The metric tasks_total is like `tasks_failed` and `cloud-dispatch run --json`.\n")
    named = [("a.py:1", "tasks_total"), ("a.py:2", "tasks_failed"), ("run", "--json")]
    assert missing(docs, named) == ["tasks_total (a.py:1)"]
