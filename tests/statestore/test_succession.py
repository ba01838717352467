"""A statestore that takes the place of another one in a state folder does not know what that one spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.ports.store import Store
from cloud_dispatch.spend.doubt import AGAIN_MS
from cloud_dispatch.statestore import open_store
from cloud_dispatch.succession import SIGN, succeed
from cloud_dispatch.testing.store_builders import ManualClock


async def a_store(path: Path, clock: ManualClock) -> Store:
    url = f"sqlite:///{path}.sqlite"
    return await open_store(url, clock=clock, entropy=SystemEntropy(), executor=Inline())


async def test_the_first_store_of_a_folder_doubts_nothing(tmp_path: Path) -> None:
    """Nor does it at its next start; nor one that serves another folder."""
    store = await a_store(tmp_path / "one", ManualClock())
    for _ in range(2):
        await succeed(store, tmp_path)
        assert store.doubted_ms() is None
    assert (tmp_path / SIGN).read_text().strip() == store.id
    await store.close()


async def test_one_that_takes_the_place_of_another_does(tmp_path: Path) -> None:
    """From its first start on, once: what is reconciled stays so."""
    clock = ManualClock()
    first, second = await a_store(tmp_path / "one", clock), await a_store(tmp_path / "two", clock)
    await succeed(first, tmp_path)
    await succeed(second, tmp_path)
    assert (second.doubted_ms(), second.unsure_since()) == (clock.now_ms, clock.now_ms)
    await second.reconcile()
    await succeed(second, tmp_path)
    assert second.doubted_ms() is None
    for store in (first, second):
        await store.close()


async def test_a_sign_that_says_nothing_is_that_of_another(tmp_path: Path) -> None:
    """A machine that lost its power may have emptied it: then nobody knows whose it was."""
    clock = ManualClock()
    store = await a_store(tmp_path / "one", clock)
    (tmp_path / SIGN).write_text("")
    await succeed(store, tmp_path)
    assert store.doubted_ms() == clock.now_ms
    assert (tmp_path / SIGN).read_text().strip() == store.id
    await store.close()


async def test_what_was_cut_short_is_done_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sign changes last."""
    clock = ManualClock()
    first, second = await a_store(tmp_path / "one", clock), await a_store(tmp_path / "two", clock)
    await succeed(first, tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr("os.replace", full)
        with pytest.raises(OSError, match="full"):
            await succeed(second, tmp_path)
    assert second.doubted_ms() == clock.now_ms
    clock.now_ms += AGAIN_MS
    await succeed(second, tmp_path)
    assert second.doubted_ms() == clock.now_ms
    assert (tmp_path / SIGN).read_text().strip() == second.id
    for store in (first, second):
        await store.close()


def full(*_: object) -> None:
    raise OSError("disk full")
