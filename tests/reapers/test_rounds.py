"""What a reaper ends, and what it tells, whatever the cloud."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from cloud_dispatch.domain.ids import BatchId, PoolName, VmId
from cloud_dispatch.domain.reaper import Tagged
from cloud_dispatch.domain.sign import read
from cloud_dispatch.domain.tags import ENDS_AT, VmTags
from cloud_dispatch.reapers.rounds import Partial, Unfinished, end_all, look, look_at_all

NOW = 1_700_000_000_000


def tags(ends_ms: int, deployment: str = "lab") -> dict[str, str]:
    return VmTags(deployment, "store", PoolName("p"), BatchId("b"), 5, ends_ms).encode()


@dataclass
class Memory:
    """VMs in memory; one in `stuck` is not ended, one in `slow` is listed once more; `lacks`: a part that is not."""

    worn: dict[str, Mapping[str, str]]
    stuck: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    silent: bool = False
    lacks: str = ""

    def vms(self) -> Iterable[Tagged]:
        if self.silent:
            raise OSError("no route")
        yield from [(VmId(vm), worn) for vm, worn in self.worn.items()]
        if self.lacks:
            raise Partial(self.lacks)

    def end(self, vms: Sequence[VmId]) -> Mapping[VmId, str]:
        for vm in vms:
            if vm in self.slow:
                self.slow.discard(vm)
            elif vm not in self.stuck:
                del self.worn[vm]
        return {vm: "protected" for vm in vms if vm in self.stuck}


def fleet() -> Memory:
    damaged = {**tags(NOW - 1), ENDS_AT: "soon"}
    return Memory({"late": tags(NOW - 5), "due": tags(NOW), "early": tags(NOW + 1), "odd": damaged, "no": {}})


def test_what_is_past_its_end_is_ended_and_the_rest_is_left() -> None:
    """The core's rule: damaged tags end nothing, and are told."""
    cloud = fleet()
    found = look(cloud, NOW, "lab")
    assert (found.ended, found.late_ms, found.seen, found.unreadable) == (("late", "due"), 5, 5, ("odd",))
    assert set(cloud.worn) == {"early", "odd", "no"}
    assert look(cloud, NOW, "lab").ended == ()


def test_a_clouds_own_filter_is_not_trusted() -> None:
    """Whatever is listed: another deployment's VMs are not ended, not even where everything is."""
    cloud = Memory({"other": tags(NOW - 5, "other"), "own": tags(NOW + 5)})
    assert look(cloud, NOW, "lab").ended == ()
    assert look(cloud, NOW, "lab", everything=True).ended == ("own",)
    assert set(cloud.worn) == {"other"}
    with pytest.raises(ValueError, match="DEPLOYMENT"):
        look(cloud, NOW, "")


def test_what_can_not_be_ended_fails_the_round_after_all_else_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """A place that does not answer, a VM that stays: the others' VMs are ended first. Each place is a line of log."""
    stuck, silent, good = Memory({"stays": tags(NOW - 9)}, {"stays"}), Memory({}, silent=True), fleet()
    with pytest.raises(Unfinished) as failed:
        look_at_all({"a": silent, "b": stuck, "c": good}, lambda: NOW, "lab")
    assert set(good.worn) == {"early", "odd", "no"}
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["place"] for line in lines] == ["a", "b", "c"]
    assert lines[0]["problem"] == "OSError: no route"
    assert lines[1]["failed"] == {"stays": "protected"}
    assert "protected" in str(failed.value)
    (told,) = look_at_all({"c": good}, lambda: NOW, "lab")
    assert told["ended"] == []


def test_the_end_of_a_deployment_waits_until_nothing_of_it_is_listed() -> None:
    """Also what its tags don't say the end of; another deployment's stays."""
    cloud = fleet()
    cloud.worn["other"] = tags(NOW - 5, "other")
    cloud.slow = {"early"}
    slept: list[float] = []
    told = end_all({"a": cloud}, lambda: NOW, "lab", lambda: 100, slept.append)
    assert set(cloud.worn) == {"no", "other"}
    assert len(slept) == 2
    assert told[0]["seen"] == 2


def test_the_end_of_a_deployment_says_so_when_it_does_not_come() -> None:
    """Terraform must not take away the network of VMs that are still there."""
    left = [30.0, 20.0, 9.0]
    with pytest.raises(Unfinished, match="protected"):
        end_all({"a": Memory({"x": tags(NOW)}, {"x"})}, lambda: NOW, "lab", lambda: left.pop(0), lambda _: None)
    assert left == []


def test_what_could_be_seen_is_ended_where_a_listing_lacks_something() -> None:
    """And the round has failed: there may be more. An end of all does not come by such a listing."""
    cloud = fleet()
    cloud.lacks = "zone b"
    with pytest.raises(Unfinished, match="zone b"):
        look_at_all({"a": cloud}, lambda: NOW, "lab")
    assert set(cloud.worn) == {"early", "odd", "no"}
    with pytest.raises(Unfinished, match="zone b"):
        end_all({"a": cloud}, lambda: NOW, "lab", lambda: 0, lambda _: None)
    assert set(cloud.worn) == {"no"}


def test_a_round_that_went_well_leaves_a_sign_of_life() -> None:
    """Whose, from when, and of where: the dispatcher judges by these."""
    left: list[str] = []
    look_at_all({"b": fleet(), "a": fleet()}, lambda: NOW, "lab", leave=left.append)
    (text,) = left
    sign = read(text)
    assert sign is not None
    assert (sign.deployment, sign.begun_ms, sign.places) == ("lab", NOW, ("a", "b"))


@pytest.mark.parametrize("wrong", [{"stuck": {"late"}}, {"silent": True}, {"lacks": "zone b"}])
def test_a_round_that_failed_leaves_none(wrong: dict[str, Any]) -> None:
    """So that a reaper which is called and ends nothing is not taken for one that is alive."""
    left: list[str] = []
    cloud = fleet()
    for name, value in wrong.items():
        setattr(cloud, name, value)
    with pytest.raises(Unfinished):
        look_at_all({"good": fleet(), "bad": cloud}, lambda: NOW, "lab", leave=left.append)
    assert left == []


def test_a_sign_that_can_not_be_left_fails_the_round_after_all_is_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """Its log and its alarm say why; no VM waits for it."""

    def refuse(text: str) -> None:
        raise OSError("no right to write")

    cloud = fleet()
    with pytest.raises(Unfinished, match="no right to write"):
        look_at_all({"a": cloud}, lambda: NOW, "lab", leave=refuse)
    assert set(cloud.worn) == {"early", "odd", "no"}
    assert "no right to write" in capsys.readouterr().out
