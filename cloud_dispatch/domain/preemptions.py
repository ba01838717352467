"""What was seen of spot VMs: how often they were preempted, in how much running time. Owns the count as a value."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import ProfileName


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Of the spot VMs of a type in a zone: how many were `preempted`, in thousandths, while all of them together ran
    for `ran_ms`. Of both, what is past counts for ever less."""

    profile: ProfileName
    type: str
    zone: str
    preempted: int
    ran_ms: int
