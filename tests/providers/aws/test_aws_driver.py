"""What the AWS driver does beyond the suite: subnets, tokens, protection, guards, what it asks for and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    CredentialsRejected,
    InDoubt,
    InvalidRequest,
    NotProven,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.kept import Kept
from cloud_dispatch.provider.sending import sent
from cloud_dispatch.provider.spi import (
    Challenge,
    HardEnd,
    Identity,
    LaunchRequest,
    Leftover,
    LeftoverKind,
    ProfileContext,
    Traits,
)
from cloud_dispatch_aws import driver, translate
from cloud_dispatch_aws.catalogue import Sold
from cloud_dispatch_aws.driver import AwsProvider, traits
from cloud_dispatch_aws.images import Images
from cloud_dispatch_aws.subnets import Subnets
from tests.providers.aws.scenes import (
    ACCOUNT,
    NOW_MS,
    TAGS,
    ZONE,
    certificate,
    document,
    offering,
    proof,
    request,
    settings,
)
from tests.providers.aws.scripted import Scripted

VM = VmId("i-0123456789abcdef0")


def image(**asked: Any) -> dict[str, Any]:
    return {"Images": [{"ImageId": asked["ImageIds"][0], "RootDeviceName": "/dev/xvda", "Architecture": "x86_64"}]}


def instance(name: str = VM, state: str = "running", tags: Mapping[str, str] = TAGS) -> dict[str, Any]:
    return {
        "InstanceId": name, "InstanceType": "m5.large", "State": {"Name": state},
        "Placement": {"AvailabilityZone": ZONE}, "Tags": translate.tag_list(tags),
    }  # fmt: skip


def described(*instances: dict[str, Any]) -> dict[str, Any]:
    return {"Reservations": [{"Instances": list(instances)}]}


async def _sold() -> tuple[Sold, ...]:
    return tuple(
        Sold(offering(name).type, frozenset({ZONE}), frozenset(Market), burstable)
        for name, burstable in (("m5.large", False), ("c5.burst", True))
    )


class Scene:
    """A driver whose answers are scripted, and a clock to be set."""

    def __init__(self, answers: Mapping[str, Any], **said: Any) -> None:
        self.now_ms = NOW_MS
        self.calls = Scripted({"describe_images": image, **answers})
        own = settings(images={"x86_64": "ami-1"}, **said)
        self.driver = AwsProvider(ProfileContext(ProfileName("aws"), own, Path(), now=lambda: self.now_ms))
        self.driver._calls = self.calls
        self.driver._images = Images(self.calls, own, lambda: self.now_ms)
        self.driver._subnets = Subnets(self.calls, own, lambda: self.now_ms)
        self.driver._catalogue._sold = Kept(_sold, 1, lambda: 0)

    def subnets(self) -> list[str]:
        """The subnets of the launches that were tried, in order."""
        return [asked["SubnetId"] for name, asked in self.calls.asked if name == "run_instances"]


def subnet(name: str, free: int, zone: str = ZONE) -> dict[str, Any]:
    return {"SubnetId": name, "AvailabilityZone": zone, "AvailableIpAddressCount": free}


SUBNETS = {"Subnets": [subnet("subnet-a", 50), subnet("subnet-b", 90), subnet("subnet-c", 99, "us-east-1b")]}
TWO = {"describe_subnets": SUBNETS, "run_instances": {"Instances": [instance()]}}
NAMES = ["subnet-a", "subnet-b", "subnet-c"]
FULL = CapacityUnavailable("no addresses", code="InsufficientFreeAddressesInSubnet")


def batch(number: int = 1, **more: Any) -> LaunchRequest:
    return replace(request(), slots=1, batch=f"b{number}", **more)  # type: ignore[arg-type]


async def test_the_subnet_that_served_serves_again_while_it_has_room() -> None:
    """The one with most free addresses first, of the zone that is asked for; then the one that served."""
    later = {"Subnets": [subnet("subnet-a", 95), subnet("subnet-b", 90)]}
    scene = Scene({**TWO, "describe_subnets": [SUBNETS, later]}, subnets=NAMES)
    for number in range(2):
        await scene.driver.launch(batch(number))
    scene.now_ms += 120_000
    await scene.driver.launch(batch(2))
    assert scene.subnets() == ["subnet-b"] * 3
    assert scene.calls.count("describe_subnets") == 2


async def test_a_full_subnet_is_left_alone_and_the_next_batch_goes_elsewhere() -> None:
    """The batch that was refused is not tried again: its token is bound to the subnet. With the last one full the zone
    has no room; after a while each is tried again."""
    scene = Scene(
        {**TWO, "run_instances": [FULL, TWO["run_instances"], FULL, FULL, TWO["run_instances"]]}, subnets=NAMES
    )
    with pytest.raises(Transient):
        await scene.driver.launch(batch(1))
    await scene.driver.launch(batch(2))
    with pytest.raises(CapacityUnavailable):
        await scene.driver.launch(batch(3))
    with pytest.raises(CapacityUnavailable):
        await scene.driver.launch(batch(4))
    scene.now_ms += 600_000
    await scene.driver.launch(batch(5))
    assert scene.subnets() == ["subnet-b", "subnet-a", "subnet-a", "subnet-b", "subnet-b"]


async def test_a_subnet_without_room_for_the_batch_is_not_chosen() -> None:
    scene = Scene(
        {**TWO, "describe_subnets": {"Subnets": [subnet("subnet-a", 3), subnet("subnet-b", 1)]}}, subnets=NAMES[:2]
    )
    scene.driver._subnets.served(ZONE, "subnet-b")
    await scene.driver.launch(replace(batch(), slots=2))
    assert scene.subnets() == ["subnet-a"]


async def test_a_zone_without_a_subnet_is_a_mistake() -> None:
    scene = Scene({**TWO, "describe_subnets": {"Subnets": [subnet("subnet-c", 9, "us-east-1b")]}}, subnets=["subnet-c"])
    with pytest.raises(InvalidRequest, match="us-east-1a"):
        await scene.driver.launch(batch())


@pytest.mark.parametrize("code", ["IdempotentParameterMismatch", "IdempotentInstanceTerminated"])
async def test_a_token_that_was_used_gives_what_was_made_with_it(code: str) -> None:
    """In other words than these, or ended by now: the batch's VMs are looked up, never made a second time."""
    used = InDoubt("used", code=code)
    scene = Scene({"run_instances": used, "describe_instances": described(instance())})
    result = await scene.driver.launch(batch())
    assert [vm.id for vm in result.vms] == [VM]
    assert result.shortfall is None
    asked = dict(scene.calls.asked)["describe_instances"]
    assert asked["Filters"] == [{"Name": "client-token", "Values": ["b1"]}]
    unseen = Scene({"run_instances": used, "describe_instances": described()})
    with pytest.raises(InDoubt):
        await unseen.driver.launch(batch())


