"""Which part of a machine a task holds. Owns what of a machine is divided among its tasks; reports weigh by it, and
limits of projects and users charge by it."""

from __future__ import annotations

from cloud_dispatch.domain.resources import Resources


def divided(want: Resources, have: Resources) -> list[tuple[int, int]]:
    """What is asked for and what there is, of cpus, memory and GPUs: those that the machine has. The part is the mean
    of these parts, so that what fits together never holds more than the machine."""
    pairs = ((want.cpus_milli, have.cpus_milli), (want.memory, have.memory), (want.gpus, have.gpus))
    return [(asked, there) for asked, there in pairs if there > 0]
