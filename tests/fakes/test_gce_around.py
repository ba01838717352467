"""The fake's way in, and what is around instances: tokens, rights, parameters, types, images, prices, disks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from google.api_core import exceptions
from google.auth import impersonated_credentials
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1
from google.oauth2 import service_account

from tests.fakes.clock import SetClock
from tests.fakes.control import NUMBER, running
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce import PROJECT, FakeGce, Settings
from tests.fakes.gce.asking import IMAGE, Asker, body
from tests.fakes.gce.billing import SERVICE
from tests.fakes.gce.fake import at_home
from tests.fakes.gce.session import OPERATIONS, Handled
from tests.fakes.gce.settings import CALLER, ZONE
from tests.fakes.google.model import document

INSTANCES = f"zones/{ZONE}/instances"
SKUS = f"/v1/services/{SERVICE}/skus"


# loudness


def test_what_is_not_modelled_fails_the_test(gce: FakeGce, ask: Asker) -> None:
    """A method, a parameter, a field, a filter, what only answers say, a path of nobody's: all are remembered."""
    asked = [
        ("GET", "global/snapshots", None),
        ("POST", f"{INSTANCES}?sourceInstanceTemplate=global/instanceTemplates/a", body()),
        ("POST", INSTANCES, body(displayDevice={"enableDisplay": True})),
        ("POST", INSTANCES, body(status="RUNNING")),
        ("GET", f"{INSTANCES}?filter=name=a*", None),
        ("GET", f"{INSTANCES}?fields=items", None),
        ("GET", "/v3/nothing", None),
    ]
    assert [ask.refusal(*one) for one in asked] == [(501, "notImplemented")] * len(asked)
    with pytest.raises(AssertionError, match=r"snapshots.*sourceInstanceTemplate.*displayDevice.*status.*/v3/nothing"):
        gce.check()
    assert gce.all_instances() == []
    gce.unmodelled.clear()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (INSTANCES, {"nome": "one"}),
        (INSTANCES, body(scheduling={"provisioningModel": "CHEAP"})),
        (INSTANCES, body(labels={"a": 1})),
        (INSTANCES, body(deletionProtection="yes")),
        (INSTANCES, {"name": ""}),
        (f"{INSTANCES}?request=1", body()),
        (f"zones/{ZONE}-none/instances", body()),
        ("zones/UPPER/instances", body()),
    ],
)
def test_requests_are_held_against_the_document(ask: Asker, path: str, said: Any) -> None:
    """Unknown names, other types, values of no enum, what is missing, patterns of paths."""
    assert ask("POST", path, said)[0] == 400


@contextmanager
def planted(name: str, answer: Any) -> Iterator[None]:
    """The operation answers this instead."""
    before = OPERATIONS["compute", name]
    OPERATIONS["compute", name] = Handled(lambda session: answer, before.heeds, before.call, before.permission)
    try:
        yield
    finally:
        OPERATIONS["compute", name] = before


@pytest.mark.parametrize(
    "wrong", [{"colour": "red"}, {"id": 7}, {"status": "GLAD"}, {"labels": None}, {"disks": [{"boot": "yes"}]}]
)
def test_an_answer_that_the_document_does_not_have_fails_the_test(
    gce: FakeGce, ask: Asker, wrong: dict[str, Any]
) -> None:  # fmt: skip
    """A bug planted in the fake is found as one, not parsed away by the SDK."""
    with planted("instances.get", wrong):
        assert ask.refusal("GET", f"{INSTANCES}/one") == (500, "internalError")
    with pytest.raises(AssertionError, match="is not in its schema"):
        gce.check()
    gce.bugs.clear()


def test_every_list_and_get_answers_within_its_schema(gce: FakeGce, ask: Asker) -> None:
    """With something of everything there."""
    begun = ask.insert(labels={"a": "b"}, serviceAccounts=[{"email": "default", "scopes": []}])
    gce.hold_address("one")
    gce.project().disks[ZONE, "one"].labels["a"] = "b"
    values = {
        "project": PROJECT, "zone": ZONE, "region": "us-central1", "instance": "one", "disk": "one",
        "network": "default",         "operation": begun["name"], "image": "own-image", "family": "own",
        "machineType": "n2-custom-4-8192",
        "subnetwork": "workers", "servicesId": SERVICE,
    }  # fmt: skip
    documents = {"compute": "compute.v1", "cloudbilling": "cloudbilling.v1"}
    tried = set()
    for service, name in OPERATIONS:
        if service in documents and name.rpartition(".")[2] in ("list", "get", "aggregatedList", "getFromFamily"):
            if name.startswith("regionOperations"):
                continue
            method = document(documents[service]).methods[name]
            assert ask("GET", method.document.base + method.path.format(**values))[0] == 200, name
            tried.add(name)
    assert len(tried) > 25


