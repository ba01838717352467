"""The first agent is its supervisor forked: what it keeps of it, and what it must not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agent.conftest import RunningAgent, is_agent, until
from tests.agent.stub import StubDispatcher

pytestmark = pytest.mark.process


def test_the_first_agent_is_the_supervisor_forked_and_a_later_one_is_not(
    stub: StubDispatcher, tmp_path: Path, agent_zip: Path
) -> None:
    """The fork has none of the supervisor's descriptors and is told apart from it by its name. What comes after one
    that died is started anew, under the same name."""
    agent = RunningAgent(tmp_path, agent_zip, stub.url)
    try:
        until(lambda: stub.syncs)
        first = agent.agent_pid
        assert words_of(first) == words_of(agent.process.pid)
        assert (is_agent(first), is_agent(agent.process.pid)) == (True, False)
        assert os.getsid(first) == first
        handled = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
        inherited = signals(os.getpid(), "SigIgn") - handled  # a shell's background job ignores more than Python does
        assert signals(first, "SigIgn") == {signal.SIGPIPE, signal.SIGXFSZ} | inherited
        assert signals(first, "SigCgt") >= handled
        shared = {*descriptors(first)} & {*descriptors(agent.process.pid)}
        (pipe,) = shared - {str(agent.console), "/dev/null"}  # it reports into
        assert pipe.startswith("pipe:")
        assert descriptors(first).count(pipe) == 1
        os.kill(first, signal.SIGKILL)
        assert stub.result(stub.submit(shell="true")).cause == "success"
        later = agent.agent_pid
        assert later != first
        assert words_of(later)[-5:-3] == ["--agent", str(agent.config)]
    finally:
        agent.stop()


def words_of(pid: int) -> list[str]:
    """The command line of `pid` as it shows itself."""
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")


def signals(pid: int, which: str) -> set[int]:
    """The signals of a mask of `pid`, without 32 and 33: they are the C library's, and nobody else can change them."""
    (mask,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(which)]
    return {
        number for number in range(1, 65) if number not in (32, 33) and int(mask.split()[1], 16) >> (number - 1) & 1
    }


def descriptors(pid: int) -> list[str]:
    """What the descriptors of `pid` are, but for those that have no name of their own."""
    found = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return [name for name in found if not name.startswith("anon_inode:")]
