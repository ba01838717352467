"""Which GPUs are lent to an attempt, and what its environment says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.agent.adapters import has_amd_gpus
from cloud_dispatch.agent.devices import lend, visible


@pytest.mark.parametrize(
    ("wanted", "held", "lent"),
    [
        (1, set(), (0,)),
        (2, {0, 2}, (1, 3)),
        (4, set(), (0, 1, 2, 3)),
        (0, set(), ()),
    ],
)
def test_the_first_that_are_free_are_lent(wanted: int, held: set[int], lent: tuple[int, ...]) -> None:
    assert lend(wanted, 4, held) == lent


def test_each_maker_s_libraries_are_told_in_their_words() -> None:
    """The variables of the one maker's GPUs are not set for the other's: HIP would count by both."""
    assert visible((1, 3), amd=True) == {"ROCR_VISIBLE_DEVICES": "1,3"}
    told = visible((1, 3), amd=False)
    assert (told["CUDA_VISIBLE_DEVICES"], told["NVIDIA_VISIBLE_DEVICES"]) == ("1,3", "1,3")
    assert told["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "both count alike"
    assert "ROCR_VISIBLE_DEVICES" not in told


def test_an_attempt_that_is_lent_none_is_told_so() -> None:
    """An unset or empty variable would be all of them to some."""
    told = visible((), amd=False)
    assert (told["CUDA_VISIBLE_DEVICES"], told["NVIDIA_VISIBLE_DEVICES"]) == ("-1", "none")
    assert visible((), amd=True) == {"ROCR_VISIBLE_DEVICES": "-1"}


def test_whose_gpus_they_are_is_known_by_the_driver(tmp_path: Path) -> None:
    assert not has_amd_gpus(str(tmp_path))
    (tmp_path / "kfd").touch()
    assert has_amd_gpus(str(tmp_path))
    (tmp_path / "nvidiactl").touch()
    assert not has_amd_gpus(str(tmp_path)), "the graphics of the host's processor may have a driver as well"
