"""One round trip of an agent: claims, results, what the fleet hears and says."""

from __future__ import annotations

import dataclasses
import typing

import msgspec
import pytest

from cloud_dispatch.api.translate import HeldIn, OrderOut, OutputIn, ReplyOut, ResultIn, SyncIn, TimerIn
from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Machine
from cloud_dispatch.domain.task import TaskState, Transfer
from cloud_dispatch.ports.fleet import Directive
from cloud_dispatch.ports.store import InstanceChange, SyncCall, SyncDone
from cloud_dispatch.wire.messages import (
    SYNC_PATH,
    HeldClaim,
    Order,
    OutputFile,
    Program,
    Result,
    SyncReply,
    SyncRequest,
    TimerAsk,
)
from tests.api.house import POOL, House, error_of


async def test_a_claim_carries_the_task_as_it_was_submitted(house: House) -> None:
    """The stored specification, spliced into the reply, decodes with the agent's own codec to what was asked for."""
    agent = await house.agent()
    await house.submit(
        argv=("sh", "-c", 'echo "\u00fc\u2713"'), name="n", env=(("A", "1"), ("B", "\u00e9")), cwd="work",
        inputs=(Transfer("in.txt", "https://example.org/in"),), outputs=(Transfer("out.txt"),), max_runtime_ms=5000,
    )  # fmt: skip
    reply = await agent.sync(want=1)
    (order,) = reply.claims
    spec = order.spec
    assert spec.argv == ["sh", "-c", 'echo "\u00fc\u2713"']
    assert [tuple(pair) for pair in spec.env] == [("A", "1"), ("B", "\u00e9")]
    assert (spec.name, spec.cwd, spec.max_runtime_ms) == ("n", "work", 5000)
    assert (spec.inputs[0].url, spec.outputs[0].path) == ("https://example.org/in", "out.txt")
    assert spec.shape.resources.cpus_milli == 1000
    assert (order.attempt, reply.seq, reply.lease_ms) == (1, agent.seq, 60_000)


@pytest.mark.parametrize(("fast", "slow"), [(ReplyOut, SyncReply), (OrderOut, Order)])
def test_the_fast_reply_has_the_fields_and_defaults_of_the_wire(fast: type, slow: type) -> None:
    """What the dispatcher encodes is the wire's message: same names in the same order, and equal defaults."""
    assert fast.__struct_fields__ == tuple(f.name for f in dataclasses.fields(slow))  # type: ignore[attr-defined]
    if fast is ReplyOut:
        assert msgspec.to_builtins(ReplyOut(), str_keys=True) == {}
        plain = msgspec.to_builtins(SyncReply())
        assert {name: msgspec.to_builtins(getattr(ReplyOut(), name)) for name in plain} == {
            name: tuple(value) if name in ("settled", "kill") else value for name, value in plain.items()
        }
    assert set(typing.get_type_hints(slow)) == set(fast.__struct_fields__)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fast", "slow"),
    [(SyncIn, SyncRequest), (TimerIn, TimerAsk), (ResultIn, Result), (HeldIn, HeldClaim), (OutputIn, OutputFile)],
)
def test_the_fast_request_has_the_fields_and_defaults_of_the_wire(fast: type, slow: type) -> None:
    """What the dispatcher decodes is the wire's message: same names in the same order, and equal defaults."""
    assert fast.__struct_fields__ == tuple(f.name for f in dataclasses.fields(slow))  # type: ignore[attr-defined]
    assert msgspec.to_builtins(fast()) == msgspec.to_builtins(slow())


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ({"results": [{"task": 2**63}]}, "results[0].task"),
        ({"results": [{"max_rss": -(2**63)}]}, "results[0].max_rss"),
        ({"results": [{"outputs": [{"size": -1}]}]}, "results[0].outputs[0].size"),
        ({"held": [{"token": 2**64}]}, "held[0].token"),
        ({"incarnation": "x" * 65}, "incarnation"),
        ({"results": [{"cause": "boredom"}]}, "results[0].cause"),
        ({"results": [{"cause": "success", "outputs": [{"path": "\0"}]}]}, "results[0].outputs[0]"),
        *[
            ({"results": [{"cause": "success", "outputs": [{"path": path}]}]}, "results[0].outputs[0].path")
            for path in ("", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/")
        ],
        (
            {"results": [{"cause": "success", "outputs": [{"path": "a", "sha256": "x y"}]}]},
            "results[0].outputs[0].sha256",
        ),
        ({"results": [{"cause": "success", "outputs": [{"path": "a" * 2**22, "url": "x"}]}]}, "results[0].outputs"),
        ({"state": "asleep"}, "state"),
    ],
)
async def test_what_no_agent_may_say_is_refused_with_its_place(
    house: House, said: dict[str, typing.Any], place: str
) -> None:
    """Numbers that no column holds, words that nobody knows, NULs, names of outputs that lead out of whoever's folder
    they are fetched into: refused whole, and the place is named."""
    agent = await house.agent()
    whole = {"incarnation": agent.incarnation, "seq": 9, **said}
    answer = await house.http.post(SYNC_PATH, json=whole, headers=agent.headers)
    status, code, where = error_of(answer)
    assert (status, code, where) == (400, "invalid-input", place)


