"""What the fakes of Compute Engine and Azure see of what no dispatcher knows. EC2's are in `test_aws_watched`."""

from __future__ import annotations

import pytest

from tests.fakes.arm_asking import crowd
from tests.fakes.gce.asking import Asker
from tests.fakes.gce.settings import REGION
from tests.system.azure import WatchedArm
from tests.system.gcp import WatchedGce
from tests.system.watched import Inventory, compared

NOTHING = Inventory(frozenset(), {}, frozenset(), frozenset())
ONE = Inventory(frozenset({"a"}), {"a": "1"}, frozenset({"a"}), frozenset({"a"}))


def test_what_is_alike_is() -> None:
    assert compared(NOTHING, [], frozenset(), []) == []
    assert compared(ONE, ["a"], frozenset({"a"}), ["1"]) == []


def test_each_way_of_not_being_alike_has_its_words() -> None:
    """Leaked, doubled, off, missing, never made, running on, left behind."""
    off = Inventory(frozenset(), {"a": "1"}, frozenset({"a"}), frozenset({"a"}), ("disk d",))
    assert compared(ONE, ["a", "a"], frozenset({"a"}), []) == ["a is 2 instances"]
    assert compared(ONE, [], frozenset(), []) == ["a lives and is unknown", "a was launched and never known"]
    assert compared(off, ["a"], frozenset(), ["1"]) == ["a is off and unknown", "disk d belongs to no VM"]
    assert compared(NOTHING, ["b"], frozenset({"b"}), ["2"]) == [
        "b is known and does not live", "b is known and was never launched", "2 runs and is no instance",
    ]  # fmt: skip


@pytest.mark.parametrize("off", [False, True])
def test_a_vm_of_googles_that_nobody_knows_fails_the_test(off: bool) -> None:
    """One that has powered off bills as well, for its disk."""

    def plant() -> None:
        with WatchedGce(patience_s=2) as fake:
            Asker(fake).insert("stray")
            while fake.instance("stray").status != "RUNNING":
                fake.all_instances()
            if off:
                fake.guest_shutdown("stray")

    word = "is off and unknown" if off else "lives and is unknown"
    with pytest.raises(AssertionError, match=f"stray {word}, us-central1-a/stray was launched and never known"):
        plant()


def test_an_address_of_googles_that_belongs_to_no_vm_fails_the_test() -> None:
    def plant() -> None:
        with WatchedGce(patience_s=0) as fake:
            fake.hold_address("stray", REGION)

    with pytest.raises(AssertionError, match="address us-central1 stray belongs to no VM"):
        plant()


def test_a_vm_of_azures_that_nobody_knows_fails_the_test() -> None:
    def plant() -> None:
        with WatchedArm(patience_s=1) as fake:
            crowd(fake, 1)

    with pytest.raises(AssertionError, match="crowd0 lives and is unknown"):
        plant()
