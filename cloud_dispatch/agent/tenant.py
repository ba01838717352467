"""The agent's side of the warden: processes and folders of attempts that run as users of their own.

Owns the conversation with the supervisor: one request at a time, each answered at once. What lives of an attempt is
read from /proc, where everybody may look; what is done about it is asked for.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import os
import select
import signal
import socket
from typing import Any, Callable, Dict, List, Sequence, Tuple  # noqa: UP035

from cloud_dispatch.agent.adapters import now_ms
from cloud_dispatch.agent.folders import Folders, NoneFree
from cloud_dispatch.agent.lending import ANSWER_BYTES, MOST_EXITS, read_failure, write_order
from cloud_dispatch.agent.memory import resident
from cloud_dispatch.agent.processes import Exit, raw_children, stat_fields, tree, uid_of

#: A supervisor that does not answer for so long is lost, and so is the agent.
_ANSWER_S = 10.0
#: How long a command may take from its fork to its program.
_START_MS = 30_000
_WEIGH_MS = 500
#: For so long an attempt's folder is asked back, with pauses that double: others may have filled the table of
#: processes, and what is in it is all that is left of what has succeeded.
_BACK_MS = 300_000
_BACK_FIRST_S = 0.02
_BACK_MOST_S = 1.0
#: So often at most where a process did begin with it and failed.
_BACK_FAILURES = 4


class Line:
    """The socket to the warden. RuntimeError where it fails: the agent is no use without."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.settimeout(_ANSWER_S)

    def tell(self, words: str, descriptors: Sequence[int] = ()) -> None:
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            self._socket.sendmsg([words.encode("ascii")], beside)
        except OSError as error:
            raise RuntimeError("the supervisor takes no requests: %s" % error) from None

    def ask(self, words: str, descriptors: Sequence[int] = ()) -> List[str]:
        """The words of the answer; ["no", ...] is a refusal."""
        self.tell(words, descriptors)
        try:
            answer = self._socket.recv(ANSWER_BYTES)
        except OSError as error:
            raise RuntimeError("the supervisor does not answer: %s" % error) from None
        if not answer:
            raise RuntimeError("the supervisor is gone")
        return answer.decode("ascii").split(" ")


