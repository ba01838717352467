"""The guest timer as the VM has it: what it takes for the dispatcher's word, and when the agent asks for the next."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.agent import events
from cloud_dispatch.agent.machine import Machine
from cloud_dispatch.agent.timer import GuestTimer
from cloud_dispatch.wire.messages import Policy
from cloud_dispatch.wire.timer import TimerPlan, forward, read_word, write_word
from tests.agent.virtual import VirtualAgent, order

SEED = b"\7" * 32
LINKS = 60
MINUTE = 60_000
LEASE = 30 * MINUTE
PLAN = TimerPlan(forward(SEED, LINKS).hex(), 40 * MINUTE, 2 * MINUTE, LINKS, LEASE, ends_ms=1_000_000_000)


def word(count: int) -> str:
    """As the dispatcher says it, who knows the seed."""
    return write_word(count, forward(SEED, LINKS - count))


@given(st.lists(st.integers(1, LINKS), min_size=1))
def test_words_count_once_and_in_any_order(counts: list[int]) -> None:
    """Lost ones are made up for by the next, repeated and late ones do nothing."""
    timer = GuestTimer(PLAN)
    for at, count in enumerate(counts):
        assert timer.hear(word(count)) == (count > max(counts[:at], default=0))
        assert timer.words == max(counts[: at + 1])
    assert timer.granted_ms == max(counts) * PLAN.step_ms


@given(st.integers(0, 10), st.integers(-1, 5_000), st.binary(max_size=40))
def test_nobody_without_the_seed_can_say_a_word(heard: int, count: int, link: bytes) -> None:
    """Not even who knows all that were said so far."""
    timer = GuestTimer(PLAN)
    if heard:
        assert timer.hear(word(heard))
    known = forward(SEED, LINKS - heard)
    forged = (link, known, hashlib.sha256(known).digest(), forward(known, abs(count)), bytes.fromhex(PLAN.anchor))
    for each in forged:
        assert not timer.hear(f"{count}:{each.hex()}")
        assert not timer.hear(f"{heard + 1}:{each.hex()}")
    assert timer.words == heard


@pytest.mark.parametrize(
    "said",
    ["", "1", "1:", ":" + "0" * 64, word(1)[:-1], word(1)[:-2], word(1) + "00", word(1) + " ", "x" + word(1),
     "2" + word(1)[1:], "0" + word(1)[1:], "-1" + word(1)[1:], "99999" + word(1)[1:], "²" + word(1)[1:]],
)  # fmt: skip
def test_what_is_no_word_is_ignored(said: str) -> None:
    timer = GuestTimer(PLAN)
    assert not timer.hear(said)
    assert (timer.words, timer.granted_ms) == (0, 0)
    assert read_word(word(1)) is not None


def test_a_chain_is_never_longer_than_its_plan_says() -> None:
    """Whatever the dispatcher could say beyond: it is another plan's."""
    timer = GuestTimer(replace(PLAN, links=5))
    assert not timer.hear(word(6))
    assert timer.hear(word(5))


def test_a_timer_that_another_one_had_before_goes_on_where_that_was() -> None:
    timer = GuestTimer(PLAN, 7)
    assert timer.granted_ms == 7 * PLAN.step_ms
    assert not timer.hear(word(7))
    assert timer.hear(word(8))


def test_what_the_launch_gave_ends_with_its_hard_end_and_what_words_gave_does_not() -> None:
    timer = GuestTimer(PLAN)
    assert timer.left_ms(0, 600) == 600
    assert timer.left_ms(PLAN.first_ms - 5, 600) == 5
    assert timer.hear(word(3))
    assert timer.left_ms(0, 600) == timer.left_ms(0, -9 * MINUTE) == 3 * PLAN.step_ms
    assert timer.left_ms(0, 10 * MINUTE) == 10 * MINUTE
    assert timer.left_ms(3 * PLAN.step_ms, 0) == 0


def test_a_plan_without_an_anchor_makes_no_timer() -> None:
    with pytest.raises(ValueError, match=r"timer\.anchor"):
        GuestTimer(TimerPlan("ab"))


