"""Schemathesis against the worker API: bodies and queries that fit its schema, and others that do not, over real HTTP,
from strangers, from an agent that is registered, from its task and from VMs that boot. No 5xx, no hanging, and no
change but what the protocol says.

What the protocol says: a request that is refused changes nothing; one of an agent changes its own instance, the claims
that it holds, and tasks that wait; one of a task its own files; a boot report or a registration changes its own batch.
`HOSTILE_EXAMPLES` says how many requests of each kind are made; `make campaign` makes many.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud_dispatch.api.worker import SCRIPTS_PATH
from cloud_dispatch.wire.messages import AGENT_PATH, BOOT_PATH, PROTOCOL, REGISTER_PATH, SYNC_PATH
from tests.api.fortress import HANG_S, OUTPUT, Fortress, State
from tests.api.worker_schema import document

if TYPE_CHECKING:
    from schemathesis import Case

ROUTES = [(method.upper(), path) for path, methods in document()["paths"].items() for method in methods]
#: Whose tokens open a route, where they are not those of agents and of tasks.
OPENERS = {REGISTER_PATH: ["join"], BOOT_PATH: ["join"], SCRIPTS_PATH: ["join"], SYNC_PATH: ["agent"]}
DOORS = [(method, path, whose) for method, path in ROUTES for whose in OPENERS.get(path, ["agent", "task"])]
MODES = ["positive", "negative"]
pytestmark = pytest.mark.xdist_group("hostile-schema")
CALM = settings(
    max_examples=int(os.environ.get("HOSTILE_EXAMPLES", "6")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
#: The first is what is tried first.
OFTEN = st.sampled_from([True, True, True, False])
STRANGERS = ["", "x", "cds2.b00000000001-0.99999999999999.bad", "cdj1.b1.1.99999999999999.bad", "\xff", "operator"]


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        made.trust_env = False
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    """One that nothing changes."""
    made = Fortress(tmp_path_factory.mktemp("fortress"))
    yield made
    made.close()


@pytest.fixture
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    made = Fortress(tmp_path_factory.mktemp("fortress"))
    yield made
    made.close()


def asked(session: requests.Session, fortress: Fortress, case: Case, token: str) -> requests.Response:
    """The answer to `case` with `token`. A timeout fails the test: nothing may hang."""
    request = case.as_transport_kwargs(base_url=fortress.url)
    request["headers"] = {**request.get("headers", {}), "Authorization": f"Bearer {token}".encode("latin-1").strip()}
    return session.request(**request, timeout=HANG_S, allow_redirects=False)


def check(answer: requests.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 300:
        assert set(answer.json()) == {"code", "message", "place", "hint"}


@cache
def requests_of(path: str, method: str, mode: str) -> Any:
    """A strategy for them. Schemathesis takes seconds to import, which only those pay who run these tests."""
    import schemathesis

    schema = schemathesis.openapi.from_dict(document())
    return schema[path][method].as_strategy(generation_mode=schemathesis.GenerationMode(mode))


def each(route: tuple[str, str], mode: str, judge: Callable[[Case, st.DataObject], None]) -> None:
    """`judge` on many requests of a route."""

    @CALM
    @given(case=requests_of(route[1], route[0], mode), data=st.data())
    def run(case: Case, data: st.DataObject) -> None:
        judge(case, data)

    run()


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_nobody_without_its_token_changes_anything(
    shared: Fortress, session: requests.Session, route: tuple[str, str], mode: str
) -> None:
    """Strangers, forged tokens and tokens for other routes are refused, whatever they bring."""
    before = shared.state()
    opening = [whose for *where, whose in DOORS if tuple(where) == route]
    wrong = [token for whose, token in shared.bearers().items() if whose not in opening]

    def judge(case: Case, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from([*STRANGERS, *wrong]))
        answer = asked(session, shared, case, token)
        check(answer)
        assert answer.status_code in (400, 401)

    each(route, mode, judge)
    assert shared.state() == before
    assert shared.troubles == []


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_an_agent_changes_nothing_but_its_own(
    fortress: Fortress, session: requests.Session, door: tuple[str, str, str], mode: str
) -> None:
    """With a good token, and with claims of its own and of others among what it says. Some of what fits the schema is
    accepted: a door that nobody passes shows nothing of what is behind it."""
    method, path, whose = door
    answers: Counter[str] = Counter()

    def judge(case: Case, data: st.DataObject) -> None:
        fortress.replenish()
        _aim(fortress, case, data, whose)
        before = fortress.state()
        answer = asked(session, fortress, case, fortress.bearers()[whose])
        check(answer)
        answers[f"{answer.status_code} {'' if answer.ok else answer.json()['code']}".strip()] += 1
        after = fortress.state()
        if not answer.ok:
            assert _untold(after) == _untold(before), answer.text
        own = fortress.batch if whose == "join" else fortress.mine.instance
        assert fortress.foreign(before, after, own) == []
        if whose == "task":
            claim = fortress.mine.held[0]
            homes = (f"/logs/0/{claim.task}.{claim.token}.log", f"/outputs/0/{claim.task}/{claim.token}/")
            changed = {name for name, _ in {*before.files.items()} ^ {*after.files.items()}}
            assert [name for name in changed if not any(home in name for home in homes)] == []
            assert (after.rows, after.pending, after.stops) == (before.rows, before.pending, before.stops)

    each((method, path), mode, judge)
    assert mode == "negative" or answers["200"], answers
    assert fortress.alive()
    assert fortress.troubles == []


def _untold(state: State) -> State:
    """But for what an operator is told of a refused registration, once in a while for a batch."""
    return replace(state, pending=tuple(one for one in state.pending if "action='registration.refused'" not in one))


def _aim(fortress: Fortress, case: Case, data: st.DataObject, whose: str) -> None:
    """Put real VMs, claims and names where a request has some, in most of them, so that it does not miss by luck."""
    body: Any = case.body
    if case.path == SYNC_PATH and isinstance(body, dict):
        _aim_sync(fortress, body, data)
    elif case.path == REGISTER_PATH and isinstance(body, dict) and data.draw(OFTEN):
        vm = data.draw(st.sampled_from([fortress.vm, f"vm-{fortress.batch}-new", fortress.mine.instance]))
        body.update(vm=vm, protocol=PROTOCOL, incarnation=data.draw(st.sampled_from(["one", "two"])))
    elif case.path == BOOT_PATH and isinstance(body, dict) and data.draw(OFTEN):
        body.update(vm=fortress.vm, phase=data.draw(st.sampled_from(["fetch", "drivers"])))
        body["exit_code"] = data.draw(st.integers(-255, 255))
    elif case.path == SCRIPTS_PATH and isinstance(body, dict) and data.draw(OFTEN):
        body.update(vm=fortress.vm)
    elif isinstance(case.query, dict) and data.draw(OFTEN):
        claim = data.draw(st.sampled_from([*fortress.mine.held, *fortress.theirs.held]))
        case.query.update(task=claim.task, token=claim.token)
        if whose == "task" and data.draw(OFTEN):
            del case.query["task"], case.query["token"]
        case.query.update({"path": OUTPUT} if "path" in case.query else {"offset": 0})


def _aim_sync(fortress: Fortress, body: dict[str, Any], data: st.DataObject) -> None:
    claims = [*fortress.mine.held, *fortress.theirs.held]
    for kind in ("held", "results"):
        for item in body.get(kind) if isinstance(body.get(kind), list) else []:
            if isinstance(item, dict) and data.draw(st.booleans()):
                claim = data.draw(st.sampled_from(claims))
                item.update(task=claim.task, token=claim.token)
                item["cause"] = data.draw(st.sampled_from(["success", "released", "exit-code", "x"]))
    if "seq" in body and data.draw(OFTEN):
        body.update(incarnation="one", seq=data.draw(st.integers(2, 2**40)), state="idle")


def test_the_document_names_every_route_that_takes_something(shared: Fortress) -> None:
    """A new route of the worker API has to be described before it can be served."""
    assert {*ROUTES, ("GET", AGENT_PATH)} == set(shared.parts.app.worker.table)


def test_the_judge_sees_what_is_not_its_own(fortress: Fortress, session: requests.Session) -> None:
    """Their sync, judged as if it were mine, is a change of what is not mine; and as theirs it is none."""
    before = fortress.state()
    body = {"incarnation": "one", "seq": 2, "state": "idle", "ending": "idle"}
    headers = {"Authorization": f"Bearer {fortress.theirs.token}"}
    assert session.post(fortress.url + SYNC_PATH, json=body, headers=headers, timeout=HANG_S).ok
    after = fortress.state()
    assert after != before
    assert fortress.foreign(before, after, fortress.mine.instance) != []
    assert fortress.foreign(before, after, fortress.theirs.instance) == []
