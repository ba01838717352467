"""What the agent's machine does with claims: room, order, claims ahead, kills and leases."""

from __future__ import annotations

import pytest

from cloud_dispatch.agent import events
from cloud_dispatch.agent.claims import Claims, most_claims
from cloud_dispatch.agent.pace import GATHER_MS, START_MS
from cloud_dispatch.agent.transfers import MOST_MANIFEST
from cloud_dispatch.api.services import Limits
from cloud_dispatch.wire.codec import encode
from cloud_dispatch.wire.messages import FileTransfer, OutputFile, Policy, Result, SyncReply, weight
from tests.agent.virtual import KILL, TERM, VirtualAgent, order


def causes(agent: VirtualAgent) -> dict[int, str]:
    return {result.token: result.cause for result in agent.request.results}


def test_an_idle_agent_polls_for_as_many_claims_as_it_has_room_for() -> None:
    """The first request asks for work and may wait for it."""
    agent = VirtualAgent(cpus_milli=3000)
    assert (agent.request.state, agent.request.want, agent.request.ahead) == ("idle", 3, 0)
    assert agent.request.wait_ms == agent.policy.poll_ms


def test_claims_start_at_once_and_are_in_the_running_set() -> None:
    """A claim is given to the shell in the same step; the next sync names it."""
    agent = VirtualAgent()
    commands = agent.reply(order(1))
    assert events.Start(order(1)) in commands
    agent.pass_ms(START_MS)
    assert [(claim.token, claim.ran_ms) for claim in agent.request.held] == [(1, -1)]
    assert agent.request.state == "busy"


def test_a_claim_that_is_told_again_is_the_same_claim() -> None:
    """While it waits, while it runs, and when it has ended and nobody has settled it: its command starts once."""
    agent = VirtualAgent(cpus_milli=1000)
    agent.run(order(1))
    agent.reply(order(1), order(2), order(2))
    assert [claim.token for claim in agent.machine.claims.held(agent.now)] == [1, 2]
    agent.ended(1)
    agent.reply(order(1), order(2), settle=False)
    agent.reply()
    agent.pass_ms(1_000)
    starts = [command.order.token for command in agent.commands if isinstance(command, events.Start)]
    assert starts == [1, 2]


def test_work_is_asked_for_by_the_smallest_claim_that_was_seen() -> None:
    """A large one later does not make the machine look smaller."""
    agent = VirtualAgent(cpus_milli=4000)
    agent.run(order(1, 500), order(2, 2000))
    assert agent.machine.claims.open_slots(agent.policy) == 3
    agent.ended(1)
    agent.ended(2)
    agent.reply()
    assert agent.request.want == 8


@pytest.mark.parametrize(("cpus_milli", "want"), [(3000, 0), (3001, 1), (3800, 1), (4000, 1)])
def test_the_last_part_of_a_machine_is_offered_too(cpus_milli: int, want: int) -> None:
    """What a pool reserves leaves less than a cpu: tasks that small may wait for it, though none was seen yet.
    Who has nothing left asks for nothing."""
    agent = VirtualAgent(cpus_milli=cpus_milli)
    agent.run(order(1), order(2), order(3))
    agent.reply()
    agent.until_request()
    assert agent.request.want == want


@pytest.mark.parametrize(("berths", "most"), [(0, 256), (1, 1), (2, 1), (9, 7), (255, 240), (510, 256)])
def test_there_are_berths_left_beside_those_of_all_claims(berths: int, most: int) -> None:
    """For health checks, and for what ended a moment ago."""
    assert most_claims(berths) == most


def test_who_still_brings_outputs_away_counts_among_the_claims_that_there_may_be() -> None:
    """It has its berth still; what waits for one starts when that is free, and no more is asked for."""
    claims, policy = Claims(most=2), Policy(cpus_milli=64_000)
    for token in (1, 2, 3):
        claims.accept(order(token), 0)
    first, second = claims.admit(policy)
    claims.vacate(first)
    claims.vacate(second)
    assert claims.admit(policy) == []
    assert claims.open_slots(policy) == 0
    claims.finish(Result(1, 1, "success"))
    assert [attempt.order.token for attempt in claims.admit(policy)] == [3]


