"""Instances of the fake Compute Engine: how they begin, show and end. By the real SDK where that can say it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from tests.fakes.clock import SetClock
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce import PROJECT, FakeGce, Settings
from tests.fakes.gce.asking import IMAGE, SPOT, Asker, body
from tests.fakes.gce.settings import ZONE

WHERE = {"project": PROJECT, "zone": ZONE}
INSTANCES = f"zones/{ZONE}/instances"


def wanted(name: str = "one") -> compute_v1.Instance:
    """A VM as the SDK says it."""
    return compute_v1.Instance(
        name=name,
        machine_type=f"zones/{ZONE}/machineTypes/n2-standard-4",
        labels={"a": "b"},
        disks=[
            compute_v1.AttachedDisk(
                boot=True,
                auto_delete=True,
                initialize_params=compute_v1.AttachedDiskInitializeParams(source_image=IMAGE, disk_size_gb=20),
            )
        ],
        network_interfaces=[compute_v1.NetworkInterface(subnetwork="regions/us-central1/subnetworks/workers")],
        scheduling=compute_v1.Scheduling(
            provisioning_model="SPOT",
            instance_termination_action="DELETE",
            max_run_duration=compute_v1.Duration(seconds=3600),
        ),
        metadata=compute_v1.Metadata(items=[compute_v1.Items(key="user-data", value="#cloud-config\n")]),
    )


def test_a_vm_is_made_shown_and_deleted_by_the_sdk(gce: FakeGce) -> None:
    """With an operation for each change, that is told of where operations are."""
    vms = compute_v1.InstancesClient(**gce.client())
    operations = compute_v1.ZoneOperationsClient(**gce.client())
    begun = vms.insert_unary({"instance_resource": wanted(), "request_id": str(uuid.uuid4()), **WHERE})
    assert begun.status is compute_v1.Operation.Status.PENDING
    assert vms.get(instance="one", **WHERE).status == "PROVISIONING"
    gce.advance(10)
    assert [vm.status for vm in vms.list(**WHERE)] == ["STAGING"]
    gce.advance(10)
    done = operations.get(operation=begun.name, **WHERE)
    assert (done.status, done.error.errors) == (compute_v1.Operation.Status.DONE, [])
    (vm,) = vms.list(compute_v1.ListInstancesRequest(filter="labels.a=b", **WHERE))
    assert (vm.status, dict(vm.labels), vm.scheduling.provisioning_model) == ("RUNNING", {"a": "b"}, "SPOT")
    assert vm.self_link.endswith(f"/projects/{PROJECT}/zones/{ZONE}/instances/one")
    by_scope = dict(vms.aggregated_list(project=PROJECT))
    assert [one.name for one in by_scope[f"zones/{ZONE}"].instances] == ["one"]
    assert by_scope["zones/us-central1-b"].warning.code == "NO_RESULTS_ON_PAGE"
    vms.delete_unary(instance="one", **WHERE)
    assert vms.get(instance="one", **WHERE).status == "STOPPING"
    gce.advance(20)
    with pytest.raises(exceptions.NotFound):
        vms.get(instance="one", **WHERE)
    kinds = sorted(one.operation_type for one in operations.list(**WHERE))
    assert (kinds, gce.leftovers()) == (["delete", "insert"], [])


def test_a_request_id_makes_one_vm(ask: Asker, gce: FakeGce) -> None:
    """In its zone; another request under it is refused, and it must be a UUID."""
    query = f"?requestId={uuid.uuid4()}"
    first = ask.insert(query=query)
    assert ask.insert(query=query)["name"] == first["name"]
    gce.advance(100)
    assert ask.insert(query=query)["status"] == "DONE"
    assert len(gce.all_instances()) == 1
    assert ask.refusal("POST", INSTANCES + query, body("two")) == (400, "invalid")
    assert ask.refusal("POST", f"{INSTANCES}?requestId=no", body("two")) == (400, "invalid")
    assert ask.refusal("POST", INSTANCES, body()) == (409, "alreadyExists")
    ask.insert(zone="us-central1-b", query=query)


def test_a_request_id_is_remembered_for_a_while(ask: Asker, gce: FakeGce) -> None:
    """Then it is a request like any other; an operation that failed is answered again, and nothing tried anew."""
    query, failed = f"?requestId={uuid.uuid4()}", f"?requestId={uuid.uuid4()}"
    gce.add_faults(Fault(FaultKind.ASYNC_FAILURE, code="ZONE_RESOURCE_POOL_EXHAUSTED", times=1))
    ask.insert("failed", query=failed)
    ask.insert(query=query)
    gce.advance(20)
    told = ask.insert("failed", query=failed)
    assert told["error"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert ask.names() == {"one": "RUNNING"}
    gce.advance(3_599_000)
    ask.token = gce.tokens.new(gce.settings.caller, gce.clock.now())
    ask.insert(query=query)
    gce.advance(1_000)
    assert ask.refusal("POST", INSTANCES + query, body()) == (409, "alreadyExists")


def test_a_vm_ends_hard_when_its_time_is_over(ask: Asker, gce: FakeGce) -> None:
    """By the fake's clock, deleted or stopped as it was asked for."""
    for name, action in (("gone", "DELETE"), ("stopped", "STOP")):
        limit = {"maxRunDuration": {"seconds": "60"}, "instanceTerminationAction": action}
        ask.insert(name, scheduling=limit)
    gce.advance(20)
    assert "terminationTimestamp" in ask("GET", f"{INSTANCES}/gone")[1]["resourceStatus"]["scheduling"]
    gce.advance(59_900)
    assert ask.names() == {"gone": "RUNNING", "stopped": "RUNNING"}
    gce.advance(200)
    assert ask.names() == {"stopped": "TERMINATED"}
    assert [line.ended_ms - line.running_ms for line in gce.bill()] == [60_020, 60_020]


