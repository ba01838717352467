"""Task tokens: what an attempt may do with its own, over real HTTP, and that it opens nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx
import pytest

from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.api.http import Unauthenticated
from cloud_dispatch.api.task_files import means
from cloud_dispatch.api.worker import _LOG_GRACE_MS
from cloud_dispatch.domain.ids import BatchId, FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.task import Transfer
from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import LOGS_PATH, OUTPUTS_PATH, HeldClaim, Order, OutputFile
from tests.api.house import URL, Agent, AheadClock, House, error_of
from tests.api.test_access import OPEN, doors

T, K, HERE = TaskId(5), FencingToken(9), InstanceId("b1-0")


@dataclass
class Attempt:
    """A claimed task, and what its attempt may say with its own token."""

    house: House
    agent: Agent
    order: Order

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.order.task_token}"}

    async def log(self, text: bytes, offset: int = 0, more: str = "") -> httpx.Response:
        path = f"{LOGS_PATH}?offset={offset}{more}"
        return await self.house.http.post(path, content=text, headers=self.headers)

    async def put(self, name: str, content: bytes = b"x", more: str = "") -> httpx.Response:
        path = f"{OUTPUTS_PATH}?path={name}{more}"
        return await self.house.http.put(path, content=content, headers=self.headers)

    async def read(self, path: str) -> httpx.Response:
        return await self.house.http.get(path, headers=self.headers)

    async def end(self, *outputs: OutputFile, cause: str = "success") -> None:
        claim = HeldClaim(self.order.task, self.order.token)
        await self.agent.finish(claim, cause, outputs=list(outputs))


async def claimed(house: House, agent: Agent | None = None, **spec: object) -> Attempt:
    agent = agent or await house.agent()
    await house.submit(**{"outputs": (Transfer("*"), Transfer("out"), Transfer("dir")), **spec})
    (order,) = (await agent.sync(want=1)).claims
    return Attempt(house, agent, order)


async def made(house: House, name: str, content: bytes) -> int:
    """A task that succeeded with an output; its id."""
    attempt = await claimed(house)
    assert (await attempt.put(name, content)).status_code == 200
    await attempt.end(OutputFile(name, "", len(content), "00"))
    return attempt.order.task


async def test_a_claim_brings_a_token_for_its_own_log_and_outputs(house: House) -> None:
    """The query need not say which: the token does. What it says must be right, if it does."""
    attempt = await claimed(house)
    task, token = attempt.order.task, attempt.order.token
    assert (await attempt.log(b"one ")).json() == {"offset": 4}
    assert (await attempt.log(b"two", 4, f"&task={task}&token={token}")).json() == {"offset": 7}
    assert (await attempt.put("out/a", b"content", f"&task={task}&token={token}")).json()["size"] == 7
    assert (await house.op.get(f"/v1/tasks/{task}/logs")).content == b"one two"
    await attempt.end(OutputFile("out/a", "", 7, "00"))
    assert (await house.op.get(f"/v1/tasks/{task}/outputs/out/a")).content == b"content"


async def test_a_task_token_is_for_no_other_claim(house: House) -> None:
    """Neither another task of the same instance, nor another attempt of the same task; nothing of it is changed."""
    attempt = await claimed(house)
    other = await claimed(house, attempt.agent)
    for said in (
        f"&task={other.order.task}", f"&token={other.order.token}", f"&token={attempt.order.token - 1}",
        f"&task={other.order.task}&token={other.order.token}",
    ):  # fmt: skip
        assert error_of(await attempt.log(b"x", more=said))[:2] == (403, "denied")
        assert error_of(await attempt.put("a", more=said))[:2] == (403, "denied")
    logs, outputs = (await house.op.get(f"/v1/tasks/{other.order.task}/logs")).content, house.services.outputs._root
    assert (logs, [path for path in outputs.rglob("*") if path.is_file()]) == (b"", [])


async def test_a_former_attempt_s_token_is_worth_nothing(house: House) -> None:
    """The task runs again, on the same instance: the new attempt's is good, the former one's touches nothing of it."""
    source = await made(house, "in", b"input")
    wanted = (Transfer("in", f"{URL}/v1/tasks/{source}/outputs/in"),)
    former = await claimed(house, inputs=wanted)
    await former.end(cause="cannot-start")
    (order,) = (await former.agent.sync(want=1)).claims
    now = Attempt(house, former.agent, order)
    assert order.task == former.order.task
    assert order.task_token != former.order.task_token
    assert error_of(await former.put("a"))[1] == "stale-lease"
    assert error_of(await former.put("a", more=f"&token={order.token}"))[:2] == (403, "denied")
    assert error_of(await former.log(b"x", more=f"&token={order.token}"))[:2] == (403, "denied")
    assert error_of(await former.read(f"/v1/tasks/{source}/outputs/in"))[:2] == (403, "denied")
    assert (await now.put("a")).status_code == 200
    assert (await now.read(f"/v1/tasks/{source}/outputs/in")).content == b"input"


async def test_a_task_token_ends_with_its_attempt(house: House) -> None:
    """At once for outputs and inputs; the log may be finished for a minute, as by the agent."""
    source = await made(house, "in", b"input")
    attempt = await claimed(house, inputs=(Transfer("in", f"{URL}/v1/tasks/{source}/outputs/in"),))
    assert (await attempt.read(f"/v1/tasks/{source}/outputs/in")).content == b"input"
    await attempt.end()
    assert error_of(await attempt.put("a"))[1] == "stale-lease"
    assert error_of(await attempt.read(f"/v1/tasks/{source}/outputs/in"))[:2] == (403, "denied")
    assert (await attempt.log(b"last words")).status_code == 200
    cast(AheadClock, house.services.clock).ahead_ms += _LOG_GRACE_MS + 1_000
    assert error_of(await attempt.log(b"later", 10))[1] == "stale-lease"


async def test_a_task_reads_the_inputs_that_it_names_and_nothing_else(house: House) -> None:
    """To the file: not its neighbour, not another task's of that name, not what a URL elsewhere happens to end in."""
    source, stranger = await made(house, "dir/in put", b"input"), await made(house, "far", b"no")
    named = (
        Transfer("in", f"{URL}/v1/tasks/{source}/outputs/dir/in%20put?x=1"),
        Transfer("far", f"https://elsewhere.example/v1/tasks/{stranger}/outputs/far"),
        Transfer("near", f"{URL.replace('.', '-')}/v1/tasks/{stranger}/outputs/far"),
        Transfer("sly", f"{URL}0/v1/tasks/{stranger}/outputs/far"),
        Transfer("slash", f"{URL}//elsewhere/v1/tasks/{stranger}/outputs/far"),
        Transfer("all", f"{URL}/v1/tasks/{stranger}/outputs"),
        Transfer("events", f"{URL}/v1/events"),
    )
    attempt = await claimed(house, inputs=named)
    good = f"/v1/tasks/{source}/outputs/dir/in%20put"
    assert (await attempt.read(good)).content == b"input"
    for path in (
        f"/v1/tasks/{source}/outputs/dir", f"/v1/tasks/{source}/outputs", f"/v1/tasks/{source}", "/v1/events",
        f"/v1/tasks/{source}/logs", f"/v1/tasks/{stranger}/outputs/far", f"/v1/tasks/{stranger}/outputs",
        f"/v1/tasks/{source}/outputs/dir/in%20put/", f"/v1/tasks/0{source}/outputs/dir/in%20put",
        f"/v1/tasks/{attempt.order.task}", f"/v1/tasks/{attempt.order.task}/logs", "/", "/v1/x",
    ):  # fmt: skip
        assert error_of(await attempt.read(path))[:2] == (403, "denied"), path
    for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD"):
        answer = await house.http.request(method, good, headers=attempt.headers)
        assert answer.status_code == 403, method


