"""The reaper of an Azure subscription as its function's host runs it: its entry point, the function's identity, and a
fake ARM over TLS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.sign import KEY, read
from cloud_dispatch.domain.tags import ENDS_AT, VmTags
from cloud_dispatch.provider.spi import ProfileContext
from cloud_dispatch.reapers import azure
from cloud_dispatch.reapers.rounds import Partial, Unfinished
from cloud_dispatch_azure.driver import AzureProvider
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.gateway import IDENTITY
from tests.fakes.arm.reaper import own_identity
from tests.fakes.arm.records import Phase
from tests.fakes.arm.routes import Session
from tests.fakes.arm.settings import GROUP, Settings
from tests.fakes.faults import Fault, FaultKind
from tests.providers.azure import scenes
from tests.providers.azure.steps import settled
from tests.terraform.rendering import MODULES

#: What the module of Terraform lets it do.
RIGHTS: set[str] = set(json.loads((MODULES / "azure" / "policies" / "reaper.json").read_text()))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeArm]:
    with FakeArm(Settings(page=2)) as made:
        for name, value in {**made.environment(), **made.function_environment(), "DEPLOYMENT": "lab"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("cloud_dispatch.reapers.rounds.PAUSE_S", 0.05)
        yield made


def made(fake: FakeArm, folder: Path, **wanted: int | str) -> dict[str, str]:
    """VMs as the driver makes them, by name: an end, or the name of another deployment for one that is past its."""
    names = {name: InstanceId(f"b{number:011d}-0") for number, name in enumerate(wanted)}

    async def launch() -> None:
        places = {"endpoint_url": fake.url, "authority_url": fake.url, "prices_url": fake.prices_url}
        said = scenes.settings(**places, ca_file=fake.ca_file, consistency="0s", public_address=True, scratch=["8GiB"])
        driver = AzureProvider(ProfileContext(ProfileName("azure"), said, folder, now=fake.clock.now))
        for name, told in wanted.items():
            deployment, ends_ms = (told, 5) if isinstance(told, str) else ("lab", told)
            batch = BatchId(names[name].partition("-")[0])
            worn = VmTags(deployment, "store", PoolName("p"), batch, 5, ends_ms).encode()
            asked = replace(scenes.request(), batch=batch, instances=(names[name],), tags=worn)
            await settled(driver, await driver.launch(asked))
        await driver.close()

    asyncio.run(launch())
    return dict(names)


def living(fake: FakeArm) -> set[str]:
    return {vm.name for vm in fake.all_vms() if vm.phase is not Phase.DELETING}


def test_a_call_deletes_what_is_past_its_end_with_all_that_is_its(fake: FakeArm, tmp_path: Path) -> None:
    """On whichever page it is listed; what is not past its end or not the deployment's stays."""
    later = fake.clock.now() + 3_600_000
    vms = made(fake, tmp_path, late=5, early=later, endless=0, other="plant", last=5)
    azure.main(object())
    assert living(fake) == {vms[name] for name in ("early", "endless", "other")}
    azure.main(object())
    while len(fake.all_vms()) > 3:
        fake.tick()
    assert fake.leftovers() == []
    assert fake.calls["VirtualMachines_Delete"] == 2  # one that is being deleted is not deleted again


