"""Stored snapshots and plans: replaying gives the same plan, byte for byte."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.replay import decode_plan, decode_snapshot, encode_plan, encode_snapshot
from cloud_dispatch.planner.snapshot import Snapshot
from tests.planner.scenes import demand, instance, offering, shape, snapshot
from tests.planner.test_properties import scenes

SETTINGS = settings(max_examples=80, deadline=None)


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
