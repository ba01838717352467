"""Syncs that are held back: who is woken, by what, and that nobody who left claims anything."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import RetryRules, TaskState
from cloud_dispatch.ports.fleet import Directive
from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import SYNC_PATH, Result, SyncReply
from tests.api.house import Agent, House, served
from tests.virtual_time import standing_still

WAIT_MS = 15_000


def poll(agent: Agent, want: int = 1, **more: object) -> asyncio.Task[SyncReply]:
    """A sync of `agent` that may be held for long, under way."""
    return asyncio.create_task(agent.sync(want=want, wait_ms=WAIT_MS, **more))


async def test_work_that_arrives_is_handed_to_a_waiting_agent_at_once(house: House) -> None:
    """A submit over REST reaches the held sync of an idle agent without any time passing."""
    agent = await house.agent()
    waiting = poll(agent)
    await house.until_held()
    with standing_still():
        submitted = await house.op.post("/v1/tasks", json={"tasks": [{"command": ["true"]}]})
        reply = await waiting
    assert [order.task for order in reply.claims] == submitted.json()["ids"]


async def test_an_agent_of_before_is_told_the_program_again_and_waits_for_work_all_the_same(house: House) -> None:
    """It does not say what it heard: the answer that told it first may be lost."""
    agent = await house.agent()
    house.api.sync.sessions._sessions.clear()
    assert (await agent.sync(heard=-1)).program is not None
    waiting = poll(agent, heard=-1)
    await house.until_held()
    await house.submit(1)
    reply = await waiting
    assert (len(reply.claims), reply.program is not None) == (1, True)


async def test_as_many_agents_wake_as_there_is_work_and_alike_ones_in_one_order(house: House) -> None:
    """Two tasks for three waiting agents of one slot each: the first two of them get them, whoever asked first, the
    third waits on."""
    agents = [await house.agent(cpus=1) for _ in range(3)]
    polls = []
    for number, agent in enumerate(reversed(agents), 1):
        polls.insert(0, poll(agent))
        await house.until_held(number)
    await house.submit(2)
    done, _ = await asyncio.wait(polls[:2], timeout=5)
    assert len(done) == 2
    assert [len(p.result().claims) for p in polls[:2]] == [1, 1]
    assert not polls[2].done()
    await house.submit(1)
    assert len((await polls[2]).claims) == 1


@pytest.mark.parametrize(
    ("causes", "failing"),
    [
        (["exit-code"], True),
        (["cannot-start", "cancelled"], True),  # a cancel says nothing of the machine
        (["exit-code", "success"], False),
        (["cancelled"], False),
    ],
)
async def test_an_agent_whose_last_attempt_failed_wakes_after_others(
    house: House, causes: list[str], failing: bool
) -> None:
    """What is free at once because it fails everything does not get everything."""
    first, second = [await house.agent(cpus=1) for _ in range(2)]
    for cause in causes:
        await house.submit(1, retry=RetryRules(max_attempts=1))
        await first.sync(want=1)
        await first.finish(first.held[-1], cause)
    polls = [poll(first), poll(second)]
    await house.until_held(2)
    await house.submit(1)
    await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    assert [p.done() for p in polls] == [not failing, failing]
    await house.submit(1)
    await asyncio.wait(polls, timeout=5)
    assert [len(p.result().claims) for p in polls] == [1, 1]


async def test_an_agent_without_room_for_the_shape_is_not_woken(house: House) -> None:
    """A big task passes the small machine that waits in front and wakes the big one behind it."""
    small, big = await house.agent(cpus=1), await house.agent(cpus=8)
    before = poll(small)
    await house.until_held(1)
    behind = poll(big)
    await house.until_held(2)
    await house.submit(1, shape=Shape(Resources(6000, GIB)))
    assert len((await behind).claims) == 1
    assert not before.done()
    await house.submit(1)
    assert len((await before).claims) == 1


async def test_a_held_sync_expires_empty(tmp_path: Path) -> None:
    """Without work the answer comes when the dispatcher's own bound is reached, and is an empty claim."""
    async with served(tmp_path, poll_ms=100) as house:
        agent = await house.agent()
        began = time.monotonic()
        reply = await poll(agent)
        assert 0.09 < time.monotonic() - began < 3
        assert (reply.claims, reply.seq) == ([], agent.seq)


async def test_a_directive_ends_the_wait(house: House) -> None:
    """Drain, hold and resume reach a waiting agent at once."""
    agent = await house.agent()
    waiting = poll(agent)
    await house.until_held()
    with standing_still():
        house.fleet.direct(agent.instance, Directive(claiming=False, drain_token=1, drain=True))
        reply = await waiting
    assert (reply.drain, reply.drain_token) == (True, 1)


async def test_a_cancel_reaches_the_instance_that_runs_the_task(house: House) -> None:
    """An agent that waits with a running task is told to kill it as soon as it is cancelled; others wait on."""
    agent, other = await house.agent(), await house.agent()
    (task,) = await house.submit()
    await agent.sync(want=1)
    waiting, elsewhere = poll(agent, want=0), poll(other)
    await house.until_held(2)
    with standing_still():
        cancelled = await house.op.post("/v1/tasks/cancel", json={"ids": [task]})
        assert cancelled.json() == {"cancelled": [task]}
        reply = await waiting
    assert reply.kill == [agent.held[0].token]
    assert not elsewhere.done()
    elsewhere.cancel()


