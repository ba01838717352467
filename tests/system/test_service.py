"""The dispatcher under a service manager: what it says of itself, from its start to its end."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.house import House

#: What Python runs at its start: a signal has the loop wait, in the midst of a turn, for a file.
HANGS = """
import os, signal, time

def hang(*_):
    while not os.path.exists({on!r}):
        time.sleep(0.05)

signal.signal(signal.SIGUSR2, hang)
"""


class Manager:
    """The socket that systemd would listen at."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.said: list[str] = []

    def until(self, word: str, within: float = 30) -> list[str]:
        """What was said up to `word`, which is said by now."""
        deadline = time.monotonic() + within
        while word not in self.said:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.01))
            self.said += self.socket.recv(4096).decode().split("\n")
        until = self.said.index(word)
        before, self.said = self.said[: until + 1], self.said[until + 1 :]
        return before

    def lives(self) -> bool:
        """Whether it goes on saying so; some words may have been on their way."""
        try:
            for _ in range(4):
                self.until("WATCHDOG=1", within=3)
        except TimeoutError:
            return False
        return True


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1500000")
    yield made
    made.socket.close()


def test_it_says_when_it_is_up_that_it_lives_and_when_it_goes(make_house: Any, manager: Manager) -> None:
    house: House = make_house()
    house.process = house.spawn()
    before = manager.until("READY=1")
    assert "WATCHDOG=1" not in before
    assert house.answers(), "it is ready when it answers, and not before"
    manager.until("WATCHDOG=1")
    manager.until("WATCHDOG=1")

    house.config.write_text(house.config.read_text().replace("instances = 3", "instances = 4"))
    house.process.send_signal(signal.SIGHUP)
    manager.until("RELOADING=1")
    assert [word for word in manager.until("READY=1") if word.startswith("MONOTONIC_USEC=")]
    house.config.write_text("nothing of use")
    house.process.send_signal(signal.SIGHUP)
    manager.until("RELOADING=1")
    manager.until("READY=1")
    manager.until("WATCHDOG=1")
    house.process.send_signal(signal.SIGTERM)
    manager.until("STOPPING=1")
    assert house.process.wait(30) == 0


def test_one_that_hangs_is_not_said_to_live(make_house: Any, manager: Manager, tmp_path: Path) -> None:
    """The words come from the loop that answers everything: where it does not turn they stay away, whatever else of the
    process still runs."""
    on = tmp_path / "on"
    (tmp_path / "hung").mkdir()
    (tmp_path / "hung" / "sitecustomize.py").write_text(HANGS.format(on=str(on)))
    house: House = make_house()
    house.python_path = [str(tmp_path / "hung")]
    house.process = house.spawn()
    manager.until("READY=1")
    manager.until("WATCHDOG=1")
    house.process.send_signal(signal.SIGUSR2)
    assert not manager.lives(), "it hangs"
    on.write_text("")
    manager.until("WATCHDOG=1")
