"""What keeps a plan from launching for tasks. Owns the words; texts with the particulars stand beside them."""

from __future__ import annotations

from enum import StrEnum


class Obstacle(StrEnum):
    """See the module."""

    STOPPED = "stopped"  # by the kill switch or the configuration
    CAP = "cap"
    BUDGET = "budget"
    BREAKER = "breaker"
    REFUSED = "refused"  # by the provider: capacity, quota, credentials
    QUOTA = "quota"  # what the provider admits is used up, by its own word
    BOOT = "boot"  # VMs of that kind did not come up
    CLOCK = "clock"  # the dispatcher's and the provider's are too far apart
    SILENT = "silent"  # the provider can't be listed, or has said nothing of its offerings yet
    PRICE = "price"  # what could be launched costs more than the price factor allows
    LITTLE_WORK = "little-work"  # not worth a boot: it follows on what exists
    NEXT_PLAN = "next-plan"  # a plan launches only so much
