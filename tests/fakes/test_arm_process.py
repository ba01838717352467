"""The fake Azure as a process of its own, with its back door."""

from __future__ import annotations

import pytest
from azure.identity import ClientSecretCredential
from azure.mgmt.compute import ComputeManagementClient

from tests.fakes.arm.settings import CLIENT, GROUP, SECRET, SUBSCRIPTION, TENANT
from tests.fakes.arm_asking import begin, body, names, refusal
from tests.fakes.control import NUMBER, running


@pytest.mark.process
def test_it_serves_and_is_told_what_to_do() -> None:
    with running("tests.fakes.arm", "--settings", '{"starting_ms": 1}') as fake:
        places = fake.do("places")
        sure = {"connection_verify": places["ca_file"], "retry_total": 0}
        with (
            ClientSecretCredential(
                TENANT, CLIENT, SECRET, authority=places["url"], disable_instance_discovery=True, **sure
            ) as credential,
            ComputeManagementClient(
                credential, SUBSCRIPTION, base_url=places["url"], polling_interval=0, **sure
            ) as compute,
        ):
            begin(compute, "a", tags={"one": "1"}).result()
            assert names(compute) == [vm["name"] for vm in fake.do("inventory")] == ["a"]
            fake.do("faults", faults=[{"kind": "error", "operation": "VirtualMachines_ListAll", "code": "ServerBusy"}])
            assert refusal(names, compute) == (503, "ServerBusy")
            fake.do("revoke")
            fake.do("clear-faults")
            assert names(compute) == ["a"]
        assert fake.do("problems") == {"unmodelled": [], "bugs": []}
        assert fake.do("leftovers") == []
        assert fake.do("calls")["VirtualMachines_CreateOrUpdate"] == 1


@pytest.mark.process
def test_it_is_filled_by_one_request_many_times() -> None:
    """Numbers go into names; what the fake refuses is told, and nothing is passed over."""
    target = (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachines/"
        f"vm-{NUMBER}?api-version=2026-04-01"
    )
    wanted = body(tags={"number": NUMBER})
    with running("tests.fakes.arm") as fake:
        assert fake.do("fill", method="PUT", target=target, body=wanted, first=7, count=3) == 3
        assert {vm["name"]: vm["tags"] for vm in fake.do("inventory")} == {
            f"vm-{number}": {"number": str(number)} for number in (7, 8, 9)
        }
        with pytest.raises(RuntimeError, match=r"number 0 was refused: .*LocationNotAvailable"):
            fake.do("fill", method="PUT", target=target, body={**wanted, "location": "moon"}, count=1)