async def test_results_are_settled_and_the_task_ends(house: House) -> None:
    """A result under the current token ends the task with its manifest; its token is settled in the same reply."""
    agent = await house.agent()
    (task,) = await house.submit()
    await agent.sync(want=1)
    claim = agent.held[0]
    made = OutputFile("a.txt", "", 3, "00")
    reply = await agent.finish(claim, exit_code=0, max_rss=7, cpu_ms=9, outputs=[made])
    assert reply.settled == [claim.token]
    ended = await house.store.task(TaskId(task))
    assert ended.state is TaskState.SUCCEEDED
    assert ended.outcome is not None
    assert (ended.outcome.exit_code, ended.outcome.max_rss, ended.outcome.manifest[0].path) == (0, 7, "a.txt")


async def test_a_stale_result_is_settled_and_changes_nothing(house: House) -> None:
    """A result under a token that is not the current one is dealt with by forgetting it."""
    agent, other = await house.agent(), await house.agent()
    (task,) = await house.submit()
    await agent.sync(want=1)
    claim = agent.held[0]
    reply = await other.sync(results=[Result(task, claim.token, "success", ran_ms=1)])
    assert reply.settled == [claim.token]
    assert (await house.store.task(TaskId(task))).state is TaskState.CLAIMED


async def test_a_released_claim_costs_no_attempt(house: House) -> None:
    """A claim handed back unstarted is queued again with no attempt counted."""
    agent = await house.agent()
    (task,) = await house.submit()
    await agent.sync(want=1)
    claim = agent.held.pop()
    await agent.sync(results=[Result(task, claim.token, "released")])
    back = await house.store.task(TaskId(task))
    assert (back.state, back.attempts) == (TaskState.QUEUED, 0)


async def test_an_unknown_claim_is_to_be_killed(house: House) -> None:
    """A claim that the agent holds and the store does not know ends: its token is under `kill`."""
    agent = await house.agent()
    reply = await agent.sync(held=[HeldClaim(77, 4711, 10)])
    assert reply.kill == [4711]


async def test_the_fleet_hears_what_the_agent_says(house: House) -> None:
    """State, drain confirmation, wish to end and reason of ending reach the fleet as they were said."""
    agent = await house.agent()
    await agent.sync(state="drained", drain_token=3, ask_end=True, ending="drained", detail="bye")
    said = house.fleet.said[-1]
    assert (said.instance, said.incarnation, said.state) == (agent.instance, "one", "drained")
    assert (said.drain_token, said.ask_end, said.ending, said.detail) == (3, True, "drained", "bye")


async def test_an_agent_that_gets_work_is_not_heard_to_ask_for_its_end(house: House) -> None:
    """Work that came in the same sync answers the question: the fleet must not approve an end with a claim on board."""
    agent = await house.agent()
    await house.submit()
    reply = await agent.sync(want=1, ask_end=True)
    assert len(reply.claims) == 1
    assert house.fleet.said[-1].ask_end is False


@pytest.mark.parametrize("said", [{"state": "draining"}, {"state": "failed"}, {"ending": "idle"}])
async def test_no_work_for_an_agent_that_is_on_its_way_out(house: House, said: dict[str, str]) -> None:
    """Whatever it wants, an agent that drains, failed or ends gets no claim."""
    agent = await house.agent()
    await house.submit()
    assert (await agent.sync(want=1, **said)).claims == []


async def test_no_work_while_the_directive_forbids_it(house: House) -> None:
    """On hold an agent is told so and handed nothing; afterwards it gets work."""
    agent = await house.agent()
    await house.submit()
    house.fleet.direct(agent.instance, Directive(claiming=False, hold=True))
    reply = await agent.sync(want=1)
    assert (reply.claims, reply.hold) == ([], True)
    house.fleet.direct(agent.instance, Directive())
    assert len((await agent.sync(want=1)).claims) == 1


