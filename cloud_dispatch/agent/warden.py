"""The supervisor's part that runs tasks as users of their own. Owns the berths: each a uid with a folder of its own.

It does what the agent asks within bounds that hold for an agent that was taken over, too: berths of its own range, each
for one command at a time, folders below its own, and whatever takes long in a child process. So the guest timer, which
runs in the same process, never waits. A berth is let again only when nothing of its uid lives, what it left elsewhere
is gone and its folder is new.
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import Callable, Dict, List, Optional, Set, Tuple  # noqa: UP035

from cloud_dispatch.agent.adapters import now_ms
from cloud_dispatch.agent.folders import TEMPORARY, is_untouched
from cloud_dispatch.agent.forked import clean, fork, give_back, look_round, run_order, signal_all, weigh
from cloud_dispatch.agent.lending import MOST_EXITS, REQUEST_BYTES, Request, parse
from cloud_dispatch.agent.privileges import Users
from cloud_dispatch.agent.processes import Exit, kill_each, raw_children, uid_of

#: Requests that are dealt with before the supervisor looks at its timer again.
_AT_ONCE = 64
_MOST_CHILDREN = 4_096
_MOST_DESCRIPTORS = 8
#: Between two looks at a berth of which something does not die: the first pause, doubled each time, and the longest.
_PAUSE_MS = 10
_MOST_PAUSE_MS = 1_000


@dataclass
class Berth:
    """A uid and its folder while the agent has it."""

    uid: int
    folder: str
    filled: bool  # the folder is the agent's until the command starts
    pid: int = 0  # of the main process; not reaped yet if `runs`
    runs: bool = False
    leaving: bool = False
    clean: bool = True  # there is nothing of its uid outside of the folder
    again_ms: int = 0  # when to look again whether it is quiet
    pause_ms: int = _PAUSE_MS


class Warden:
    """Serves one incarnation of the agent. `line` is the end of the socket for it to use, `attempts` where the berths'
    folders are; `deaf` once it has gone, `ready` when berths may be let: it is known of whom something is left."""

    def __init__(self, users: Users, root: str) -> None:
        self._users = users
        self.attempts = os.path.join(root, "attempts")
        self._waste = os.path.join(root, ".waste")
        self._berths: Dict[int, Berth] = {}
        self._by_pid: Dict[int, Berth] = {}  # main processes that are not reaped
        self._helpers: Set[int] = set()
        self._handing: Dict[int, int] = {}  # helpers that give a folder back, with its uid; the agent is told their end
        self._killers: Dict[int, int] = {}  # helpers that signal all that a uid has, with it: some may not have begun
        self._cleaners: Dict[int, int] = {}  # helpers that remove what a uid left outside of its folder, with it
        self._scout = 0  # the helper that looks for whom there is something to remove, and where it writes that
        self._sighted = os.memfd_create("sighted")
        self._look_ms = 0  # when to send it again, if it came to nothing
        self._remover = 0
        self._spare: List[Tuple[int, str]] = []  # uids whose folder is there and untouched
        self._made = 0
        self._unused = iter(range(users.first, users.last + 1))
        self._free: List[int] = []  # uids without a folder
        self._exits: List[Tuple[int, int, int, int]] = []
        self._wasted = 0  # the number in the name of what was thrown away last: none is given twice
        self._littered = False  # something may be there to remove
        self._agent = 0
        self.deaf = self.ready = False
        self.socket, self.line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self._make_way()

    def _make_way(self) -> None:
        """Empty folders for this incarnation; those of the last one go."""
        os.makedirs(self._waste, mode=0o700, exist_ok=True)
        left = os.listdir(self._waste)
        self._wasted, self._littered = max((int(name) for name in left if name.isdigit()), default=0), bool(left)
        self._throw_away(self.attempts)
        for uid in {uid_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}:
            if uid is not None and self._users.first <= uid <= self._users.last:  # of a supervisor that was killed
                self._signal_all(uid, signal.SIGKILL)
                self._keep_back(uid)
        self._look_round()
        os.mkdir(self.attempts, 0o711)
        os.chmod(self.attempts, 0o711)

    # What the supervisor tells it

    def serves(self, agent: int) -> None:
        """The process that has the other end of the socket."""
        self._agent = agent
        self.line.close()

    def serve(self) -> None:
        """Answer what the agent has asked, so much at once that nothing waits for long."""
        for _ in range(_AT_ONCE):
            try:
                line, descriptors = _receive(self.socket)
            except BlockingIOError:
                return
            except OSError:
                line, descriptors = b"", []
            try:
                if not line:
                    self.deaf = True
                    return
                request = parse(line, len(descriptors))
                answer = self._answer(request, descriptors) if request is not None else "no"
                if answer:
                    with contextlib.suppress(OSError):  # an agent that does not read its answers has none
                        self.socket.send(answer.encode("ascii"))
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def reaped(self, end: Exit) -> None:
        """A child was reaped."""
        berth = self._by_pid.pop(end.pid, None)
        if berth is not None:
            berth.runs = False
            self._tell(end)
        elif end.pid in self._handing:
            self._tell(end)
        self._handing.pop(end.pid, None)
        self._helpers.discard(end.pid)
        self._killers.pop(end.pid, 0)
        cleaned = self._berths.get(self._cleaners.pop(end.pid, 0))
        if cleaned is not None and end.status == 0:
            cleaned.clean, cleaned.again_ms = True, 0
        if end.pid == self._scout:
            self._scout, self._look_ms, self.ready = 0, now_ms() + _MOST_PAUSE_MS, end.status == 0
            if self.ready:
                self._sight()
        if end.pid == self._remover:
            self._remover = 0

    def tidy(self) -> Optional[int]:
        """Let berths go that were left and are quiet, and what was thrown away; when to come again, in ms from now."""
        now = now_ms()
        if not self.ready and not self._scout and self._look_ms <= now:
            self._look_round()
        for berth in list(self._berths.values()):
            if berth.leaving and berth.again_ms <= now:
                self._release(berth)
        self._remove()
        left = [berth.again_ms - now for berth in self._berths.values() if berth.leaving]
        return max(min(left), 1) if left else None

    def close(self) -> List[int]:
        """The agent is gone: kill all that it had running. The children that do."""
        self.socket.close()
        os.close(self._sighted)
        return [self._signal_all(uid, signal.SIGKILL) for uid in self._berths]

    # Requests

    def _answer(self, request: Request, descriptors: List[int]) -> str:
        word, numbers = request
        if word == "take":
            return self._take(bool(numbers[0]))
        if word == "exits":
            told, self._exits = self._exits[:MOST_EXITS], self._exits[MOST_EXITS:]
            return "exits " + " ".join("%d,%d,%d,%d" % end for end in told)
        berth = self._berths.get(numbers[0])
        if berth is None or berth.leaving:
            return "" if word in ("signal", "leave") else "no"
        if word == "spawn":
            return self._spawn(berth, descriptors)
        if word == "signal":
            return self._signal(berth, numbers[1], bool(numbers[2]))
        if word == "prod":
            if berth.runs and 0 < numbers[1] < signal.NSIG:  # not reaped: its number is nobody else's
                kill_each([berth.pid], numbers[1])
            return "done"
        if word == "back":
            return self._back(berth)
        if word == "weigh":
            return self._weigh(berth, descriptors[0])
        berth.leaving = True
        self._release(berth)
        return ""

    def _take(self, filled: bool) -> str:
        uid, folder = self._spare.pop() if self._spare else (self._free.pop() if self._free else self._next(), "")
        if not uid:
            return "no"
        if not folder:
            self._made += 1
            folder = os.path.join(self.attempts, "%d.%d" % (uid, self._made))
        berth = self._berths[uid] = Berth(uid, folder, filled)
        try:
            self._furnish(folder, *((self._users.agent, self._users.group) if filled else (uid, uid)))
        except OSError as error:
            berth.leaving = True
            self._release(berth)
            return "no %d" % (error.errno or 0)
        return "berth " + os.path.basename(folder)

    def _furnish(self, folder: str, owner: int, group: int) -> None:
        """An empty folder of `owner`; the one that is there was never anybody's, or was left untouched."""
        temporary = os.path.join(folder, TEMPORARY)
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)
            os.mkdir(temporary, 0o700)
        for path in (folder, temporary):
            if os.lstat(path).st_uid != owner:
                os.chown(path, owner, group, follow_symlinks=False)

    def _next(self) -> int:
        """A uid that was not let yet and of which there is nothing from before; 0 where there is none."""
        return next((uid for uid in self._unused if uid not in self._berths), 0) if self.ready else 0

    def _spawn(self, berth: Berth, descriptors: List[int]) -> str:
        if berth.pid:
            return "no"
        filled = berth.folder if berth.filled else ""
        berth.pid = self._fork(partial(run_order, self._users, berth.uid, filled, descriptors))
        if not berth.pid:
            return "no"
        self._helpers.discard(berth.pid)
        berth.runs, berth.clean = True, False
        self._by_pid[berth.pid] = berth
        return "pid %d" % berth.pid

    def _signal(self, berth: Berth, number: int, all_of_it: bool) -> str:
        if not 0 < number < signal.NSIG:
            return ""
        if all_of_it:
            self._signal_all(berth.uid, number)
        elif berth.runs:  # not reaped: its number is nobody else's
            with contextlib.suppress(ProcessLookupError):
                os.killpg(berth.pid, number)
        return ""

    def _back(self, berth: Berth) -> str:
        if not berth.pid or berth.runs or self._alive(berth.uid):
            return "no"
        pid = self._fork(partial(give_back, self._users, berth.uid, berth.folder))
        if not pid:
            return "no"
        self._handing[pid] = berth.uid
        return "pid %d" % pid

    def _weigh(self, berth: Berth, answer: int) -> str:
        pid = self._fork(partial(weigh, berth.uid, answer))
        return "pid %d" % pid if pid else "no"

    # Rooms that are left

    def _release(self, berth: Berth) -> None:
        """Let `berth` go if nothing of it lives, no signal to its uid is on its way (the next attempt would get it),
        its folder is not being given back (the next attempt's would be taken), and what it left, in its folder or
        elsewhere, is out of reach (the next attempt could read it). Else what lives is killed, what is left is removed,
        and this is tried again later."""
        lives = berth.runs or self._alive(berth.uid)
        giving = [pid for pid, uid in self._handing.items() if uid == berth.uid]
        kill_each(giving, signal.SIGKILL)  # nobody wants it any more; not reaped: their numbers are nobody else's
        if lives or giving or self._hunted(berth.uid):
            if lives:
                self._signal_all(berth.uid, signal.SIGKILL)
            self._put_off(berth)
            return
        if not berth.clean:
            if berth.uid not in self._cleaners.values():
                cleaner = self._fork(partial(clean, berth.uid))
                if cleaner:
                    self._cleaners[cleaner] = berth.uid
            self._put_off(berth)
            return
        if is_untouched(berth.folder, berth.uid):
            self._spare.append((berth.uid, berth.folder))
        else:
            try:
                self._throw_away(berth.folder)
            except OSError:
                self._put_off(berth)
                return
            self._free.append(berth.uid)
            self._remove()
        del self._berths[berth.uid]

    def _look_round(self) -> None:
        """Have a child find the uids of which there is something from before: of another supervisor's time, say."""
        os.ftruncate(self._sighted, 0)
        os.lseek(self._sighted, 0, os.SEEK_SET)
        self._scout = self._fork(partial(look_round, self._users, self._sighted))

    def _sight(self) -> None:
        """They are let when that is removed, as if they had been let before."""
        found = os.pread(self._sighted, os.fstat(self._sighted).st_size, 0)
        for uid in map(int, found.split()):
            if uid not in self._berths:
                self._keep_back(uid)

    def _keep_back(self, uid: int) -> None:
        self._berths[uid] = Berth(uid, "", filled=False, leaving=True, clean=False)

    def _put_off(self, berth: Berth) -> None:
        berth.again_ms = now_ms() + berth.pause_ms
        berth.pause_ms = min(2 * berth.pause_ms, _MOST_PAUSE_MS)

    def _alive(self, uid: int) -> bool:
        """Whether anything of `uid` lives. All of it descends from its main process or, once that is reaped, from a
        child of this process that it does not know: orphans of the VM come to this process."""
        known = {self._agent, *self._by_pid, *self._helpers}
        return any(uid_of(pid) in (uid, None) for pid in raw_children(os.getpid()) if pid not in known)

    def _signal_all(self, uid: int, number: int) -> int:
        """Have a child signal all that `uid` has; its pid, 0 where there is none. Then, as `uid` may have filled the
        kernel's table, this process signals each that it finds: what forks meanwhile is found when this is repeated."""
        pid = self._fork(partial(signal_all, self._users, uid, number))
        if pid:
            self._killers[pid] = uid
        else:
            kill_each(all_of(uid), number)
        return pid

    def _hunted(self, uid: int) -> bool:
        return uid in self._killers.values()

    def _throw_away(self, folder: str) -> None:
        """Out of everybody's reach, until a child removes it. OSError where it stays where it is."""
        self._wasted += 1
        with contextlib.suppress(FileNotFoundError):  # it was never made
            os.rename(folder, os.path.join(self._waste, str(self._wasted)))
            self._littered = True

    def _remove(self) -> None:
        if self._littered and not self._remover:
            self._remover = self._fork(partial(remove_below, self._waste))
            self._littered = not self._remover  # there may be too many children just now

    def _fork(self, work: Callable[[], None]) -> int:
        """Run `work` in a child; its pid, 0 where there are too many or the kernel refuses."""
        if len(self._helpers) >= _MOST_CHILDREN:
            return 0
        try:
            pid = fork(work)
        except OSError:
            return 0
        self._helpers.add(pid)
        return pid

    def _tell(self, end: Exit) -> None:
        self._exits.append((end.pid, end.status, end.max_rss, end.cpu_ms))
        if self._agent:
            kill_each([self._agent], signal.SIGCHLD)


def all_of(uid: int) -> List[int]:
    """Every process of `uid`."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and uid_of(int(name)) == uid]


def remove_below(folder: str) -> None:
    """Remove all that is in `folder`. `rm` follows no links and knows no depth that is too deep."""
    names = [os.path.join(folder, name) for name in os.listdir(folder)]
    for start in range(0, len(names), _AT_ONCE):
        subprocess.run(
            ["/bin/rm", "-rf", "--", *names[start : start + _AT_ONCE]], stdin=subprocess.DEVNULL, check=False
        )


def _receive(end: socket.socket) -> Tuple[bytes, List[int]]:
    """One message and the descriptors that came with it, none of which a child inherits."""
    found = array.array("i")
    line, beside, _, _ = end.recvmsg(
        REQUEST_BYTES, socket.CMSG_SPACE(_MOST_DESCRIPTORS * found.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, data in beside:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return line, list(found)
