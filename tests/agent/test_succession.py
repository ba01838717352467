"""When an agent becomes the program that its dispatcher has now: the rule, on the state machine alone."""

from __future__ import annotations

from cloud_dispatch.agent import events
from cloud_dispatch.agent.baggage import Carried, carried
from cloud_dispatch.agent.machine import Machine
from cloud_dispatch.agent.succession import AGAIN_MS, MOST_TRIES, Succession
from cloud_dispatch.wire.codec import decode, encode
from cloud_dispatch.wire.messages import BAGGAGE, Program
from tests.agent.virtual import TERM, VirtualAgent, order

OWN, NEXT, LATER = (str(number) * 64 for number in (1, 2, 3))


def agent_of(own: str = OWN, spurned: str = "", **policy: int) -> VirtualAgent:
    agent = VirtualAgent(heartbeat_ms=1_000, **policy)
    agent.machine = Machine("inc", agent.policy, program=Succession(own, spurned))
    agent.commands.clear()
    agent.requests.clear()
    agent.feed(events.Boot())
    return agent


def brought(agent: VirtualAgent) -> list[str]:
    return [command.program.sha256 for command in agent.commands if isinstance(command, events.Bring)]


def became(agent: VirtualAgent) -> list[events.Become]:
    return [command for command in agent.commands if isinstance(command, events.Become)]


def test_an_agent_says_which_program_it_is_until_it_was_heard() -> None:
    agent = agent_of()
    agent.fail()
    agent.until_request()
    assert [request.program for request in agent.requests] == [OWN, OWN]
    agent.reply()
    agent.until_request()
    assert agent.request.program == ""


def test_an_idle_agent_becomes_the_program_that_the_dispatcher_has() -> None:
    agent = agent_of()
    agent.reply(program=Program(NEXT))
    assert brought(agent) == [NEXT]
    assert not became(agent), "it is not here yet"
    agent.feed(events.Brought(NEXT))
    assert [command.program.sha256 for command in became(agent)] == [NEXT]
    assert isinstance(agent.commands[-1], events.Become), "nothing is said after it"


def test_the_same_program_one_for_a_newer_python_and_one_that_did_not_live_are_not_brought() -> None:
    for program in (Program(OWN), Program(""), Program(NEXT, python=(4, 0)), Program(LATER)):
        agent = agent_of(spurned=LATER)
        agent.reply(program=program)
        agent.pass_ms(60_000)
        assert not brought(agent)
    agent = agent_of(own="")  # it does not run from a file that could be another
    agent.reply(program=Program(NEXT))
    assert not brought(agent)


def test_what_runs_and_what_is_not_settled_comes_before() -> None:
    """The idle moment is that in which the last result is settled."""
    agent = agent_of()
    agent.run(order(1))
    agent.reply(program=Program(NEXT))
    agent.feed(events.Brought(NEXT))
    agent.pass_ms(5_000)
    assert not became(agent)
    agent.ended(1)
    assert not became(agent)
    agent.reply()
    assert len(became(agent)) == 1


def test_with_no_idle_moment_it_takes_over_while_tasks_run() -> None:
    agent = agent_of(replace_ms=30_000)
    agent.run(order(1))
    agent.reply(program=Program(NEXT))
    agent.feed(events.Brought(NEXT))
    for _ in range(29):
        agent.pass_ms(1_000)
        agent.reply()
    assert not became(agent)
    agent.pass_ms(1_000)
    assert [command.carries for command in became(agent)] == [True]


def test_no_place_is_taken_while_an_attempt_starts_or_is_killed() -> None:
    agent = agent_of(replace_ms=1_000, kill_grace_ms=3_000)
    agent.reply(order(1))
    agent.reply(program=Program(NEXT))
    agent.feed(events.Brought(NEXT))
    agent.pass_ms(2_000)
    assert not became(agent), "its command has not started"
    agent.reply(kill=[1])
    agent.started(1)
    agent.pass_ms(1_500)
    assert not became(agent), "it is being ended"
    agent.ended(1, "signal")
    assert became(agent), "its end may wait for the other to be told"


def test_a_program_that_takes_no_such_baggage_waits_for_an_idle_moment() -> None:
    agent = agent_of(replace_ms=1_000)
    agent.run(order(1))
    agent.reply(program=Program(NEXT, baggage=BAGGAGE + 1))
    agent.feed(events.Brought(NEXT))
    agent.pass_ms(5_000)
    assert not became(agent)
    agent.ended(1)
    agent.reply()
    assert [command.carries for command in became(agent)] == [False]


def test_a_shell_that_can_not_now_is_asked_again() -> None:
    agent = agent_of()
    agent.reply(program=Program(NEXT))
    agent.feed(events.Brought(NEXT))
    agent.feed(events.Hindered())
    assert len(became(agent)) == 1
    agent.pass_ms(AGAIN_MS - 1)
    assert len(became(agent)) == 1
    agent.pass_ms(1)
    assert len(became(agent)) == 2
    agent.feed(events.Hindered("not a program"))
    agent.pass_ms(10 * AGAIN_MS)
    assert len(became(agent)) == 2, "one that can't be run is not tried again"


