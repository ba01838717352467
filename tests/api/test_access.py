"""Who may call what: every route asks for its token, and no token opens more than its own door."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import cast

import pytest

from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.api.auth import SERVICE_LIFE_MS, Tokens, service_life_ms
from cloud_dispatch.api.http import Unauthenticated
from cloud_dispatch.api.limiter import RateLimiter
from cloud_dispatch.api.services import Limits
from cloud_dispatch.domain.errors import Denied, InvalidInput, Overloaded
from cloud_dispatch.domain.ids import BatchId, InstanceId
from cloud_dispatch.wire.messages import AGENT_PATH
from tests.api.house import AGENT, AheadClock, House, error_of, served

OPEN = {("GET", "/v1/health"), ("GET", AGENT_PATH)}


def doors(house: House) -> list[tuple[str, str]]:
    """Method and path of every route of the app, parameters filled in."""
    found = list(house.api.worker.table)
    for route in house.api.operator.routes:
        path = route.path.replace("{path:path}", "a.txt").replace("{verb}", "hold")
        path = path.replace("{task}", "1").replace("{instance}", "b1-0").replace("{pool}", "default")
        found.extend((method, path) for method in sorted(route.methods or ()) if method != "HEAD")
    return found


async def test_every_route_but_two_answers_401_without_its_token(house: House) -> None:
    """Walks all routes of the app: without a token, with a forged one, and with each of the wrong kinds."""
    agent, batch = await house.agent(), await house.launch()
    operator = house.op.headers["Authorization"]
    join = f"Bearer {house.tokens.join(batch, 1, 10**15)}"
    service = f"Bearer {agent.token}"
    walked = doors(house)
    assert len(walked) >= 29
    for method, path in walked:
        if (method, path) in OPEN:
            assert (await house.http.request(method, path)).status_code == 200
            continue
        right = service if path.startswith("/v1/agent/") else operator
        right = join if path.endswith(("/register", "/boot", "/boot/scripts")) else right
        wrong = {"", "Bearer", "Bearer x", "Basic eDp5", operator + "x", operator, join, service} - {right}
        for token in wrong:
            response = await house.http.request(method, path, headers={"Authorization": token}, content=b"{}")
            status, code, _ = error_of(response)
            assert (status, code) == (401, "denied"), (method, path, token)
            assert response.headers["www-authenticate"] == "Bearer"


async def test_an_unknown_path_tells_a_stranger_nothing(house: House) -> None:
    """The token is asked for before anything is said about which routes there are."""
    assert (await house.http.get("/v1/secret")).status_code == 401
    assert error_of(await house.op.get("/v1/secret"))[:2] == (404, "not-found")


async def test_a_method_that_is_not_for_a_route_hears_which_are(house: House) -> None:
    """Of all routes that have this path."""
    for path, allowed in (("/v1/tasks", "GET, HEAD, POST"), ("/v1/tasks/1/priority", "POST")):
        answer = await house.op.delete(path)
        assert error_of(answer) == (405, "method-not-allowed", "method")
        assert answer.headers["allow"] == allowed


def test_keys_are_made_once_and_for_the_owner_only(tmp_path: Path) -> None:
    """The first start makes keys of mode 0600; the next one reads the same, so that tokens stay valid."""
    first = Tokens.open(tmp_path, SystemEntropy())
    again = Tokens.open(tmp_path, SystemEntropy())
    for name in ("keys/service.key", "keys/join.key", "operator.token"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    bearer = f"Bearer {first.service(InstanceId('b1-0'), 0)}".encode()
    assert again.instance_of(bearer, 0) == "b1-0"
    assert not list(tmp_path.rglob("*.new"))


def test_a_key_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    """A start with leaked or cut keys fails and names the file."""
    Tokens.open(tmp_path, SystemEntropy())
    key = tmp_path / "keys" / "service.key"
    key.chmod(0o640)
    with pytest.raises(InvalidInput, match="lets others read") as caught:
        Tokens.open(tmp_path, SystemEntropy())
    assert caught.value.place == str(key)
    key.chmod(0o600)
    key.write_text("")
    with pytest.raises(InvalidInput, match="not a key"):
        Tokens.open(tmp_path, SystemEntropy())


def test_a_service_token_speaks_for_its_own_instance_only(tmp_path: Path) -> None:
    """Another instance's name, another key or a changed mac makes it void; twice the same answers twice the same."""
    tokens = Tokens.open(tmp_path / "a", SystemEntropy())
    other = Tokens.open(tmp_path / "b", SystemEntropy())
    token = tokens.service(InstanceId("b1-0"), 0)
    kind, _, end, mac = token.split(".")
    for forged in (
        f"{kind}.b1-1.{end}.{mac}", f"{kind}.b1-0.{end}0.{mac}", f"{kind}.b1-0.{end}.{mac[:-2]}", f"{kind}.b1-0.{mac}",
        other.service(InstanceId("b1-0"), 0), tokens.join(BatchId("b1"), 1, 10**15), kind, "a.b.c.d", "",
    ):  # fmt: skip
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                tokens.instance_of(f"Bearer {forged}".encode(), 0)
    assert [tokens.instance_of(f"Bearer {token}".encode(), 0) for _ in range(2)] == ["b1-0", "b1-0"]


