"""What the supervisor makes of an agent's report, which may be that of an agent that was taken over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_dispatch.agent.identity import Config
from cloud_dispatch.agent.supervisor import Supervisor


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """One that has started nothing."""
    supervisor = Supervisor(Config(url="http://dispatcher", vm="vm", work_dir=str(tmp_path)), "/agent.json", 0)
    yield supervisor
    supervisor._wake_read.close()
    supervisor._wake_write.close()


def test_a_report_says_until_when_to_wait_and_how_long_the_vm_lives(supervisor: Supervisor) -> None:
    assert supervisor._hear(b"beat 123456\nlifetime 86400000\nbea") == b"bea"
    assert (supervisor._until_ms, supervisor._lifetime_ms) == (123_456, 86_400_000)


@pytest.mark.parametrize("number", ["9" * 5_000, "9" * 400, "-1", "1.5", "", "x"])
def test_a_number_that_is_none_does_no_harm(supervisor: Supervisor, number: str) -> None:
    """The supervisor, which holds the guest timer, goes on as if it had said nothing with it."""
    supervisor._hear(b"lifetime 1000\n")
    supervisor._hear(f"beat {number}\nlifetime {number}\n".encode())
    assert (supervisor._until_ms, supervisor._lifetime_ms) == (0, 1_000)
    assert supervisor._look_s() > 0
