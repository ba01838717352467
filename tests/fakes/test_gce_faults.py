"""What the fault engine does to calls of the fake Compute Engine, as the SDK and plain requests see it."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import uuid
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from tests.fakes.clock import SetClock
from tests.fakes.faults import Fault, FaultKind, Market
from tests.fakes.gce import PROJECT, FakeGce, Settings
from tests.fakes.gce.asking import SPOT, Asker, body
from tests.fakes.gce.records import Instance, View
from tests.fakes.gce.settings import ZONE, Bucket

#: Three pages of lists, the last one not full.
MANY = 1_300
INSTANCES = f"zones/{ZONE}/instances"


def test_a_refused_call_does_nothing(gce: FakeGce, ask: Asker) -> None:
    """And only calls in the fault's scope are refused: by type, zone, market and how many there were."""
    scope = {"operation": "instances.insert", "zone": ZONE, "type": "e2-medium", "market": Market.SPOT}
    gce.add_faults(Fault(FaultKind.ERROR, code="429 rateLimitExceeded", skip=1, times=1, **scope))
    ask.insert("first", **SPOT)
    ask.insert("type", "e2-small", **SPOT)
    ask.insert("zone", zone="us-central1-b", **SPOT)
    ask.insert("market")
    assert ask.refusal("POST", INSTANCES, body("second", **SPOT)) == (429, "rateLimitExceeded")
    assert len(gce.all_instances()) == 4
    ask.insert("second", **SPOT)


def test_the_sdk_sees_its_errors(gce: FakeGce) -> None:
    """As the classes that it has for statuses."""
    zones = compute_v1.ZonesClient(**gce.client())
    for code, error in (("quotaExceeded", exceptions.Forbidden), ("backendError", exceptions.ServiceUnavailable),
                        ("429 rateLimitExceeded", exceptions.TooManyRequests)):  # fmt: skip
        gce.add_faults(Fault(FaultKind.ERROR, operation="zones.list", code=code, times=1))
        with pytest.raises(error) as caught:
            list(zones.list(project=PROJECT, retry=None))
        assert caught.value.errors[0]["reason"] == code.rpartition(" ")[2]


def test_an_insert_can_be_carried_out_and_its_answer_lost(gce: FakeGce, ask: Asker) -> None:
    """The VM exists and the caller never hears; the same requestId finds it. An error is no proof either."""
    query = f"?requestId={uuid.uuid4()}"
    gce.add_faults(Fault(FaultKind.LOST_ANSWER, operation="instances.insert", times=1))
    with pytest.raises((urllib.error.URLError, http.client.HTTPException, ConnectionError)):
        ask.insert(query=query)
    gce.add_faults(Fault(FaultKind.LOST_ANSWER, operation="instances.insert", code="backendError", times=1))
    assert ask.refusal("POST", INSTANCES + query, body()) == (503, "backendError")
    ask.insert(query=query)
    assert [vm.name for vm in gce.all_instances()] == ["one"]


def test_answers_may_be_late_or_never_come(gce: FakeGce, ask: Asker) -> None:
    """In real time, whatever clock the fake has."""
    gce.add_faults(
        Fault(FaultKind.SLOW, operation="zones.list", amount=80, times=1),
        Fault(FaultKind.NO_ANSWER, operation="instances.insert"),
    )
    began = time.monotonic()
    ask("GET", "zones")
    assert time.monotonic() - began >= 0.08
    vms = compute_v1.InstancesClient(**gce.client())
    with pytest.raises(exceptions.GoogleAPIError):
        vms.delete_unary(project=PROJECT, zone=ZONE, instance="none", timeout=5)
    with pytest.raises(Exception, match=r"(?i)timed out"):
        vms.insert_unary(project=PROJECT, zone=ZONE, instance_resource={"name": "one"}, timeout=0.2)