async def test_fewer_vms_than_asked_for_say_why() -> None:
    scene = Scene({"run_instances": {"Instances": [instance()]}})
    result = await scene.driver.launch(replace(batch(), slots=3))
    assert len(result.vms) == 1
    assert isinstance(result.shortfall, CapacityUnavailable)
    assert result.shortfall.scope.covers(request().offering)


async def test_the_image_is_the_offerings_and_else_the_one_of_the_settings() -> None:
    """What was planned with is what boots, whatever a parameter names by now."""
    scene = Scene({"run_instances": {"Instances": [instance()]}})
    await scene.driver.launch(batch(offering=replace(request().offering, image="ami-2")))
    await scene.driver.launch(batch(2))
    images = [asked["ImageId"] for name, asked in scene.calls.asked if name == "run_instances"]
    assert images == ["ami-2", "ami-1"]


async def test_a_machine_that_lives_on_credits_stops_at_what_it_has_earned() -> None:
    """What it would bill above that is in no price. Other machines take no word about it."""
    scene = Scene({"run_instances": {"Instances": [instance()]}})
    await scene.driver.launch(batch(1))
    await scene.driver.launch(batch(2, offering=offering("c5.burst")))
    said = [asked.get("CreditSpecification") for name, asked in scene.calls.asked if name == "run_instances"]
    assert said == [None, {"CpuCredits": "standard"}]