def test_a_spot_vm_is_preempted(ask: Asker, gce: FakeGce) -> None:
    """STOPPING for its notice, then gone or TERMINATED; the operation says why."""
    ask.insert("gone", **SPOT)
    ask.insert("kept", scheduling={"provisioningModel": "SPOT"})
    gce.advance(20)
    gce.preempt("gone")
    gce.preempt("kept")
    assert ask.names() == {"gone": "STOPPING", "kept": "STOPPING"}
    gce.advance(30_000)
    assert ask.names() == {"kept": "TERMINATED"}
    _, told = ask("GET", f"zones/{ZONE}/operations?filter=operationType=compute.instances.preempted")
    assert [last.rpartition("/")[2] for last in (one["targetLink"] for one in told["items"])] == ["gone", "kept"]
    assert ask("DELETE", f"{INSTANCES}/kept")[0] == 200
    gce.advance(20)
    assert (ask.names(), gce.leftovers()) == ({}, [])


def test_labels_change_under_their_fingerprint(ask: Asker) -> None:
    """412 for one that is old; and what no label may be is refused."""
    ask.insert(labels={"a": "b"})
    old = ask("GET", f"{INSTANCES}/one")[1]["labelFingerprint"]
    said = {"labels": {"a": "c"}, "labelFingerprint": old}
    assert ask("POST", f"{INSTANCES}/one/setLabels", said)[0] == 200
    assert ask("GET", f"{INSTANCES}/one")[1]["labels"] == {"a": "c"}
    assert ask.refusal("POST", f"{INSTANCES}/one/setLabels", said) == (412, "conditionNotMet")
    for wrong in ({"A": "b"}, {"a.b": "c"}, {"1": "a"}, {"a": "B"}, {"a": "b" * 64}, {"": "a"}):
        assert ask.refusal("POST", INSTANCES, body("two", labels=wrong)) == (400, "invalid")


GPU = {"guestAccelerators": [{"acceleratorType": f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4",
                              "acceleratorCount": 1}]}  # fmt: skip