async def test_a_newer_sync_supersedes_the_one_that_waits(house: House) -> None:
    """The old one is answered empty at once; work that comes then goes to the new one."""
    agent = await house.agent()
    old = poll(agent)
    await house.until_held()
    with standing_still():
        new = poll(agent)
        assert (await old).claims == []
    await house.until_held()
    await house.submit()
    assert len((await new).claims) == 1


async def test_a_new_incarnation_supersedes_whatever_its_seq(house: House) -> None:
    """The poll of an agent process that was replaced is answered empty, though its seq was higher."""
    agent = await house.agent()
    agent.seq = 50
    old = poll(agent)
    await house.until_held()
    agent.incarnation, agent.seq = "two", 0
    with standing_still():
        await agent.sync()
        assert (await old).claims == []


async def test_an_agent_that_closed_its_connection_claims_nothing(house: House) -> None:
    """Work that arrives after the client left stays in the queue, and goes to the next in line."""
    leaver, stayer = await house.agent(), await house.agent()
    reader, writer = await _raw_poll(house, leaver)
    await house.until_held(1)
    waiting = poll(stayer)
    await house.until_held(2)
    writer.transport.abort()
    async with asyncio.timeout(5):
        while len(house.api.sync.polls) > 1:
            await asyncio.sleep(0.002)
    (task,) = await house.submit()
    assert [order.task for order in (await waiting).claims] == [task]
    assert house.store.leases_of(leaver.instance) == {}
    assert reader is not None


async def test_claims_whose_reply_was_lost_come_back_with_the_next_sync(house: House) -> None:
    """The running set of the next sync lacks them: they are queued again without an attempt, and claimed anew."""
    agent = await house.agent()
    (task,) = await house.submit()
    lost = await agent.post(agent.request(want=1))
    assert len(codec.decode(SyncReply, lost.content).claims) == 1
    back = await agent.sync()
    assert back.claims == []
    row = await house.store.task(TaskId(task))
    assert (row.state, row.attempts) == (TaskState.QUEUED, 0)
    assert [order.task for order in (await agent.sync(want=1)).claims] == [task]


async def test_an_agent_with_news_is_answered_at_once(house: House) -> None:
    """Results, and whatever the dispatcher has to say, are never held back by the wish to wait."""
    agent = await house.agent()
    await house.submit()
    await agent.sync(want=1)
    claim = agent.held[0]
    agent.held.clear()
    told = Result(claim.task, claim.token, "success", ran_ms=1)
    with standing_still():
        reply = await agent.sync(results=[told], want=1, wait_ms=WAIT_MS)
    assert reply.settled == [claim.token]


async def test_shutdown_answers_all_that_wait(house: House) -> None:
    """When the dispatcher ends, held syncs are answered and later ones are not held."""
    agents = [await house.agent() for _ in range(3)]
    waiting = [poll(agent) for agent in agents]
    await house.until_held(3)
    house.api.close()
    assert all(reply.claims == [] for reply in await asyncio.wait_for(asyncio.gather(*waiting), 2))
    await asyncio.wait_for(agents[0].sync(want=1, wait_ms=WAIT_MS), 2)


async def test_a_burst_reaches_every_waiting_agent(house: House) -> None:
    """Forty tasks in one commit for ten agents of four slots: each agent gets its share in one answer."""
    agents = [await house.agent(cpus=4) for _ in range(10)]
    waiting = [poll(agent, want=4) for agent in agents]
    await house.until_held(10)
    tasks = await house.submit(40)
    replies = await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert [len(reply.claims) for reply in replies] == [4] * 10
    assert sorted(order.task for reply in replies for order in reply.claims) == tasks


async def test_submits_one_by_one_are_never_left_lying(house: House) -> None:
    """Agents that poll, finish and poll again while tasks trickle in: all end, none waits for a poll to expire."""
    agents = [await house.agent(cpus=2) for _ in range(4)]
    left = asyncio.Event()
    done: set[int] = set()

    async def work(agent: Agent) -> None:
        while len(done) < 200:
            await agent.sync(want=2 - len(agent.held), wait_ms=WAIT_MS)
            for claim in list(agent.held):
                await agent.finish(claim)
                done.add(claim.task)
        left.set()

    workers = [asyncio.create_task(work(agent)) for agent in agents]
    for _ in range(200):
        await house.submit()
        await asyncio.sleep(0)
    await asyncio.wait_for(left.wait(), 10)
    house.api.close()
    await asyncio.wait_for(asyncio.gather(*workers), 10)
    assert house.store.task_counts()[TaskState.SUCCEEDED] == 200


async def _raw_poll(house: House, agent: Agent) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A held sync on a connection that the test can break."""
    host, port = house.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = codec.encode(agent.request(want=1, wait_ms=WAIT_MS))
    head = f"POST {SYNC_PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {agent.token}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return reader, writer
