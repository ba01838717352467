"""What the kernel's counter of out-of-memory kills tells of a task that ended by SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.agent import memory
from cloud_dispatch.agent.memory import KernelKills


class Counter:
    """A file as the kernel writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(5)

    def write(self, kills: int) -> None:
        self.path.write_text(f"oom 9\noom_kill {kills}\n")


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    counter = Counter(tmp_path / "events")
    monkeypatch.setattr(memory, "_counter", lambda: (str(counter.path), b"oom_kill"))
    return counter


def test_all_that_were_killed_at_once_are_told_so(counter: Counter) -> None:
    kills = KernelKills()
    assert not kills.rose()
    counter.write(7)
    assert (kills.rose(), kills.rose()) == (True, True)


def test_a_kill_of_before_is_not_to_blame(counter: Counter) -> None:
    """It counts for a few looks, as what was killed may be long in going; then no more, though nobody had asked."""
    kills = KernelKills()
    counter.write(6)
    kills.look()
    assert kills.rose()
    for _ in range(10):
        kills.look()
    assert not kills.rose()


def test_where_there_is_no_counter_nothing_rises(counter: Counter) -> None:
    counter.path.unlink()
    kills = KernelKills()
    kills.look()
    assert not kills.rose()