def test_its_role_has_the_rights_that_it_uses_and_no_other(
    fake: FakeArm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vms = made(fake, tmp_path, late=5)
    asked: set[str] = set()
    permit = Session.permit

    def noted(session: Session, action: str, linked: str = "") -> None:
        asked.add(action)
        permit(session, action, linked)

    monkeypatch.setattr(Session, "permit", noted)
    (told,) = azure.handler({})
    assert (told["place"], told["ended"]) == (GROUP, [vms["late"]])
    assert asked == RIGHTS


def test_a_round_leaves_its_sign_in_a_tag_of_its_identity(
    fake: FakeArm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside those that are there, by the one right that it has on it; without that the round fails, once all is
    ended."""
    reaper = own_identity(fake)
    monkeypatch.setenv("SIGN", reaper.id)
    began = fake.clock.now()
    azure.main(object())
    sign = read(reaper.tags[KEY])
    assert sign is not None
    assert (sign.deployment, sign.places, reaper.tags["owner"]) == ("lab", (GROUP,), "lab")
    assert began <= sign.begun_ms <= fake.clock.now()
    vms = made(fake, tmp_path, late=5)
    (right,) = json.loads((MODULES / "azure" / "policies" / "sign.json").read_text())
    fake.denied.add(right)
    with pytest.raises(Unfinished, match=right):
        azure.main(object())
    assert vms["late"] not in living(fake)


@pytest.mark.parametrize("right", sorted(RIGHTS))
def test_a_right_that_is_missing_fails_the_call(fake: FakeArm, tmp_path: Path, right: str) -> None:
    """So that the alarm of the function is heard, and its log says which right it is. Those on what goes with a VM are
    asked for, too: nothing says that Azure does without them."""
    vms = made(fake, tmp_path, late=5)
    fake.denied.add(right)
    with pytest.raises(Unfinished, match=right):
        azure.main(object())
    assert living(fake) == set(vms.values())


def test_one_that_can_not_be_deleted_keeps_no_other_from_its_end(fake: FakeArm, tmp_path: Path) -> None:
    vms = made(fake, tmp_path, locked=5, late=5)
    fake.lock_scope(fake.vm(vms["locked"]).id)
    with pytest.raises(Unfinished, match=f"{vms['locked']}.*ScopeLocked"):
        azure.main(object())
    assert living(fake) == {vms["locked"]}


def test_who_is_told_to_come_later_comes_later_and_not_when_there_is_no_time(fake: FakeArm, tmp_path: Path) -> None:
    """ARM's word for how much later is heeded."""
    vms = made(fake, tmp_path, one=5, two=5)
    slept: list[float] = []
    told = fake.function_environment()
    bearer = azure.token(told["IDENTITY_ENDPOINT"], told["IDENTITY_HEADER"], told["CLIENT"])
    busy = {"code": "TooManyRequests", "retry_after_ms": 3_000}
    for operation in ("VirtualMachines_List", "VirtualMachines_Delete"):
        fake.add_faults(Fault(FaultKind.ERROR, operation=operation, times=1, **busy))
    arm = azure.Arm(told["ARM"], told["GROUP"], bearer, lambda: 100.0, slept.append)
    assert {vm for vm, _ in arm.vms()} == set(vms.values())
    assert arm.end(list(dict(arm.vms()))) == {}
    assert slept == [3.0, 3.0]
    assert living(fake) == set()
    fake.add_faults(Fault(FaultKind.ERROR, operation="VirtualMachines_List", times=1, **busy))
    hurried = azure.Arm(told["ARM"], told["GROUP"], bearer, lambda: 5.0, slept.append)
    with pytest.raises(Partial, match="429"):
        list(hurried.vms())
    assert len(slept) == 2


def test_what_could_be_seen_is_ended_where_a_page_is_missing(fake: FakeArm, tmp_path: Path) -> None:
    """And the call has failed: there may be more."""
    vms = made(fake, tmp_path, one=5, two=5, three=5)
    broken = {"times": 1, "amount": 1, "code": "InternalServerError"}
    fake.add_faults(Fault(FaultKind.INCOMPLETE, operation="VirtualMachines_List", **broken))
    with pytest.raises(Unfinished, match="InternalServerError"):
        azure.main(object())
    assert living(fake) == {vms["three"]}
    azure.main(object())
    assert living(fake) == set()


def test_an_answer_that_does_not_come_is_a_vm_that_is_left(fake: FakeArm, tmp_path: Path) -> None:
    """It may have been deleted: the next round sees."""
    made(fake, tmp_path, late=5)
    fake.add_faults(Fault(FaultKind.LOST_ANSWER, operation="VirtualMachines_Delete", times=1))
    with pytest.raises(Unfinished, match="failed"):
        azure.main(object())
    assert living(fake) == set()
    azure.main(object())


def test_everything_of_the_deployment_is_ended_and_waited_for(fake: FakeArm, tmp_path: Path) -> None:
    """Also what is not past its end, or does not say it."""
    later = fake.clock.now() + 3_600_000
    vms = made(fake, tmp_path, late=5, early=later, other="plant")
    fake.estate.retag(fake.vm(vms["late"]), {**fake.vm(vms["late"]).tags.true, ENDS_AT: "soon"})
    azure.handler({"everything": True})
    assert {vm.name for vm in fake.all_vms()} == {vms["other"]}


def test_an_identity_that_is_not_the_functions_gets_no_token(fake: FakeArm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that it has not, nor without what its host gives it; and nothing is asked of ARM then."""
    for name, value in {"CLIENT": "00000000-0000-4000-8000-000000000000", "IDENTITY_HEADER": "guessed"}.items():
        with monkeypatch.context() as wrong:
            wrong.setenv(name, value)
            with pytest.raises(azure.Refused, match="no token"):
                azure.main(object())
    assert fake.calls[IDENTITY] == 2
    assert fake.calls["VirtualMachines_List"] == 0


def test_nothing_is_ended_of_whoever_it_is(fake: FakeArm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that was left empty ends nobody's VMs."""
    vms = made(fake, tmp_path, late=5)
    monkeypatch.setenv("DEPLOYMENT", "")
    with pytest.raises(Unfinished, match="DEPLOYMENT"):
        azure.main(object())
    assert living(fake) == set(vms.values())
