"""One run of the agent under its supervisor. Composes the shell: the only place that picks the incarnation's name."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Callable, List, Optional  # noqa: UP035

from cloud_dispatch.agent.adapters import fraction, new_name, now_ms
from cloud_dispatch.agent.channel import Endpoint
from cloud_dispatch.agent.identity import Config, ConfigError, load_config, load_identity, save_identity
from cloud_dispatch.agent.processes import become_subreaper
from cloud_dispatch.agent.register import Refused, register
from cloud_dispatch.agent.shell import Shell, say


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
    """`CONFIG PIPE BORN_MS WORDS`: the configuration, the descriptor to report to, when the VM's life began, how many
    words the supervisor's timer has heard."""
    path, descriptor, born_ms, words = arguments[0], int(arguments[1]), int(arguments[2]), int(arguments[3])
    try:
        config = load_config(path)
        endpoint = Endpoint.parse(config.url, config.ca_file, config.fingerprint)
    except (ConfigError, ValueError, OSError) as error:
        say(str(error))
        return 2
    os.set_inheritable(descriptor, False)
    os.set_blocking(descriptor, False)
    become_subreaper()
    report = Reporter(descriptor)
    try:
        reason = asyncio.run(_serve(config, endpoint, report, born_ms, words))
    except Refused as error:
        say(str(error))
        reason = "refused"
    report("end %s" % reason)
    return 0


async def _serve(config: Config, endpoint: Endpoint, report: Reporter, born_ms: int, words: int) -> str:
    incarnation = new_name()
    report("beat")
    identity = load_identity(config.work_dir)
    if identity is None:
        waiting = asyncio.get_running_loop().create_task(_beat(report))
        try:
            identity = await register(config, endpoint, incarnation, _boot_ms(), fraction, say)
        finally:
            waiting.cancel()
        save_identity(config.work_dir, identity)
    shell = Shell(config, identity, endpoint, incarnation, report, words)
    report.lost = lambda: shell.fail(RuntimeError("the supervisor is gone"))
    return await shell.run(now_ms() - born_ms)


async def _beat(report: Reporter) -> None:
    while True:
        report("beat")
        await asyncio.sleep(2)


def _boot_ms() -> int:
    """Milliseconds since the VM's power-on; 0 where the kernel does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/uptime", encoding="ascii") as file:
        return int(float(file.read().split()[0]) * 1000)
    return 0
