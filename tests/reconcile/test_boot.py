"""What booting VMs say: a failure ends them at once, with their own words; nobody but them can say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict, NotFound
from cloud_dispatch.domain.ids import BatchId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.ports.fleet import BootWord
from cloud_dispatch.reconcile.boot import CONSOLE_LINES, CONSOLE_READ, readable
from tests.reconcile.fake import world

S = InstanceState


async def test_a_boot_that_failed_ends_its_vm_and_says_why(tmp_path: Path) -> None:
    """Phase, exit code and the last line are the reason, the log is an event, and the VM goes without a deadline."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        log = "\n".join(["token: cdj1.b1.1.9.mAc", *(f"line {i}" for i in range(300)), "E: no such package\x1b[2J"])
        await w.fleet.boot_said(row.batch, BootWord(row.vm, "drivers", True, 100, log))
        await w.passes(20)
        gone = await w.store.instance(row.id)
        assert (gone.state, gone.cause) == (S.GONE, "boot-failed")
        assert gone.reason == "boot phase drivers failed (exit code 100): E: no such package?[2J"
        (kept,) = [e.detail for e in await w.store.events(instance=row.id) if e.action == "instance.boot-log"]
        assert kept.startswith("phase drivers\nline 20")
        assert len(kept.splitlines()) == CONSOLE_LINES + 1
        assert "mAc" not in kept
        assert len(w.cloud.requests) == 1  # and the same is not tried again at once
        explained = await w.fleet.explain_instance(row.id)
        assert "E: no such package" in str(explained)


async def test_of_a_log_without_end_only_the_end_is_looked_at(tmp_path: Path) -> None:
    """What stood far above does not make a secret of it, and costs the loop no time."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        log = "-----BEGIN PRIVATE KEY-----\n" + "line\n" * (CONSOLE_READ // 5) + "E: no such package"
        await w.fleet.boot_said(row.batch, BootWord(row.vm, "drivers", True, 100, log))
        assert w.rows[0].reason == "boot phase drivers failed (exit code 100): E: no such package"


async def test_a_phase_is_an_event_and_nothing_else(tmp_path: Path) -> None:
    """A VM that says how far it is boots on."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        await w.fleet.boot_said(row.batch, BootWord(row.vm, "drivers"))
        await w.passes(2)
        assert w.rows[0].state is S.BOOTING
        assert [e.detail for e in await w.store.events(instance=row.id) if e.action == "instance.boot"] == [
            "phase drivers"
        ]


async def test_only_the_vm_itself_can_fail_its_boot(tmp_path: Path) -> None:
    """Of another batch, of an unknown VM, or of one that has registered, a failure changes nothing."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        failure = BootWord(row.vm, "fetch", True, 1, "")
        with pytest.raises(NotFound):
            await w.fleet.boot_said(BatchId("b00000000099"), failure)
        with pytest.raises(NotFound):
            await w.fleet.boot_said(row.batch, BootWord("vm-of-another", "fetch", True, 1, ""))
        await w.register(row)
        with pytest.raises(Conflict, match="its boot is over"):
            await w.fleet.boot_said(row.batch, failure)
        assert w.rows[0].state is S.IDLE


async def test_a_vm_that_can_not_learn_its_id_is_known_by_its_batch(tmp_path: Path) -> None:
    """Where the batch has one VM only, nobody else can be meant; an empty log is said to be one."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        await w.fleet.boot_said(row.batch, BootWord("", "identity", True, 1, ""))
        assert w.rows[0].reason == "boot phase identity failed (exit code 1): it left no log"


def test_a_log_can_not_play_with_a_terminal() -> None:
    """Only what can be printed is kept, and line breaks."""
    assert readable("a\tb\r\nc\x1b[31m\x00\u202ed\u00e9") == "a\tb\nc?[31m??d\u00e9"