def test_what_is_told_of_an_attempt_that_is_over_changes_nothing() -> None:
    """The shell and the network may be late."""
    agent = VirtualAgent()
    agent.run(order(1))
    agent.ended(1)
    seq = agent.request.seq
    agent.reply()
    over = Result(1, 1, "failed")
    for late in (events.Started(1), events.Vacated(1), events.Stuck(1), events.Ended(over), events.Failed(seq, 0.5)):
        agent.feed(late)
    assert agent.machine.end is None
    assert agent.machine.claims.results == {}
    agent.until_request()
    assert (agent.request.want, agent.request.results) == (2, [])


def test_a_result_waits_for_others_no_longer_than_a_moment() -> None:
    """Where tasks end one after the other, each would put the request off that tells of the first."""
    agent = VirtualAgent(cpus_milli=1000)
    agent.run(order(1))
    agent.reply(*(order(token) for token in range(2, 30)))
    before, first = len(agent.requests), agent.now
    for token in range(1, 15):
        agent.ended(token)
        agent.started(token + 1)
        agent.pass_ms(GATHER_MS // 4)
        if len(agent.requests) > before:
            break
    assert agent.now - first == GATHER_MS
    assert 1 < len(agent.request.results) <= 5


def test_a_start_is_told_by_the_request_that_waits_for_work() -> None:
    """One request for both: none is abandoned because a command started meanwhile. Not while tasks are tiny, whose
    slots must not stand empty."""
    agent = VirtualAgent(cpus_milli=2000)
    agent.run(order(1))
    agent.pass_ms(START_MS)
    assert [(claim.token, claim.ran_ms) for claim in agent.request.held] == [(1, START_MS)]
    assert len(agent.requests) == 2
    agent.pass_ms(1_000)
    assert len(agent.requests) == 2


def test_a_moment_that_passes_before_the_timer_is_set_is_not_forgotten() -> None:
    """The clock may have gone on since the event: what fell due meanwhile is due at once."""
    agent = VirtualAgent()
    agent.run(order(1))
    agent.now += START_MS
    assert agent.machine.wake_at(agent.now) == agent.now + 1
    assert any(isinstance(command, events.Sync) for command in agent.pass_ms(1))


def test_a_claim_that_does_not_fit_waits_and_lets_a_smaller_one_pass() -> None:
    """Room is by resources: what does not fit now never blocks what does."""
    agent = VirtualAgent(cpus_milli=2000)
    agent.reply(order(1, 1500), order(2, 1000), order(3, 500))
    assert set(agent.running) == {1, 3}
    agent.ended(1)
    assert set(agent.running) == {2, 3}


@pytest.mark.parametrize("resource", ["memory", "disk", "gpus"])
def test_every_resource_bounds_what_runs(resource: str) -> None:
    """Two tasks that want more than half of anything run one after the other."""
    agent = VirtualAgent(**{"cpus_milli": 8000, "memory": 100, "disk": 100, "gpus": 100, resource: 10})
    agent.reply(order(1, **{resource: 6}), order(2, **{resource: 6}))
    assert set(agent.running) == {1}


def test_each_attempt_is_lent_gpus_of_its_own_and_no_more_than_it_asks_for() -> None:
    agent = VirtualAgent(cpus_milli=8000, gpus=4)
    agent.reply(order(1, gpus=1), order(2, gpus=2), order(3), order(4, gpus=1))
    assert agent.lent == {1: (0,), 2: (1, 2), 3: (), 4: (3,)}
    agent.ended(2)
    agent.reply(order(5, gpus=1), order(6, gpus=1))
    assert (agent.lent[5], agent.lent[6]) == ((1,), (2,))


def test_an_exclusive_attempt_is_lent_what_it_asks_for() -> None:
    """As its memory is what it asked for, whatever else there is."""
    agent = VirtualAgent(gpus=4)
    agent.reply(order(1, gpus=2, exclusive=True))
    assert agent.lent == {1: (0, 1)}


def test_gpus_are_lent_until_nothing_of_the_attempt_lives() -> None:
    """As its other room: from before its inputs come, while it is killed, and no more while its outputs go."""
    agent = VirtualAgent(cpus_milli=8000, gpus=2, kill_grace_ms=1000)
    agent.reply(order(1, gpus=1))
    agent.reply(order(2, gpus=1))
    assert agent.lent == {1: (0,), 2: (1,)}
    agent.started(1)
    agent.reply(order(3, gpus=1), kill=[1])
    assert agent.kills(1) == [TERM]
    agent.pass_ms(1000)
    assert 3 not in agent.lent
    agent.feed(events.Vacated(1))
    assert agent.lent[3] == (0,)
    agent.ended(1)
    agent.started(2)
    agent.ended(2)
    agent.reply(order(4, gpus=1))
    assert agent.lent[4] == (1,)


def test_an_exclusive_claim_runs_alone() -> None:
    """It starts when nothing runs, and nothing starts beside it, not even what waits behind it."""
    agent = VirtualAgent(cpus_milli=4000)
    agent.reply(order(1), order(2, exclusive=True), order(3))
    assert set(agent.running) == {1}
    agent.ended(1)
    assert set(agent.running) == {2}
    agent.pass_ms(100)
    assert agent.request.want == 0
    agent.ended(2)
    assert set(agent.running) == {3}


def test_a_shape_with_a_limit_an_instance_is_held_to_it() -> None:
    """Alike tasks beyond the limit wait, others do not."""
    agent = VirtualAgent(cpus_milli=4000)
    agent.reply(order(1, max_per_instance=1), order(2, max_per_instance=1), order(3))
    assert set(agent.running) == {1, 3}


def test_a_pool_limit_on_tasks_at_once_holds() -> None:
    """However much room there is."""
    agent = VirtualAgent(cpus_milli=8000, max_tasks_at_once=2)
    assert agent.request.want == 2
    agent.reply(order(1), order(2), order(3))
    assert set(agent.running) == {1, 2}


def test_a_claim_that_can_never_run_here_can_not_start() -> None:
    """It is not held for ever: it ends cannot-start, with the reason."""
    agent = VirtualAgent(cpus_milli=2000)
    agent.reply(order(1, 4000))
    assert agent.request.results[0].cause == "cannot-start"
    assert "4000 cpus_milli" in agent.request.results[0].detail


def test_results_are_repeated_until_they_are_settled() -> None:
    """An answer that does not settle a result leaves it with the agent."""
    agent = VirtualAgent()
    agent.run(order(1))
    agent.ended(1, exit_code=0)
    assert causes(agent) == {1: "success"}
    agent.reply(settle=False)
    agent.pass_ms(agent.policy.heartbeat_ms)
    assert causes(agent) == {1: "success"}
    assert events.Forget(1) in agent.reply()
    agent.pass_ms(agent.policy.poll_ms * 2)
    assert causes(agent) == {}


def test_a_result_survives_a_dispatcher_that_is_away() -> None:
    """A failed request loses nothing: the same result is in the next one."""
    agent = VirtualAgent()
    agent.run(order(1))
    agent.ended(1)
    for _ in range(5):
        sent = len(agent.requests)
        agent.fail()
        agent.pass_ms(6_000)
        assert len(agent.requests) > sent
        assert causes(agent) == {1: "success"}


def test_results_with_many_outputs_go_in_requests_that_the_dispatcher_takes() -> None:
    """A request that is too long would never be taken, and the VM be given up with all that it runs."""
    agent = VirtualAgent(cpus_milli=20_000)
    agent.run(*(order(token) for token in range(1, 21)))
    files = [OutputFile("é\n" * 400, "x" * 3000) for _ in range(MOST_MANIFEST // weight("é\n" * 400, "x" * 3000))]
    for token in range(1, 21):
        agent.ended(token, outputs=files)
    told: set[int] = set()
    for _ in range(40):
        assert len(encode(agent.request)) < Limits().sync_bytes
        told |= set(causes(agent))
        agent.reply()
        agent.pass_ms(10)
    assert told == set(range(1, 21))


def test_tiny_tasks_are_claimed_ahead_and_long_ones_are_not() -> None:
    """Only when recent tasks were very short does the agent ask for more than it has room for."""
    for ran_ms, ahead in ((5, 64), (100, 5), (1000, 0)):
        agent = VirtualAgent(cpus_milli=2000)
        for token in range(1, 9):
            if token > 1:
                agent.reply()
            agent.reply(order(token)) if agent.request.want else None
            agent.started(token)
            agent.now += ran_ms
            agent.ended(token)
        assert agent.request.ahead == ahead, ran_ms
        assert agent.request.want == ahead + 2


def test_claims_ahead_that_do_not_start_soon_go_back() -> None:
    """A long task among tiny ones must not keep work from idle instances."""
    agent = VirtualAgent(cpus_milli=1000)
    agent.run(order(1))
    agent.reply(order(2))
    agent.pass_ms(2_500)
    assert agent.running.keys() == {1}
    assert causes(agent)[2] == "released"


def test_a_lease_that_is_not_renewed_ends_the_command() -> None:
    """SIGTERM before the lease's end, SIGKILL at it, counted from when the renewing request was sent (P1)."""
    agent = VirtualAgent(lease_ms=60_000, kill_grace_ms=10_000)
    sent = agent.now
    agent.now += 15_000  # the answer took long: that shortens the lease, never lengthens it
    agent.run(order(1))
    while agent.now < sent + 49_999:
        agent.fail()
        agent.pass_ms(min(5_000, sent + 49_999 - agent.now))
    assert agent.kills(1) == []
    agent.pass_ms(1)
    assert agent.kills(1) == [TERM]
    agent.pass_ms(9_999)
    assert agent.kills(1) == [TERM]
    agent.pass_ms(1)
    assert agent.now == sent + 60_000
    assert agent.kills(1) == [TERM, KILL]
    agent.ended(1, "signal", signal=9)
    agent.pass_ms(6_000)
    assert causes(agent) == {1: "instance-lost"}
    (result,) = agent.request.results
    assert result.detail == "its lease ran out: its agent has not heard from the dispatcher"


@pytest.mark.parametrize("outputs", [False, True])
def test_past_the_lease_a_log_goes_on_and_outputs_do_not(outputs: bool) -> None:
    """A command that ended while the dispatcher was away keeps log and result; its outputs may go where those of
    a later attempt do, so they end with the lease."""
    agent = VirtualAgent(lease_ms=60_000)
    made = order(1)
    if outputs:
        made.spec.outputs = [FileTransfer("out", "https://example.org/out")]
    agent.run(made)
    agent.feed(events.Vacated(1))
    for _ in range(14):
        agent.fail()
        agent.pass_ms(5_000)
    assert agent.kills(1) == ([KILL] if outputs else [])
    agent.ended(1, "success", exit_code=0)
    assert {token: result.cause for token, result in agent.machine.claims.results.items()} == {1: "success"}


def test_a_renewed_lease_keeps_the_command() -> None:
    """Heartbeats that are answered keep a task running for hours."""
    agent = VirtualAgent()
    agent.run(order(1), order(2))
    for _ in range(1000):
        agent.pass_ms(agent.policy.heartbeat_ms)
        agent.reply()
    assert agent.kills(1) == agent.kills(2) == []


def test_a_cancelled_command_gets_sigterm_then_sigkill_and_is_reported_cancelled() -> None:
    """Whatever it exits with."""
    agent = VirtualAgent(kill_grace_ms=1000)
    agent.run(order(1))
    agent.reply(kill=[1])
    assert agent.kills(1) == [TERM]
    agent.pass_ms(1000)
    assert agent.kills(1) == [TERM, KILL]
    agent.ended(1, "success", exit_code=0)
    assert causes(agent) == {1: "cancelled"}


def test_a_cancel_is_repeated_by_the_dispatcher_without_harm() -> None:
    """Every sync may carry the same kill: it does not start over."""
    agent = VirtualAgent(kill_grace_ms=10_000)
    agent.run(order(1))
    for _ in range(4):
        agent.reply(kill=[1])
        agent.pass_ms(3_000)
    assert agent.kills(1) == [TERM, KILL]


def test_a_cancelled_claim_that_waits_never_starts() -> None:
    """It ends as cancelled without a process."""
    agent = VirtualAgent(cpus_milli=1000, heartbeat_ms=500)
    agent.run(order(1))
    agent.reply(order(2))
    agent.reply(kill=[2])
    assert causes(agent) == {2: "cancelled"}
    agent.ended(1)
    assert agent.running == {}


def test_a_maximum_runtime_ends_the_command_as_timeout() -> None:
    """Counted from the command's start."""
    agent = VirtualAgent(kill_grace_ms=1000)
    agent.reply(order(1, max_runtime_ms=5_000))
    agent.pass_ms(3_000)
    agent.started(1)
    agent.reply() if agent.machine.courier.outstanding else None
    agent.pass_ms(4_999)
    assert agent.kills(1) == []
    agent.pass_ms(1)
    assert agent.kills(1) == [TERM]
    agent.ended(1, "signal", signal=15)
    assert causes(agent) == {1: "timeout"}


def test_a_command_that_can_not_be_killed_fails_the_instance() -> None:
    """State failed, ending unkillable, and the end comes although nothing answers."""
    agent = VirtualAgent(kill_grace_ms=1000)
    agent.run(order(1), order(2))
    agent.reply(kill=[1])
    agent.pass_ms(11_000)
    agent.ended(2, "signal")
    agent.pass_ms(11_000)
    assert (agent.request.state, agent.request.ending) == ("failed", "unkillable")
    assert [claim.token for claim in agent.request.held] == [1]
    agent.pass_ms(60_000)
    assert agent.end == "unkillable"


@pytest.mark.parametrize("vacant", [True, False])
def test_an_attempt_without_a_process_is_never_beyond_killing(vacant: bool) -> None:
    """Its inputs may be long in coming, and its outputs in going, without a word against the machine."""
    agent = VirtualAgent(kill_grace_ms=1000)
    if vacant:
        agent.run(order(1), order(2))
        agent.feed(events.Vacated(1))
    else:
        agent.reply(order(1), order(2))
        agent.started(2)
    agent.reply(kill=[1])
    for _ in range(10):
        agent.pass_ms(5_000)
        agent.reply(kill=[1])
    assert agent.kills(1)[-1] == KILL
    assert (agent.request.state, agent.request.ending, agent.kills(2)) == ("busy", "", [])
    agent.ended(1, "cancelled")
    assert causes(agent)[1] == "cancelled"


def test_an_answer_to_an_abandoned_request_is_not_used() -> None:
    """Its claims were never held here: the running set of the newer request says so."""
    agent = VirtualAgent()
    agent.run(order(1))
    old = agent.request.seq
    agent.ended(1)
    assert agent.request.seq > old
    assert agent.feed(events.Replied(old, SyncReply())) == []
    assert agent.machine.courier.outstanding is not None


def test_the_capacity_of_the_machine_counts_where_the_policy_names_none() -> None:
    """A policy without cpus is completed by what the VM has."""
    agent = VirtualAgent(Policy())
    assert agent.request.want == 1


def test_what_stood_behind_a_claim_that_goes_back_starts_in_the_same_moment() -> None:
    """One that wants the instance to itself keeps later ones waiting; when it goes back there is room for them."""
    agent = VirtualAgent(cpus_milli=2000, heartbeat_ms=500)
    agent.run(order(1))
    agent.reply(order(2, exclusive=True))
    agent.pass_ms(1_000)
    agent.reply(order(3))
    assert 3 not in agent.running
    agent.pass_ms(1_000)
    assert agent.machine.claims.results[2].cause == "released"
    assert 3 in agent.running


def test_each_request_says_which_answer_was_used_last() -> None:
    """Whether one was lost on its way, the dispatcher can't know otherwise."""
    agent = VirtualAgent()
    assert agent.request.heard == 0
    agent.reply()
    agent.fail()
    agent.until_request()
    assert (agent.request.seq, agent.request.heard) == (3, 1)
    agent.reply()
    agent.until_request()
    assert (agent.request.seq, agent.request.heard) == (4, 3)
