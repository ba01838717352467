"""What all tests share: how they are collected, named and spread over workers."""

from __future__ import annotations

import gc
import importlib.util
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.slices import ask_for_long

# httpcore asks for it at every lock that it takes. Where it is not installed each time all of the path was searched.
if importlib.util.find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

# A test is no measurement: on a busy machine an example may take long.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

#: Folders whose tests mostly wait, for processes and for time to pass; and those that compute for long.
_WAITING = frozenset({"agent", "bench", "cloudinit", "packaging", "providers", "system"})
_COMPUTING = frozenset({"simulation"})
_LONG_S = 120
_LONG_NAME = 60


def pytest_make_parametrize_id(val: object) -> str | None:
    """A test has a name that can be read: of a long value its beginning and its length."""
    if isinstance(val, (str, bytes)) and len(val) > _LONG_NAME:
        return f"{val[:_LONG_NAME]!a} and so on, {len(val)} in all"
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Workers that share cores have long turns on them."""
    if hasattr(config, "workerinput"):
        ask_for_long()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What collecting brings lives to the end: garbage is not looked for meanwhile, and in none of it later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Python looks for garbage as it ends: in all that a worker has come to hold, several times, for seconds."""
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """What shares a fixture of its module stays together, on one worker; all else is spread."""
    known: dict[tuple[pytest.Item | pytest.Collector | None, str], bool] = {}
    for item in items:
        if any(_is_shared(item, name, known) for name in item.fixturenames):  # type: ignore[attr-defined]
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(item.path.stem))
    yield
    _spread(config, items)


def _is_shared(
    item: pytest.Item, name: str, known: dict[tuple[pytest.Item | pytest.Collector | None, str], bool]
) -> bool:
    """Whether the fixture `name` of `item` is made once for all tests of its module: the same for all of its parent."""
    key = item.parent, name
    if key not in known:
        made = item._request._fixturemanager  # type: ignore[attr-defined]
        known[key] = any(one.scope == "module" for one in made.getfixturedefs(name, item) or ())
    return known[key]


def _spread(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread what waits among what computes, so that the workers are never all waiting, nor all computing.

    Only where tests are spread over workers. The longest come first: one that comes last keeps all waiting for it. The
    others of a kind have no order, but the same one each time: some modules take long, and none is a phase of the run.
    """
    if not getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return
    kinds: dict[int, list[pytest.Item]] = {0: [], 1: [], 2: []}
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        kinds[0 if folder in _WAITING else 1 if folder in _COMPUTING else 2].append(item)
    places = []
    for kind, alike in kinds.items():
        alike.sort(key=lambda item: (not _is_long(item), zlib.crc32(item.nodeid.encode())))
        places += [((at + 0.5) / len(alike), kind, item) for at, item in enumerate(alike)]
    items[:] = [item for _, _, item in sorted(places, key=lambda place: place[:2])]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that other users come to. Any run of pytest that begins on the machine closes the folder above all of its own
    to them."""
    folder = Path(tempfile.mkdtemp(prefix="cloud-dispatch-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def _is_long(item: pytest.Item) -> bool:
    timeout = item.get_closest_marker("timeout")
    return timeout is not None and bool(timeout.args) and timeout.args[0] > _LONG_S
