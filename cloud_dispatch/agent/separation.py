"""How the supervisor sets the agent apart: its user, its own folder, what it gets of the configuration.

Owns what is made ready before the agent is started, and refuses where a part of it can't be had: agent and tasks never
run with more rights than the configuration says.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import MutableMapping, Optional  # noqa: UP035

from cloud_dispatch.agent.adapters import now_ms, pause
from cloud_dispatch.agent.forked import clean_all, fork
from cloud_dispatch.agent.identity import Config
from cloud_dispatch.agent.memfd import holding
from cloud_dispatch.agent.privileges import Unseparated, Users, open_to_all, python_for_all, step_down, users
from cloud_dispatch.agent.processes import kill_each
from cloud_dispatch.wire.codec import encode

#: What the boot script says instead of the configuration, where VMs that share one must not share users.
AGENT_USER_VARIABLE = "CLOUD_DISPATCH_AGENT_USER"
TASK_UIDS_VARIABLE = "CLOUD_DISPATCH_TASK_UIDS"
_CLEAR_S = 10


@dataclass(frozen=True)
class Separation:
    """The agent as `users.agent`, with a folder of its own below `work_dir`; it reads its configuration from a
    descriptor, since the file belongs to root: the end command in it is run by root."""

    users: Users
    work_dir: str
    config: Config
    python: str

    def config_descriptor(self) -> int:
        """The agent's configuration, to be read once and closed by the caller."""
        return holding("agent.json", encode(self.config))

    def step_down(self) -> None:
        """In the child that becomes the agent."""
        step_down(self.users.agent, self.users.group)

    def clear(self) -> None:
        """The end: remove what attempts have left, as far as that is done soon. It comes to its own end whatever it
        meets: the VM's comes after it."""
        try:
            cleaner = fork(partial(clean_all, self.users))
        except OSError:  # the kernel has no process to spare: what could not be killed may have them all
            return
        names = [os.path.join(self.work_dir, name) for name in ("attempts", ".waste")]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["/bin/rm", "-rf", "--", *names], timeout=_CLEAR_S, stdin=subprocess.DEVNULL, check=False)
        deadline = now_ms() + _CLEAR_S * 1000
        while os.waitpid(cleaner, os.WNOHANG) == (0, 0):
            if now_ms() > deadline:
                kill_each([cleaner], signal.SIGKILL)
                return
            pause(0.01)


def separate(config: Config, environment: MutableMapping[str, str]) -> Optional[Separation]:
    """Make all ready that `config` asks for; None where agent and tasks run as who started the supervisor. Unseparated,
    with what is missing, or OSError."""
    agent_user = environment.pop(AGENT_USER_VARIABLE, "") or config.agent_user
    task_uids = environment.pop(TASK_UIDS_VARIABLE, "") or config.task_uids
    found = users(agent_user, task_uids)
    if found is None:
        return None
    if os.geteuid() != 0:
        raise Unseparated(
            "agent_user = %r, task_uids = %r: the supervisor has to be root for that, and is uid %d"
            % (agent_user, task_uids, os.geteuid())
        )
    os.chmod(config.work_dir, 0o711)
    if not open_to_all(config.work_dir):
        raise Unseparated("work_dir %s: a folder on its way can't be entered by others; chmod o+x it" % config.work_dir)
    own = os.path.join(config.work_dir, "agent")
    public = os.path.join(config.work_dir, "public")
    _own_folder(own, found, 0o700)
    _own_folder(public, found, 0o711)
    _publish(os.path.abspath(sys.argv[0]), config.work_dir)
    told = replace(config, work_dir=own, public_dir=public, end_command=[], agent_user=agent_user, task_uids=task_uids)
    return Separation(found, config.work_dir, told, python_for_all())


def _own_folder(folder: str, found: Users, mode: int) -> None:
    """A folder of the agent's user. Its parent is root's: nobody else can have put it there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(handle, mode)
        os.fchown(handle, found.agent, found.group)
    finally:
        os.close(handle)


def _publish(program: str, work_dir: str) -> None:
    """The agent's program is no secret, and the agent has to read it. Only one in `work_dir` is ours to change."""
    mode = os.stat(program).st_mode
    if os.path.dirname(program) == work_dir and stat.S_ISREG(mode):
        os.chmod(program, stat.S_IMODE(mode) | 0o444)
    elif not (open_to_all(os.path.dirname(program)) and mode & stat.S_IROTH):
        raise Unseparated("%s can't be read by agent_user: put it into work_dir" % program)