async def test_an_image_that_is_gone_makes_nothing() -> None:
    scene = Scene({"describe_images": {"Images": []}})
    with pytest.raises(InvalidRequest, match="ami-1"):
        await scene.driver.launch(batch())
    assert scene.calls.count("run_instances") == 0


async def test_what_the_profile_does_not_rent_is_refused_before_anything_is_asked() -> None:
    scene = Scene({}, zones=["us-east-1a"], spot=False)
    kind = request().offering
    for wrong in (
        replace(kind, type=replace(kind.type, name="t3.large")),
        replace(kind, zone="us-east-1b"),
        replace(kind, zone="eu-west-1a"),
        replace(kind, market=Market.SPOT),
    ):
        with pytest.raises(InvalidRequest):
            await scene.driver.launch(batch(offering=wrong))
    assert scene.calls.asked == []
    anywhere = Scene({})
    with pytest.raises(InvalidRequest, match="zone"):
        await anywhere.driver.launch(batch(offering=replace(kind, zone="us-east-1-bos-1a")))
    assert anywhere.calls.asked == []


async def test_nothing_is_ever_asked_of_all_instances() -> None:
    """An empty deployment or id would speak of everything that the account has."""
    scene = Scene({})
    listing = await scene.driver.list("")
    assert (listing.vms, listing.complete) == ((), False)
    assert list(await scene.driver.leftovers("")) == []
    for vm in ("", "*", "i-", "b1-0"):
        with pytest.raises(VmNotFound):
            await scene.driver.get(VmId(vm))
        await scene.driver.terminate(VmId(vm))
        assert await scene.driver.tag([VmId(vm)], {}) == {vm}
        assert await scene.driver.console(VmId(vm)) == ""
    assert scene.calls.asked == []


async def test_a_deployment_is_asked_for_by_its_name_and_not_by_a_pattern() -> None:
    scene = Scene({"describe_instances": described()})
    await scene.driver.list("a*b?")
    asked = dict(scene.calls.asked)["describe_instances"]
    assert asked["Filters"] == [{"Name": "tag:cloud-dispatch-deployment", "Values": ["a\\*b\\?"]}]
    assert asked["MaxResults"] == 1000


async def test_a_vm_on_two_pages_is_listed_once() -> None:
    scene = Scene({"describe_instances": described(instance(), instance(state="shutting-down"))})
    (vm,) = (await scene.driver.list("contract")).vms
    assert vm.state == "stopping"


async def test_user_data_are_compressed_once_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes milliseconds of the driver's loop."""
    texts: list[str] = []

    def counted(text: str, own: Traits) -> bytes:
        texts.append(text)
        return sent(text, own)

    monkeypatch.setattr(driver, "sent", counted)
    monkeypatch.setattr(translate, "sent", counted, raising=False)
    await Scene({"run_instances": {"Instances": [instance()]}}).driver.launch(request(slots=1))
    assert len(texts) == 1


async def test_the_protection_of_a_vm_of_ours_is_lifted() -> None:
    """Whoever set it: a VM that nobody can end bills for ever."""
    kept = InvalidRequest("protected", code="OperationNotPermitted")
    scene = Scene(
        {
            "terminate_instances": [kept, {}],
            "describe_instances": described(instance()),
            "modify_instance_attribute": {},
        }
    )
    await scene.driver.list("contract")
    await scene.driver.terminate(VM)
    assert scene.calls.count("terminate_instances") == 2
    assert dict(scene.calls.asked)["modify_instance_attribute"] == {
        "InstanceId": VM, "DisableApiTermination": {"Value": False},
    }  # fmt: skip


@pytest.mark.parametrize("deployment", ["", "another"])
async def test_the_protection_of_somebody_elses_vm_stays(deployment: str) -> None:
    """Of one without our tags, and of another deployment's, which has them all."""
    kept = InvalidRequest("protected", code="OperationNotPermitted")
    worn = {**TAGS, DEPLOYMENT: deployment} if deployment else {}
    scene = Scene({"terminate_instances": kept, "describe_instances": described(instance(tags=worn))})
    await scene.driver.list("contract")
    with pytest.raises(InvalidRequest, match="protected"):
        await scene.driver.terminate(VM)
    assert scene.calls.count("modify_instance_attribute") == 0