# tokens and rights


def test_real_credentials_get_tokens_and_new_ones(gce: FakeGce, tmp_path: Path) -> None:
    """From a key file, by the library: traded at the endpoint, or signed by itself. An old token is refused."""
    made = at_home(service_account.Credentials.from_service_account_file(str(gce.write_key(tmp_path))))
    url = f"{gce.url}/compute/v1/projects/{PROJECT}/zones"
    with (
        compute_v1.InstancesClient(credentials=made, client_options={"api_endpoint": gce.url}) as vms,
        AuthorizedSession(gce.credentials()) as session,
    ):
        assert list(vms.list(project=PROJECT, zone=ZONE)) == []
        assert session.get(url).status_code == 200
        gce.tokens.revoke_all()
        assert session.get(url).status_code == 200  # refused, and traded anew
        assert (gce.calls["token"], gce.calls["zones.list"]) == (2, 3)
        gce.tokens.revoked.add(CALLER)
        with pytest.raises(exceptions.Unauthorized):
            list(vms.list(project=PROJECT, zone=ZONE, retry=None))
        with pytest.raises(RefreshError):
            session.get(url)


def test_another_account_can_be_spoken_for(gce: FakeGce) -> None:
    """By the library of Google: its operations are that account's."""
    other, path = "other@fake-project.iam.gserviceaccount.com", "/v1/projects/-/serviceAccounts/{}:generateAccessToken"
    made = impersonated_credentials.Credentials(
        source_credentials=gce.credentials(), target_principal=other,
        target_scopes=["https://www.googleapis.com/auth/cloud-platform"],
        iam_endpoint_override=gce.url + path.format(other),
    )  # fmt: skip
    url = f"{gce.url}/compute/v1/projects/{PROJECT}/{INSTANCES}"
    with AuthorizedSession(at_home(made)) as session:
        assert session.post(url, json=body()).json()["user"] == other
        gce.denied.add("iam.serviceAccounts.getAccessToken")
        gce.tokens.revoke_all()
        with pytest.raises(RefreshError):
            session.get(url)


def test_a_token_ends(gce: FakeGce, ask: Asker) -> None:
    """And nothing is heard without one, or with one of nobody's."""
    assert ask("GET", "zones")[0] == 200
    gce.advance(3_600_000)
    assert ask.refusal("GET", "zones") == (401, "authError")
    ask.token = "ya29.nobody"
    assert ask.refusal("GET", "zones") == (401, "authError")
    with (
        FakeGce(Settings(anonymous=True)) as open_one,
        compute_v1.ZonesClient(
            credentials=AnonymousCredentials(), client_options={"api_endpoint": open_one.url}
        ) as zones,
    ):
        assert len(list(zones.list(project=PROJECT))) == 7


def test_rights_may_be_missing(gce: FakeGce, ask: Asker) -> None:
    """What a caller may not is refused, and told by the questions for it."""
    gce.denied |= {"compute.instances.setLabels", "compute.zones.list"}
    assert ask.refusal("GET", "zones") == (403, "forbidden")
    assert ask.refusal("POST", INSTANCES, body(labels={"a": "b"})) == (403, "forbidden")
    ask.insert()
    asked = {"permissions": ["compute.instances.setLabels", "compute.instances.create"]}
    held = (200, {"permissions": ["compute.instances.create"]})
    assert ask("POST", f"{INSTANCES}/one/testIamPermissions", asked) == held
    assert ask("POST", f"/v1/projects/{PROJECT}:testIamPermissions", asked) == held
    assert ask("POST", f"/v1/projects/{PROJECT}:testIamPermissions", {"permissions": ["compute.*"]})[0] == 400


def test_another_project_is_not_found(gce: FakeGce) -> None:
    assert Asker(gce, "others-project").refusal("GET", "zones") == (404, "notFound")