def test_a_service_token_ends_unless_it_is_renewed(tmp_path: Path) -> None:
    """It is good for its life to the millisecond, known already or not; a next one is given in its second half."""
    tokens = Tokens.open(tmp_path, SystemEntropy(), 1_000)
    first = f"Bearer {tokens.service(InstanceId('b1-0'), 500)}".encode()
    assert tokens.instance_of(first, 1_500) == "b1-0"
    assert tokens.speaker(first, 999) == ("b1-0", "")
    instance, renewed = tokens.speaker(first, 1_000)
    assert instance == "b1-0"
    second = f"Bearer {renewed}".encode()
    for _ in range(2):
        with pytest.raises(Unauthenticated, match="b1-0 has expired"):
            tokens.instance_of(first, 1_501)
        with pytest.raises(Unauthenticated, match="b1-0 has expired"):
            tokens.speaker(first, 1_501)
        assert tokens.instance_of(second, 2_000) == "b1-0"
    assert service_life_ms(600_000) == SERVICE_LIFE_MS
    assert service_life_ms(2 * SERVICE_LIFE_MS) == 6 * SERVICE_LIFE_MS


async def test_a_clock_that_is_set_forward_makes_no_agent_a_stranger(house: House) -> None:
    """Nor any VM that boots. What an agent is given at once is good for as long as ever, of the next start too, which
    knows nothing of the clock of before."""
    agent, batch, clock = await house.agent(), await house.launch(), cast(AheadClock, house.services.clock)
    join = house.tokens.join(batch, 1, clock.now() + 600_000)
    clock.set_ms = 3 * SERVICE_LIFE_MS
    agent.token = (await agent.sync()).token
    assert house.tokens.instance_of(f"Bearer {agent.token}".encode(), clock.now()) == agent.instance
    assert (await house.register(join, "v1")).status_code == 200
    assert (await agent.sync()).token == ""
    clock.ahead_ms = SERVICE_LIFE_MS // 2 + 1
    agent.token = (await agent.sync()).token
    clock.ahead_ms += SERVICE_LIFE_MS - 1_000
    await agent.sync()


async def test_an_agent_that_goes_on_asking_goes_on_being_heard(house: House) -> None:
    """In the second half of its token's life a sync brings the next one; the old one is refused at its end."""
    agent = await house.agent()
    first, clock = agent.token, cast(AheadClock, house.services.clock)
    assert (await agent.sync()).token == ""
    clock.ahead_ms += SERVICE_LIFE_MS // 2 + 1
    agent.token = (await agent.sync()).token
    assert agent.token not in ("", first)
    clock.ahead_ms += SERVICE_LIFE_MS // 2 + 1
    assert (await agent.sync()).token != ""
    agent.token = first
    response = await agent.post(agent.request())
    assert (response.status_code, response.json()["code"]) == (401, "denied")


