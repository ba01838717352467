"""What the agent's machine makes of its health checks."""

from __future__ import annotations

import pytest

from cloud_dispatch.agent import events
from cloud_dispatch.agent.health import DOUBTFUL, FIRST_INTERVAL_MS
from cloud_dispatch.agent.machine import AHEAD_PATIENCE_MS
from cloud_dispatch.wire.messages import HealthCheck, Policy
from tests.agent.virtual import TERM, VirtualAgent, order


def test_a_health_check_must_pass_before_work_is_taken() -> None:
    """At start the check runs first; work is asked for once it passed."""
    agent = VirtualAgent(health_checks=[HealthCheck(["check"])])
    assert events.RunHealthCheck(0, HealthCheck(["check"])) in agent.commands
    assert agent.request.want == 0
    agent.feed(events.HealthChecked(0, True))
    assert agent.request.want == 2


def test_a_health_check_that_finds_no_room_says_nothing_of_the_instance() -> None:
    """It is run again soon; neither failures in a row are made by it nor ended."""
    check = HealthCheck(["check"], interval_ms=60_000, failures=2)
    agent = VirtualAgent(Policy(cpus_milli=1000, health_checks=[check]))

    def runs() -> int:
        return sum(isinstance(command, events.RunHealthCheck) for command in agent.commands)

    agent.feed(events.HealthChecked(0, True))
    after = ((60_000, None), (FIRST_INTERVAL_MS, None), (FIRST_INTERVAL_MS, False), (60_000, None))
    for before, (wait_ms, passed) in enumerate(after, 1):
        agent.pass_ms(wait_ms)
        assert runs() == before + 1
        agent.feed(events.HealthChecked(0, passed, "every uid of task_uids is in use"))
        assert not agent.machine.health.condemned
    agent.pass_ms(FIRST_INTERVAL_MS)
    agent.feed(events.HealthChecked(0, False, "disk is bad"))
    assert "2 times in a row: disk is bad" in agent.machine.health.condemned


@pytest.mark.parametrize("cause", ["exit-code", "signal", "cannot-start", "output-failed"])
def test_tasks_that_fail_one_after_the_other_make_the_checks_run_again(cause: str) -> None:
    """A machine that has gone bad would fail the whole queue before its next check: it takes no more, and starts none
    that it has, until the checks have passed."""
    agent = VirtualAgent(Policy(cpus_milli=1000, health_checks=[HealthCheck(["check"], interval_ms=600_000)]))

    def runs() -> int:
        return sum(isinstance(command, events.RunHealthCheck) for command in agent.commands)

    agent.feed(events.HealthChecked(0, True))
    for token in range(1, DOUBTFUL):
        agent.run(order(token))
        agent.ended(token, cause)
    agent.run(order(10))
    agent.ended(10)  # one that succeeds: all is well
    for token in range(20, 20 + DOUBTFUL):
        assert runs() == 1
        agent.run(order(token), *([order(50)] if token == 19 + DOUBTFUL else []))
        agent.ended(token, cause)
    agent.until_request()
    assert (runs(), agent.request.want, 50 in agent.running) == (2, 0, False)
    agent.feed(events.HealthChecked(0, True))
    assert 50 in agent.running
    agent.ended(50)
    agent.reply()
    assert agent.request.want > 0


def test_a_machine_that_is_doubted_and_bad_is_soon_condemned() -> None:
    """The checks are repeated as at its start; what waits goes back, and is not started meanwhile."""
    check = HealthCheck(["check"], interval_ms=600_000, failures=2)
    agent = VirtualAgent(Policy(cpus_milli=1000, health_checks=[check]))
    agent.feed(events.HealthChecked(0, True))
    for token in range(1, DOUBTFUL):
        agent.run(order(token))
        agent.ended(token, "exit-code")
    agent.run(order(10), order(11))
    agent.ended(10, "exit-code")
    agent.feed(events.HealthChecked(0, False, "disk is bad"))
    agent.pass_ms(FIRST_INTERVAL_MS)
    agent.feed(events.HealthChecked(0, False, "disk is bad"))
    assert "2 times in a row: disk is bad" in agent.machine.health.condemned
    assert 11 not in agent.running


