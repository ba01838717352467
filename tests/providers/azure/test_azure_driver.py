"""What the Azure driver does beyond the suite, on the fake: addresses, guests that shut down, tokens, guards."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from azure.core.exceptions import ResourceNotFoundError

from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.provider.errors import (
    CredentialsRejected,
    InvalidRequest,
    NotProven,
    Transient,
)
from cloud_dispatch.provider.spi import (
    Challenge,
    HardEnd,
    Identity,
    Leftover,
    LeftoverKind,
    Level,
    VmState,
)
from cloud_dispatch_azure import paths
from cloud_dispatch_azure.calls import same_place
from cloud_dispatch_azure.driver import traits
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.settings import IDENTITY_CLIENT, TENANT
from tests.fakes.faults import Fault, FaultKind
from tests.providers.azure import scenes
from tests.providers.azure.steps import VM, Connect, clean, gone, launched, until


async def test_a_guest_that_shuts_itself_down_is_stopped_and_can_be_ended(fake: FakeArm, connect: Connect) -> None:
    """It bills on, so that a listing shows it: the dispatcher deletes what is stopped."""
    driver = connect()
    await launched(driver)
    fake.guest_shutdown(VM)
    (found,) = (await driver.list("contract")).vms
    assert (found.id, found.state, found.preempted) == (VM, VmState.STOPPED, False)
    assert "shut down" in found.why
    assert [vm.name for vm in fake.billed()] == [VM]
    await driver.terminate(VM)
    await until(lambda: gone(driver))
    assert fake.leftovers() == []


async def test_an_address_goes_with_its_vm(fake: FakeArm, connect: Connect) -> None:
    driver = connect(public_address=True)
    await launched(driver)
    assert fake.calls["PublicIPAddresses_CreateOrUpdate"] == 1
    await driver.terminate(VM)
    await until(lambda: gone(driver))
    assert fake.leftovers() == []


async def test_an_address_that_is_left_is_found_and_deleted(fake: FakeArm, connect: Connect) -> None:
    driver = connect(public_address=True)
    await launched(driver)
    fake.add_faults(Fault(FaultKind.LEFTOVER, code="public-address", times=1))
    await driver.terminate(VM)
    await until(lambda: gone(driver))
    (found,) = await driver.leftovers("contract")
    assert (found.kind, found.id) == (LeftoverKind.ADDRESS, "b1-0-ip")
    await driver.delete_leftover(found)
    await until(lambda: clean(driver))
    await driver.delete_leftover(found)


async def test_an_interface_that_is_left_goes_before_its_address(fake: FakeArm, connect: Connect) -> None:
    """The address on it can't go first: it is a leftover once the interface is gone."""
    driver = connect(public_address=True)
    await launched(driver)
    fake.add_faults(Fault(FaultKind.LEFTOVER, code="network-interface", times=1))
    await driver.terminate(VM)
    await until(lambda: gone(driver))
    (interface,) = await driver.leftovers("contract")
    assert interface.kind is LeftoverKind.NIC
    await driver.delete_leftover(interface)

    async def then_the_address() -> bool:
        return [one.kind for one in await driver.leftovers("contract")] == [LeftoverKind.ADDRESS]

    await until(then_the_address)
    await driver.delete_leftover((await driver.leftovers("contract"))[0])
    await until(lambda: clean(driver))
    assert fake.leftovers() == []


async def test_what_a_vm_has_is_no_leftover_and_is_not_deleted(connect: Connect) -> None:
    driver = connect()
    await launched(driver)
    with pytest.raises(InvalidRequest):
        await driver.delete_leftover(Leftover("b1-0-nic", LeftoverKind.NIC, scenes.ZONE, {}))


def test_listings_are_asked_for_as_the_sdk_asks_for_them(fake: FakeArm) -> None:
    """Of the same places, in the same version: what is listed looks like what is got."""
    asked: list[str] = []

    def heard(request: Any) -> None:
        asked.append(request.http_request.url)

    def parsed(url: str) -> tuple[str, list[tuple[str, str]]]:
        split = urlsplit(url)
        return split.path, sorted(parse_qsl(split.query))

    group, settings = fake.settings.groups[0], scenes.settings()
    compute, network = fake.compute(), fake.network()
    list(compute.virtual_machines.list(group, raw_request_hook=heard))
    list(compute.virtual_machines.list_all(status_only="true", raw_request_hook=heard))
    list(compute.disks.list_by_resource_group(group, raw_request_hook=heard))
    list(network.network_interfaces.list(group, raw_request_hook=heard))
    list(network.public_ip_addresses.list(group, raw_request_hook=heard))
    with contextlib.suppress(ResourceNotFoundError):
        compute.gallery_images.get(group, "shared", "batch", raw_request_hook=heard)
    gallery = f"{paths.group(settings)}/providers/Microsoft.Compute/galleries/shared/images/batch"
    ours = [
        paths.machines(settings),
        paths.states(settings),
        *(paths.parts(settings, kind) for kind in LeftoverKind),
        paths.definition(gallery),
    ]
    assert [parsed(url) for url in asked] == [parsed(path) for path in ours]