async def test_a_hard_end_needs_the_reaper() -> None:
    """Without one the traits say that nobody keeps ends, and none is moved."""
    without, having = Scene({}), Scene({"create_tags": {}}, reaper=True)
    assert (without.driver.traits.hard_end, having.driver.traits.hard_end) == (HardEnd.NONE, HardEnd.EXTENDABLE)
    assert having.driver.traits.hard_end_period_ms == 60_000
    with pytest.raises(InvalidRequest):
        await without.driver.extend([VM], NOW_MS)
    assert await having.driver.extend([VM], NOW_MS) == frozenset()
    expected = {"Resources": [VM], "Tags": [{"Key": ENDS_AT, "Value": str(NOW_MS)}]}
    assert having.calls.asked == [("create_tags", expected)]  # nothing is asked of the VM before


MANY = [VmId(f"i-{number:017x}") for number in range(1_000)]


def without(*missing: str) -> VmNotFound:
    return VmNotFound(f"CreateTags: InvalidInstanceID.NotFound: The instance IDs '{', '.join(missing)}' do not exist")


async def test_a_thousand_vms_are_tagged_by_one_call() -> None:
    """10,000 of them are ten calls; one more in a call is refused before EC2 is asked."""
    scene = Scene({"create_tags": {}})
    assert await scene.driver.tag(MANY, {"a": "b"}) == frozenset()
    assert scene.calls.asked == [("create_tags", {"Resources": MANY, "Tags": [{"Key": "a", "Value": "b"}]})]
    with pytest.raises(InvalidRequest):
        await scene.driver.tag([*MANY, VM], {"a": "b"})
    assert scene.calls.count("create_tags") == 1


async def test_instances_that_ec2_does_not_have_are_left_out() -> None:
    """EC2 tags all or none and names those that it lacks: the others are tagged by the second call."""
    scene = Scene({"create_tags": [without(MANY[1], MANY[7]), {}]})
    assert await scene.driver.tag(MANY[:9], {"a": "b"}) == {MANY[1], MANY[7]}
    assert [len(asked["Resources"]) for _, asked in scene.calls.asked] == [9, 7]


async def test_who_is_not_there_is_looked_for_a_bounded_number_of_times() -> None:
    """Where each answer names one more, or an answer names none of those that were asked for, it is an error."""
    one_by_one = Scene({"create_tags": [without(vm) for vm in MANY[:20]]})
    with pytest.raises(Transient):
        await one_by_one.driver.tag(MANY, {})
    assert one_by_one.calls.count("create_tags") == 10
    nameless = Scene({"create_tags": without()})
    with pytest.raises(Transient):
        await nameless.driver.tag(MANY, {})
    assert nameless.calls.count("create_tags") == 1
    assert await nameless.driver.tag([VM], {}) == {VM}


def test_launches_have_a_pace_of_their_own() -> None:
    """EC2 lets an account launch less often than it lets it ask; where that was raised the profile says so."""
    usual, raised = traits(settings()), traits(settings(launches_per_s=50, launch_burst=100))
    assert [(one.per_s, one.burst) for one in (usual.pace("launch"), raised.pace("launch"))] == [(2, 5), (50, 100)]
    assert (usual.pace("list").per_s, usual.pace("tag").per_s, usual.pace("terminate").per_s) == (20, 10, 5)


async def test_a_console_is_the_latest_there_is_and_its_end() -> None:
    """Older machines have no latest one; a long console is cut at a character."""
    scene = Scene({"get_console_output": {"Output": "x" * 70_000 + "\u00e9" * 10}})
    text = await scene.driver.console(VM)
    assert len(text.encode()) <= 65_536
    assert text.endswith("\u00e9" * 10)
    old = Scene({"get_console_output": [InvalidRequest("not latest", code="UnsupportedOperation"), {"Output": "boot"}]})
    assert await old.driver.console(VM) == "boot"
    assert [asked.get("Latest") for _, asked in old.calls.asked] == [True, None]
    assert await Scene({"get_console_output": {}}).driver.console(VM) == ""


