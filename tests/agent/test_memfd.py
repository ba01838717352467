"""What is handed on in a descriptor arrives whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.agent.identity import Config
from cloud_dispatch.agent.lending import read_order, write_order
from cloud_dispatch.agent.memfd import holding
from cloud_dispatch.agent.privileges import Users
from cloud_dispatch.agent.separation import Separation

MANY = "x" * 100_000


def open_ones() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{name}").exists()}


def as_held(content: bytes) -> bytes:
    with os.fdopen(holding("test", content), "rb") as file:
        return file.read()


def as_order(content: bytes) -> bytes:
    argv, env, cwd = read_order(write_order([content.decode()], {"A": "b"}, "/"))
    assert (env, cwd) == ({"A": "b"}, "/")
    return argv[0].encode()


def as_configuration(content: bytes) -> bytes:
    config = Config(url="http://d", join_token=content.decode())
    separation = Separation(Users(1, 1), "/", config, "python3")
    with os.fdopen(separation.config_descriptor(), "rb") as file:
        return content if content in file.read() else b""


@pytest.mark.parametrize("way", [as_held, as_order, as_configuration])
def test_a_kernel_that_takes_it_piece_by_piece_gets_it_whole(
    way: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write may take less than it was given."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, bytes(content)[:10_000]))
    assert way(MANY.encode()) == MANY.encode()


def test_nothing_is_left_open_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    before = open_ones()
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        holding("test", b"content")
    assert open_ones() == before
