"""Stored snapshots and plans: replaying gives the same plan, byte for byte."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import InstanceId, PoolName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.shape import Load
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.again import again, only_in
from cloud_dispatch.planner.plan import Drain, Plan, Shortfall, Terminate
from cloud_dispatch.planner.replay import (
    Record,
    decode_plan,
    decode_record,
    decode_snapshot,
    encode_plan,
    encode_snapshot,
)
from cloud_dispatch.planner.snapshot import Snapshot
from tests.planner.scenes import busy, demand, instance, offering, shape, snapshot
from tests.planner.test_properties import scenes

SETTINGS = settings(max_examples=80, deadline=None)
LACKING = Shortfall(PoolName("p"), 2, "x")
B1, B2 = InstanceId("b-1"), InstanceId("b-2")


@SETTINGS
@given(scene=scenes())
def test_a_stored_snapshot_gives_the_stored_plan_again(scene: Snapshot) -> None:
    """Decoded, both are what they were, and the one still leads to the other."""
    stored, decided = encode_snapshot(scene), plan(scene)
    assert decode_snapshot(stored) == scene
    assert plan(decode_snapshot(stored)) == decided
    assert decode_plan(encode_plan(decided)) == decided


def test_equal_snapshots_have_equal_bytes_whatever_was_asked_of_them() -> None:
    """A shape that was asked for its key is stored like one that was not."""
    first, second = (snapshot([demand(shape(max_per_instance=2), 1)]) for _ in range(2))
    plan(first)
    assert encode_snapshot(first) == encode_snapshot(second)


def test_what_is_kept_of_an_instance_is_what_it_is_stored_as() -> None:
    """The supply of a snapshot is stored the same the second time, alone and beside others."""
    first = snapshot(supply=[instance(n) for n in range(3)])
    again = snapshot(supply=[replace(supply) for supply in first.supply])
    stored = encode_snapshot(first)
    assert encode_snapshot(first) == stored == encode_snapshot(again) == msgspec.json.encode(first)
    assert decode_snapshot(stored) == first == again
    assert encode_snapshot(replace(first, supply=first.supply[1:])) == msgspec.json.encode(
        replace(first, supply=first.supply[1:])
    )


def test_what_was_stored_before_it_was_seen_how_long_work_takes_gives_the_plan_of_then() -> None:
    """What runs was done at once by that."""
    full = instance(state=InstanceState.BUSY, load=busy(shape(), 1), stays=busy(shape(), 1), free_ms=7)
    scene = snapshot([demand(shape(), 1, expected_ms=1_000)], supply=[full])
    stored = msgspec.json.decode(encode_snapshot(scene))
    del stored["supply"][0]["stays"], stored["supply"][0]["free_ms"]
    old = decode_snapshot(msgspec.json.encode(stored))
    assert old == replace(scene, supply=(replace(full, stays=Load(), free_ms=0),))
    assert not plan(old).actions
    assert plan(scene).actions


def test_an_offering_that_is_named_often_is_stored_once() -> None:
    """A thousand launches with ten alternatives each must not store eleven thousand offerings."""
    offerings = [offering(f"t{i}", price=100 + i) for i in range(11)]
    decided = plan(snapshot([demand(shape(), 1000)], offerings=offerings, max_batch=()))
    assert len(decided.actions) == 1000
    assert encode_plan(decided).count(b'"architecture"') == 11


@pytest.mark.parametrize(
    "stored", [b"", b"{", b"[]", b'{"actions":[{"launch":{"pool":"p","offering":3,"slots":1,"reason":"x"}}]}']
)
def test_what_is_not_a_stored_plan_is_refused(stored: bytes) -> None:
    """A clear error instead of half a plan."""
    with pytest.raises(InvalidInput, match="not a stored plan"):
        decode_plan(stored)
    with pytest.raises(InvalidInput, match="not a stored snapshot"):
        decode_snapshot(stored)


def recorded(seen: Snapshot, decided: Plan) -> Record:
    """As a statestore's record comes out of a file."""
    parts = Record(3, 5, msgspec.Raw(encode_snapshot(seen)), msgspec.Raw(encode_plan(decided)))
    return decode_record(msgspec.json.format(msgspec.json.encode(parts)))


@SETTINGS
@given(scene=scenes())
def test_a_record_that_was_written_to_a_file_is_planned_the_same(scene: Snapshot) -> None:
    """Spaces and line ends of the file change nothing."""
    told = again(recorded(scene, plan(scene)))
    assert told.same
    assert (told.snapshot, told.decided) == (scene, plan(scene))
    assert not only_in(told.decided, told.again)


def test_a_plan_that_would_not_come_out_again_is_told_from_one_that_would() -> None:
    """What is gone and what has come are named, each as often as it is; what both have is not."""
    scene = snapshot([demand(shape(), 5)])
    launches = plan(scene).actions
    other = replace(plan(scene), actions=(*launches, Drain(B1, "idle", "x"), Drain(B1, "idle", "x")))
    told = again(recorded(scene, other))
    assert not told.same
    assert only_in(told.decided, told.again).actions == (Drain(B1, "idle", "x"),) * 2
    assert not only_in(told.again, told.decided)
    less = again(recorded(scene, replace(plan(scene), actions=launches[1:], waiting=(), shortfalls=(LACKING,))))
    assert only_in(less.again, less.decided).actions == launches[:1]
    assert only_in(less.again, less.decided).answers == plan(scene).waiting
    assert only_in(less.decided, less.again).answers == (LACKING,)


def test_another_order_alone_is_another_plan_that_lacks_nothing() -> None:
    """Actions are taken in their order."""
    one, other = Drain(B1, "idle", "x"), Terminate(B2, "drained", "y")
    there, back = Plan((one, other)), Plan((other, one))
    assert there != back
    assert not only_in(there, back)
    assert not only_in(back, there)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"id":1,"at_ms":1,"snapshot":{}}', b"\xff"])
def test_what_is_not_a_record_is_refused(text: bytes) -> None:
    """And said so, with where such a file comes from."""
    with pytest.raises(InvalidInput, match="record of a plan") as refused:
        decode_record(text)
    assert "replay --json" in refused.value.hint


def test_a_record_whose_parts_are_not_what_they_should_be_is_refused() -> None:
    """They are read when it is planned again."""
    good = recorded(snapshot([demand(shape(), 1)]), Plan())
    for part in ("snapshot", "plan"):
        broken = msgspec.structs.replace(good, **{part: msgspec.Raw(b"[1]")})
        with pytest.raises(InvalidInput, match=f"stored {part}"):
            again(broken)