@pytest.mark.parametrize(
    ("kind", "operation", "gone"),
    [
        (LeftoverKind.DISK, "delete_volume", "InvalidVolume.NotFound"),
        (LeftoverKind.NIC, "delete_network_interface", "InvalidNetworkInterfaceID.NotFound"),
        (LeftoverKind.ADDRESS, "release_address", "InvalidAllocationID.NotFound"),
    ],
)
async def test_what_is_gone_already_is_deleted_and_what_is_in_use_is_not(
    kind: LeftoverKind, operation: str, gone: str
) -> None:
    thing = Leftover("x-1", kind, ZONE, TAGS)
    await Scene({operation: InvalidRequest("gone", code=gone)}).driver.delete_leftover(thing)
    with pytest.raises(InvalidRequest):
        await Scene({operation: InvalidRequest("in use", code="VolumeInUse")}).driver.delete_leftover(thing)


async def test_only_addresses_that_nobody_has_are_left_over() -> None:
    tags = translate.tag_list(TAGS)
    scene = Scene(
        {
            "describe_volumes": {"Volumes": []},
            "describe_network_interfaces": {"NetworkInterfaces": []},
            "describe_addresses": {
                "Addresses": [
                    {"AllocationId": "a-1", "Tags": tags},
                    {"AllocationId": "a-2", "AssociationId": "x", "Tags": tags},
                ]
            },
        }
    )
    assert [one.id for one in await scene.driver.leftovers("contract")] == ["a-1"]


async def test_quotas_that_are_not_told_are_not_known() -> None:
    """Service Quotas is a right of its own: without it the use is told all the same."""
    scene = Scene(
        {
            "describe_instances": described(instance()),
            "list_service_quotas": CredentialsRejected("no"),
        }
    )
    told = {quota.scope.market: (quota.limit, quota.used) for quota in await scene.driver.quotas()}
    assert told == {"on-demand": (None, 2), "spot": (None, 0)}


async def test_without_a_certificate_there_are_no_proofs() -> None:
    """And a launch of the dispatcher makes one VM then."""
    scene = Scene({})
    assert (scene.driver.traits.identity, scene.driver.traits.most_slots) == (Identity.NONE, 1)
    with pytest.raises(NotProven):
        await scene.driver.identify(proof(document(VM)), Challenge(request().batch, 0))


async def test_the_account_is_asked_for_once_and_never_for_a_forgery() -> None:
    """A stranger can't make the driver call AWS; with `account` in the settings nothing is asked at all."""
    scene = Scene({"get_caller_identity": {"Account": ACCOUNT}}, identity_certificate=certificate())
    challenge = Challenge(request().batch, 0)
    assert scene.driver.traits.identity is Identity.NAMED
    for forged in ("", "MIIx", proof(document(VM), "somebody")):
        with pytest.raises(NotProven):
            await scene.driver.identify(forged, challenge)
    assert scene.calls.asked == []
    for _ in range(2):
        assert await scene.driver.identify(proof(document(VM)), challenge) == VM
    assert scene.calls.count("get_caller_identity") == 1
    told = Scene({}, identity_certificate=certificate(), account="210987654321")
    with pytest.raises(NotProven, match="account"):
        await told.driver.identify(proof(document(VM)), challenge)


async def test_an_answer_is_kept_and_an_old_one_stands_while_asking_fails() -> None:
    """For a passing reason it stands and is asked again in a minute; a refusal is told at once."""
    now, answers = [0], ["one", Transient("later"), "two", CredentialsRejected("no")]

    async def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    kept = Kept(ask, 1_000_000, lambda: now[0])
    assert [await kept.get(), await kept.get()] == ["one", "one"]
    now[0] = 1_000_000
    assert await kept.get() == "one"
    now[0] += 59_999
    assert await kept.get() == "one"
    now[0] += 1
    assert await kept.get() == "two"
    now[0] += 1_000_000
    with pytest.raises(CredentialsRejected):
        await kept.get()
