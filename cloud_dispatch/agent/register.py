"""Registration with the dispatcher. Owns its retries, which are bounded by the silence an agent endures."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Callable, Dict  # noqa: UP035

from cloud_dispatch.agent import VERSION
from cloud_dispatch.agent.channel import Channel, Endpoint, Unreachable
from cloud_dispatch.agent.identity import Config, Identity, explain_error
from cloud_dispatch.agent.waiting import within
from cloud_dispatch.wire.codec import decode, encode
from cloud_dispatch.wire.messages import REGISTER_PATH, Policy, RegisterReply, RegisterRequest

_RETRY_FIRST_S = 0.1
_RETRY_MOST_S = 5.0
_ANSWER_S = 30.0
#: Refusals in a row after which the agent believes them: the dispatcher may be slower to know the VM than its boot.
_MOST_REFUSALS = 20


class Refused(Exception):
    """The dispatcher does not want this VM, or was not to be reached in time."""


async def register(
    config: Config, endpoint: Endpoint, incarnation: str, boot_ms: int, fraction: Callable[[], float],
    say: Callable[[str], None], connect: Callable[[Endpoint, Callable[[], str]], Channel] = Channel,
) -> Identity:  # fmt: skip
    """An identity from the join token. Refused when the dispatcher says no for good or stays silent too long. `connect`
    makes the channel, for whoever has no network."""
    request = RegisterRequest(
        config.vm, config.proof, version=VERSION, incarnation=incarnation, boot_ms=boot_ms,
        facts={**machine_facts(), **config.facts},
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    deadline = loop.time() + Policy().silence_ms / 1000
    refusals, pause, last = 0, _RETRY_FIRST_S, ""
    channel = connect(endpoint, lambda: config.join_token)
    try:
        while loop.time() < deadline and refusals < _MOST_REFUSALS:
            try:
                asking = channel.request("POST", REGISTER_PATH, encode(request))
                status, body = await within(_ANSWER_S, asking)
                if status < 300:
                    reply = decode(RegisterReply, body)
                    return Identity(reply.instance, reply.token, reply.policy)
                refusals = refusals + 1 if 400 <= status < 500 else 0
                problem = explain_error(status, body)
            except (Unreachable, asyncio.TimeoutError, ValueError) as error:
                problem = str(error) or "no answer"
            if problem != last:
                say("registration with %s:%d failed, trying again: %s" % (endpoint.host, endpoint.port, problem))
                last = problem
            await asyncio.sleep(pause * (0.5 + fraction() / 2))
            pause = min(pause * 2, _RETRY_MOST_S)
    finally:
        channel.close()
    raise Refused("not registered: %s" % last)


def machine_facts() -> Dict[str, str]:
    """What the machine is, for the dispatcher's eyes and for labels."""
    kernel = os.uname()  # as `platform` does, which takes longer to load than a connection to make
    return {
        "cpus": str(cpu_count()),
        "memory": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "system": kernel.sysname.lower(),
        "architecture": kernel.machine,
        "python": sys.version.split()[0],
        "host": kernel.nodename,
    }


def cpu_count() -> int:
    """The CPUs that this process may use."""
    try:
        return len(os.sched_getaffinity(0)) or 1
    except (AttributeError, OSError):
        return os.cpu_count() or 1