ENDS = {"onHostMaintenance": "TERMINATE"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Upper"},
        {"machineType": "e2-medium"},
        {"machineType": "zones/us-central1-b/machineTypes/e2-medium"},
        {"machineType": f"zones/{ZONE}/machineTypes/e2-none"},
        {"disks": []},
        {"disks": [{"boot": True, "initializeParams": {"sourceImage": "projects/debian-cloud/global/images/none"}}]},
        {"machineType": f"zones/{ZONE}/machineTypes/t2a-standard-1"},
        {"metadata": {"items": [{"key": "a", "value": "b" * 262_145}]}},
        {"metadata": {"items": [{"key": "a", "value": "b"}, {"key": "a", "value": "c"}]}},
        {"scheduling": {"provisioningModel": "SPOT", "automaticRestart": True}},
        {"scheduling": {"provisioningModel": "SPOT", "onHostMaintenance": "MIGRATE"}},
        {"scheduling": {"instanceTerminationAction": "DELETE"}},
        {"scheduling": {"maxRunDuration": {"seconds": "60"}}},
        {"scheduling": {"maxRunDuration": {"seconds": "1"}, "instanceTerminationAction": "DELETE"}},
        {"machineType": f"zones/{ZONE}/machineTypes/g2-standard-4"},
        {"machineType": f"zones/{ZONE}/machineTypes/n1-standard-4", **GPU},
        {**GPU, "scheduling": ENDS},
        {"networkInterfaces": [{"subnetwork": "regions/europe-west4/subnetworks/default"}]},
        {"networkInterfaces": [{"subnetwork": "regions/us-central1/subnetworks/none"}]},
        {"networkInterfaces": [{"network": "global/networks/none"}]},
        {"networkInterfaces": [{"network": "global/networks/custom"}]},
    ],
)
def test_what_cannot_be_is_refused(ask: Asker, gce: FakeGce, wrong: dict[str, Any]) -> None:
    """And nothing is made."""
    assert ask("POST", INSTANCES, body() | wrong)[0] == 400
    assert (gce.all_instances(), gce.leftovers()) == ([], [])


def test_gpus_are_counted(ask: Asker, gce: FakeGce) -> None:
    """Attached ones and those that come with a type."""
    ask.insert("t4", "n1-standard-4", **GPU, scheduling=ENDS)
    ask.insert("l4", "g2-standard-24", scheduling={"provisioningModel": "SPOT"})
    used = gce.project().used
    assert (used["us-central1", "NVIDIA_T4_GPUS"], used["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"]) == (1, 2)
    assert (used["us-central1", "CPUS"], used["us-central1", "PREEMPTIBLE_CPUS"]) == (4, 24)


