"""What the agent's machine does when the provider says that it takes the VM back, or may."""

from __future__ import annotations

import signal

import pytest

from cloud_dispatch.agent import events
from cloud_dispatch.wire.messages import ADVISED, FULL, PREEMPTED, FileTransfer
from tests.agent.virtual import KILL, TERM, VirtualAgent, order

USR1 = int(signal.SIGUSR1)


def told(agent: VirtualAgent) -> dict[int, str]:
    """The causes of all results, by token; the agent then goes."""
    while not agent.machine.over:
        agent.reply()
    return {result.token: result.cause for request in agent.requests for result in request.results}


def with_checkpoints(**policy: int) -> VirtualAgent:
    """An agent that runs a task with a checkpoint signal and one without, and knows nothing of how long they take."""
    agent = VirtualAgent(cpus_milli=2000, kill_grace_ms=5_000, **policy)
    agent.run(order(1, checkpoint_signal="SIGUSR1"), order(2))
    agent.reply()
    return agent


def test_a_notice_tells_what_wants_a_signal_and_lets_it_write_down_how_far_it_is() -> None:
    """At once and once, and not in the way of an end; what it exits with after that is no fault of its own."""
    agent = with_checkpoints()
    agent.feed(events.Noticed(120_000))
    agent.feed(events.Noticed(119_000))
    assert (agent.prods(1), agent.kills(1)) == ([USR1], [])
    assert (agent.prods(2), agent.kills(2)) == ([], [TERM])
    agent.ended(2, "signal", signal=15)
    agent.pass_ms(30_000)
    assert agent.kills(1) == []
    agent.ended(1, "exit-code", exit_code=75)
    assert told(agent) == {1: "preempted", 2: "preempted"}
    assert {result.exit_code for request in agent.requests for result in request.results} == {75, None}


@pytest.mark.parametrize(
    ("cause", "meant"),
    [
        ("success", "success"),
        ("output-failed", "output-failed"),
        ("signal", "preempted"),
        ("out-of-memory", "preempted"),
    ],
)
def test_what_a_signalled_task_ends_with(cause: str, meant: str) -> None:
    """It was ready, or its files did not come; all else is the VM's fault."""
    agent = with_checkpoints()
    agent.feed(events.Noticed(120_000))
    agent.ended(2, "signal", signal=15)
    agent.ended(1, cause)
    assert told(agent)[1] == meant


def until_killed(agent: VirtualAgent, token: int, most_ms: int) -> int:
    """How long after now the attempt gets a signal that ends it."""
    began = agent.now
    while not agent.kills(token) and agent.now < began + most_ms:
        if agent.machine.courier.outstanding is not None:
            agent.reply()
        agent.pass_ms(500)
    return agent.now - began


def test_what_is_still_at_its_checkpoint_is_killed_at_the_last_moment() -> None:
    """Its signal was its warning; the dispatcher hears of its end before the VM is taken."""
    agent = with_checkpoints()
    agent.feed(events.Noticed(120_000))
    agent.ended(2, "signal", signal=15)
    assert 109_000 < until_killed(agent, 1, 120_000) <= 111_000
    assert agent.kills(1) == [KILL]
    agent.ended(1, "signal", signal=9)
    assert told(agent)[1] == "preempted"


def test_a_shutdown_that_comes_with_a_notice_takes_no_time_from_what_was_warned() -> None:
    """So it is where the notice is a shutdown; as long as the supervisor waits for its agent."""
    agent = with_checkpoints()
    agent.feed(events.Noticed(30_000))
    agent.feed(events.Signalled("shutdown"))
    assert (agent.kills(1), agent.kills(2)) == ([], [TERM])
    agent.ended(2, "signal", signal=15)
    assert until_killed(agent, 1, 60_000) == 15_000
    agent = with_checkpoints()
    agent.feed(events.Noticed(30_000))
    agent.feed(events.Signalled("shutdown"))
    agent.ended(2, "signal", signal=15)
    agent.pass_ms(10_000)
    agent.ended(1, "exit-code", exit_code=75)
    assert told(agent)[1] == "preempted"


@pytest.mark.parametrize("ends", ["shutdown", "lifetime"])
def test_whatever_else_ends_the_vm_begins_with_the_signal_that_was_wanted(ends: str) -> None:
    """Without a notice there is the usual grace."""
    agent = with_checkpoints(lifetime_ms=30_000 if ends == "lifetime" else 0)
    if ends == "lifetime":
        agent.pass_ms(30_000 - (agent.now - agent.machine.life.born_ms))
    else:
        agent.feed(events.Signalled("shutdown"))
    assert [agent.prods(1), agent.kills(1), agent.kills(2)] == [[USR1], [], [TERM]]
    agent.pass_ms(5_000)
    assert agent.kills(1) == [KILL]


def test_a_lost_lease_is_no_time_to_write_down_anything() -> None:
    """Somebody else may have the task by then."""
    agent = with_checkpoints(lease_ms=20_000)
    agent.pass_ms(20_001)
    assert (agent.prods(1), agent.kills(1)) == ([], [TERM, KILL])


