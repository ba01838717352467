"""How the agent's machine speaks, drains and ends."""

from __future__ import annotations

from cloud_dispatch.agent import events
from cloud_dispatch.wire.messages import PREEMPTED
from tests.agent.virtual import KILL, TERM, VirtualAgent, order


def test_a_full_agent_listens_for_a_heartbeat_at_a_time() -> None:
    """Without room it asks for nothing; its request may wait so that a cancel arrives at once."""
    agent = VirtualAgent(cpus_milli=1000)
    agent.run(order(1))
    agent.pass_ms(60)
    for _ in range(3):
        assert (agent.request.want, agent.request.wait_ms) == (0, agent.policy.heartbeat_ms)
        sent = len(agent.requests)
        agent.pass_ms(agent.policy.heartbeat_ms)
        assert len(agent.requests) == sent
        agent.reply()
        assert len(agent.requests) == sent + 1


def test_a_full_agent_sends_heartbeats_to_a_dispatcher_that_does_not_hold_them() -> None:
    """Where a request without a wish for work is answered at once, the next one waits for the heartbeat."""
    agent = VirtualAgent(cpus_milli=1000)
    agent.run(order(1))
    agent.pass_ms(60)  # the start is told
    for _ in range(5):
        agent.reply()
    before = agent.now
    for _ in range(10):
        agent.reply()
        assert agent.request.want == 0
    assert 90_000 <= agent.now - before <= 110_000


def test_heartbeats_come_faster_than_half_a_lease() -> None:
    """A policy whose heartbeat is too long for its lease does not cost the lease."""
    agent = VirtualAgent(cpus_milli=1000, heartbeat_ms=60_000, lease_ms=10_000)
    agent.run(order(1))
    for _ in range(20):
        agent.reply()
    assert agent.kills(1) == []
    assert agent.now < 1_000_000 + 20 * 5_000


def test_a_start_is_told_soon_but_not_for_tiny_tasks() -> None:
    """A task shorter than 50 ms is told by its result alone; a longer one is told as started while it runs."""
    agent = VirtualAgent()
    agent.run(order(1))
    sent = len(agent.requests)
    agent.pass_ms(40)
    agent.ended(1)
    assert len(agent.requests) == sent + 1
    assert agent.request.results[0].ran_ms == 40
    agent.run(order(2))
    sent = len(agent.requests)
    agent.pass_ms(60)
    assert len(agent.requests) == sent + 1
    assert agent.request.held[0].ran_ms >= 50


def test_a_result_says_how_long_ago_its_command_ended() -> None:
    """In each request anew, and not counted from when its outputs and its log were stored."""
    agent = VirtualAgent(lease_ms=600_000)
    agent.run(order(1), order(2))
    agent.fail()
    agent.pass_ms(1_000)
    agent.feed(events.Vacated(1))
    agent.pass_ms(300)
    agent.ended(1)
    ended_ms = agent.now - 300
    told = []
    for _ in range(3):
        agent.until_request()
        sent_ms = agent.sent_ms[agent.request.seq]
        told.append([(result.token, sent_ms - result.ago_ms) for result in agent.request.results])
        agent.fail()
        agent.pass_ms(5_000)
    assert told == [[(1, ended_ms)]] * 3
    agent.reply()
    agent.ended(2)
    agent.until_request()
    assert [(result.token, result.ago_ms) for result in agent.request.results] == [(2, 0)]
    agent.reply()
    assert agent.machine.courier.ended_ms == {}


def test_a_request_with_results_is_not_abandoned() -> None:
    """The dispatcher answers it at once: what comes meanwhile waits for the answer."""
    agent = VirtualAgent()
    agent.run(order(1), order(2))
    agent.ended(1)
    sent = len(agent.requests)
    agent.ended(2)
    agent.pass_ms(100)
    assert len(agent.requests) == sent
    agent.reply()
    assert [result.token for result in agent.request.results] == [2]


def test_retries_back_off_and_spread() -> None:
    """Pauses double up to a bound, between half and all of it by the fraction; sequence numbers rise."""
    pauses = []
    for fraction in (0.0, 0.999):
        agent = VirtualAgent()
        row = []
        for _ in range(10):
            failed, sent = agent.now, len(agent.requests)
            agent.fail(fraction)
            while len(agent.requests) == sent:
                agent.pass_ms(10)
            row.append(agent.now - failed)
        assert [request.seq for request in agent.requests] == list(range(1, 12))
        pauses.append(row)
    assert pauses[0][0] <= 60
    assert pauses[1][0] <= 110
    assert 2_400 <= pauses[0][-1] <= 2_600
    assert 4_900 <= pauses[1][-1] <= 5_100