class Timed(VirtualAgent):
    """An agent with a timer, whose dispatcher answers syncs with whatever is granted at the moment."""

    def __init__(self, plan: TimerPlan = PLAN, wall_left_ms: int = 10**9, **fields: int) -> None:
        super().__init__(**fields)
        self.machine = Machine("inc", self.policy, timer=GuestTimer(plan))
        self.commands, self.requests, self.born = [], [], self.now
        self.feed(events.Boot(0, wall_left_ms))

    @property
    def asked(self) -> list[int]:
        """The ages that were told."""
        return [request.timer.age_ms for request in self.requests if request.timer is not None]

    @property
    def heard(self) -> list[str]:
        return [command.word for command in self.commands if isinstance(command, events.TimerWord)]

    def live(self, until_ms: int, lease_ms: int = LEASE) -> None:
        """To the age `until_ms`: each sync is answered when its wait is over, with the words for `lease_ms` more."""
        while self.now - self.born < until_ms and self.end is None:
            self.until_request()
            sent = self.request
            answered_ms = self.now + sent.wait_ms
            while self.request is sent and self.now < answered_ms:
                self.pass_ms(min(answered_ms - self.now, 10_000))
            if self.request is sent and self.end is None:
                granted = (sent.timer.age_ms if sent.timer else 0) + lease_ms
                count = min(granted // PLAN.step_ms, LINKS)
                self.reply(timer=word(count) if sent.timer is not None else "")


def test_a_request_asks_when_half_a_lease_is_left() -> None:
    """And no other does."""
    agent = Timed()
    agent.live(100 * MINUTE)
    assert len(agent.requests) > 200
    assert 4 <= len(agent.asked) <= 8
    assert 25 * MINUTE < agent.asked[0] < 26 * MINUTE
    agent.live(24 * 60 * MINUTE)
    assert agent.end == "timer", "the words of this chain last for two hours"
    assert 120 * MINUTE - 1_000 > agent.now - agent.born > 119 * MINUTE


@pytest.mark.parametrize("wait_ms", [1_000, 20_000, 60 * MINUTE])
@pytest.mark.parametrize("works", [False, True])
def test_an_agent_asks_in_time_however_long_its_requests_wait(wait_ms: int, works: bool) -> None:
    """A poll or heartbeat that is longer than the lease does not cost the VM."""
    agent = Timed(poll_ms=wait_ms, heartbeat_ms=wait_ms, lease_ms=4 * wait_ms, cpus_milli=1000, silence_ms=10**9)
    if works:
        agent.run(order(1))
    agent.live(110 * MINUTE)
    assert agent.end is None
    assert agent.now - agent.born >= 110 * MINUTE


def test_hard_ends_that_are_near_and_move_on_are_followed() -> None:
    """A limit keeps the hard end close, moved on while less than four minutes are left, and a word is a step of two at
    most: the agent asks again in time, though a sixteenth of its lease is nearly two minutes."""
    agent, ends_ms = Timed(silence_ms=10**9), 8 * MINUTE
    while agent.now - agent.born < 100 * MINUTE and agent.end is None:
        left_ms = ends_ms - (agent.now - agent.born)
        if left_ms < 4 * MINUTE:
            ends_ms, left_ms = ends_ms + 1 * MINUTE, left_ms + 1 * MINUTE
        agent.live(agent.now - agent.born + 5_000, left_ms)
    assert agent.end is None


def test_what_is_asked_with_a_request_that_fails_is_asked_with_the_next() -> None:
    agent = Timed(wall_left_ms=10 * MINUTE)
    for _ in range(3):
        agent.fail()
    agent.until_request()
    assert len(agent.asked) == 4
    agent.reply(timer=word(1))
    assert agent.heard == [word(1)]
    agent.until_request()
    assert len(agent.asked) == 4, "not with every request"


def test_an_answer_that_is_no_word_goes_to_nobody() -> None:
    agent = Timed()
    agent.reply(timer="1:" + "0" * 64)
    agent.reply(timer="nonsense")
    assert agent.heard == []


def test_an_agent_that_is_not_granted_more_ends_what_runs_before_its_timer_does() -> None:
    """With time for the grace and the last word, and it did not ask the dispatcher to death."""
    agent = Timed(silence_ms=10**9, cpus_milli=1000)
    agent.run(order(1))
    while agent.now - agent.born < PLAN.first_ms - 20_001:
        agent.until_request()
        agent.pass_ms(min(agent.request.wait_ms + 1_000, agent.born + PLAN.first_ms - 20_001 - agent.now))
        agent.reply()
    assert agent.kills(1) == []
    agent.pass_ms(1_000)
    assert agent.kills(1) != []
    agent.ended(1, "preempted")
    assert agent.requests[-1].ending == "timer"
    assert len(agent.asked) < 40


def test_a_late_boot_leaves_before_the_first_hard_end() -> None:
    agent = Timed(wall_left_ms=5 * MINUTE)
    agent.pass_ms(5 * MINUTE - 20_001)
    assert agent.machine.end is None
    agent.pass_ms(1)
    assert agent.machine.end is not None
    assert agent.machine.end.word == "timer"


def test_an_agent_without_a_timer_asks_for_nothing() -> None:
    agent = VirtualAgent(Policy(cpus_milli=2000))
    agent.reply()
    agent.pass_ms(60_000)
    assert all(request.timer is None for request in agent.requests)
