"""The life of one attempt on the VM: inputs, command, what it leaves behind, outputs, log. Owns the order of these.

It is told what to do by the shell (begin, signal, exited) and tells it what happened through its host. A command
without inputs, outputs and output passes through without a single task of the event loop: tiny tasks are cheap.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Dict, List, Optional, Tuple  # noqa: UP035

from cloud_dispatch.agent.adapters import has_amd_gpus
from cloud_dispatch.agent.baggage import Moved
from cloud_dispatch.agent.depot import FULL, NoRoom, Stop, TransferFailed, TransferStopped
from cloud_dispatch.agent.devices import visible
from cloud_dispatch.agent.folders import TEMPORARY, NoneFree
from cloud_dispatch.agent.logs import LogStream
from cloud_dispatch.agent.processes import CROWDED, Exit, describe_failure
from cloud_dispatch.agent.uploads import LogUpload
from cloud_dispatch.wire.messages import Order, Result

if TYPE_CHECKING:
    from cloud_dispatch.agent.adapters import Steps
    from cloud_dispatch.agent.transfers import Transfers

#: What a command leaves behind gets SIGTERM, and SIGKILL after so long.
LEFTOVER_GRACE_S = 0.5
#: What still lives so long after that is beyond killing.
LEFTOVER_DEADLINE_S = 10.0
_READ_BYTES = 262_144
_POLL_S = 0.01
#: Where no folder is free, no descriptor or no process, one is asked for so often, with pauses.
_QUEUE_TRIES = 40
_QUEUE_PAUSE_S = 0.05
#: Of the descriptors that the agent may have this part is kept for itself.
_PART_KEPT = 8
#: Where the disk has no room for a folder, the same: to remove what others left on it takes longer.
_FULL_TRIES = 60
_FULL_PAUSE_S = 0.5


class Attempt:
    """One claim in the hands of the shell. `host` is the shell: its processes, its places, its ears. `gpus`: those that
    its command is told of; whose command runs already was told before."""

    def __init__(self, order: Order, host: Any, gpus: Tuple[int, ...] = ()) -> None:
        self.order = order
        self._gpus = gpus
        self.token = order.token
        self.folder = ""
        self._stop = Stop()  # of its transfers
        self.out_of_memory = ""
        self.pid: Optional[int] = None
        self._host = host
        self._task: Optional[asyncio.Task[None]] = None
        self._transfer: Optional[asyncio.Task[Any]] = None
        self._pipe: Optional[int] = None
        self._hurry = False  # SIGKILL was asked for
        self._gone = False  # its command has ended
        self._postponed = 0  # so often its launch found no descriptor or process free
        self._signals: List[int] = []
        stream = LogStream(host.spill_path(order), host.policy.log_limit)
        self.log = LogUpload(stream, host.log_pool, order.task, order.token, order.task_token)

    # What the shell tells it

    def begin(self) -> None:
        """Start towards the command."""
        try:
            self._lodge()
        except OSError as error:
            if _may_pass(error):
                self._later(self._queue(error))
            else:
                self._homeless(error)
            return
        self._proceed()

    def _lodge(self) -> None:
        self.folder = self._host.folders.take(bool(self.order.spec.inputs))

    def _homeless(self, error: OSError) -> None:
        """It gets no folder. One that has waited long for a user of its own is better off elsewhere."""
        if isinstance(error, NoneFree):
            self._over("released", detail="no user of its own was free for it")
            return
        why = "can't make the attempt's folder: %s" % error
        if error.errno in FULL:
            self._no_room(0, why)
        else:
            self._over("cannot-start", detail=why)

    def _no_room(self, needs: int, why: str) -> None:
        """The disk stays full. That is nothing of a task's that would have had room when there was nothing on it yet;
        one that needs most of a disk would find none elsewhere, and is tried as often as others that can't start."""
        if needs < self._host.room_at_first // 2:
            self._host.filled("no room on its disk for task %d: %s" % (self.order.task, why))
            self._over("released", detail=why)
        else:
            self._over("cannot-start", detail=why)

    def _proceed(self) -> None:
        if self.order.spec.inputs:
            self._later(self._bring())
        else:
            self._launch()

    def signal(self, number: int) -> None:
        """Pass a signal on; before the command runs any signal is the end of the attempt."""
        self._signals.append(number)
        self._hurry = self._hurry or number == signal.SIGKILL
        if self.pid is not None:
            self._host.processes.signal(self.token, number)
        if self.pid is None or self._hurry:
            self._stop.set()
            if self._transfer is not None:
                self._transfer.cancel()

    def prod(self, number: int) -> None:
        """Let its main process know; whatever that does about it, the attempt goes on."""
        if not self._gone:
            self._host.processes.prod(self.token, number)

    def exited(self, end: Exit) -> None:
        """The main process was reaped. What it left behind must end before anything is reported."""
        self._gone = True
        if end.signal == signal.SIGKILL and signal.SIGKILL not in self._signals and self._host.kernel_kills.rose():
            self.out_of_memory = self.out_of_memory or "killed by the kernel: out of memory"
        if self._host.processes.strays(self.token):
            self._later(self._clear_up(end))
        else:
            self._settle(end)

    # Another program takes over

    @property
    def at_rest(self) -> bool:
        """Whether its command runs and nothing else is done about it, so that another program can go on with it."""
        return self.pid is not None and self._task is None and not self._signals and not self._gone

    def pack(self) -> Moved:
        """What the other program needs; the descriptor of its output must be left to it."""
        pipe = -1 if self._pipe is None else self._pipe
        return Moved(self.token, self.pid or 0, self.folder, pipe, self.out_of_memory, self.log.stream.pack())

    def take_over(self, moved: Moved) -> None:
        """Go on with what the program before has started."""
        self.folder, self.pid, self.out_of_memory = moved.folder, moved.pid, moved.out_of_memory
        self.log.stream.take_over(moved.log)
        if moved.pipe >= 0:
            os.set_inheritable(moved.pipe, False)
            self._pipe = moved.pipe
            asyncio.get_running_loop().add_reader(moved.pipe, self._readable)
        self._host.processes.own(self.token, moved.pid, moved.folder)
        if self.log.stream.pending:
            self.log.fed()

    # Its way

    def _later(self, work: Any) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._host.check)

    async def _queue(self, error: OSError) -> None:
        """Those who had the folders are about to be gone, and so may be what fills the disk: nothing of this task's."""
        tries = 0
        while tries < (_QUEUE_TRIES if isinstance(error, NoneFree) else _FULL_TRIES):
            tries += 1
            await asyncio.sleep(_QUEUE_PAUSE_S if isinstance(error, NoneFree) else _FULL_PAUSE_S)
            if self._signals:
                self._over("cancelled", detail="killed before its command started")
                return
            try:
                self._lodge()
            except OSError as another:
                error = another
                if _may_pass(error):
                    continue
                break
            self._task = None
            self._proceed()
            return
        self._homeless(error)

    async def _bring(self) -> None:
        inputs = self.order.spec.inputs
        try:
            await self._unless_stopped(lambda: self._carried(lambda transfers: transfers.bring(inputs)))
        except NoRoom as error:
            self._no_room(error.needs, str(error))
            return
        except TransferFailed as error:
            self._over("cannot-start", detail=str(error))
            return
        except BlockingIOError as error:
            self._over("released", detail=str(error))
            return
        except TransferStopped:
            self._over("cancelled", detail="killed while its inputs were brought")
            return
        self._task = None
        if self._signals:
            self._over("cancelled", detail="killed before its command started")
        else:
            self._launch()

    def _launch(self) -> None:
        spec = self.order.spec
        argv = spec.argv or ["/bin/sh", "-c", spec.shell]
        cwd = self._working_folder()
        ends: Tuple[int, ...] = ()
        try:
            ends = os.pipe2(os.O_CLOEXEC)
            leave_some(ends[1])
            self.pid = self._host.processes.spawn(argv, self._environment(), cwd, ends[1], self.folder)
        except (OSError, ValueError) as error:
            for end in ends:
                os.close(end)
            if isinstance(error, OSError) and error.errno in CROWDED:
                self._later(self._launch_later(error))
            else:
                self._over("cannot-start", detail=describe_failure(error, argv, cwd))
            return
        reading, writing = ends
        os.close(writing)
        os.set_blocking(reading, False)
        self._pipe = reading
        self._host.processes.own(self.token, self.pid, self.folder)
        asyncio.get_running_loop().add_reader(reading, self._readable)
        self._host.started(self)

    async def _launch_later(self, error: OSError) -> None:
        """The machine is full of files or processes: that is nothing of the task's, and others end before long."""
        self._postponed += 1
        if self._postponed > _QUEUE_TRIES:
            self._over("released", detail="there was no room for its files or processes: %s" % error)
            return
        await asyncio.sleep(_QUEUE_PAUSE_S)
        if self._signals:
            self._over("cancelled", detail="killed before its command started")
            return
        self._task = None
        self._launch()

    def _readable(self) -> bool:
        """Read once; whether there was something."""
        if self._pipe is None:
            return False
        try:
            piece = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return False
        if not piece:
            self._close_pipe()
            return False
        self.log.stream.feed(piece)
        if self.log.stream.pending:
            self.log.fed()
        return True

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None

    async def _clear_up(self, end: Exit) -> None:
        """End what the command left behind: SIGTERM, SIGKILL after a short grace. Stuck if that does not help."""
        loop = asyncio.get_running_loop()
        processes, began = self._host.processes, loop.time()
        processes.signal_strays(self.token, signal.SIGTERM)
        while True:
            await asyncio.sleep(_POLL_S)
            if not processes.strays(self.token):
                break
            waited = loop.time() - began
            if waited > LEFTOVER_GRACE_S or self._hurry:
                processes.signal_strays(self.token, signal.SIGKILL)
            if waited > LEFTOVER_GRACE_S + LEFTOVER_DEADLINE_S:
                self._host.stuck(self)
                return
        self._settle(end)

    def _settle(self, end: Exit) -> None:
        """Nothing lives any more: read the rest of the output, then report, at once where nothing is to be brought."""
        self._host.processes.disown(self.token)
        while self._readable():
            pass  # what a pipe holds is bounded, and nobody of the attempt is left to write
        self._close_pipe()
        cause, detail = self._cause(end)
        result = Result(
            self.order.task, self.token, cause, end.exit_code, end.signal, detail, -1, end.max_rss, end.cpu_ms
        )
        brings = bool(self.order.spec.outputs) and cause == "success" and not self._signals
        if self.log.finish() and not brings:
            self._report(result)
            return
        self._host.vacated(self)
        self._later(self._deliver(result, brings))

    def _cause(self, end: Exit) -> tuple[str, str]:
        if self.out_of_memory:
            return "out-of-memory", self.out_of_memory
        if end.signal is not None:
            return "signal", ""  # the result has its number, as it has the exit code's
        return ("success", "") if end.exit_code == 0 else ("exit-code", "")

    async def _deliver(self, result: Result, brings: bool) -> None:
        if brings:
            try:
                result.outputs = await self._unless_stopped(self._take)
            except (TransferFailed, OSError) as error:
                result.cause, result.detail = "output-failed", str(error)
            except TransferStopped:
                result.cause, result.detail = "cancelled", "killed while its outputs were stored"
        await self.log.linger(lambda: self._host.in_contact, lambda: self._hurry)
        self._report(result)

    async def _take(self) -> Any:
        await self._host.folders.reclaim(self.folder)
        return await self._carried(lambda transfers: transfers.take(self.order.spec.outputs))

    async def _carried(self, work: Callable[[Transfers], Steps[Any]]) -> Any:
        """What `work` comes to; BlockingIOError where the machine has no room for it. Whatever goes wrong with it is
        TransferFailed: it ends this attempt, not its agent."""
        folder = self._working_folder()  # here: a thread may come to it when that has gone with the attempt
        try:
            return await self._host.carriers.carry(lambda: work(self._transfers(folder)))
        except (TransferFailed, TransferStopped, BlockingIOError):
            raise
        except OSError as error:
            raise TransferFailed(str(error)) from error
        except Exception as error:  # what it says is not told: it may quote a URL, with its secrets
            raise TransferFailed("its transfer failed unexpectedly: %s" % type(error).__name__) from error

    async def _unless_stopped(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What `work` gives. TransferStopped as soon as it is to stop: nothing of the attempt lives, and a thread that
        waits for another machine, or for its turn, is not waited for."""
        self._stop.check()
        self._transfer = asyncio.get_running_loop().create_task(work())
        try:
            return await self._transfer
        except asyncio.CancelledError:
            self._stop.check()
            raise

    def _over(self, cause: str, detail: str) -> None:
        self._report(Result(self.order.task, self.token, cause, detail=detail))

    def _report(self, result: Result) -> None:
        self._close_pipe()
        self.log.close()
        if self.folder and self._host.folders.costs_nothing(self.folder):
            self.discard()
        self._host.ended(self, result)

    def discard(self) -> None:
        """The result is settled: remove the folder."""
        self.log.close()
        self._close_pipe()
        folder, self.folder = self.folder, ""
        if folder:
            self._host.folders.give_back(folder, bool(self.order.spec.inputs))

    # Its surroundings

    def _working_folder(self) -> str:
        return os.path.join(self.folder, self.order.spec.cwd)

    def _transfers(self, folder: str) -> Transfers:
        from cloud_dispatch.agent.reach import Reach  # neither is at the top: transfers take long to load
        from cloud_dispatch.agent.transfers import Transfers

        depot, own = self._host.depot, self.order.task_token
        if own:
            depot = replace(depot, token=lambda: own)
        reach = Reach(self._host.folders.closed, os.path.realpath(self.folder))
        return Transfers(folder, self.order.task, self.token, depot, self._stop, reach)

    def _environment(self) -> Dict[str, str]:
        """A clean base, the task's own, and what tells it where it is: with the attempt's token, never the agent's."""
        order, spec = self.order, self.order.spec
        env = dict(self._host.base_env)
        env["HOME"] = self.folder
        env["TMPDIR"] = os.path.join(self.folder, TEMPORARY)
        env.update((str(name), str(value)) for name, value in spec.env)
        resources = spec.shape.resources
        env["CLOUD_DISPATCH_TASK"] = str(order.task)
        env["CLOUD_DISPATCH_ATTEMPT"] = str(order.attempt)
        env["CLOUD_DISPATCH_TOKEN"] = str(order.token)
        env["CLOUD_DISPATCH_ARRAY_ID"] = spec.array_id
        env["CLOUD_DISPATCH_ARRAY_INDEX"] = str(spec.array_index)
        env["CLOUD_DISPATCH_CPUS"] = "%g" % (resources.cpus_milli / 1000)
        env["CLOUD_DISPATCH_MEMORY"] = str(resources.memory)
        env["CLOUD_DISPATCH_INSTANCE"] = self._host.instance
        if self._host.policy.gpus:
            env.update(visible(self._gpus, has_amd_gpus()))
        if order.task_token:
            env["CLOUD_DISPATCH_URL"] = self._host.depot.url
            env["CLOUD_DISPATCH_CA"] = self._host.ca_file
            env["CLOUD_DISPATCH_TASK_TOKEN"] = order.task_token
        return env


def leave_some(newest: int) -> None:
    """EMFILE where with the descriptor `newest` too few are left of those that this process may have: it needs some to
    see what lives of an attempt, to bring away what it made and to remove the rest."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most != resource.RLIM_INFINITY and newest >= most - most // _PART_KEPT:  # the lowest that is free is given
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _may_pass(error: OSError) -> bool:
    """Whether a folder may be had soon that can't be had for `error`."""
    return isinstance(error, NoneFree) or error.errno in FULL
