"""Instances as they are asked for, and as they are listed."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from google.cloud import compute_v1

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.labels import to_tags
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.spi import LeftoverKind, VmState
from cloud_dispatch_gcp import labels, machines, translate
from cloud_dispatch_gcp.driver import traits
from tests.providers.gcp import scenes

IMAGE = "projects/ubuntu-os-cloud/global/images/ubuntu-1"
DAY_MS = 86_400_000


def made(market: Market = Market.ON_DEMAND, type_name: str = "n2-standard-2", ends_ms: int = -1, **more: Any) -> Any:
    request = scenes.request(offering=scenes.offering(type_name, market))
    if ends_ms >= 0:
        request = replace(request, ends_ms=ends_ms)
    slot = request.instances[0]
    return translate.instance(request, slot, scenes.settings(**more), b"#cloud-config\n", IMAGE, scenes.NOW_MS)


def test_a_vm_is_asked_for_with_all_that_makes_it_ours() -> None:
    vm = made()
    assert vm.name == f"{scenes.BATCH}-0"
    assert vm.machine_type == f"zones/{scenes.ZONE}/machineTypes/n2-standard-2"
    assert to_tags(vm.labels) == scenes.TAGS
    assert to_tags(vm.disks[0].initialize_params.labels) == scenes.TAGS
    told = {one.key: one.value for one in vm.metadata.items}
    assert told == {"user-data": base64.b64encode(b"#cloud-config\n").decode(), "user-data-encoding": "base64"}
    assert vm.disks[0].auto_delete
    assert vm.disks[0].initialize_params.source_image == IMAGE
    assert not vm.service_accounts


@pytest.mark.parametrize("market", list(Market), ids=str)
def test_every_vm_has_a_hard_end_that_deletes(market: Market) -> None:
    """Fixed at its creation, whatever its market; and it never starts again by itself."""
    scheduling = made(market).scheduling
    assert scheduling.max_run_duration.seconds == 3600
    assert scheduling.instance_termination_action == "DELETE"
    assert scheduling.automatic_restart is False
    assert scheduling.provisioning_model == ("SPOT" if market is Market.SPOT else "STANDARD")


@pytest.mark.parametrize(
    ("ends_ms", "seconds"),
    [(1, 30), (29_999, 30), (60_999, 60), (200 * DAY_MS, 120 * 86_400)],
)
def test_an_end_is_within_what_google_takes(ends_ms: int, seconds: int) -> None:
    """Never later than asked, but for the least of half a minute."""
    assert translate.run_seconds(scenes.NOW_MS + ends_ms, scenes.NOW_MS) == seconds


def test_without_an_end_there_is_none() -> None:
    assert "max_run_duration" not in made(ends_ms=0).scheduling
    assert made(Market.SPOT, ends_ms=0).scheduling.instance_termination_action == "DELETE"


@pytest.mark.parametrize(
    ("type_name", "market", "action"),
    [
        ("n2-standard-2", Market.ON_DEMAND, "MIGRATE"),
        ("n2-standard-2", Market.SPOT, "TERMINATE"),
        ("g2-standard-4", Market.ON_DEMAND, "TERMINATE"),
    ],
)
def test_what_can_not_be_moved_ends_at_a_maintenance(type_name: str, market: Market, action: str) -> None:
    assert made(market, type_name).scheduling.on_host_maintenance == action


@pytest.mark.parametrize(
    ("type_name", "disk"),
    [("n2-standard-2", "pd-balanced"), ("c3-standard-4", "pd-balanced"), ("c4a-standard-1", "hyperdisk-balanced")],
)
def test_the_boot_disk_is_of_a_type_that_the_machine_takes(type_name: str, disk: str) -> None:
    assert made(type_name=type_name).disks[0].initialize_params.disk_type == f"zones/{scenes.ZONE}/diskTypes/{disk}"
    assert made(type_name=type_name, disk_type="pd-ssd").disks[0].initialize_params.disk_type.endswith("/pd-ssd")


def test_arm_machines_of_the_first_series_have_no_shield() -> None:
    assert made().shielded_instance_config.enable_secure_boot
    assert "shielded_instance_config" not in made(type_name="t2a-standard-1")
    assert "shielded_instance_config" not in made(shielded=False)


def test_a_subnet_of_another_project_is_named_whole() -> None:
    whole = "projects/host-project/regions/us-central1/subnetworks/workers"
    assert made(subnets={"us-central1": whole}).network_interfaces[0].subnetwork == whole
    short = made(subnets={"us-central1": "workers"}).network_interfaces[0]
    assert (short.subnetwork, short.network) == ("regions/us-central1/subnetworks/workers", "")


def listed(**more: Any) -> Any:
    base = {
        "name": f"{scenes.BATCH}-3", "zone": f"https://www.googleapis.com/compute/v1/projects/p/zones/{scenes.ZONE}",
        "machine_type": f"https://www.googleapis.com/compute/v1/projects/p/zones/{scenes.ZONE}/machineTypes/n2-standard-2",
        "labels": labels.of_tags(scenes.TAGS), "creation_timestamp": "2026-11-22T04:00:00.000-08:00", "id": 42,
        "status": "RUNNING", "scheduling": {"provisioning_model": "SPOT"},
        "network_interfaces": [{"network_i_p": "10.0.0.4", "access_configs": [{"nat_i_p": "34.1.1.1"}]}],
    }  # fmt: skip
    return compute_v1.Instance.pb(compute_v1.Instance({**base, **more}))


def test_a_vm_as_it_is_listed() -> None:
    vm = translate.vm(listed())
    assert (vm.id, vm.slot, vm.zone, vm.type) == (f"{scenes.ZONE}/{scenes.BATCH}-3", 3, scenes.ZONE, "n2-standard-2")
    assert (vm.state, vm.spot, vm.address, vm.preempted) == (VmState.RUNNING, True, "10.0.0.4", False)
    assert vm.created_ms == 1_795_348_800_000
    assert dict(vm.tags) == scenes.TAGS
    assert translate.vm(listed(), frozenset({42})).preempted


@pytest.mark.parametrize("status", [one.name for one in compute_v1.Instance.Status if one.name != "UNDEFINED_STATUS"])
def test_every_status_is_a_state(status: str) -> None:
    """A stopped VM may still cost its disk: it is not gone."""
    state = translate.vm(listed(status=status)).state
    assert state is not VmState.GONE
    assert (state is VmState.STOPPED) == (status in ("TERMINATED", "STOPPED", "SUSPENDED"))


def test_a_strange_name_has_no_slot() -> None:
    assert translate.vm(listed(name="somebody-s")).slot == -1


@pytest.mark.parametrize("vm", ["", "x", "/x", "x/", "a/b/c"])
def test_what_is_no_id_is_none(vm: str) -> None:
    assert translate.place_of(VmId(vm)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 0, "instances": ()},
        {"min_slots": 2},
        {"instances": ()},
        {"tags": {"a.b": "x"}},
    ],
    ids=str,
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    settings = scenes.settings()
    with pytest.raises(InvalidRequest):
        translate.check(scenes.request(**wrong), b"", traits(settings))


def test_a_launch_larger_than_the_traits_say_is_refused() -> None:
    said = scenes.settings(launches_per_s=3)
    translate.check(scenes.request(3), b"", traits(said))
    with pytest.raises(InvalidRequest, match="4 VMs in one launch"):
        translate.check(scenes.request(4), b"", traits(said))


@pytest.mark.parametrize(
    ("offering", "more"),
    [
        (scenes.offering("m3-megamem-64"), {}),
        (scenes.offering(zone="europe-west1-b"), {}),
        (scenes.offering(zone="us-central1-b"), {"zones": ["us-central1-a"]}),
        (scenes.offering(market=Market.SPOT), {"spot": False}),
    ],
)
def test_what_the_profile_does_not_rent_is_refused(offering: Any, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        translate.check_offering(offering, scenes.settings(**more))


def test_leftovers_say_where_they_are() -> None:
    disk = compute_v1.Disk(name="b1-0", zone="x/zones/us-central1-a", labels=labels.of_tags(scenes.TAGS))
    found = translate.disk(compute_v1.Disk.pb(disk))
    assert (found.id, found.kind, dict(found.tags)) == ("us-central1-a/b1-0", LeftoverKind.DISK, scenes.TAGS)
    address = compute_v1.Address(name="held", region="x/regions/us-central1")
    assert translate.address(compute_v1.Address.pb(address)).id == "us-central1/held"


@pytest.mark.parametrize(
    ("name", "family", "quota", "architecture"),
    [
        ("n2-standard-2", "n2", "N2_CPUS", "x86_64"),
        ("e2-medium", "e2", "CPUS", "x86_64"),
        ("c4a-standard-4", "c4a", "C4A_CPUS", "arm64"),
        ("n4-custom-4-16384", "n4", "N4_CPUS", "x86_64"),
        ("g1-small", "g1", "CPUS", "x86_64"),
        ("t2a-standard-1", "t2a", "T2A_CPUS", "arm64"),
        ("custom-2-4096", "n1", "CPUS", "x86_64"),
        ("n2d-custom-4-16384-ext", "n2d", "N2D_CPUS", "x86_64"),
    ],
)
def test_what_a_name_says(name: str, family: str, quota: str, architecture: str) -> None:
    found = machines.family_of(name), machines.quota_of(name), machines.architecture_of(name)
    assert found == (family, quota, architecture)


def test_tasks_get_the_local_disks() -> None:
    assert translate.disk_bytes(scenes.settings(local_ssds=2)) == 750 * GIB
    assert translate.disk_bytes(scenes.settings()) == 30 * GIB


@pytest.mark.parametrize("account", ["", scenes.ACCOUNT])
def test_as_many_vms_a_second_are_asked_for_as_the_profile_says(account: str) -> None:
    """Of any number that it may say: never more, and less by a rounding at most."""
    for wanted in range(1, 1_001):
        said = traits(scenes.settings(service_account=account, launches_per_s=wanted))
        pace = said.pace("launch")
        assert 0.95 * wanted <= pace.per_s * said.most_slots <= wanted
        assert pace.burst * said.most_slots <= 15 * wanted


@pytest.mark.parametrize(("account", "batch", "a_second"), [("", 1, 20), (scenes.ACCOUNT, 20, 1)])
def test_launches_are_paced_by_their_vms(account: str, batch: int, a_second: int) -> None:
    """Twenty VMs a second: as single launches, or as one of twenty. A first minute has 1,500."""
    said = traits(scenes.settings(service_account=account))
    assert said.most_slots == batch
    pace = said.pace("launch")
    assert pace.per_s == a_second
    assert (pace.burst + 60 * pace.per_s) * batch == 1_500
    assert said.vm_id(scenes.request().instances[0], scenes.ZONE) == f"{scenes.ZONE}/{scenes.BATCH}-0"
