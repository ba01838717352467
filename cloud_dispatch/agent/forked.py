"""What the supervisor's forked children do. Owns the fork, and the way from root to a task's user, after which nothing
of root is left.

The children may take long or fail in any way: the supervisor does not wait for them.
"""

from __future__ import annotations

import os
import resource
import signal
from functools import partial
from typing import Callable, List, Optional  # noqa: UP035

from cloud_dispatch.agent.handing import hand_on
from cloud_dispatch.agent.leftovers import forget, owners
from cloud_dispatch.agent.lending import read_order, write_failure
from cloud_dispatch.agent.memory import proportional
from cloud_dispatch.agent.privileges import Users, end_with_parent, leave_keys, lend_hand, step_down
from cloud_dispatch.agent.processes import raw_children, tree, uid_of
from cloud_dispatch.agent.spawning import RESTORED, find

#: How many processes and threads an attempt may have at once: a VM's own have to fit beside those of all.
MOST_PROCESSES = 4_096
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def fork(work: Callable[[], Optional[int]]) -> int:
    """Run `work` in a child, without the supervisor's handlers of signals; its pid. The child ends with what the work
    says, 0 unless it says something, or 1 where it failed."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        code = work() or 0
    finally:
        os._exit(code)


def run_order(users: Users, uid: int, filled: str, descriptors: List[int]) -> None:
    """Become the command of the order, as `uid`, in a session of its own. `filled`: a folder that the agent filled."""
    order, output, failure = descriptors
    try:
        if filled:
            hand_on(filled, users.agent, uid, uid)
        os.setsid()
        leave_keys()  # as root, who may have as many keyrings as there are attempts
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number, source in enumerate((null, output, output)):
            os.dup2(source, number)
        for ignored in RESTORED:
            signal.signal(ignored, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_NPROC, (MOST_PROCESSES, MOST_PROCESSES))
        step_down(uid, uid)
        end_with_parent()
        argv, env, cwd = read_order(order)
        os.chdir(cwd)
        os.execve(find(argv[0], env), argv, env)
    except Exception as error:
        os.write(failure, write_failure(error))
        raise


def clean(uid: int) -> None:
    """Remove what `uid`, of which nothing lives, has left outside of its folder."""
    step_down(uid, uid)
    end_with_parent()
    forget(uid)


def look_round(users: Users, answer: int) -> None:
    """Write which uids of attempts have left something outside of their folders."""
    os.write(answer, " ".join(str(uid) for uid in sorted(owners(users.first, users.last))).encode("ascii"))


def clean_all(users: Users) -> None:
    """As `clean`, for all of whom something is left, one after another."""
    for uid in sorted(owners(users.first, users.last)):
        os.waitpid(fork(partial(clean, uid)), 0)


def signal_all(users: Users, uid: int, number: int) -> None:
    """Send a signal to everything of `uid`: the kernel lets none of it fork away meanwhile."""
    lend_hand(uid, users.hand)
    os.kill(-1, number)


def give_back(users: Users, uid: int, folder: str) -> None:
    """Make the agent the owner of what `uid` left."""
    hand_on(folder, uid, users.agent, users.group)


def weigh(uid: int, answer: int) -> None:
    """Write how many bytes the processes of `uid` use, by the eyes of that user."""
    tops = [pid for pid in raw_children(os.getppid()) if pid != os.getpid() and uid_of(pid) == uid]
    pids = sorted({each for top in tops for each in tree(top)})
    step_down(uid, uid)
    os.write(answer, b"%d" % proportional(pids))
