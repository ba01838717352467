"""What has become of a launch, by what its operations and its VMs say: the pure part."""

from __future__ import annotations

from cloud_dispatch.domain.ids import ProfileName, VmId, instance_id
from cloud_dispatch.provider.errors import CapacityUnavailable
from cloud_dispatch.provider.spi import LaunchResult, Vm, VmState
from cloud_dispatch_gcp import pending
from cloud_dispatch_gcp.pending import Told
from tests.providers.gcp.scenes import BATCH, NOW_MS, TAGS, ZONE, offering

SLOT = instance_id(BATCH, 0)
OPERATION = pending.operation(BATCH, offering(), {SLOT: "operation-1"})
FULL = CapacityUnavailable("the zone has none", code="ZONE_RESOURCE_POOL_EXHAUSTED")


def found(state: VmState | None, told: Told | None) -> LaunchResult:
    """The answer where the list shows a VM in `state`, or none."""
    vm = Vm(VmId(f"{ZONE}/{SLOT}"), state or VmState.GONE, "n2-standard-2", ZONE, TAGS, NOW_MS)
    there = {} if state is None else {SLOT: vm}
    known = {} if told is None else {"operation-1": told}
    return pending.answer(OPERATION, pending.read(OPERATION, ProfileName("gcp")), known, there)


def test_a_vm_that_ends_because_its_operation_failed_is_no_launch() -> None:
    """Google shows such a VM for a moment. Told as made, the offering would count as one that launches, and why it has
    none as never said. What is told once the VM is gone settles it."""
    failed = Told(done=True, error=FULL)
    ending = found(VmState.STOPPING, failed)
    assert ([*ending.vms], ending.shortfall, ending.pending) == ([], None, (OPERATION,))
    gone = found(None, failed)
    assert ([*gone.vms], gone.shortfall, gone.pending) == ([], FULL, ())


def test_who_is_asked_for_by_name_is_what_no_list_shows_though_its_operation_has_ended() -> None:
    """Or was forgotten: a list may be late, and without the VM it would be told as made and gone again."""
    asked = pending.read(OPERATION, ProfileName("gcp"))
    vm = Vm(VmId(f"{ZONE}/{SLOT}"), VmState.RUNNING, "n2-standard-2", ZONE, TAGS, NOW_MS)
    done = Told(done=True)
    for told, there, wanted in (
        (done, {}, [SLOT]), (None, {}, [SLOT]), (Told(done=False), {}, []), (done, {SLOT: vm}, []),
    ):  # fmt: skip
        assert pending.unseen(asked, {"operation-1": told} if told else {}, there) == wanted


def test_a_vm_that_is_there_is_the_answer_whatever_its_operation_says() -> None:
    """One that ends for a reason of its own, as those that are taken back, was launched."""
    for state, told in (
        (VmState.RUNNING, Told(done=True, error=FULL)), (VmState.STOPPING, Told(done=True)), (VmState.STOPPING, None),
        (VmState.STOPPED, Told(done=True)),
    ):  # fmt: skip
        answer = found(state, told)
        assert ([vm.state for vm in answer.vms], answer.shortfall, answer.pending) == ([state], None, ())