def test_what_a_doubted_machine_gives_back_makes_no_room_for_another() -> None:
    """Claims go back one by one, as each has waited for long; those behind them are not started meanwhile."""
    agent = VirtualAgent(Policy(cpus_milli=1000, health_checks=[HealthCheck(["check"], interval_ms=600_000)]))
    agent.feed(events.HealthChecked(0, True))
    for token in range(1, DOUBTFUL):
        agent.run(order(token))
        agent.ended(token, "exit-code")
    agent.run(order(10))
    agent.reply(order(50))
    agent.pass_ms(AHEAD_PATIENCE_MS // 2)
    agent.ended(10, "exit-code")
    agent.reply(order(51))
    assert agent.machine.claims.waiting.keys() == {50, 51}
    agent.pass_ms(AHEAD_PATIENCE_MS // 2 + 100)
    assert agent.machine.claims.waiting.keys() == {51}
    assert agent.running == {}


def test_a_machine_is_doubted_anew_after_as_many_failures_as_before() -> None:
    """Not with each one: an array that fails for its own fault goes on nearly as fast."""
    agent = VirtualAgent(Policy(cpus_milli=1000, health_checks=[HealthCheck(["check"], interval_ms=600_000)]))
    ready = []
    for token in range(1, 1 + 2 * DOUBTFUL):
        if not agent.machine.health.ready:
            agent.feed(events.HealthChecked(0, True))
        agent.run(order(token))
        agent.ended(token, "exit-code")
        ready.append(agent.machine.health.ready)
    assert ready == [*[True] * (DOUBTFUL - 1), False] * 2


def test_a_check_that_began_before_the_doubt_does_not_end_it() -> None:
    """What it has looked at may have gone bad since: it runs once more, at once."""
    agent = VirtualAgent(Policy(cpus_milli=1000, health_checks=[HealthCheck(["check"], interval_ms=10_000)]))

    def runs() -> int:
        return sum(isinstance(command, events.RunHealthCheck) for command in agent.commands)

    agent.feed(events.HealthChecked(0, True))
    agent.reply()
    agent.pass_ms(10_000)
    for token in range(1, 1 + DOUBTFUL):
        agent.run(order(token))
        agent.ended(token, "exit-code")
    assert runs() == 2
    agent.feed(events.HealthChecked(0, True))
    assert (runs(), agent.machine.health.ready) == (3, False)
    agent.feed(events.HealthChecked(0, True))
    assert (runs(), agent.machine.health.ready) == (3, True)


def test_tasks_that_are_ended_say_nothing_of_the_instance() -> None:
    """Such as those that were cancelled, or ran for too long."""
    agent = VirtualAgent(Policy(cpus_milli=1000, health_checks=[HealthCheck(["check"], interval_ms=600_000)]))
    agent.feed(events.HealthChecked(0, True))
    for token, cause in enumerate(["cancelled", "timeout", "out-of-memory"] * DOUBTFUL, 1):
        agent.run(order(token))
        agent.ended(token, cause)
    assert agent.machine.health.ready


def test_failed_health_checks_end_the_instance_even_without_the_dispatcher() -> None:
    """N failures in a row: tasks end instance-lost, the state is failed, and the end comes unheard."""
    check = HealthCheck(["check"], interval_ms=10_000, failures=2)
    agent = VirtualAgent(Policy(cpus_milli=1000, health_checks=[check]))
    agent.feed(events.HealthChecked(0, True))
    agent.run(order(1))
    for passed in (False, True, False, False):
        agent.pass_ms(10_000)
        if agent.machine.courier.outstanding:
            agent.reply()
        assert agent.kills(1) == []
        agent.feed(events.HealthChecked(0, passed, "disk is bad"))
    assert agent.kills(1) == [TERM]
    agent.ended(1, "signal")
    agent.fail()
    agent.pass_ms(500)
    assert (agent.request.state, agent.request.ending) == ("failed", "health")
    assert "disk is bad" in agent.request.detail
    (result,) = agent.request.results
    assert (result.cause, result.detail) == ("instance-lost", f"its agent ends: {agent.request.detail}")
    agent.pass_ms(30_000)
    assert agent.end == "health"