async def test_a_task_stores_the_outputs_that_it_declares_and_nothing_else(house: House) -> None:
    """It could fill the dispatcher's disk with others. Those with a URL of their own are not kept here."""
    far = Transfer("far", "https://elsewhere.example/{token}")
    attempt = await claimed(house, outputs=(Transfer("one"), Transfer("dir"), Transfer("deep/**/*.txt"), far))
    for path in ("two", "one0", "far", "deep/a.log", "deep", "a/deep/a.txt", "on"):
        assert error_of(await attempt.put(path))[::2] == (403, "path"), path
    # What is no path is not compared at all.
    for path in ("", ".", "dir/../two", "/one", "one/", "two/", "x" * 256, "x/" * 20_000 + "x"):
        assert error_of(await attempt.put(path))[::2] == (400, "path"), path[:20]
    for path in ("one", "dir/a", "dir/b/c", "deep/a.txt", "deep/x/y/a.txt"):
        assert (await attempt.put(path)).status_code == 200, path
    await attempt.end()
    assert error_of(await attempt.put("two"))[1] == "stale-lease"


@pytest.mark.parametrize(
    ("declared", "path", "expected"),
    [
        ("a", "a", True), ("a", "a/b/c", True), ("a", "b", False), ("a/b", "a", False), ("a/b", "a/b/c", True),
        ("*.txt", "x.txt", True), ("*.txt", "d/x.txt", False), ("*", "d/x.txt", True), ("?", "ab", False),
        ("**", "a/b", True), ("**/x", "x", True), ("**/x", "a/b/x", True), ("**/x", "a/b/y", False),
        ("a/**/b/*", "a/b/c", True), ("a/**/b/*", "a/x/y/b/c", True), ("a/**/b/*", "a/x", False), ("x[1]", "x1", True),
        ("x[1]", "x[1]", True), ("**/" * 40 + "z", "a/" * 500 + "a", False), ("*a" * 60, "a" * 250 + "b", False),
    ],
)  # fmt: skip
def test_what_a_declared_output_means(declared: str, path: str, expected: bool) -> None:
    """Itself, what is below it, and patterns as the agent takes them; no pattern takes long."""
    assert means(declared.split("/"), path.split("/")) is expected