async def test_directives_reach_the_agent(house: House) -> None:
    """Drain with its token, and end, are in the reply."""
    agent = await house.agent()
    house.fleet.direct(agent.instance, Directive(claiming=False, drain_token=5, drain=True))
    reply = await agent.sync(want=1, wait_ms=5000)
    assert (reply.drain_token, reply.drain, reply.end) == (5, True, False)
    house.fleet.direct(agent.instance, Directive(claiming=False, end=True))
    assert (await agent.sync(want=1, wait_ms=5000)).end is True


async def test_an_instance_that_is_gone_is_told_to_end(house: House) -> None:
    """The agent of an instance whose life the store remembers as over is told to end, however long it would wait."""
    agent = await house.agent()
    await house.store.change(
        [
            InstanceChange(agent.instance, InstanceEvent.TERMINATE),
            InstanceChange(agent.instance, InstanceEvent.GONE, {"ended_ms": 5_000}),
        ]
    )
    assert (await agent.sync(want=1, wait_ms=5000)).end is True


async def test_an_instance_that_the_store_never_knew_is_not_told_to_end(house: House) -> None:
    """A valid token without any row is another statestore's instance (lost, or not adopted yet): this one ends nothing
    of it, and answers that it does not know it."""
    agent = await house.agent()
    agent.instance = type(agent.instance)("b00000000099-0")
    agent.token = house.tokens.service(agent.instance, house.services.clock.now())
    response = await agent.post(agent.request(want=1, wait_ms=5000))
    assert (response.status_code, response.json()["code"]) == (404, "not-found")


async def test_an_old_sync_that_comes_late_changes_nothing(house: House) -> None:
    """A delayed copy of an earlier sync, whose running set is out of date, takes back no later claim."""
    agent = await house.agent()
    (task,) = await house.submit()
    late = agent.request()
    await agent.sync(want=1)
    response = await agent.post(late)
    assert response.status_code == 200
    assert (await house.store.task(TaskId(task))).state is TaskState.CLAIMED


async def test_a_retired_incarnation_changes_nothing(house: House) -> None:
    """Once another process of the agent spoke, the one before is not listened to any more."""
    agent = await house.agent()
    await house.submit()
    agent.incarnation, agent.seq = "two", 0
    await agent.sync(want=1)
    before = await agent.post(SyncRequest(incarnation="one", seq=99, want=1))
    assert before.json().get("claims") is None
    assert len(house.store.leases_of(agent.instance)) == 1


async def test_an_agent_of_a_former_dispatcher_process_is_given_the_policy_once(house: House) -> None:
    """After a restart of the dispatcher the first sync of an agent brings the policy, later ones do not."""
    agent = await house.agent()
    house.api.sync.sessions._sessions.clear()
    first = await agent.sync()
    assert first.policy is not None
    assert first.policy.cpus_milli == 4000
    assert (await agent.sync()).policy is None


async def test_an_agent_is_given_another_policy_once(house: House) -> None:
    """When the configuration becomes another while the dispatcher runs; no other program is named for it."""
    agent = await house.agent()
    assert (await agent.sync()).policy is None
    terms = house.told[-1]
    (pool,) = terms.pools.values()
    other = dataclasses.replace(pool, end=dataclasses.replace(pool.end, idle_ms=1_234))
    house.told.append(dataclasses.replace(terms, pools={pool.name: other}))
    told = await agent.sync()
    assert told.policy is not None
    assert (told.policy.idle_ms, told.policy.lifetime_ms) == (1_234, pool.end.lifetime_ms)
    assert told.program is None
    assert (await agent.sync()).policy is None


async def test_a_policy_whose_answer_was_lost_is_given_again_until_it_is_heard(house: House) -> None:
    """So is the name of the program that the dispatcher has. An agent of before, which does not say what it heard, is
    given the policy once, and that name in every answer."""
    for says, again in ((True, True), (False, False)):
        agent = await house.agent()
        house.api.sync.sessions._sessions.clear()
        first = await agent.sync()
        agent.heard = 0  # it was lost
        second = await agent.sync(**({} if says else {"heard": -1}))
        third = await agent.sync()
        assert [reply.policy is not None for reply in (first, second, third)] == [True, again, False]
        assert [reply.program is not None for reply in (first, second, third)] == [True, True, False]