# the catalogue


def test_types_are_as_google_has_them(gce: FakeGce) -> None:
    """Cores, memory, GPUs, architectures; custom ones by their name."""
    types = {
        one.name: one for one in compute_v1.MachineTypesClient(**gce.client()).list(project=PROJECT, zone=ZONE)
    }  # fmt: skip
    assert (types["n2-standard-8"].guest_cpus, types["n2-standard-8"].memory_mb) == (8, 32_768)
    assert types["a2-highgpu-1g"].memory_mb == 87_040
    assert (types["t2a-standard-1"].architecture, types["e2-micro"].is_shared_cpu) == ("ARM64", True)
    (gpu,) = types["g2-standard-24"].accelerators
    assert (gpu.guest_accelerator_type, gpu.guest_accelerator_count) == ("nvidia-l4", 2)
    ask = Asker(gce)
    assert ask("GET", f"zones/{ZONE}/machineTypes/n2-custom-4-8192")[1]["guestCpus"] == 4
    for wrong in ("n2-custom-3-8192", "n2-custom-4-8000", "none"):
        assert ask.refusal("GET", f"zones/{ZONE}/machineTypes/{wrong}") == (404, "notFound")


def test_a_family_is_its_newest_image(ask: Asker) -> None:
    """That is not deprecated."""
    images = "/compute/v1/projects/debian-cloud/global/images"
    assert ask("GET", f"{images}/family/debian-12")[1]["name"] == "debian-12-bookworm-v20260801"
    assert ask("GET", f"{images}/debian-12-bookworm-v20260701")[1]["deprecated"] == {"state": "DEPRECATED"}
    assert ask.refusal("GET", f"{images}/family/none") == (404, "notFound")


def test_regions_tell_of_quotas(gce: FakeGce, ask: Asker) -> None:
    """Without a quota of its own, spot counts as everything else does."""
    ask.insert(kind="n2-standard-4", scheduling={"provisioningModel": "SPOT"})
    told = {one["metric"]: one for one in ask("GET", "regions/us-central1")[1]["quotas"]}
    assert (told["PREEMPTIBLE_CPUS"]["usage"], told["N2_CPUS"]["usage"], told["IN_USE_ADDRESSES"]["usage"]) == (4, 0, 1)
    assert ask("GET", "")[1]["quotas"][0]["usage"] == 4
    with FakeGce(Settings(quotas={"PREEMPTIBLE_CPUS": 0, "N2_CPUS": 4}), SetClock()) as small:
        other = Asker(small)
        other.insert(kind="n2-standard-4", scheduling={"provisioningModel": "SPOT"})
        assert other.refusal("POST", INSTANCES, body("two", "n2-standard-2")) == (403, "quotaExceeded")


def test_skus_have_prices_and_pages(ask: Asker) -> None:
    """Each of one region; what is no price of a VM is among them."""
    token, found = "", []
    while True:
        _, page = ask("GET", f"{SKUS}?pageSize=50&pageToken={quote(token)}&currencyCode=USD")
        found += page["skus"]
        token = page["nextPageToken"]
        if not token:
            break
    by_name = {(one["description"], one["serviceRegions"][0]): one for one in found}
    assert len({one["skuId"] for one in found}) == len(found) == len(by_name)
    sku = by_name["N2 Instance Core running in Americas", "us-central1"]
    (tier,) = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"]
    assert (tier["unitPrice"]["nanos"], sku["category"]["usageType"]) == (31_611_000, "OnDemand")
    assert ("Commitment v1: N2 Core in Americas for 1 Year", "us-central1") in by_name


# disks and addresses