def test_a_join_token_says_its_batch_and_ends(tmp_path: Path) -> None:
    """Batch, slots and expiry are signed; past the expiry the VM came too late."""
    tokens = Tokens.open(tmp_path, SystemEntropy())
    token = tokens.join(BatchId("b1"), 3, 1000)
    join = tokens.verify_join(f"Bearer {token}".encode(), 1000)
    assert (join.batch, join.slots, join.expires_ms) == ("b1", 3, 1000)
    with pytest.raises(Denied, match="expired"):
        tokens.verify_join(f"Bearer {token}".encode(), 1001)
    with pytest.raises(Unauthenticated):
        tokens.verify_join(f"Bearer {token.replace('.3.', '.4.')}".encode(), 1000)


async def test_registration_gives_the_policy_of_pool_and_machine(house: House) -> None:
    """Ends and health checks are the pool's, capacities the machine's, and the token works."""
    agent = await house.agent()
    policy = agent.policy
    assert (policy.cpus_milli, policy.max_tasks_at_once, policy.gpus) == (4000, 8, 0)
    assert (policy.idle_ms, policy.max_tasks, policy.empty_claims, policy.lifetime_ms) == (7_000, 3, 4, 3_600_000)
    assert policy.health_checks[0].argv == ["true"]
    assert (await agent.sync()).policy is None


async def test_a_batch_admits_no_more_vms_than_it_has_slots(house: House) -> None:
    """A third VM with the token of a batch of two is refused; the two may come again."""
    batch = await house.launch(slots=2)
    join = house.tokens.join(batch, 2, 10**15)
    statuses = [(await house.register(join, vm)).status_code for vm in ("v1", "v2", "v1", "v2")]
    assert statuses == [200] * 4
    assert error_of(await house.register(join, "v3"))[:2] == (403, "denied")


@pytest.mark.parametrize(
    ("said", "status", "place"),
    [
        ({"protocol": 2}, 403, "protocol"),
        ({"vm": ""}, 400, "vm"),
        ({"vm": "a\0b"}, 400, "vm"),
        ({"incarnation": ""}, 400, "incarnation"),
        ({"incarnation": "x" * 65}, 400, "incarnation"),
    ],
)
async def test_a_registration_that_makes_no_sense_is_refused(
    house: House, said: dict[str, object], status: int, place: str
) -> None:
    """Another protocol, no VM or no incarnation: refused with the place, and no slot is taken."""
    batch = await house.launch()
    join = house.tokens.join(batch, 1, 10**15)
    response = await house.register(join, **{"vm": "v", **said})  # type: ignore[arg-type]
    found = error_of(response)
    assert (found[0], found[2]) == (status, place)
    assert all(not row.vm for row in house.store.instances().values())


async def test_registrations_of_an_address_are_limited(tmp_path: Path) -> None:
    """Past its burst an address is told to come again, before its token is even looked at."""
    async with served(tmp_path, limits=Limits(register_burst=3, register_per_second=1)) as house:
        responses = [await house.register("x", "v") for _ in range(4)]
        assert [response.status_code for response in responses] == [401, 401, 401, 503]
        assert error_of(responses[3])[1] == "overloaded"
        assert responses[3].headers["retry-after"] == "1"


def test_the_rate_limiter_refills_and_forgets() -> None:
    """A burst, then one call for each interval; each caller has its own; its memory is bounded."""
    limiter = RateLimiter(burst=2, per_second=10)
    limiter.take("a", 0)
    limiter.take("a", 0)
    with pytest.raises(Overloaded):
        limiter.take("a", 99)
    limiter.take("b", 99)
    limiter.take("a", 100)
    for caller in range(10_000):
        limiter.take(str(caller), 100)
    assert len(limiter._buckets) <= 4096


async def test_the_agent_is_served_to_anyone(house: House) -> None:
    """The zipapp with its checksum; a VM that boots has no token yet."""
    response = await house.http.get(AGENT_PATH)
    assert response.content == AGENT.body
    assert response.headers["x-sha256"] == AGENT.sha256
    unknown = await house.http.get(AGENT_PATH, params={"sha256": "0" * 64})
    assert unknown.content == AGENT.body


async def test_the_agent_of_a_former_dispatcher_is_served_to_who_was_promised_it(house: House) -> None:
    """A VM that boots while the dispatcher is replaced has the sha256 of the one before in its user data."""
    (promised,) = AGENT.former
    response = await house.http.get(AGENT_PATH, params={"sha256": promised})
    assert response.content == AGENT.former[promised]
    assert response.headers["x-sha256"] == promised