def test_a_request_without_any_answer_counts_as_failed() -> None:
    """A connection that is dead but open must not cost the lease."""
    agent = VirtualAgent(cpus_milli=1000, lease_ms=6_000, heartbeat_ms=1_000)
    agent.run(order(1))
    agent.pass_ms(5_900)
    assert len(agent.requests) >= 3


def test_an_answer_that_brings_nothing_at_once_is_no_busy_loop() -> None:
    """A dispatcher that never lets a poll wait is asked about once a second."""
    agent = VirtualAgent()
    for _ in range(100):
        agent.reply()
    assert agent.now - 1_000_000 > 85_000


def test_a_drain_is_confirmed_only_when_nothing_is_held() -> None:
    """Waiting claims go back, running ones end first, and the confirmation carries the drain's token."""
    agent = VirtualAgent(cpus_milli=1000)
    agent.run(order(1))
    agent.reply(order(2), drain_token=7, drain=True)
    assert (agent.request.state, agent.request.drain_token, agent.request.want) == ("draining", 7, 0)
    assert [(r.token, r.cause) for r in agent.request.results] == [(2, "released")]
    agent.reply()
    agent.ended(1)
    assert (agent.request.state, agent.request.drain_token) == ("drained", 7)
    assert agent.request.held == []


def test_a_drain_can_be_taken_back() -> None:
    """A newer token that says resume makes the agent take work again."""
    agent = VirtualAgent()
    agent.reply(drain_token=1, drain=True)
    assert agent.request.state == "drained"
    agent.reply(drain_token=2, drain=False)
    assert (agent.request.state, agent.request.want) == ("idle", 2)


def test_an_old_drain_token_changes_nothing() -> None:
    """A delayed directive does not undo a newer one."""
    agent = VirtualAgent()
    agent.reply(drain_token=2, drain=False)
    agent.reply(drain_token=1, drain=True)
    assert agent.request.state == "idle"


def test_a_confirmed_drain_ends_the_agent_after_a_heartbeat() -> None:
    """Time enough to take it back; then the VM ends itself even if nobody tells it to."""
    agent = VirtualAgent()
    agent.reply(drain_token=1, drain=True)
    agent.reply(drain_token=1, drain=True)
    assert agent.end is None
    agent.pass_ms(agent.policy.heartbeat_ms + 1)
    assert agent.request.ending == "drained"
    agent.reply()
    assert agent.end == "drained"


def test_hold_takes_no_work_and_does_not_ask_to_end() -> None:
    """What runs goes on; the agent waits."""
    agent = VirtualAgent(idle_ms=1000)
    agent.reply(hold=True)
    agent.pass_ms(5_000)
    agent.reply(hold=True)
    agent.pass_ms(agent.policy.heartbeat_ms)
    assert (agent.request.want, agent.request.ask_end) == (0, False)
    agent.reply(hold=False)
    assert agent.request.want == 2


def test_an_idle_agent_asks_before_it_ends_and_goes_only_when_told() -> None:
    """Refused or unanswered asking leaves it at work; approval ends it."""
    agent = VirtualAgent(idle_ms=30_000)
    agent.pass_ms(29_000)
    assert not agent.request.ask_end
    agent.pass_ms(1_500)
    assert agent.request.ask_end
    assert agent.request.want == 2
    agent.reply(order(1))
    agent.started(1)
    agent.ended(1)
    assert not agent.request.ask_end
    agent.reply()
    for _ in range(2):
        agent.pass_ms(20_000)
        agent.reply()
    assert agent.request.ask_end
    agent.reply(end=True)
    assert agent.request.ending == "idle"
    agent.reply()
    assert agent.end == "idle"


def test_expired_polls_that_brought_nothing_are_counted() -> None:
    """After so many empty claims in a row the agent asks to end; a claim starts the count again."""
    agent = VirtualAgent(idle_ms=0, empty_claims=3)
    for round_ in range(2):
        for _ in range(2):
            agent.now += agent.policy.poll_ms
            agent.reply()
            assert not agent.request.ask_end
        if round_ == 0:
            agent.run(order(1))
            agent.ended(1)
            agent.reply()
    agent.now += agent.policy.poll_ms
    agent.reply()
    assert agent.request.ask_end


