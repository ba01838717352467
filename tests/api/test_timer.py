"""The words of guest timers over HTTP: who gets one, for how long, and that nobody else's timer heeds it."""

from __future__ import annotations

import pytest

from cloud_dispatch.agent.timer import GuestTimer
from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.api.operator_token import OperatorToken
from cloud_dispatch.api.timer import Words
from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.ports.fleet import Directive
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.spend.grant import Terms
from cloud_dispatch.wire.messages import SYNC_PATH, TimerAsk
from cloud_dispatch.wire.timer import MOST_LINKS, TimerPlan
from tests.api.house import Agent, House, error_of

OPERATOR = OperatorToken.of("operator")
MINUTE = 60_000
LEASE = 30 * MINUTE
POOL = Pool(PoolName("default"), (ProfileName("local"),))


def told(house: House, batch: str, ends_in_ms: int = 100 * MINUTE) -> TimerPlan:
    """The plan of a VM that is launched now."""
    now = house.services.clock.now()
    return Words(house.tokens).plan(POOL, BatchId(batch), now + ends_in_ms, now, LEASE)


def ask(plan: TimerPlan, age_ms: int) -> TimerAsk:
    return TimerAsk(age_ms, plan.step_ms, plan.links)


async def set_end(house: House, instance: InstanceId, ends_in_ms: int) -> None:
    ends_ms = house.services.clock.now() + ends_in_ms
    await house.store.change([InstanceChange(instance, None, {"ends_ms": ends_ms})])


async def vm(house: House) -> tuple[Agent, GuestTimer]:
    agent = await house.agent()
    return agent, GuestTimer(told(house, agent.instance.rpartition("-")[0]))


async def test_a_vm_that_asks_lives_a_lease_longer_from_when_it_asked(house: House) -> None:
    """By the words of its own user data, rounded down to a step."""
    agent, timer = await vm(house)
    reply = await agent.sync(timer=ask(timer.plan, 20 * MINUTE))
    assert timer.hear(reply.timer)
    assert 48 * MINUTE <= timer.granted_ms <= 50 * MINUTE
    assert (await agent.sync()).timer == "", "one that does not ask"


async def test_no_word_reaches_beyond_the_end_that_is_committed(house: House) -> None:
    agent, timer = await vm(house)
    await set_end(house, agent.instance, 25 * MINUTE)
    reply = await agent.sync(timer=ask(timer.plan, 20 * MINUTE))
    assert timer.hear(reply.timer)
    assert 42 * MINUTE < timer.granted_ms <= 45 * MINUTE


async def test_an_age_beyond_the_intent_is_not_believed(house: House) -> None:
    agent, timer = await vm(house)
    row = house.store.instances()[agent.instance]
    age_ms = house.services.clock.now() - row.intended_ms
    honest = await agent.sync(timer=ask(timer.plan, age_ms))
    assert (await agent.sync(timer=ask(timer.plan, age_ms + 10**12))).timer == honest.timer


async def test_what_shall_end_gets_none(house: House) -> None:
    agent, timer = await vm(house)
    house.fleet.direct(agent.instance, Directive(claiming=False, end=True))
    assert (await agent.sync(timer=ask(timer.plan, 0))).timer == ""
    house.fleet.direct(agent.instance, Directive())
    await house.store.change([InstanceChange(agent.instance, InstanceEvent.FAIL)])
    assert (await agent.sync(timer=ask(timer.plan, 0))).timer == ""


async def test_where_everything_is_ended_nothing_is_granted(house: House) -> None:
    """Also before the loop has come to it, and to what it can't reach."""
    agent, timer = await vm(house)
    house.fleet.stop_asked = Stop(StopLevel.DRAIN)
    assert (await agent.sync(timer=ask(timer.plan, 0))).timer
    house.fleet.stop_asked = Stop(StopLevel.TERMINATE)
    assert (await agent.sync(timer=ask(timer.plan, 0))).timer == ""


async def test_other_terms_than_ones_own_are_another_chain(house: House) -> None:
    """Who says that its steps are smaller, to have more of them, gets words that its timer does not heed."""
    agent, timer = await vm(house)
    plan = timer.plan
    for lie in (
        TimerAsk(0, 1, plan.links),
        TimerAsk(0, plan.step_ms, plan.links - 1),
        TimerAsk(0, plan.step_ms, MOST_LINKS),
    ):
        reply = await agent.sync(timer=lie)
        assert reply.timer
        assert not timer.hear(reply.timer)
    assert timer.words == 0


async def test_words_are_the_batchs_own(house: House) -> None:
    agent, timer = await vm(house)
    stranger = GuestTimer(told(house, "another"))
    reply = await agent.sync(timer=ask(timer.plan, 20 * MINUTE))
    assert not stranger.hear(reply.timer)


async def test_a_store_that_can_not_commit_keeps_timers_running(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the ends that it has committed."""
    agent, timer = await vm(house)

    async def full(*_: object) -> None:
        raise StoreUnavailable("disk full")

    monkeypatch.setattr(house.store, "sync", full)
    monkeypatch.setattr("cloud_dispatch.api.sync._FULL_PAUSE_S", 0.0)
    assert timer.hear((await agent.sync(timer=ask(timer.plan, 20 * MINUTE))).timer)


@pytest.mark.parametrize("bad", [TimerAsk(0, 0, 1), TimerAsk(0, 1, 0), TimerAsk(0, 1, MOST_LINKS + 1)])
async def test_terms_that_no_user_data_have_are_refused(house: House, bad: TimerAsk) -> None:
    agent = await house.agent()
    status, _, place = error_of(await agent.post(agent.request(timer=bad)))
    assert (status, place.partition(".")[0]) == (400, "timer")


@pytest.mark.parametrize("left", [{}, {"step_ms": 1}, {"links": 1}])
async def test_terms_that_are_left_out_are_refused(house: House, left: dict[str, int]) -> None:
    """A step of no length would be divided by."""
    agent = await house.agent()
    body = {"incarnation": agent.incarnation, "seq": 1, "timer": left}
    assert error_of(await house.http.post(SYNC_PATH, json=body, headers=agent.headers))[::2] == (400, "timer")


def test_every_word_of_a_chain_leads_to_its_anchor() -> None:
    words, terms = Words(Tokens(b"service", b"join", OPERATOR)), Terms(10, 200)
    plan = TimerPlan(words._link(BatchId("b"), terms, 200).hex(), 1_000, 10, 200)
    for count in (1, 2, 63, 64, 65, 128, 199, 200):
        timer = GuestTimer(plan)
        assert timer.hear(words.word(BatchId("b"), terms, count)), count
    other = Words(Tokens(b"service", b"other", OPERATOR))
    assert not GuestTimer(plan).hear(other.word(BatchId("b"), terms, 1))