async def test_each_place_of_credentials_is_looked_at(
    fake: FakeArm, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the environment is, before anything else; the identity of the machine where the profile says so."""
    await connect(credential="default").list("contract")
    for name in ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", fake.identity_url)
    await connect(credential="managed").list("contract")
    assert fake.calls["ManagedIdentity"] == 1
    await connect(credential="managed", client=IDENTITY_CLIENT).list("contract")
    with pytest.raises(CredentialsRejected):
        await connect(credential="managed", client="0" * 8 + IDENTITY_CLIENT[8:]).list("contract")
    for without in ("environment", "workload"):
        with pytest.raises(CredentialsRejected):
            await connect(credential=without).list("contract")


@pytest.mark.parametrize("credential", ["default", "environment"])
async def test_tokens_are_asked_of_the_tenant_of_the_profile(
    fake: FakeArm, connect: Connect, monkeypatch: pytest.MonkeyPatch, credential: str
) -> None:
    """Whatever tenant the environment names."""
    other = "0" * 8 + TENANT[8:]
    with pytest.raises(CredentialsRejected):
        await connect(credential=credential, tenant=other).list("contract")
    monkeypatch.setenv("AZURE_TENANT_ID", other)
    assert (await connect(credential=credential, tenant=TENANT).list("contract")).complete


def test_a_place_is_the_same_however_it_is_spelled() -> None:
    """A token goes to that place alone, and over TLS."""
    arm = "https://management.azure.com"
    for same in (f"{arm}/x?y", "https://MANAGEMENT.azure.com/x", f"{arm}:443/x"):
        assert same_place(same, arm)
    for other in (
        "http://management.azure.com/x", f"{arm}:8443/x", f"{arm}.example/x", "https://example/management.azure.com",
        "https://management.azure.com@example/x", "/x", "", f"{arm}:port/x", "https://[x",
    ):  # fmt: skip
        assert not same_place(other, arm)


async def test_tags_of_somebody_else_stay(fake: FakeArm, connect: Connect) -> None:
    """Azure replaces all tags: those that were there are written again, an operator's too."""
    driver = connect(tags={"team": "batch"}, reaper=True)
    await launched(driver)
    assert await driver.extend([VM], scenes.NOW_MS + 1) == frozenset()
    tags = fake.vm(VM).tags.true
    assert tags["team"] == "batch"
    assert tags[ENDS_AT] == str(scenes.NOW_MS + 1)
    assert (await driver.get(VM)).tags == {**scenes.TAGS, ENDS_AT: str(scenes.NOW_MS + 1)}


async def test_another_region_of_the_group_is_another_profile(fake: FakeArm, connect: Connect) -> None:
    driver = connect()
    await launched(driver)
    elsewhere = connect(region="northeurope")
    assert (await elsewhere.list("contract")).vms == ()


async def test_a_proof_names_the_vm_by_its_name(fake: FakeArm, connect: Connect) -> None:
    """The document has Azure's own id; a driver that never saw it looks once, and a stranger's many ask no more."""
    await launched(connect())
    driver = connect(identity_certificates=scenes.trusted())
    challenge = Challenge(scenes.request().batch, since_ms=0)
    now = fake.clock.now()

    def proof(vm_id: str) -> str:
        return scenes.proof(scenes.document(vm_id, challenge.nonce, now))

    assert await driver.identify(proof(fake.vm(VM).vm_id), challenge) == VM
    asked = fake.calls["VirtualMachines_List"]
    for number in range(5):
        with pytest.raises(NotProven):
            await driver.identify(proof(f"no-such-{number}"), challenge)
    assert fake.calls["VirtualMachines_List"] <= asked + 1


async def test_a_listing_that_is_older_than_a_vm_does_not_prove_that_there_is_none(
    fake: FakeArm, connect: Connect
) -> None:
    """While Azure refuses to list, what it listed before says nothing of a VM that came since."""
    ahead_ms = 0
    driver = connect(now=lambda: fake.clock.now() + ahead_ms, identity_certificates=scenes.trusted())
    challenge = Challenge(scenes.request().batch, since_ms=0)
    document = scenes.document("no-such", challenge.nonce, fake.clock.now())
    with pytest.raises(NotProven):
        await driver.identify(scenes.proof(document), challenge)
    await launched(connect())
    proof = scenes.proof(scenes.document(fake.vm(VM).vm_id, challenge.nonce, fake.clock.now() + 5_000))
    ahead_ms = 10_000
    fake.add_faults(Fault(FaultKind.ERROR, operation="VirtualMachines_List", code="TooManyRequests", times=1))
    with pytest.raises(Transient):
        await driver.identify(proof, challenge)
    ahead_ms = 100_000
    assert await driver.identify(proof, challenge) == VM


async def test_a_vm_that_azure_does_not_list_yet_may_ask_again(fake: FakeArm, connect: Connect) -> None:
    """For as long as lists may be late, by its document's time: a launch may be long over when its VM asks."""
    ahead_ms = 0
    driver = connect(
        now=lambda: fake.clock.now() + ahead_ms, identity_certificates=scenes.trusted(), consistency="1m"
    )  # fmt: skip
    await launched(connect())
    fake.hide(VM, 3_600_000)
    challenge = Challenge(scenes.request().batch, since_ms=fake.clock.now() - 300_000)
    proof = scenes.proof(scenes.document(fake.vm(VM).vm_id, challenge.nonce, fake.clock.now()))
    with pytest.raises(Transient):
        await driver.identify(proof, challenge)
    ahead_ms = 30_000
    with pytest.raises(Transient):
        await driver.identify(proof, challenge)
    ahead_ms = 70_000
    with pytest.raises(NotProven):
        await driver.identify(proof, challenge)


async def test_a_preflight_names_what_is_missing(fake: FakeArm, connect: Connect) -> None:
    fake.denied.add("Microsoft.Compute/disks/delete")
    found = await connect(subnet=scenes.SUBNET + "x").preflight("contract")
    wrong = {one.about: one.text for one in found if one.level is Level.ERROR}
    assert set(wrong) == {"rights", "subnet"}
    assert "Microsoft.Compute/disks/delete" in wrong["rights"]
    loud = [one for one in found if one.about == "reaper"]
    assert loud
    assert "no ceiling" in loud[0].text
    (quiet,) = [one for one in await connect(reaper=True).preflight("contract") if one.about == "reaper"]
    assert "no ceiling" not in quiet.text


async def test_a_preflight_names_the_rights_that_it_cannot_see(connect: Connect) -> None:
    """Those on what is used outside of the group; what looking has tried is not among them."""
    plain, more = connect(), connect(security_group=f"{scenes.SUBNET.partition('/virtual')[0]}/networkSecurityGroups/a")
    for driver, joins in ((plain, 1), (more, 2)):
        (text,) = [
            one.text
            for one in await driver.preflight("contract")
            if (one.level, one.about) == (Level.WARNING, "rights")
        ]
        assert "Microsoft.Network/virtualNetworks/subnets/join/action" in text
        assert "Microsoft.Compute/locations/operations/read" in text
        assert text.count("/join/action") == joins
        assert "subnets/read" not in text


async def test_a_preflight_with_credentials_that_are_refused_says_that_alone(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    found = await connect().preflight("contract")
    assert [one.about for one in found if one.level is Level.ERROR] == ["credentials"]


async def test_a_console_shows_its_end(fake: FakeArm, connect: Connect) -> None:
    driver = connect()
    await launched(driver)
    fake.write_console(VM, "x" * 100_000 + "end")
    text = await driver.console(VM)
    assert len(text) == 65_536
    assert text.endswith("end")


def test_the_traits_say_what_the_settings_allow() -> None:
    plain = traits(scenes.settings())
    assert (plain.hard_end, plain.identity, plain.most_slots) == (HardEnd.NONE, Identity.NONE, 1)
    able = traits(scenes.settings(reaper=True, reaper_period="2m", identity_certificates=scenes.trusted()))
    assert (able.hard_end, able.hard_end_period_ms) == (HardEnd.EXTENDABLE, 120_000)
    assert (able.identity, able.most_slots) == (Identity.MADE_OUT, 20)
    assert able.vm_id(scenes.request().instances[0], scenes.ZONE) == VM
    assert traits(scenes.settings(spot=False)).spot_notice_ms == 0


async def test_the_certificates_of_the_profile_are_trusted_and_waits_are_bounded(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment says of others; and no call waits longer than the driver means to."""
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    driver = connect()
    assert (await driver.list("contract")).complete
    assert await driver.offerings()
    waits = driver._calls._transport().connection_config
    assert (waits.timeout, waits.read_timeout) == (5, 45)
