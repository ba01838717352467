"""Workers have long turns on their cores, and what they start has the usual ones."""

from __future__ import annotations

import platform
import re
import subprocess
import sys

import pytest

from tests.slices import TURN_NS, ask_for_long, can_be_asked_for, granted_ns

_ASKS = """
import subprocess, sys
from tests.slices import ask_for_long, granted_ns
before = granted_ns()
ask_for_long()
print(before, granted_ns(), flush=True)
subprocess.run([sys.executable, "-c", "from tests.slices import granted_ns; print(granted_ns())"], check=True)
"""


def test_a_worker_has_long_turns_and_its_children_the_usual_ones(request: pytest.FixtureRequest) -> None:
    kernel = re.match(r"(\d+)\.(\d+)", platform.release())
    if not can_be_asked_for() or kernel is None or tuple(map(int, kernel.groups())) < (6, 12):
        pytest.skip("turns can be asked for from Linux 6.12 on, on x86-64 and ARM")
    told = subprocess.run(
        [sys.executable, "-c", _ASKS], capture_output=True, text=True, check=True, cwd=request.config.rootpath
    )
    before, after, child = map(int, told.stdout.split())
    assert (after, child) == (TURN_NS, before)
    assert before < TURN_NS
    if hasattr(request.config, "workerinput"):
        assert granted_ns() == TURN_NS, "this is a worker"


def test_where_it_can_not_be_asked_for_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not ask_for_long()
    assert granted_ns() == 0
