"""Each rule is shown a violation that was planted for it: a guard that can't fire guards nothing."""

from __future__ import annotations

import pytest

from tests.architecture import rules
from tests.architecture.source import Source


def planted(text: str, path: str = "cloud_dispatch/planted.py") -> list[Source]:
    return [Source(path, text)]


@pytest.mark.parametrize(
    "text",
    [
        "import time\nnow = time.time()",
        "from time import time_ns as wall\nnow = wall()",
        "import datetime as d\nnow = d.datetime.now(d.UTC)",
        "from uuid import uuid4\nfield(default_factory=uuid4)",
        "import random\nrandom.Random(1)",
        "from secrets import token_hex",
        "import os\nos.urandom(4)",
    ],
)
def test_clocks_chance_and_random_identities_are_found(text: str) -> None:
    """A use of the wall clock, chance or a random identity is a finding under whatever name it was imported."""
    assert rules.unclocked(planted(text), {})


def test_an_injected_clock_is_no_finding() -> None:
    """A method called `time` or `now` of something that was handed in is what the rule asks for."""
    assert not rules.unclocked(planted("def f(clock):\n    return clock.now() + clock.time()"), {})


def test_an_exemption_covers_its_file_and_folder_only() -> None:
    """An exemption silences the file or folder that it names and no other."""
    text = "import time\ntime.time()"
    assert not rules.unclocked(planted(text), {"cloud_dispatch/planted.py": "because"})
    assert not rules.unclocked(planted(text), {"cloud_dispatch/": "because"})
    assert rules.unclocked(planted(text) + planted(text, "cloud_dispatch/b.py"), {"cloud_dispatch/b.py": "because"})


def test_an_exemption_that_nothing_needs_is_a_finding() -> None:
    """An exemption outlives its reason: the list has to shrink with the code."""
    assert rules.unclocked(planted("x = 1"), {"cloud_dispatch/planted.py": "because"})


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nasyncio.to_thread(print)",
        "from asyncio import to_thread",
        "def f(loop):\n    return loop.run_in_executor(None, print)",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor()",
        "import threading\nthreading.Thread(target=print)",
    ],
)
def test_work_moved_to_threads_by_hand_is_found(text: str) -> None:
    """Whoever moves work off the loop without the executor port is found."""
    assert rules.threads(planted(text), {})


def test_long_modules_and_functions_are_found() -> None:
    """A line too many is a finding, for a module and for a function; the limit itself is not."""
    body = "def long():\n" + "    x = 1\n" * (rules.FUNCTION_LINES - 1)
    assert not rules.oversized(planted(body), {})
    assert rules.oversized(planted(body + "    x = 1\n"), {})
    assert not rules.oversized(planted("x = 1\n" * rules.MODULE_LINES), {})
    assert rules.oversized(planted("x = 1\n" * (rules.MODULE_LINES + 1)), {})


@pytest.mark.parametrize(
    "text",
    [
        "match x:\n    case 1:\n        pass",
        "try:\n    pass\nexcept* OSError:\n    pass",
        "import httpx",
        "import tomllib",
        "from cloud_dispatch.domain import ids",
        "from . import ids",
        "def f(x: int | None) -> None: ...",
        "class A:\n    x: int | None = None",
    ],
)
def test_what_python_39_lacks_is_found(text: str) -> None:
    """New syntax, new modules, foreign packages and unions in annotations are findings in what runs on a machine."""
    assert rules.beyond_python_39(planted(text), ("cloud_dispatch.wire",))


def test_a_union_is_found_where_annotations_are_evaluated() -> None:
    """With the __future__ import an annotation is text, except for the wire messages, whose codec evaluates it."""
    text = "from __future__ import annotations\ndef f(x: int | None) -> None: ..."
    assert not rules.beyond_python_39(planted(text, "cloud_dispatch/agent/shell.py"), ())
    assert rules.beyond_python_39(planted(text, "cloud_dispatch/wire/messages.py"), ())


def test_the_standard_library_of_python_39_is_no_finding() -> None:
    """What 3.9 has may be used, and so may the wire messages."""
    text = "import json\nfrom typing import Optional\nfrom cloud_dispatch.wire.messages import X\nx: Optional[int] = 1"
    assert not rules.beyond_python_39(planted(text), ("cloud_dispatch.wire",))


@pytest.mark.parametrize(
    "line",
    [
        "https://py" + "pi.org/simple",
        "files.python" + "hosted.org/packages/x.whl",
        "registry.np" + "mjs.org",
        "--extra-index-" + "url https:" + "//wheels.example/" + "simple",
        "see /wo" + "rk/main/README.md",
        "/ro" + "ot/.pyenv/versions",
        "/ho" + "me/jane/cloud-dispatch",
    ],
)
def test_index_hosts_and_machine_paths_are_found(line: str) -> None:
    """The host of a package index, or a path of somebody's machine, is a finding in any file."""
    assert rules.foreign("file.txt", f"first line\n{line}\n")


@pytest.mark.parametrize("line", ["pip install cloud-dispatch", "/home/ubuntu/data", "/work", "pypi", "/var/lib/x"])
def test_plain_words_are_no_finding(line: str) -> None:
    """Words and paths that mean no particular host or developer are left alone."""
    assert not rules.foreign("file.txt", line)
