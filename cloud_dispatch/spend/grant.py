"""How long a VM's own timer may run. Owns what a launch gives it and what the dispatcher's word adds. Pure.

A grant is a duration on the VM's boot clock, counted from when the VM sent its request: clock skew and delay only
shorten it. It never reaches beyond the hard end that the store has committed, and is worked out from that committed row
alone, so that the order of a renewal, commit before grant, can't be got wrong. What the VM says of its age is not
believed beyond its intent: whoever lies gains at most the time that the VM took to boot.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.spend.ends import Pace

_S = InstanceState
#: Such an instance shall end, or has: its timer runs out.
NO_GRANT = frozenset({_S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE})
#: A lease is granted in steps of this part of it.
STEPS_A_LEASE = 15


@dataclass(frozen=True, slots=True)
class Terms:
    """What the user data say of the words of a timer: word number n lets the VM live until n times `step_ms` after its
    birth, and there are `links` of them."""

    step_ms: int
    links: int


def timer_lease_ms(pace: Pace, silence_ms: int) -> int:
    """How long a VM may live after it asked. The timer is a net below the agent, which ends by itself when it has not
    heard the dispatcher for `silence_ms`: renewed at half, the timer never comes first."""
    return max(pace.lease_ms, 3 * silence_ms)


def first_ms(now_ms: int, ends_ms: int, boot_deadline_ms: int, lease_ms: int) -> int:
    """How long a VM that is launched now with the hard end `ends_ms` may live from its birth without a word."""
    return max(min(boot_deadline_ms + lease_ms, ends_ms - now_ms), 1)


def terms(lifetime_ms: int, lease_ms: int, most_links: int) -> Terms:
    """Words enough for VMs that may live for `lifetime_ms`."""
    step_ms = max(lease_ms // STEPS_A_LEASE, -(-lifetime_ms // most_links), 1)
    return Terms(step_ms, -(-lifetime_ms // step_ms))


def words(instance: Instance, terms: Terms, age_ms: int, now_ms: int, lease_ms: int) -> int:
    """How many words the VM may have heard now that it says it sent its request at `age_ms`: rounded down, 0 for none.
    `instance` is its row as it is committed."""
    if instance.state in NO_GRANT:
        return 0
    age_ms = max(min(age_ms, now_ms - instance.intended_ms), 0)
    left_ms = min(max(lease_ms, 3 * terms.step_ms), instance.ends_ms - now_ms)
    return max(min((age_ms + left_ms) // terms.step_ms, terms.links), 0)