def test_silence_of_the_dispatcher_ends_the_agent() -> None:
    """Without any answer for `silence_ms` it ends by itself."""
    agent = VirtualAgent(silence_ms=120_000)
    for _ in range(60):
        if agent.end:
            break
        agent.fail()
        agent.pass_ms(5_000)
    assert agent.end == "silence"
    assert 120_000 <= agent.now - 1_000_000 <= 145_000


def test_a_number_of_tasks_ends_the_agent() -> None:
    """It takes no more claims than that, and ends when the last result is settled."""
    agent = VirtualAgent(max_tasks=3, cpus_milli=2000)
    assert agent.request.want == 2
    agent.run(order(1), order(2))
    agent.ended(1)
    assert agent.request.want == 1
    agent.run(order(3))
    agent.ended(2)
    agent.pass_ms(10_000)
    assert not any(agent.kills(token) for token in (1, 2, 3)), "the last one is run to its end"
    agent.ended(3)
    for _ in range(3):
        if agent.request.ending:
            break
        agent.reply()
    assert agent.request.ending == "max-tasks"
    told = [result for request in agent.requests for result in request.results]
    assert {result.token: result.cause for result in told} == dict.fromkeys((1, 2, 3), "success")
    agent.reply()
    assert agent.end == "max-tasks"


def test_lifetime_counts_from_the_vm_and_not_from_the_incarnation() -> None:
    """An agent that was started again ends when its VM's time is over, and its tasks end as preempted."""
    agent = VirtualAgent(lifetime_ms=100_000)
    agent.feed(events.Boot(age_ms=70_000))
    agent.run(order(1))
    for _ in range(29):
        agent.pass_ms(1_000)
        agent.reply()
    assert agent.kills(1) == []
    agent.pass_ms(1_000)
    assert agent.kills(1) == [TERM]
    agent.ended(1, "signal", signal=15)
    assert [result.cause for result in agent.request.results] == ["preempted"]
    assert agent.request.ending == "lifetime"
    agent.reply()
    assert agent.end == "lifetime"


def test_a_shutdown_of_the_system_preempts_the_tasks() -> None:
    """SIGTERM, SIGKILL after the grace, results with cause preempted, and the ending says shutdown."""
    agent = VirtualAgent(kill_grace_ms=2_000)
    agent.run(order(1))
    agent.feed(events.Signalled("shutdown"))
    assert agent.kills(1) == [TERM]
    agent.pass_ms(2_000)
    assert agent.kills(1) == [TERM, KILL]
    agent.ended(1, "signal", signal=9)
    agent.until_request()
    assert (agent.request.state, agent.request.ending) == ("drained", "shutdown")
    (result,) = agent.request.results
    assert (result.cause, result.detail) == ("preempted", "its agent ends: shutdown")
    agent.reply()
    assert agent.end == "shutdown"


def test_a_claim_whose_command_never_started_goes_back_at_shutdown() -> None:
    """It costs its task no attempt."""
    agent = VirtualAgent()
    agent.reply(order(1))
    agent.feed(events.Signalled("shutdown"))
    agent.ended(1, "cancelled")
    assert agent.request.results[0].cause == "released"


def test_the_last_words_are_bounded() -> None:
    """A dispatcher that is away does not keep an ending VM."""
    agent = VirtualAgent()
    agent.feed(events.Signalled("shutdown"))
    agent.pass_ms(10_001)
    assert agent.end == "shutdown"


def test_a_task_that_only_stores_its_outputs_finishes_at_shutdown() -> None:
    """Its command has ended by itself: the grace is for bringing outputs away, and the result stands."""
    agent = VirtualAgent()
    agent.run(order(1))
    agent.feed(events.Vacated(1))
    agent.feed(events.Signalled("shutdown"))
    assert agent.kills(1) == []
    agent.ended(1, "success", exit_code=0)
    results = [result.cause for request in agent.requests for result in request.results]
    assert set(results) == {"success"}


def test_room_is_free_as_soon_as_nothing_of_an_attempt_lives() -> None:
    """While a log is brought away the next task runs, and the first is still held."""
    agent = VirtualAgent(cpus_milli=1000)
    agent.run(order(1))
    agent.feed(events.Vacated(1))
    agent.pass_ms(60)
    agent.reply(order(2))
    assert set(agent.running) == {1, 2}
    agent.until_request()
    assert {claim.token for claim in agent.request.held} == {1, 2}


