"""A driver that raises what it should not: its profile has a problem, and all else goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reconcile.fake import LOCAL, world


@pytest.mark.parametrize("call", ["list", "offerings"])
async def test_a_bug_of_a_driver_is_a_silence_and_ends_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whatever a driver raises that it should not: its profile has a problem, and all else goes on."""
    async with world(tmp_path) as w:

        async def stumble(*_: object) -> None:
            raise RuntimeError("the driver has a bug: KeyError: 'State'")

        with monkeypatch.context() as planted:
            planted.setattr(w.cloud, call, stumble)
            await w.submit(1)
            await w.passes(2)
            assert "the driver has a bug" in w.context.profiles[LOCAL].problem
            assert w.rows == []
        await w.passes(3)
        assert w.context.profiles[LOCAL].problem == ""
        assert len(w.rows) == 1
