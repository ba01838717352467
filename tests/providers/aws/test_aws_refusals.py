"""A right that is lacking, and one that hangs on the tags of what is gone: EC2 has one answer for both, and a look
tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_dispatch.provider.errors import CredentialsRejected, Transient
from cloud_dispatch.provider.spi import Leftover, LeftoverKind
from tests.providers.aws.scenes import TAGS, ZONE
from tests.providers.aws.test_aws_driver import MANY, VM, Scene, described, instance

UNALLOWED = CredentialsRejected("not authorized", code="UnauthorizedOperation")


def shown(*there: str, ended: str = "") -> Any:
    """An answer that shows those of these that are asked for; `ended` as terminated."""

    def answer(**asked: Any) -> dict[str, Any]:
        ((wanted,),) = [[one["Values"] for one in asked["Filters"] if one["Name"] == "instance-id"]]
        assert len(wanted) <= 200  # EC2's limit
        ended_too = [instance(ended, "terminated", {})] if ended in wanted else []
        return described(*(instance(vm) for vm in there if vm in wanted), *ended_too)

    return answer


async def test_the_refused_end_of_a_vm_that_is_gone_has_succeeded() -> None:
    """EC2 lets nobody end what has no tag to match: not shown any more, or as terminated. One that is shown is refused,
    and so is any by credentials that are bad; where the look fails nothing is known."""
    for gone in (shown(), shown(ended=VM)):
        scene = Scene({"terminate_instances": UNALLOWED, "describe_instances": gone})
        await scene.driver.terminate(VM)
        assert scene.calls.count("describe_instances") == 1
    for there in (shown(VM), CredentialsRejected("no look", code="UnauthorizedOperation"), Transient("no look")):
        refused = Scene({"terminate_instances": UNALLOWED, "describe_instances": there})
        with pytest.raises((CredentialsRejected, Transient)):
            await refused.driver.terminate(VM)
    expired = Scene({"terminate_instances": CredentialsRejected("old", code="ExpiredToken")})
    with pytest.raises(CredentialsRejected):
        await expired.driver.terminate(VM)
    assert expired.calls.count("describe_instances") == 0


async def test_one_that_is_gone_has_no_console_whatever_is_allowed() -> None:
    gone = Scene({"get_console_output": UNALLOWED, "describe_instances": shown()})
    assert await gone.driver.console(VM) == ""
    there = Scene({"get_console_output": UNALLOWED, "describe_instances": shown(VM)})
    with pytest.raises(CredentialsRejected):
        await there.driver.console(VM)


async def test_refused_tags_are_set_on_those_that_are_there() -> None:
    """EC2 names nobody then, so that all are looked for: those that are gone keep no other from its tags."""
    scene = Scene({"create_tags": [UNALLOWED, {}], "describe_instances": shown(*MANY[2:], ended=MANY[1])})
    assert await scene.driver.tag(MANY, {"a": "b"}) == {MANY[0], MANY[1]}
    assert [len(asked["Resources"]) for name, asked in scene.calls.asked if name == "create_tags"] == [1_000, 998]
    assert scene.calls.count("describe_instances") == 5
    nobody = Scene({"create_tags": UNALLOWED, "describe_instances": shown()})
    assert await nobody.driver.tag(MANY[:2], {"a": "b"}) == {MANY[0], MANY[1]}
    assert nobody.calls.count("create_tags") == 1


async def test_a_right_to_tag_that_is_lacking_is_told() -> None:
    """Of those that are there it is no matter of who is gone."""
    scene = Scene({"create_tags": UNALLOWED, "describe_instances": shown(*MANY[1:3])})
    with pytest.raises(CredentialsRejected):
        await scene.driver.tag(MANY[:3], {"a": "b"})
    assert [len(asked["Resources"]) for name, asked in scene.calls.asked if name == "create_tags"] == [3, 2]


@pytest.mark.parametrize(
    ("kind", "operation", "look", "things"),
    [
        (LeftoverKind.DISK, "delete_volume", "describe_volumes", "Volumes"),
        (LeftoverKind.NIC, "delete_network_interface", "describe_network_interfaces", "NetworkInterfaces"),
        (LeftoverKind.ADDRESS, "release_address", "describe_addresses", "Addresses"),
    ],
)
async def test_what_is_refused_is_deleted_already_where_a_look_does_not_show_it(
    kind: LeftoverKind, operation: str, look: str, things: str
) -> None:
    """The right to delete it hangs on a tag that is gone with it."""
    thing = Leftover("x-1", kind, ZONE, TAGS)
    await Scene({operation: UNALLOWED, look: {things: []}}).driver.delete_leftover(thing)
    for there in ({things: [{}]}, Transient("no look")):
        with pytest.raises((CredentialsRejected, Transient)):
            await Scene({operation: UNALLOWED, look: there}).driver.delete_leftover(thing)