def test_what_has_not_begun_is_not_signalled() -> None:
    """Its claim goes back, and costs nothing."""
    agent = VirtualAgent(cpus_milli=1000)
    agent.reply(order(1, checkpoint_signal="SIGUSR1"))
    agent.feed(events.Noticed(120_000))
    assert (agent.prods(1), agent.kills(1)) == ([], [TERM])
    agent.ended(1, "cancelled")
    assert told(agent) == {1: "released"}


def test_a_signal_takes_nothing_from_a_cancellation_or_a_limit() -> None:
    """Cancelled is cancelled, and too late is too late."""
    agent = VirtualAgent(cpus_milli=2000)
    agent.run(order(1, checkpoint_signal="SIGUSR1"), order(2, checkpoint_signal="SIGUSR1", max_runtime_ms=10_000))
    agent.feed(events.Noticed(600_000))
    agent.reply(kill=[1])
    agent.pass_ms(11_000)
    assert (agent.kills(1)[0], agent.kills(2)[0]) == (TERM, TERM)
    agent.ended(1, "exit-code", exit_code=75)
    agent.ended(2, "exit-code", exit_code=75)
    assert told(agent) == {1: "cancelled", 2: "timeout"}


def test_an_advice_ends_nothing_and_the_agent_goes_when_all_has_ended() -> None:
    """It takes no more work, says why, hands back what waits, and signals nobody."""
    agent = with_checkpoints()
    agent.feed(events.Noticed(None))
    agent.reply()
    assert (agent.request.state, agent.request.detail, agent.request.want) == ("draining", ADVISED, 0)
    for _ in range(200):
        agent.reply()
        agent.pass_ms(3_000)
    assert [agent.prods(1), agent.kills(1), agent.kills(2)] == [[], [], []]
    agent.ended(1)
    agent.ended(2, "exit-code", exit_code=1)
    assert told(agent) == {1: "success", 2: "exit-code"}
    assert agent.end == "advised"


def test_a_notice_after_an_advice_is_one() -> None:
    """And an advice after a notice takes nothing back."""
    agent = with_checkpoints()
    agent.feed(events.Noticed(None))
    agent.feed(events.Noticed(120_000))
    agent.feed(events.Noticed(None))
    assert (agent.prods(1), agent.kills(2)) == ([USR1], [TERM])
    agent.reply()
    agent.until_request()
    assert agent.request.detail == PREEMPTED
    agent.ended(1, "signal", signal=10)
    agent.ended(2, "signal", signal=15)
    assert told(agent) == {1: "preempted", 2: "preempted"}
    assert agent.end == "preempted"


def test_an_idle_agent_goes_at_once_when_it_is_advised() -> None:
    agent = VirtualAgent()
    agent.feed(events.Noticed(None))
    assert told(agent) == {}
    assert agent.end == "advised"


@pytest.mark.parametrize("after_ms", [100_000, 118_000])
def test_what_stores_its_outputs_when_the_notice_comes_has_the_rest_of_the_time(after_ms: int) -> None:
    """It has succeeded: to end it early would have all of its work done again. Near the end it is given up."""
    agent = VirtualAgent(cpus_milli=2000, kill_grace_ms=5_000, lease_ms=600_000)
    agent.run(order(1, outputs=[FileTransfer("r")]))
    agent.feed(events.Vacated(1))
    agent.feed(events.Noticed(120_000))
    agent.pass_ms(after_ms)
    in_time = after_ms < 110_000
    assert agent.kills(1) == ([] if in_time else [KILL])
    agent.ended(1, "success" if in_time else "cancelled")
    assert told(agent) == {1: "success" if in_time else "preempted"}


def test_a_full_disk_ends_nothing_and_the_agent_goes_as_failed_when_all_has_ended() -> None:
    """It takes no more work and says why, so that the dispatcher rents another for it; what waits goes back."""
    agent = VirtualAgent(cpus_milli=2000)
    agent.run(order(1))
    agent.reply(order(2))
    agent.feed(events.Filled("no room for task 2"))
    agent.ended(2, "released")
    agent.reply()
    assert (agent.request.state, agent.request.detail, agent.request.want) == ("draining", FULL, 0)
    for _ in range(20):
        agent.reply()
        agent.pass_ms(3_000)
    assert (agent.kills(1), agent.machine.over) == ([], False)
    agent.ended(1)
    assert told(agent) == {1: "success", 2: "released"}
    assert (agent.end, agent.request.state, agent.request.detail) == ("health", "failed", "no room for task 2")


def test_an_agent_whose_disk_is_full_and_that_holds_nothing_goes_at_once() -> None:
    """It is of no use to any task."""
    agent = VirtualAgent(cpus_milli=2000)
    agent.reply(order(1))
    agent.feed(events.Filled("no room for task 1"))
    agent.ended(1, "released")
    assert told(agent) == {1: "released"}
    assert (agent.end, agent.request.detail) == ("health", "no room for task 1")