async def test_an_agent_is_known_to_go_by_the_lease_of_now_when_it_says_that_it_used_an_answer(house: House) -> None:
    """Not while every answer of this process may be lost, and never of one that does not say."""
    for says, last in ((True, True), (False, False)):
        agent = await house.agent()
        house.api.sync.sessions._sessions.clear()
        for used in (True, False, True):
            before = agent.heard
            await agent.sync(**({} if says else {"heard": -1}))
            if not used:
                agent.heard = before
        await agent.sync(**({} if says else {"heard": -1}))
        told = [said.answered for said in house.fleet.said if said.instance == agent.instance]
        assert told == [False, last, last, last]
        lost = await house.agent()
        house.api.sync.sessions._sessions.clear()
        for _ in range(3):
            await lost.sync()
            lost.heard = 0
        assert not any(said.answered for said in house.fleet.said if said.instance == lost.instance)


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_agent_is_given_its_policy_again_when_it_is_known_what_its_machine_has(
    house: House, restarted: bool
) -> None:
    """As for a VM that was adopted before its profile had said what it offers: whether its agent registered then, or
    came from the dispatcher before."""
    agent = await house.agent(cpus=0)
    assert agent.policy.cpus_milli == 0
    if restarted:
        house.api.sync.sessions._sessions.clear()
        bare = await agent.sync()
        assert bare.policy is not None
        assert bare.policy.cpus_milli == 0
    assert (await agent.sync()).policy is None
    machine = Machine(Resources(4_000, 16 * GIB, 100 * GIB, 1), pool=POOL.name)
    await house.store.change([InstanceChange(agent.instance, None, {"machine": machine})])
    told = (await agent.sync()).policy
    assert told is not None
    assert (told.cpus_milli, told.memory, told.gpus) == (4_000, 16 * GIB, 1)
    assert (await agent.sync()).policy is None


async def test_an_agent_that_is_another_program_is_told_which_the_dispatcher_has(house: House) -> None:
    """At once, however long it would wait for work; and one that is the same hears nothing of it."""
    agent = await house.agent()
    ours = house.services.agent.sha256
    assert (await agent.sync(program=ours)).program is None
    other = await agent.sync(program="0" * 64, want=1, wait_ms=60_000)
    assert other.program == Program(ours)
    assert (await agent.sync()).program is None, "it was told"


async def test_an_agent_of_a_former_dispatcher_process_is_told_the_program_once(house: House) -> None:
    """It does not know that the dispatcher was started again, perhaps as another version."""
    agent = await house.agent()
    house.api.sync.sessions._sessions.clear()
    assert (await agent.sync()).program == Program(house.services.agent.sha256)
    assert (await agent.sync()).program is None


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", "body"),
        (b"[1]", "body"),
        (b'{"held":[{"task":"x"}]}', "held[0].task"),
        (b'{"state":"tired"}', "state"),
        (b'{"results":[{"cause":"bored"}]}', "results[0].cause"),
        (b'{"results":[{"cause":"success","exit_code":99999999999999999999}]}', "results[0]"),
        (b'{"results":[{"cause":"success","outputs":[{"path":"a\\u0000b"}]}]}', "results[0].outputs[0]"),
    ],
)
async def test_a_sync_that_makes_no_sense_is_refused_with_its_place(house: House, body: bytes, place: str) -> None:
    """What is not a sync is a 400 that names the place."""
    agent = await house.agent()
    response = await house.http.post("/v1/agent/sync", content=body, headers=agent.headers)
    status, code, where = error_of(response)
    assert (status, code) == (400, "invalid-input")
    assert place in where


async def test_a_full_disk_renews_what_runs_and_settles_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store can't commit, the agent keeps its result and its running tasks, and loses neither."""
    agent = await house.agent()
    await house.submit(2)
    await agent.sync(want=2)
    ended, running = agent.held

    async def refuse(call: SyncCall) -> SyncDone:
        raise StoreUnavailable("disk full")

    result = Result(ended.task, ended.token, "success", ran_ms=1)
    with monkeypatch.context() as full:
        full.setattr(house.api.sync, "_store", _With(house.store, refuse))
        reply = await agent.sync(held=[running, HeldClaim(9, 999, 5)], results=[result])
        assert (reply.settled, reply.kill, reply.lease_ms) == ([], [999], 60_000)
    reply = await agent.sync(held=[running], results=[result])
    assert reply.settled == [ended.token]


class _With:
    """A store with another `sync`."""

    def __init__(self, store: object, sync: object) -> None:
        self._store = store
        self.sync = sync

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_what_an_agent_says_of_itself_can_be_stored_anywhere(house: House) -> None:
    """Without NUL, which PostgreSQL refuses, and no longer than words need to be."""
    agent = await house.agent()
    await agent.sync(ending="id\0le" + "x" * 9_000, detail="a\0b" + "y" * 9_000)
    said = house.fleet.said[-1]
    assert (said.ending[:5], said.detail[:3]) == ("idlex", "aby")
    assert "\0" not in said.ending + said.detail
    assert (len(said.ending), len(said.detail)) == (255, 4095)