async def test_an_input_that_is_not_there_says_so(house: House) -> None:
    """Its task runs still, or has no such output: as the operator is told, by task and path."""
    running = await claimed(house)
    attempt = await claimed(house, inputs=(Transfer("in", f"{URL}/v1/tasks/{running.order.task}/outputs/in"),))
    answer = await attempt.read(f"/v1/tasks/{running.order.task}/outputs/in")
    assert error_of(answer)[:2] == (409, "conflict")
    source = await made(house, "out", b"x")
    attempt = await claimed(house, inputs=(Transfer("in", f"{URL}/v1/tasks/{source}/outputs/in"),))
    answer = await attempt.read(f"/v1/tasks/{source}/outputs/in")
    assert error_of(answer)[:2] == (404, "not-found")
    assert answer.json()["message"] == f"the result of task {source} has no output 'in'"


async def test_a_task_token_opens_no_other_route(house: House) -> None:
    """Walks all of them: 401 where an agent or a VM speaks, 403 where the operator does; and nothing is changed."""
    attempt = await claimed(house)
    own = {("POST", LOGS_PATH), ("PUT", OUTPUTS_PATH)}
    walked = [door for door in doors(house) if door not in OPEN | own]
    assert len(walked) >= 27
    for method, path in [*walked, ("GET", "/v1/secret")]:
        answer = await house.http.request(method, path, headers=attempt.headers, content=b"{}")
        expected = 401 if path in {door for _, door in house.api.worker.table} else 403
        assert error_of(answer)[:2] == (expected, "denied"), (method, path)
    assert house.stops == []
    assert (await house.op.get(f"/v1/tasks/{attempt.order.task}")).json()["state"] == "claimed"


def test_a_forged_task_token_is_refused(tmp_path: Path) -> None:
    """Another task, attempt or instance, another key, another kind, a cut or a foreign mac."""
    tokens = Tokens.open(tmp_path / "a", SystemEntropy())
    other = Tokens.open(tmp_path / "b", SystemEntropy())
    token = tokens.task(T, K, HERE)
    assert tokens.claim_of(f"Bearer {token}".encode()) == (T, K, HERE)
    kind, task, fence, instance, mac = token.split(".")
    service = tokens.service(InstanceId("9"), 0).rpartition(".")[2]
    for forged in (
        f"{kind}.6.{fence}.{instance}.{mac}", f"{kind}.{task}.8.{instance}.{mac}", f"{kind}.{task}.{fence}.b1-1.{mac}",
        f"{kind}.{task}.{fence}.{instance}.{mac[:-1]}", f"{kind}.{task}.{fence}.{instance}.",
        f"{kind}.{task}{fence}..{mac}",
        f"{kind}.{task}.{fence}.{instance}.{service}", f"{kind}.x.{fence}.{instance}.{mac}", other.task(T, K, HERE),
        f"{kind}.{task}.{fence}.{instance}", f"{token}.{mac}", f"{kind}.",
    ):  # fmt: skip
        with pytest.raises(Unauthenticated):
            tokens.claim_of(f"Bearer {forged}".encode())
    for another in (tokens.service(HERE, 0), tokens.join(BatchId("b1"), 1, 10**15), "operator", token[1:], ""):
        assert tokens.claim_of(f"Bearer {another}".encode()) is None


def test_the_keys_of_before_make_the_same_task_tokens_after_a_restart(tmp_path: Path) -> None:
    """No key of their own that could be missing: whoever has the service key has them."""
    first = Tokens.open(tmp_path, SystemEntropy()).task(T, K, HERE)
    assert Tokens.open(tmp_path, SystemEntropy()).task(T, K, HERE) == first
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == ["join.key", "operator.sha256", "service.key"]


async def test_an_agent_of_before_goes_on_with_its_service_token(house: House) -> None:
    """It drops the field that it does not know, and reports, logs and stores as it did."""
    attempt = await claimed(house)
    agent, claim = attempt.agent, HeldClaim(attempt.order.task, attempt.order.token)
    query = f"?task={claim.task}&token={claim.token}"
    assert (
        await house.http.post(f"{LOGS_PATH}{query}&offset=0", content=b"x", headers=agent.headers)
    ).status_code == 200
    assert (
        await house.http.put(f"{OUTPUTS_PATH}{query}&path=a", content=b"x", headers=agent.headers)
    ).status_code == 200
    without = codec.decode(Order, b'{"task":1,"token":2,"unknown":3}')
    assert without.task_token == ""
