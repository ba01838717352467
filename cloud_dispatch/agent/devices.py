"""Which of a VM's GPUs an attempt is lent, and the words of its environment that say so. Pure.

A GPU is known by its index among those of the VM. What a program sees of them is decided by the libraries of their
maker, each of which reads a variable of its own.
"""

from __future__ import annotations

from itertools import islice
from typing import Dict, Set, Tuple  # noqa: UP035

#: What all of these libraries take for no device. Not "", which the next program may take for a variable that is unset.
_NONE = "-1"


def lend(wanted: int, there: int, held: Set[int]) -> Tuple[int, ...]:
    """The first `wanted` of the GPUs of a VM that has `there` and of which `held` are others'."""
    free = (index for index in range(there) if index not in held)
    return tuple(islice(free, wanted))


def visible(lent: Tuple[int, ...], amd: bool) -> Dict[str, str]:
    """What an attempt finds in its environment to which `lent` are lent, on a VM with GPUs, of AMD or of NVIDIA.

    HIP reads CUDA_VISIBLE_DEVICES as well, and counts in it what ROCR_VISIBLE_DEVICES has left: so with the GPUs of the
    one maker nothing is said for the other's. CUDA counts the fastest first, unless it is told to count as everybody
    else does.
    """
    named = ",".join(str(index) for index in lent)
    if amd:
        return {"ROCR_VISIBLE_DEVICES": named or _NONE}
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": named or _NONE,
        "NVIDIA_VISIBLE_DEVICES": named or "none",
    }