def test_an_insert_may_fail_after_it_was_accepted(gce: FakeGce, ask: Asker) -> None:
    """Its operation says why, and nothing is left; or it never starts, or late."""
    gce.add_faults(
        Fault(FaultKind.ASYNC_FAILURE, code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", times=1),
        Fault(FaultKind.NEVER_STARTS, times=1),
        Fault(FaultKind.LATE, amount=100, times=1),
    )
    begun = [ask.insert(f"vm-{number}")["name"] for number in range(4)]
    gce.advance(20)
    assert ask.names() == {"vm-1": "PROVISIONING", "vm-2": "PROVISIONING", "vm-3": "RUNNING"}
    gce.advance(100)
    assert ask.names() == {"vm-1": "PROVISIONING", "vm-2": "RUNNING", "vm-3": "RUNNING"}
    states = [ask("GET", f"zones/{ZONE}/operations/{name}")[1] for name in begun]
    assert [one["status"] for one in states] == ["DONE", "RUNNING", "DONE", "DONE"]
    assert states[0]["error"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert (len(gce.bill()), gce.leftovers()) == (2, [])


def test_lists_may_be_stale_or_break_off(gce: FakeGce, ask: Asker) -> None:
    """The world of some time ago; and a first page without the next."""
    ask.insert("old")
    gce.advance(10_000)
    ask.insert("new")
    ask("DELETE", f"{INSTANCES}/old")
    gce.advance(1_000)
    gce.add_faults(Fault(FaultKind.STALE, operation="instances.list", amount=2_000, times=1))
    assert ask.names() == {"old": "RUNNING"}
    assert ask.names() == {"new": "RUNNING"}
    for number in range(3):
        ask.insert(f"vm-{number}")
    gce.add_faults(Fault(FaultKind.INCOMPLETE, operation="instances.list", amount=1, code="backendError", times=1))
    token = ask("GET", f"{INSTANCES}?maxResults=2")[1]["nextPageToken"]
    page = f"{INSTANCES}?maxResults=2&pageToken={token}"
    assert ask.refusal("GET", page) == (503, "backendError")
    assert ask("GET", page)[0] == 200


def test_capacity_and_quotas_may_shrink(gce: FakeGce, ask: Asker) -> None:
    """In a scope, for a while."""
    gce.add_faults(
        Fault(FaultKind.CAPACITY, type="e2-medium", zone=ZONE, market=Market.SPOT, amount=1),
        Fault(FaultKind.QUOTA, type="n2-standard-4", market=Market.ON_DEMAND, amount=4),
    )
    for name in ("one", "two"):
        ask.insert(name, **SPOT)
    ask.insert("n2", "n2-standard-4")
    assert ask.refusal("POST", INSTANCES, body("n3", "n2-standard-2")) == (403, "quotaExceeded")
    gce.advance(20)
    assert ask.names() == {"n2": "RUNNING", "one": "RUNNING"}


def test_calls_are_throttled() -> None:
    """Each operation by itself, and all together."""
    with FakeGce(Settings(buckets=(Bucket("zones.list", 2, 1), Bucket("", 4, 1))), SetClock()) as gce:
        ask = Asker(gce)
        assert [ask("GET", "zones")[0] for _ in range(3)] == [200, 200, 403]
        assert [ask("GET", "regions")[0] for _ in range(3)] == [200, 200, 403]
        gce.advance(1000)
        assert ask("GET", "zones")[0] == 200


def test_vms_may_be_hidden(gce: FakeGce, ask: Asker) -> None:
    """From lists, for a while; a get finds them."""
    ask.insert()
    gce.advance(20)
    gce.hide("one", 500)
    assert (ask.names(), ask("GET", f"{INSTANCES}/one")[0]) == ({}, 200)
    gce.advance(500)
    assert ask.names() == {"one": "RUNNING"}


def test_many_are_listed_whole_and_made_into_json_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told of an instance is checked and put together once, not by every list."""
    made: list[str] = []
    real = Instance.resource

    def counted(vm: Instance, view: View) -> dict[str, Any]:
        made.append(vm.id)
        return real(vm, view)

    monkeypatch.setattr(Instance, "resource", counted)
    with FakeGce(clock=SetClock()) as gce:
        ask = Asker(gce)
        connection = http.client.HTTPConnection(gce.url.removeprefix("http://"))
        headers = {"Authorization": f"Bearer {ask.token}", "Content-Type": "application/json"}
        path = f"/compute/v1/projects/{PROJECT}/{INSTANCES}"
        for number in range(MANY):
            connection.request("POST", path, said(number), headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        gce.advance(1000)
        vms = compute_v1.InstancesClient(**gce.client())
        request = compute_v1.AggregatedListInstancesRequest(project=PROJECT, max_results=500)
        pages = list(vms.aggregated_list(request).pages)
        assert len(pages) >= MANY // 500
        assert sum(len(scope.instances) for page in pages for scope in page.items.values()) == MANY
        assert (len(made), len(set(made))) == (MANY, MANY)
        found, token = 0, ""
        while token or not found:
            connection.request("GET", f"{path}?maxResults=500&pageToken={token}", headers=headers)
            page = json.loads(connection.getresponse().read())
            found, token = found + len(page["items"]), page.get("nextPageToken", "")
        assert (found, len(made)) == (MANY, MANY)
        connection.close()
        gce.check()


def said(number: int) -> bytes:
    """One of many."""
    return json.dumps(body(f"vm-{number:05d}", labels={"number": str(number)})).encode()