def test_disks_that_were_left_are_listed_and_deleted(gce: FakeGce, ask: Asker) -> None:
    """Nothing deletes one that is used, or makes a VM over one of its name; an address is given back."""
    ask.insert("kept", disks=[{**body()["disks"][0], "autoDelete": False}])
    gce.advance(20)
    assert ask.refusal("DELETE", f"zones/{ZONE}/disks/kept") == (400, "resourceInUseByAnotherResource")
    ask("DELETE", f"{INSTANCES}/kept")
    gce.hold_address("held")
    gce.advance(20)
    assert gce.leftovers() == [f"disk {ZONE} kept", "address us-central1 held"]
    assert ask.refusal("POST", INSTANCES, body("kept")) == (409, "alreadyExists")
    (disk,) = compute_v1.DisksClient(**gce.client()).list(project=PROJECT, zone=ZONE)
    assert (disk.name, list(disk.users), disk.size_gb) == ("kept", [], 10)
    query = f"?requestId={uuid.uuid4()}"
    first = ask("DELETE", f"zones/{ZONE}/disks/kept{query}")[1]["name"]
    assert ask("DELETE", f"zones/{ZONE}/disks/kept{query}")[1]["name"] == first
    addresses = dict(compute_v1.AddressesClient(**gce.client()).aggregated_list(project=PROJECT))
    assert [one.status for one in addresses["regions/us-central1"].addresses] == ["RESERVED"]
    ((_, address),) = gce.project().addresses.items()
    begun = ask("DELETE", "regions/us-central1/addresses/held")[1]
    assert begun["targetId"] == address.number == str(addresses["regions/us-central1"].addresses[0].id)
    gce.advance(10)
    assert ask("GET", f"regions/us-central1/operations/{begun['name']}")[1]["status"] == "DONE"
    assert gce.leftovers() == []


@pytest.mark.parametrize(("code", "left"), [("disk", ["disk"]), ("address", ["address"]), ("", ["disk", "address"])])
def test_what_came_with_a_vm_may_stay_behind(gce: FakeGce, ask: Asker, code: str, left: list[str]) -> None:
    """Although it should have gone with it."""
    gce.add_faults(Fault(FaultKind.LEFTOVER, code=code, times=1))
    disks = [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": IMAGE, "labels": {"a": "b"}}}]
    for name in ("one", "two"):
        ask.insert(name, labels={"a": "b"}, disks=disks)
        ask("DELETE", f"{INSTANCES}/{name}")
    gce.advance(20)
    assert [one.partition(" ")[0] for one in gce.leftovers()] == left
    for kind in ("disk", "address"):
        _, page = ask("GET", f"aggregated/{kind}{'es' if kind == 'address' else 's'}?filter=labels.a=b")
        assert (sum(len(scope.keys() - {"warning"}) for scope in page["items"].values()) == 1) is (kind in left)


# another process


def test_it_runs_as_a_process(tmp_path: Path) -> None:
    """With its settings, its key, and what can be done to it."""
    settings = '{"provisioning_ms": 0, "staging_ms": 0, "buckets": [["zones.list", 1, 1]], "anonymous": true}'
    with running("tests.fakes.gce", "--set-clock", "--settings", settings) as fake:
        key = at_home(service_account.Credentials.from_service_account_info(fake.do("key")))
        vms = compute_v1.InstancesClient(credentials=key, client_options={"api_endpoint": fake.url})
        vms.insert_unary(project=PROJECT, zone=ZONE, instance_resource=compute_v1.Instance(body_of_sdk()))
        fake.do("advance", ms=1)
        (vm,) = fake.do("inventory")
        assert (vm["name"], vm["status"]) == ("one", "RUNNING")
        fake.do("kill", id=vm["id"])
        fake.do("faults", faults=[{"kind": "error", "operation": "instances.list", "code": "backendError"}])
        with pytest.raises(exceptions.ServiceUnavailable):
            list(vms.list(project=PROJECT, zone=ZONE, retry=None))
        assert fake.do("problems") == {"unmodelled": [], "bugs": []}


def test_it_is_filled_by_one_request_many_times() -> None:
    """Numbers go into names; what the fake refuses is told, and nothing is passed over."""
    target = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances"
    with running("tests.fakes.gce") as fake:
        assert fake.do("fill", method="POST", target=target, body=body(f"vm-{NUMBER}"), first=7, count=3) == 3
        assert [vm["name"] for vm in fake.do("inventory")] == ["vm-7", "vm-8", "vm-9"]
        with pytest.raises(RuntimeError, match=r"number 7 was refused: .*alreadyExists"):
            fake.do("fill", method="POST", target=target, body=body(f"vm-{NUMBER}"), first=7, count=1)


def body_of_sdk() -> dict[str, Any]:
    """The common VM in the words of the SDK."""
    said = compute_v1.Instance.from_json(json.dumps(body()))
    found: dict[str, Any] = compute_v1.Instance.to_dict(said)
    return {name: value for name, value in found.items() if value}