def test_there_may_be_no_capacity() -> None:
    """The insert is accepted, the operation fails, the VM is gone with its disk."""
    capacity = {("e2-medium", ZONE, "spot"): 1}
    with FakeGce(Settings(capacity=capacity), SetClock()) as gce:
        ask = Asker(gce)
        ask.insert("one", **SPOT)
        begun = ask.insert("two", **SPOT)
        ask.insert("three")
        assert ask.names() == {"one": "PROVISIONING", "three": "PROVISIONING", "two": "PROVISIONING"}
        gce.advance(20)
        _, told = ask("GET", f"zones/{ZONE}/operations/{begun['name']}")
        assert told["error"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
        assert (told["status"], told["httpErrorStatusCode"]) == ("DONE", 503)
        assert ask.names() == {"one": "RUNNING", "three": "RUNNING"}
        assert gce.leftovers() == []
        assert gce.project().used["us-central1", "PREEMPTIBLE_CPUS"] == 2


@pytest.mark.parametrize("in_operation", [False, True])
def test_a_quota_may_be_over(in_operation: bool) -> None:
    """Said at once, or by the operation."""
    settings = Settings(region_quotas={("us-central1", "CPUS"): 3}, quota_in_operation=in_operation)
    with FakeGce(settings, SetClock()) as gce:
        ask = Asker(gce)
        ask.insert("one")
        ask.insert("two", zone="europe-west4-a")
        if in_operation:
            begun = ask.insert("three")
            gce.advance(20)
            _, told = ask("GET", f"zones/{ZONE}/operations/{begun['name']}")
            (error,) = told["error"]["errors"]
            assert (error["code"], error["errorDetails"][0]["quotaInfo"]["limit"]) == ("QUOTA_EXCEEDED", 3.0)
        else:
            assert ask.refusal("POST", INSTANCES, body("three")) == (403, "quotaExceeded")
        assert len(gce.all_instances()) == 2


def test_lists_may_be_late() -> None:
    """A get is not."""
    with FakeGce(Settings(appears_ms=1000, changes_ms=500), SetClock()) as gce:
        ask = Asker(gce)
        ask.insert()
        assert (ask.names(), ask("GET", f"{INSTANCES}/one")[0]) == ({}, 200)
        gce.advance(1000)
        assert ask.names() == {"one": "RUNNING"}
        ask("DELETE", f"{INSTANCES}/one")
        assert ask.refusal("DELETE", f"{INSTANCES}/one") == (400, "resourceNotReady")
        gce.advance(20)
        assert (ask.names(), ask("GET", f"{INSTANCES}/one")[0]) == ({"one": "RUNNING"}, 404)
        gce.advance(600)
        assert ask.names() == {}


def test_a_wait_answers_when_it_is_done() -> None:
    """Or when the patience of the service ends."""
    with FakeGce(Settings(provisioning_ms=100, wait_ms=5_000)) as gce:
        begun = Asker(gce).insert()
        waited = compute_v1.ZoneOperationsClient(**gce.client()).wait(operation=begun["name"], **WHERE)
        assert waited.status is compute_v1.Operation.Status.DONE
    with FakeGce(Settings(wait_ms=50), SetClock()) as gce:
        begun = Asker(gce).insert()
        waited = compute_v1.ZoneOperationsClient(**gce.client()).wait(operation=begun["name"], **WHERE)
        assert waited.status is compute_v1.Operation.Status.PENDING


def test_listings_have_pages_and_filters(ask: Asker, gce: FakeGce) -> None:
    """A token is bound to its listing. A zone that cannot be reached fails the list of all, or is named in it to who
    asks for that."""
    for number in range(5):
        ask.insert(f"vm-{number}", labels={"odd": str(number % 2)})
    assert list(ask.names(f"{INSTANCES}?maxResults=2")) == [f"vm-{number}" for number in range(5)]
    for text, count in (("labels.odd=1", 2), ("labels.odd:*", 5), ("labels.none:*", 0),
                        ("(labels.odd=1)(name!=vm-1)", 1),
                        ("name=vm-1%20OR%20name=vm-2", 2), ("NOT%20labels.odd=1%20AND%20status=PROVISIONING", 3),
                        ("name%20eq%20vm-[12]", 2), ('labels.odd="0"', 3)):  # fmt: skip
        assert len(ask.names(f"aggregated/instances?filter={text}")) == count, text
    token = ask("GET", f"{INSTANCES}?maxResults=2")[1]["nextPageToken"]
    assert ask.refusal("GET", f"zones/us-central1-b/instances?pageToken={token}") == (400, "invalid")
    assert ask.refusal("GET", f"{INSTANCES}?maxResults=501") == (400, "invalid")
    assert ask.refusal("GET", f"{INSTANCES}?filter=(a") == (400, "invalid")
    gce.unreachable.add("us-central1-b")
    assert ask.refusal("GET", "aggregated/instances") == (503, "backendError")
    found = ask("GET", "aggregated/instances?returnPartialSuccess=true")[1]
    assert found["unreachables"] == [f"projects/{PROJECT}/zones/us-central1-b"]


def test_what_has_stopped_has_no_end_any_more(ask: Asker, gce: FakeGce) -> None:
    """maxRunDuration ends what runs: a guest that powers off before leaves its VM and its disk for ever."""
    ask.insert("off", scheduling={"maxRunDuration": {"seconds": "60"}, "instanceTerminationAction": "DELETE"})
    gce.advance(20)
    assert "resourceStatus" in ask("GET", f"{INSTANCES}/off")[1]
    gce.guest_shutdown("off")
    gce.advance(600_000)
    told = ask("GET", f"{INSTANCES}/off")[1]
    assert told["status"] == "TERMINATED"
    assert "resourceStatus" not in told
    assert ask("GET", f"zones/{ZONE}/disks")[1]["items"][0]["users"]


def test_a_guest_may_end_itself_and_speak(ask: Asker, gce: FakeGce) -> None:
    """Powering off keeps the VM, TERMINATED, whatever its termination action; so does a host that fails."""
    for name in ("off", "dead"):
        ask.insert(name, **SPOT)
    gce.advance(20)
    gce.write_console("off", "hello\n")
    assert ask("GET", f"{INSTANCES}/off/serialPort?port=1&start=2")[1]["contents"] == "llo\n"
    gce.guest_shutdown("off")
    gce.kill("dead")
    gce.advance(20)
    assert ask.names() == {"dead": "TERMINATED", "off": "TERMINATED"}
