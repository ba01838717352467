"""One run of the agent under its supervisor. Composes the shell: the only place that picks the incarnation's name."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Callable, List, Optional  # noqa: UP035

from cloud_dispatch.agent.adapters import fraction, new_name, say
from cloud_dispatch.agent.baggage import Baggage
from cloud_dispatch.agent.channel import Endpoint
from cloud_dispatch.agent.handover import TAKE_OVER, unpack
from cloud_dispatch.agent.identity import ConfigError, Identity, load_config, load_identity, save_identity
from cloud_dispatch.agent.privileges import shield
from cloud_dispatch.agent.processes import be_called, become_subreaper
from cloud_dispatch.agent.register import Refused, register

#: What the agent's process is called; a forked one has its supervisor's command line.
NAME = "dispatch-agent"


class Reporter:
    """The agent's end of the pipe to its supervisor: a line a report. A supervisor that is gone is a shutdown."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.lost: Optional[Callable[[], None]] = None

    def __call__(self, line: str) -> None:
        if self._descriptor < 0:
            return
        try:
            os.write(self._descriptor, line.encode("ascii", "replace") + b"\n")
        except BlockingIOError:
            pass  # the supervisor is slow; it has signs of life enough
        except OSError:
            self._descriptor = -1
            if self.lost is not None:
                self.lost()


def run_agent(arguments: List[str]) -> int:
    """`CONFIG PIPE BORN_MS WORDS [SOCKET ATTEMPTS]`: the configuration (a file or a descriptor), the descriptor to
    report to, when the VM's life began, how many words the supervisor's timer has heard; and where a warden runs the
    attempts, the socket to it and the folder that they are in. Or `--take-over DESCRIPTOR`: the baggage of the program
    that ran in this process before."""
    be_called(NAME)
    try:
        baggage = unpack(int(arguments[1])) if arguments[:1] == [TAKE_OVER] else _begin(arguments)
        config = baggage.config
        endpoint = Endpoint.parse(config.url, config.ca_file, config.fingerprint)
    except (ConfigError, ValueError, OSError) as error:
        say(str(error))
        return 2
    for given in (baggage.pipe, baggage.warden):
        if given >= 0:
            os.set_inheritable(given, False)
    os.set_blocking(baggage.pipe, False)
    if config.agent_user:
        shield()
    become_subreaper()
    report = Reporter(baggage.pipe)
    try:
        asyncio.run(_serve(baggage, endpoint, report))
    except Refused as error:
        say(str(error))
        report("end refused")
    return 0


def _begin(arguments: List[str]) -> Baggage:
    """With nothing that came before, but for an identity that may be kept."""
    path, pipe, born_ms, words = arguments[0], int(arguments[1]), int(arguments[2]), int(arguments[3])
    warden, lodging = (int(arguments[4]), arguments[5]) if len(arguments) > 4 else (-1, "")
    config = load_config(int(path) if path.isdigit() else path)
    return Baggage(new_name(), config, Identity(), pipe, warden, lodging, born_ms, words)


async def _serve(baggage: Baggage, endpoint: Endpoint, report: Callable[[str], None]) -> None:
    config = baggage.config
    report("beat")
    if baggage.machine is None:
        identity = load_identity(config.work_dir)
        if identity is None:
            waiting = asyncio.get_running_loop().create_task(_beat(report))
            try:
                identity = await register(config, endpoint, baggage.incarnation, _boot_ms(), fraction, say)
            finally:
                waiting.cancel()
            save_identity(config.work_dir, identity)
        baggage.identity = identity
    # A fifth of what an agent loads, and nothing that a registration needs: VMs are known that much sooner.
    from cloud_dispatch.agent.shell import Shell

    shell = Shell(baggage, endpoint, report)
    if isinstance(report, Reporter):
        report.lost = lambda: shell.fail(RuntimeError("the supervisor is gone"))
    report("end %s" % await shell.run())
    shell.folders.clear()  # after it: who takes long to clear up is not taken for hung


async def _beat(report: Callable[[str], None]) -> None:
    while True:
        report("beat")
        await asyncio.sleep(2)


def _boot_ms() -> int:
    """Milliseconds since the VM's power-on; 0 where the kernel does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/uptime", encoding="ascii") as file:
        return int(float(file.read().split()[0]) * 1000)
    return 0