class LentFolders(Folders):
    """Attempts' folders, each of a uid that is the attempt's alone. The agent's own folder has only what spills."""

    def __init__(
        self, line: Line, attempts: str, root: str, in_thread: Callable[..., Any], kept: Sequence[str] = ()
    ) -> None:
        super().__init__(root, in_thread, kept)
        self._line = line
        self._attempts = attempts
        self.closed = os.path.dirname(os.path.realpath(attempts))
        self._returning: Dict[int, asyncio.Future[int]] = {}

    def uid(self, folder: str) -> int:
        """Whose folder it is: its name begins with that."""
        return int(os.path.basename(folder).partition(".")[0])

    def take(self, fills: bool) -> str:
        word, *rest = self._line.ask("take %d" % fills)
        if word != "berth":
            if not rest:
                raise NoneFree("every uid of task_uids is in use")
            raise OSError(int(rest[0]), os.strerror(int(rest[0])))
        return os.path.join(self._attempts, rest[0])

    def give_back(self, folder: str, filled: bool = False) -> None:
        self._line.tell("leave %d" % self.uid(folder))

    def costs_nothing(self, folder: str) -> bool:
        return True  # it costs the supervisor something

    async def reclaim(self, folder: str) -> None:
        until_ms, pause_s, failures = now_ms() + _BACK_MS, _BACK_FIRST_S, 0
        while True:
            word, *numbers = self._line.ask("back %d" % self.uid(folder))
            if word == "pid":
                ended = self._returning[int(numbers[0])] = asyncio.get_running_loop().create_future()
                if await ended == 0:
                    return
                failures += 1
            if failures >= _BACK_FAILURES:
                raise OSError("the supervisor could not give the attempt's folder back")
            if now_ms() >= until_ms:
                raise OSError("the supervisor does not give the attempt's folder back")
            await asyncio.sleep(pause_s)  # something of it may be about to be reaped
            pause_s = min(2 * pause_s, _BACK_MOST_S)

    def returned(self, end: Exit) -> None:
        """A child of the supervisor's ended."""
        waiting = self._returning.pop(end.pid, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(end.status)


class LentProcesses:
    """`Processes` that the supervisor starts, each as the user of its folder."""

    def __init__(self, line: Line, folders: LentFolders) -> None:
        self._line = line
        self._folders = folders
        self._uids: Dict[int, int] = {}  # by pid, of main processes and health checks
        self._mains: Dict[int, int] = {}  # token -> pid
        self._places: Dict[int, str] = {}  # of health checks: pid -> folder

    def spawn(self, argv: List[str], env: Dict[str, str], cwd: str, output: int, folder: str) -> int:
        place = folder or self._folders.take(False)
        uid = self._folders.uid(place)
        name = "task%d" % uid
        try:
            pid = self._order(uid, argv, {"USER": name, "LOGNAME": name, **env}, cwd, output)
        except (OSError, ValueError):
            if not folder:
                self._folders.give_back(place)
            raise
        self._uids[pid] = uid
        if not folder:
            self._places[pid] = place
        return pid

    def _order(self, uid: int, argv: List[str], env: Dict[str, str], cwd: str, output: int) -> int:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                order = write_order(argv, env, cwd)
                try:
                    word, *numbers = self._line.ask("spawn %d" % uid, (order, output, writing))
                finally:
                    os.close(order)
            finally:
                os.close(writing)
            if word != "pid":
                raise BlockingIOError(errno.EAGAIN, "the supervisor can't start a process")
            said = _read_within(reading, _START_MS)
        finally:
            os.close(reading)
        if said:
            raise read_failure(said)
        return int(numbers[0])

    def reap(self) -> List[Exit]:
        found: List[Exit] = []
        while True:
            _, *told = self._line.ask("exits")
            for numbers in told:
                if numbers:
                    end = Exit(*(int(number) for number in numbers.split(",")))
                    self._folders.returned(end)
                    found.append(end)
            if len(told) < MOST_EXITS:
                return found

    def own(self, token: int, pid: int, folder: str) -> None:
        self._mains[token] = pid
        self._uids[pid] = self._folders.uid(folder)

    def disown(self, token: int) -> None:
        self._uids.pop(self._mains.pop(token, 0), None)

    def own_check(self, pid: int) -> None:
        """It is known from its start."""

    def end_check(self, pid: int) -> None:
        self._send(pid, signal.SIGKILL, True)

    def disown_check(self, pid: int) -> None:
        self._uids.pop(pid, None)
        self._folders.give_back(self._places.pop(pid))

    def signal(self, token: int, number: int) -> None:
        self._send(self._mains.get(token, 0), number, number == signal.SIGKILL)

    def prod(self, token: int, number: int) -> None:
        uid = self._uids.get(self._mains.get(token, 0))
        if uid is not None and self._line.ask("prod %d %d" % (uid, number)) == ["no"]:
            self.signal(token, number)  # a supervisor of a former version

    def signal_strays(self, token: int, number: int) -> None:
        self._send(self._mains.get(token, 0), number, True)

    def _send(self, pid: int, number: int, to_all: bool) -> None:
        uid = self._uids.get(pid)
        if uid is not None:
            self._line.tell("signal %d %d %d" % (uid, number, to_all))

    def alive(self, token: int) -> List[int]:
        pid = self._mains.get(token)
        tops = [] if pid is None else [pid, *self.strays(token)]
        return sorted({each for top in tops for each in tree(top)})

    def strays(self, token: int) -> List[int]:
        main = self._mains.get(token, 0)
        uid = self._uids.get(main)
        others = (pid for pid in raw_children(os.getppid()) if pid not in self._uids and pid != os.getpid())
        return [pid for pid in others if uid_of(pid) == uid and stat_fields(pid)[0] not in ("Z", "X", "")]

    def proportional(self, token: int) -> int:
        uid = self._uids.get(self._mains.get(token, 0))
        try:
            reading, writing = os.pipe2(os.O_CLOEXEC)
        except OSError:  # as many files are open as may be
            return resident(self.alive(token))
        try:
            try:
                self._line.ask("weigh %d" % (uid or 0), (writing,))
            finally:
                os.close(writing)
            with contextlib.suppress(OSError, ValueError):
                return int(_read_within(reading, _WEIGH_MS))
        finally:
            os.close(reading)
        return resident(self.alive(token))


def _read_within(descriptor: int, milliseconds: int) -> bytes:
    """All that is written until everybody has closed it; OSError where that takes longer."""
    said = b""
    watching = select.poll()
    watching.register(descriptor, select.POLLIN)
    while watching.poll(milliseconds):
        piece = os.read(descriptor, 65_536)
        if not piece:
            return said
        said += piece
    raise OSError("no program after %d ms" % milliseconds)


def lodge(
    descriptor: int, attempts: str, spill: str, in_thread: Callable[..., Any], kept: Sequence[str] = ()
) -> Tuple[LentProcesses, LentFolders]:
    """The two sides of the port, over the socket `descriptor`. `kept`: what is in `spill` and still used."""
    line = Line(descriptor)
    folders = LentFolders(line, attempts, spill, in_thread, kept)
    return LentProcesses(line, folders), folders
