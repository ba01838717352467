"""The reaper of a Google Cloud project as its function is called: what lies at the root of its source, the metadata
service's token, and a fake Compute Engine over HTTP."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cloud_dispatch.domain.ids import BatchId, PoolName
from cloud_dispatch.domain.labels import of_tags
from cloud_dispatch.domain.sign import KEY, read
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.reapers import gcp
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce import FakeGce, Settings
from tests.fakes.gce.asking import IMAGE, Asker
from tests.fakes.gce.reaper import FunctionMetadata
from tests.fakes.gce.settings import PROJECT, ZONE
from tests.terraform.rendering import MODULES

#: With the deployment's capital letter and a long pool, so that labels are not what tags are.
DEPLOYMENT, POOL = "Lab.one", "pool-" + "x" * 70
Reap = Callable[..., tuple[int, Any]]


class Sent:
    """A request as Flask has it."""

    def __init__(self, said: Any) -> None:
        self._said = said

    def get_json(self, silent: bool = False) -> Any:
        assert silent, "a body that is no JSON must not fail a round"
        return self._said


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGce]:
    with FakeGce(Settings()) as made, FunctionMetadata(made) as metadata:
        for name, value in {
            "DEPLOYMENT": DEPLOYMENT, "PROJECT": PROJECT, "COMPUTE_ENDPOINT": made.url, "TIMEOUT_S": "60",
            "GCE_METADATA_HOST": metadata.host,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("cloud_dispatch.reapers.rounds.PAUSE_S", 0.02)
        yield made
        assert metadata.asked <= made.calls["instances.aggregatedList"]


@pytest.fixture
def reap(fake: FakeGce, monkeypatch: pytest.MonkeyPatch) -> Reap:
    """The function; its status, and what it told. A proxy of its environment is not asked."""
    spec = importlib.util.spec_from_file_location("main", MODULES / "gcp" / "function" / "main.py")
    assert spec is not None
    assert spec.loader is not None
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)

    def call(**said: Any) -> tuple[int, Any]:
        with monkeypatch.context() as surroundings:
            surroundings.setenv("http_proxy", "http://127.0.0.1:9")
            text, status, _ = main.reap(Sent(said or None))
        return status, json.loads(text)

    return call


def labels(ends_ms: int, deployment: str = DEPLOYMENT) -> dict[str, str]:
    return of_tags(VmTags(deployment, "store", PoolName(POOL), BatchId("b"), 5, ends_ms).encode())


def vm(fake: FakeGce, name: str, ends_ms: int, deployment: str = DEPLOYMENT, **more: Any) -> str:
    """One that runs."""
    return made(fake, name, labels(ends_ms, deployment), **more)


def made(fake: FakeGce, name: str, worn: dict[str, str], zone: str = ZONE, **more: Any) -> str:
    """One with these labels, on its disk too."""
    ask = Asker(fake)
    boot = {"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": IMAGE, "labels": worn}}
    begun = ask.insert(name, zone=zone, labels=worn, disks=[boot], **more)
    assert ask("POST", f"zones/{zone}/operations/{begun['name']}/wait")[0] == 200
    return name


def there(fake: FakeGce) -> dict[str, str]:
    """What there is in truth and stays: name and status."""
    return {one.name: str(one.status) for one in fake.all_instances() if not one.deleting}


def test_a_call_ends_what_is_past_its_end_and_nothing_else(fake: FakeGce, reap: Reap) -> None:
    now = fake.clock.now()
    vm(fake, "late", 5), vm(fake, "early", now + 3_600_000), vm(fake, "other", 5, "lab.one")
    Asker(fake).insert("strange", labels={"team": "x"})
    status, (told,) = reap()
    assert (status, told["ended"], told["failed"]) == (200, [f"zones/{ZONE}/instances/late"], {})
    assert told["late_ms"] >= now - 5
    assert set(there(fake)) == {"early", "other", "strange"}


def test_a_vm_that_has_powered_itself_off_is_deleted_at_its_end(fake: FakeGce, reap: Reap) -> None:
    """Google has cleared its end, and its disk would bill for ever."""
    vm(fake, "off", 5)
    fake.guest_shutdown("off")
    while there(fake) != {"off": "TERMINATED"}:
        pass
    assert reap()[0] == 200
    assert there(fake) == {}
    assert reap(everything=True)[0] == 200
    assert fake.leftovers() == []


def test_a_round_leaves_its_sign_in_the_metadata_of_an_object(
    fake: FakeGce, reap: Reap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what is there, by its rights to that object; without them the call fails, once all is ended."""
    monkeypatch.setenv("SIGN", "gs://own/reaper/sign")
    monkeypatch.setenv("STORAGE_ENDPOINT", fake.url)
    said = fake.objects["own", "reaper/sign"] = {"owner": "lab"}
    began = fake.clock.now()
    assert reap()[0] == 200
    sign = read(said[KEY])
    assert sign is not None
    assert (sign.deployment, sign.places, said["owner"]) == (DEPLOYMENT, (PROJECT,), "lab")
    assert began <= sign.begun_ms <= fake.clock.now()
    vm(fake, "late", 5)
    rights = json.loads((MODULES / "gcp" / "policies" / "sign.json").read_text())["includedPermissions"]
    for right in rights:
        fake.denied = {right}
        status, (told,) = reap()
        assert (status, right in told["problem"]) == (500, True)
        assert there(fake) == {}


