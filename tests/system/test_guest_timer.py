"""The guest timer between a real dispatcher and a real supervisor: the dispatcher's word gets there, by the agent."""

from __future__ import annotations

import signal

from cloud_dispatch_local import processes
from cloud_dispatch_local.processes import Process
from tests import procfs
from tests.agent.conftest import is_agent
from tests.system.house import House

SLEEP = {"command": ["sleep", "600"], "cpus": 2}


def agents(house: House) -> dict[Process, list[str]]:
    """The agents' processes, with the words of their command lines."""
    vms = sorted((house.state / "providers" / "local" / "vms").iterdir())
    found = {each: procfs.words(each.pid) for vm in vms for each in processes.of_vms([vm])[vm]}
    return {each: words for each, words in found.items() if is_agent(each.pid)}


def test_a_word_of_the_dispatcher_reaches_the_supervisor(house: House) -> None:
    """Ten minutes of life are less than half a lease: the first request asks, and is granted what the hard end admits.
    An agent that takes the place of one that died is told how far that was."""
    house.submit(SLEEP)
    house.until(lambda: house.counts().get("running") == 1, 30, "it runs")
    (first,) = agents(house)  # the supervisor forked, which had heard nothing then
    processes.send(first, signal.SIGKILL)
    after = house.until(lambda: {each: said for each, said in agents(house).items() if each != first}, 20, "another")
    (words,) = after.values()
    assert words[-1] == "4", "ten minutes, but for the boot, in whole steps of two"