def test_what_can_not_be_brought_is_asked_for_a_few_times() -> None:
    agent = agent_of()
    agent.reply(program=Program(NEXT))
    for _ in range(3 * MOST_TRIES):
        agent.feed(events.Brought(NEXT, "no answer"))
        agent.pass_ms(60_000)
        agent.reply()
    assert brought(agent) == [NEXT] * MOST_TRIES
    agent.reply(program=Program(LATER))
    assert brought(agent)[-1] == LATER, "another is another matter"


def test_an_agent_that_drains_or_ends_has_no_heir() -> None:
    for words in ({"drain_token": 1, "drain": True}, {"end": True}):
        agent = agent_of()
        agent.reply(program=Program(NEXT), **words)
        agent.feed(events.Brought(NEXT))
        agent.pass_ms(2_000)
        assert not brought(agent)
        assert not became(agent)


def take_over(agent: VirtualAgent) -> VirtualAgent:
    """The program after it, given its baggage as it is written and read."""
    other = VirtualAgent(policy=agent.policy)
    other.machine = Machine("inc", agent.policy, program=Succession(NEXT))
    other.commands.clear()
    other.requests.clear()
    other.now, other.running = agent.now + 200, agent.running
    other.feed(events.Boot(carried=decode(Carried, encode(carried(agent.machine)))))
    return other


def test_the_next_program_goes_on_with_all_that_was_held() -> None:
    agent = agent_of(cpus_milli=2000, max_ahead=8)
    agent.reply(order(1), order(2), order(3, max_runtime_ms=60_000))
    agent.started(1)
    agent.started(2)
    agent.ended(1)
    ended_ms = agent.now
    agent.started(3)
    agent.until_request()
    agent.pass_ms(100)
    other = take_over(agent)
    request = other.request
    assert request.seq > agent.request.seq, "to the dispatcher it is the same conversation"
    assert {claim.token for claim in request.held} == {2, 3}
    assert [result.token for result in request.results] == [1], "no answer is known to what was under way"
    assert other.now - request.results[0].ago_ms == ended_ms, "it ended under the program before"
    assert request.program == NEXT
    assert request.want == 0, "both cpus are taken"
    other.reply()
    assert other.machine.claims.results == {}
    other.pass_ms(500)
    other.ended(2)
    assert other.machine.claims.results[2].ran_ms >= 700, "counted from its start under the program before"
    other.reply()
    assert other.request.want == 1


def test_what_is_lent_stays_lent_to_those_who_have_it() -> None:
    """And is free for others when they end."""
    agent = agent_of(cpus_milli=8000, gpus=4)
    agent.run(order(1, gpus=1), order(2, gpus=2))
    agent.ended(1)
    other = take_over(agent)
    other.reply(order(3, gpus=2))
    assert other.lent == {3: (0, 3)}
    other.ended(2)
    other.reply(order(4, gpus=2))
    assert other.lent[4] == (1, 2)


def test_what_a_program_of_before_has_started_is_taken_to_use_the_first_gpus() -> None:
    """It was told of none, so that each of its tasks may be at the first: those are lent when the last one ended, and
    the others at once."""
    agent = agent_of(cpus_milli=8000, gpus=4)
    agent.run(order(1, gpus=1), order(2, gpus=1), order(3))
    for attempt in agent.machine.claims.running.values():
        attempt.gpus = ()
    other = take_over(agent)
    other.reply(order(4, gpus=2))
    assert other.lent == {4: (2, 3)}
    other.ended(1)
    other.reply(order(5, gpus=1))
    assert other.lent[5] == (1,), "the one that still runs may use the first, whichever began first"
    other.ended(2)
    other.reply(order(6, gpus=1))
    assert other.lent[6] == (0,)


def test_a_lease_a_run_time_and_a_drain_are_carried_on() -> None:
    agent = agent_of(lease_ms=20_000, kill_grace_ms=500)
    agent.run(order(1, max_runtime_ms=4_000))
    agent.reply(drain_token=3, drain=True)
    other = take_over(agent)
    other.pass_ms(100)
    assert other.request.state == "draining"
    assert other.request.drain_token == 3
    other.pass_ms(3_600)
    assert not other.kills(1)
    other.pass_ms(400)
    assert other.kills(1)[0] == TERM, "its run time is over"

    agent = agent_of(lease_ms=20_000, kill_grace_ms=500)
    agent.run(order(1))
    leased_ms = agent.machine.enforcer.lease_end_ms
    other = take_over(agent)
    other.pass_ms(leased_ms - other.now)
    assert other.kills(1), "no answer has renewed it"


def test_limits_of_tasks_and_of_life_count_on() -> None:
    agent = agent_of(max_tasks=2, lifetime_ms=50_000)
    agent.pass_ms(30_000)
    agent.run(order(1))
    agent.ended(1)
    agent.reply()
    other = take_over(agent)
    other.reply()
    assert other.request.want == 1, "of two tasks one is left"
    other.pass_ms(20_000)
    assert other.request.ending == "lifetime"