def test_all_pages_are_read(fake: FakeGce, reap: Reap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcp, "_PAGE", 2)
    names = {vm(fake, f"late-{number}", 5) for number in range(5)}
    assert {path.rpartition("/")[2] for path in reap()[1][0]["ended"]} == names
    assert there(fake) == {}


MISSING = {
    "a zone": "us-central1-b", "a part": "us-central1-b (LIST_OVERHEAD_QUOTA_EXCEED)", "something": "PARTIAL_SUCCESS",
    "a page": "backendError",
}  # fmt: skip


@pytest.mark.parametrize("missing", MISSING)
def test_what_can_not_be_seen_fails_the_call_after_the_rest_has_ended(
    fake: FakeGce, reap: Reap, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Google answers such a list with 200: silence about a zone is no absence, and ends no deployment."""
    monkeypatch.setattr(gcp, "_PAGE", 1)
    monkeypatch.setenv("TIMEOUT_S", "0")
    vm(fake, "here", 5), vm(fake, "there", 5, zone="us-central1-b")
    if missing == "a zone":
        fake.unreachable.add("us-central1-b")
    elif missing == "a part":
        fake.warned["us-central1-b"] = "LIST_OVERHEAD_QUOTA_EXCEED"
    elif missing == "something":
        fake.warned[""], fake.hidden = "PARTIAL_SUCCESS", {fake.all_instances()[1].number}
    else:
        cut = Fault(FaultKind.INCOMPLETE, operation="instances.aggregatedList", amount=1, code="backendError")
        fake.add_faults(cut)
    status, (told,) = reap()
    assert (status, told["ended"]) == (500, [f"zones/{ZONE}/instances/here"])
    assert MISSING[missing] in told["problem"]
    assert "here" not in there(fake)
    assert reap(everything=True)[0] == 500
    fake.unreachable.clear(), fake.warned.clear(), fake.hidden.clear(), fake.clear_faults()
    assert reap()[0] == 200
    assert there(fake) == {}


def test_a_vm_that_will_not_end_fails_the_call_and_is_named(fake: FakeGce, reap: Reap) -> None:
    vm(fake, "kept", 5, deletionProtection=True), vm(fake, "late", 5)
    status, (told,) = reap()
    assert status == 500
    assert set(told["failed"]) == {f"zones/{ZONE}/instances/kept"}
    assert set(there(fake)) == {"kept"}


def test_the_end_of_a_deployment_leaves_nothing_that_carries_its_label(fake: FakeGce, reap: Reap) -> None:
    """VMs whatever their end, with labels that can't be read too; then disks and addresses."""
    now, own = fake.clock.now(), {"cloud-dispatch-deployment": labels(5)["cloud-dispatch-deployment"]}
    fake.add_faults(Fault(FaultKind.LEFTOVER, code="", times=1))
    vm(fake, "early", now + 3_600_000), vm(fake, "other", now + 3_600_000, "other")
    made(fake, "odd", own)
    fake.hold_address("held", labels=own), fake.hold_address("theirs")
    status, (told,) = reap(everything=True)
    assert (status, told["ended"]) == (200, [])
    assert set(there(fake)) == {"other"}
    assert fake.leftovers() == ["address us-central1 theirs"]


def test_the_end_of_a_deployment_says_so_when_it_does_not_come(
    fake: FakeGce, reap: Reap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then Terraform must not take the network away."""
    monkeypatch.setenv("TIMEOUT_S", "0.3")
    vm(fake, "kept", fake.clock.now() + 3_600_000, deletionProtection=True)
    status, (told,) = reap(everything=True)
    assert (status, list(told["failed"])) == (500, [f"zones/{ZONE}/instances/kept"])


@pytest.mark.parametrize("right", ["compute.instances.list", "compute.instances.delete"])
def test_a_right_that_is_missing_fails_the_call(fake: FakeGce, reap: Reap, right: str) -> None:
    """So that the alarm of the function is heard."""
    vm(fake, "late", 5)
    fake.denied.add(right)
    status, told = reap()
    assert (status, right in json.dumps(told)) == (500, True)
    assert set(there(fake)) == {"late"}