def test_the_supervisor_waits_no_longer_than_the_lease_of_what_runs() -> None:
    """A sign of life says until when the next must come: a little after the lease; soon, while what is past it still
    dies; never, where nothing lives."""
    agent = VirtualAgent(lease_ms=60_000, heartbeat_ms=10_000)
    assert agent.machine.answers_by(agent.now) is None
    agent.until_request()
    sent = agent.now
    agent.run(order(1))
    beyond = agent.machine.answers_by(agent.now) - sent - 60_000
    assert 0 < beyond < 10_000
    agent.feed(events.Vacated(1))
    assert agent.machine.answers_by(agent.now) is None
    agent.run(order(2))
    agent.pass_ms(60_001)
    assert agent.kills(2)[-1] == KILL
    assert 0 < agent.machine.answers_by(agent.now) - agent.now < 10_000
    agent.ended(2)
    assert agent.machine.answers_by(agent.now) is None


def used_to_tasks_of(milliseconds: int, **policy: int) -> VirtualAgent:
    """An agent whose tasks have taken so long, and which runs another one."""
    agent = VirtualAgent(**{"cpus_milli": 1000, **policy})
    for _ in range(4):
        agent.machine.courier.pace.ran(milliseconds)
    agent.run(order(1))
    return agent


def test_a_notice_lets_go_on_what_will_end_in_time_and_takes_nothing_more() -> None:
    """Two minutes: it drains, says why at once, and ends what is left with its grace before the VM is taken."""
    agent = used_to_tasks_of(60_000, kill_grace_ms=5_000)
    agent.reply()
    agent.feed(events.Noticed(120_000))
    noticed = agent.now
    agent.pass_ms(60)
    assert (agent.request.state, agent.request.detail, agent.request.want) == ("draining", PREEMPTED, 0)
    while not agent.kills(1) and agent.now < noticed + 120_000:
        if agent.machine.courier.outstanding is not None:
            agent.reply()
        agent.pass_ms(1_000)
    assert agent.kills(1) == [TERM]
    assert noticed + 100_000 < agent.now <= noticed + 106_000
    agent.ended(1, "signal", signal=15)
    agent.until_request()
    assert [result.cause for result in agent.request.results] == ["preempted"]
    assert agent.request.ending == "preempted"


def test_what_will_not_end_within_the_notice_ends_at_once() -> None:
    """Its task is put back while the machine still lives: so it is where nothing is known of how long tasks take."""
    for agent in (used_to_tasks_of(150_000), VirtualAgent(cpus_milli=1000)):
        if not agent.running:
            agent.run(order(1))
        agent.feed(events.Noticed(120_000))
        assert agent.kills(1) == [TERM]
        agent.ended(1, "signal", signal=15)
        agent.until_request()
        assert [result.cause for result in agent.request.results] == ["preempted"]


def test_what_has_run_for_a_while_is_expected_to_end_in_time() -> None:
    """Tasks take two and a half minutes: one that began a minute ago is done before the VM goes, one that begins now
    is not."""
    agent = used_to_tasks_of(150_000, cpus_milli=2000, lease_ms=10**6)
    agent.pass_ms(60_000)
    agent.run(order(2))
    agent.feed(events.Noticed(120_000))
    assert (agent.kills(1), agent.kills(2)) == ([], [TERM])


def test_a_notice_to_an_idle_agent_ends_it() -> None:
    """There is nothing to wait for; a shutdown that follows changes nothing."""
    agent = VirtualAgent()
    agent.feed(events.Noticed(30_000))
    agent.feed(events.Signalled("shutdown"))
    agent.until_request()
    assert (agent.request.state, agent.request.ending) == ("drained", "preempted")


def test_a_task_that_ends_within_the_notice_succeeds() -> None:
    """Then the agent goes, and does not wait for the cloud."""
    agent = used_to_tasks_of(2_000)
    agent.feed(events.Noticed(120_000))
    agent.pass_ms(2_000)
    agent.ended(1, "success", exit_code=0)
    agent.until_request()
    assert [result.cause for result in agent.request.results] == ["success"]
    assert agent.request.ending == "preempted"
    agent.reply()
    assert agent.end == "preempted"
